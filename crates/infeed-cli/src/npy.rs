//! `.npy` files as fields of an in-memory source. The engine maps the files.

use std::io::Read as _;
use std::path::Path;

use infeed::pipeline::MemoryField;
use infeed_core::sample::DType;
use infeed_source::npy::{HEADER_BYTES, NpyHeader, header};

use crate::error::CliError;
use infeed_raw::file;

/// Describes a file as a field.
///
/// uint8 arrays of shape `[N, H, W]` or `[N, H, W, 1 to 4]` are images, or masks if the file name
/// says so. All others are tensors. The field has the name of the file.
///
/// # Errors
///
/// If the file cannot be read, or has no array of plain numbers in C order.
pub(crate) fn field(path: &Path) -> Result<MemoryField, CliError> {
    let wrong = |problem: &str| CliError::Failed(format!("{}: {problem}", path.display()));
    let mut start = Vec::new();
    file::open(path)
        .and_then(|(file, _)| file.take(HEADER_BYTES).read_to_end(&mut start))
        .map_err(|error| wrong(&error.to_string()))?;
    let NpyHeader {
        dtype,
        shape,
        length,
    } = header(&start).map_err(|problem| wrong(&problem))?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let (&records, shape) = shape.split_first().ok_or_else(|| wrong("it has no axis"))?;
    let pixels =
        matches!(dtype, DType::UInt8 | DType::UInt16) && matches!(shape, [_, _] | [_, _, 1..=4]);
    let is_mask = ["mask", "label", "target", "seg"]
        .iter()
        .any(|word| name.contains(word));
    let kind = match pixels {
        true if is_mask => "mask",
        true => "image",
        false => "tensor",
    };
    Ok(MemoryField {
        name,
        kind: kind.to_owned(),
        dtype: Some(dtype),
        shape: shape.to_vec(),
        handle: None,
        offsets: None,
        files: false,
        path: Some(path.to_owned()),
        offset: length as u64,
        records: Some(records as u64),
    })
}

/// Number of arrays of one shape that are samples rather than fields.
const ALIKE: usize = 3;

/// Checks that files are the fields of one dataset, and not samples with an array each.
///
/// Samples are files whose names differ only in digits, or at least [`ALIKE`] volumes of one type
/// and shape.
///
/// # Errors
///
/// If the files are samples. The message has the code that reads them.
pub(crate) fn check_fields(fields: &[MemoryField]) -> Result<(), CliError> {
    let [first, second, ..] = fields else {
        return Ok(());
    };
    let pattern = |field: &MemoryField| field.name.replace(|c: char| c.is_ascii_digit(), "");
    let is_alike = |field: &MemoryField| {
        let of = |field: &MemoryField| (field.dtype, field.records, field.shape.clone());
        of(field) == of(first)
    };
    let are_numbered = fields.iter().all(|field| pattern(field) == pattern(first));
    let are_volumes =
        fields.len() >= ALIKE && first.shape.len() >= 2 && fields.iter().all(is_alike);
    if !are_numbered && !are_volumes {
        return Ok(());
    }
    let path = |field: &MemoryField| {
        let path = field.path.as_deref().unwrap_or(Path::new(&field.name));
        path.display().to_string()
    };
    Err(CliError::Failed(format!(
        "{} and {}: names and shapes do not show whether the .npy files of this folder are samples with \
         one array each, or fields of one dataset; read samples with sources.Items(dataset) in Python, \
         whose __getitem__ returns np.load(path), and fields with \
         sources.Memory(name=np.load(path, mmap_mode=\"r\"), ...)",
        path(first),
        path(second),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(dict: &str, data: usize) -> Vec<u8> {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((dict.len() as u16).to_le_bytes());
        file.extend(dict.as_bytes());
        file.resize(file.len() + data, 7);
        file
    }

    #[test]
    fn an_array_of_bytes_with_three_channels_is_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("photos.npy");
        let dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 5, 3), }";
        std::fs::write(&path, npy(dict, 120)).unwrap();

        let field = field(&path).unwrap();

        assert_eq!(
            (field.name.as_str(), field.kind.as_str()),
            ("photos", "image")
        );
        assert_eq!((field.shape, field.records), (vec![4, 5, 3], Some(2)));
        assert_eq!(field.offset as usize, 10 + dict.len());
    }

    /// Checks files with these names and shapes.
    fn check_files(files: &[(&str, &str)]) -> Result<(), CliError> {
        let dir = tempfile::tempdir().unwrap();
        let field = |(name, shape): &(&str, &str)| {
            let path = dir.path().join(format!("{name}.npy"));
            let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            std::fs::write(&path, npy(&dict, 9)).unwrap();
            field(&path).unwrap()
        };
        check_fields(&files.iter().map(field).collect::<Vec<_>>())
    }

    #[test]
    fn volumes_in_a_folder_are_not_taken_for_fields() {
        for samples in [
            &[("0", "(6, 7, 8)"), ("1", "(6, 7, 8)")][..],
            &[("case_01", "(6, 7, 8)"), ("case_02", "(9, 7, 8)")],
            &[
                ("ann", "(6, 7, 8)"),
                ("bob", "(6, 7, 8)"),
                ("eve", "(6, 7, 8)"),
            ],
        ] {
            let error = check_files(samples).unwrap_err().to_string();
            assert!(error.contains("sources.Items(dataset)"), "{error}");
            assert!(error.contains(&format!("{}.npy", samples[0].0)), "{error}");
        }
        for fields in [
            &[("image", "(6, 7, 8)")][..],
            &[("image", "(6, 7, 8)"), ("label", "(6,)")],
            &[("left", "(6, 7, 8)"), ("right", "(6, 7, 8)")],
            &[("x", "(6, 9)"), ("y", "(6, 9)"), ("z", "(6, 9)")],
        ] {
            check_files(fields).unwrap();
        }
    }
}
