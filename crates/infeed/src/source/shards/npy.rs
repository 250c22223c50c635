//! One array in the bytes of a `.npy` file.
//!
//! Source: the NumPy format specification, versions 1.0 to 3.0: magic, version, length, a Python
//! dictionary of `descr`, `fortran_order` and `shape`, then the elements.

use bytes::Bytes;

use crate::sample::DType;

/// Most axes of an array, as in NumPy.
const AXES: usize = 64;

/// An array in C order, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) elements: Bytes,
}

/// Whether bytes are those of a `.npy` file.
pub(super) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x93NUMPY")
}

/// Reads a file. The elements are a slice of it.
///
/// # Errors
///
/// What is no array of plain numbers in C order, or has more or fewer bytes than its shape.
pub(super) fn array(file: &Bytes) -> Result<Array, String> {
    const CUT: &str = "the array ends within its header";
    let rest = file
        .strip_prefix(b"\x93NUMPY")
        .ok_or("it is no .npy file")?;
    let (start, length) = match rest {
        [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        [1..=3, ..] => return Err(CUT.to_owned()),
        _ => return Err("its version of .npy is not known".to_owned()),
    };
    let end = start + length;
    let text = file.get(start..end).ok_or(CUT)?;
    let text = std::str::from_utf8(text).map_err(|_| "the header of the array is no text")?;
    let descr = quoted(value(text, "descr")?).ok_or("its elements are no plain numbers")?;
    let dtype = dtype(descr).ok_or_else(|| format!("elements `{descr}` are not known here"))?;
    let shape = shape(value(text, "shape")?)?;
    let elements: usize = shape
        .iter()
        .try_fold(1_usize, |product, &axis| product.checked_mul(axis))
        .ok_or("its shape is too large")?;
    let line = shape.iter().filter(|&&axis| axis > 1).count() <= 1;
    if value(text, "fortran_order")?.starts_with("True") && !line {
        return Err("it is in Fortran order; save it with np.ascontiguousarray".to_owned());
    }
    let bytes = elements
        .checked_mul(dtype.bytes())
        .ok_or("it is too large")?;
    if file.len() - end != bytes {
        let has = file.len() - end;
        return Err(format!(
            "its elements are {has} bytes, not the {bytes} of its shape"
        ));
    }
    Ok(Array {
        dtype,
        shape,
        elements: file.slice(end..),
    })
}

/// What follows a key of the dictionary.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("the header of the array has no `{key}`");
    let after = ['\'', '"'].iter().find_map(|quote| {
        let (_, after) = text.split_once(&format!("{quote}{key}{quote}"))?;
        after.trim_start().strip_prefix(':')
    });
    after.map(str::trim_start).ok_or_else(missing)
}

fn quoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c))?;
    text[1..].split(quote).next()
}

fn dtype(descr: &str) -> Option<DType> {
    Some(match descr {
        "|b1" => DType::Bool,
        "|u1" => DType::UInt8,
        "|i1" => DType::Int8,
        "<u2" => DType::UInt16,
        "<u4" => DType::UInt32,
        "<u8" => DType::UInt64,
        "<i2" => DType::Int16,
        "<i4" => DType::Int32,
        "<i8" => DType::Int64,
        "<f2" => DType::Float16,
        "<f4" => DType::Float32,
        "<f8" => DType::Float64,
        _ => return None,
    })
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || "the header of the array has no shape".to_owned();
    let inner = text.strip_prefix('(').and_then(|text| text.split_once(')'));
    let (inner, _) = inner.ok_or_else(wrong)?;
    let axes = inner
        .split(',')
        .map(str::trim)
        .filter(|axis| !axis.is_empty());
    let shape: Option<Vec<usize>> = axes.take(AXES + 1).map(|axis| axis.parse().ok()).collect();
    shape.filter(|shape| shape.len() <= AXES).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, elements: &[u8]) -> Bytes {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(elements);
        file.into()
    }

    #[test]
    fn an_array_is_read_with_its_type_and_shape() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let whole = file(header, &[7; 12]);

        let read = array(&whole).expect("an array");

        assert_eq!((read.dtype, &read.shape[..]), (DType::Int16, &[2, 3][..]));
        assert_eq!(read.elements, [7; 12][..]);
    }

    #[test]
    fn what_is_no_plain_array_is_refused_with_the_reason() {
        for (header, bytes, reason) in [
            (
                "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
                8,
                "not known",
            ),
            (
                "{'descr': '>i2', 'fortran_order': False, 'shape': (1,)}",
                2,
                "not known",
            ),
            (
                "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}",
                2,
                "plain",
            ),
            (
                "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2)}",
                8,
                "Fortran",
            ),
            (
                "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2)}",
                7,
                "7 bytes",
            ),
            (
                "{'descr': '<i2', 'fortran_order': False, 'shape': (-2, 2)}",
                8,
                "no shape",
            ),
            ("{'descr': '<i2', 'fortran_order': False}", 8, "no `shape`"),
            (
                "{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
                8,
                "too large",
            ),
        ] {
            let error = array(&file(header, &vec![0; bytes])).expect_err(header);
            assert!(error.contains(reason), "{header}: {error}");
        }
    }

    #[test]
    fn a_cut_or_changed_file_never_panics() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let whole = file(header, &[7; 12]);
        for at in 0..whole.len() {
            let _ = array(&whole.slice(..at)).map(|_| panic!("cut at {at}"));
            for bit in 0..8 {
                let mut flipped = whole.to_vec();
                flipped[at] ^= 1 << bit;
                let _ = array(&flipped.into());
            }
        }
    }
}
