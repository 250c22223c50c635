//! `.npy` files as fields of a source in memory; the engine maps them.
//!
//! Source: the NumPy format specification, versions 1.0 to 3.0: magic, version, length, a Python
//! dictionary of `descr`, `fortran_order` and `shape`, then the elements.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use infeed::pipeline::MemoryField;
use infeed::sample::DType;

use crate::error::CliError;

/// Most bytes of a header that are looked at; NumPy writes 118 for a plain array.
const HEADER_BYTES: u64 = 64 << 10;

/// Describes a file as a field.
///
/// Bytes of `[N, H, W]` or `[N, H, W, 1 to 4]` are images, or masks if the name says so; all
/// else is a tensor. The field is called after the file.
///
/// # Errors
///
/// A file that cannot be read or is no array of plain numbers in C order.
pub(crate) fn field(path: &Path) -> Result<MemoryField, CliError> {
    let wrong = |problem: &str| CliError::Failed(format!("{}: {problem}", path.display()));
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEADER_BYTES).read_to_end(&mut start))
        .map_err(|error| wrong(&error.to_string()))?;
    let Header {
        dtype,
        shape,
        length,
    } = header(&start).map_err(wrong)?;
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
        path: Some(path.to_owned()),
        offset: length as u64,
        records: Some(records as u64),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Header {
    dtype: DType,
    shape: Vec<usize>,
    /// Bytes before the elements.
    length: usize,
}

fn header(file: &[u8]) -> Result<Header, &'static str> {
    const TRUNCATED: &str = "it ends within its header";
    let rest = file
        .strip_prefix(b"\x93NUMPY")
        .ok_or("it is no .npy file")?;
    let (start, length) = match rest {
        [1, _, a, b, ..] => (10, u32::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d])),
        [_, _, ..] => return Err("it has an unknown version"),
        _ => return Err(TRUNCATED),
    };
    let end = start + length as usize;
    let text = file.get(start..end).ok_or(TRUNCATED)?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is no text")?;

    let value = |key: &str| {
        let (_, rest) = text
            .split_once(&format!("'{key}':"))
            .ok_or("its header lacks a key")?;
        Ok::<&str, &'static str>(rest.trim_start())
    };
    if value("fortran_order")?.starts_with("True") {
        return Err("it is in Fortran order; save np.ascontiguousarray of it");
    }
    let descr = value("descr")?.trim_start_matches('\'');
    let descr = descr.split('\'').next().unwrap_or_default();
    let shape = value("shape")?
        .strip_prefix('(')
        .and_then(|s| s.split_once(')'));
    let (shape, _) = shape.ok_or("its header has no shape")?;
    let axis = |axis: &str| {
        axis.trim()
            .parse()
            .map_err(|_| "its shape is no list of numbers")
    };
    let shape = shape
        .split(',')
        .filter(|axis| !axis.trim().is_empty())
        .map(axis);
    Ok(Header {
        dtype: dtype(descr)?,
        shape: shape.collect::<Result<_, _>>()?,
        length: end,
    })
}

fn dtype(descr: &str) -> Result<DType, &'static str> {
    Ok(match descr {
        "|b1" => DType::Bool,
        "|u1" => DType::UInt8,
        "<u2" => DType::UInt16,
        "<u4" => DType::UInt32,
        "<u8" => DType::UInt64,
        "|i1" => DType::Int8,
        "<i2" => DType::Int16,
        "<i4" => DType::Int32,
        "<i8" => DType::Int64,
        "<f2" => DType::Float16,
        "<f4" => DType::Float32,
        "<f8" => DType::Float64,
        _ => return Err("its elements are no little-endian numbers"),
    })
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

    #[test]
    fn headers_that_make_no_sense_are_refused() {
        let good = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(header(&npy(good, 24)).unwrap().shape, [3]);
        for bad in [
            "{'descr': '<i8', 'fortran_order': True, 'shape': (3,), }",
            "{'descr': '>i8', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<i8', 'fortran_order': False, 'shape': (3,",
            "{'descr': '<i8', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{}",
        ] {
            assert!(header(&npy(bad, 24)).is_err(), "{bad}");
        }
        let whole = npy(good, 0);
        for length in 0..whole.len() {
            assert!(header(&whole[..length]).is_err(), "{length} bytes");
        }
    }
}
