//! The header of an array in a `.npy` file.
//!
//! Source: the NumPy format specification, versions 1.0 to 3.0: magic, version, length, a Python
//! dictionary of `descr`, `fortran_order` and `shape`, then the elements.

use crate::sample::DType;

/// Most bytes of a header that need to be looked at; NumPy writes 118 for a plain array.
pub const HEADER_BYTES: u64 = 64 << 10;

/// What the elements of an array are, and where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Elements along each axis.
    pub shape: Vec<usize>,
    /// Bytes before the elements.
    pub length: usize,
}

/// The header that a file begins with.
///
/// # Errors
///
/// Why it is no array of plain little-endian numbers in C order.
pub fn header(file: &[u8]) -> Result<Header, &'static str> {
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
    fn headers_that_make_no_sense_are_refused() {
        let good = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(header(&npy(good, 24)).expect("a header").shape, [3]);
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
