//! The header of an array in a `.npy` file.
//!
//! Source: the NumPy format specification, versions 1.0 to 3.0: magic, version, length, a Python
//! dictionary of `descr`, `fortran_order` and `shape`, then the elements.

use infeed_core::sample::DType;

/// Maximum bytes of a header; NumPy writes 118 for a plain array.
pub const HEADER_BYTES: u64 = 64 << 10;

/// First bytes of a file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum number of axes, as in NumPy.
const AXES: usize = 64;

/// Type and shape of an array, and the offset of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// Element type.
    pub dtype: DType,
    /// Elements along each axis.
    pub shape: Vec<usize>,
    /// Bytes before the elements.
    pub length: usize,
}

impl NpyHeader {
    /// Bytes of the whole file; None if the number overflows.
    pub fn file_bytes(&self) -> Option<usize> {
        let elements = self
            .shape
            .iter()
            .try_fold(1_usize, |product, &axis| product.checked_mul(axis))?;
        let bytes = elements.checked_mul(self.dtype.bytes())?;
        bytes.checked_add(self.length)
    }
}

/// Whether bytes begin a `.npy` file.
pub(crate) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Parses the header at the beginning of a file.
///
/// # Errors
///
/// Reason why the file is not an array of plain little-endian numbers in C order.
pub fn header(file: &[u8]) -> Result<NpyHeader, String> {
    const CUT: &str = "the array ends within its header";
    let rest = file.strip_prefix(MAGIC).ok_or("it is not a .npy file")?;
    let (start, length) = match rest {
        [1, _, a, b, ..] => (10, u32::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d])),
        [] | [1..=3, ..] => return Err(CUT.to_owned()),
        _ => return Err("its version of .npy is unknown; save it again with np.save".to_owned()),
    };
    let end = start + length as usize;
    let text = file.get(start..end).ok_or(CUT)?;
    let text = std::str::from_utf8(text).map_err(|_| "the header of the array is not text")?;
    let descr = unquote(value(text, "descr")?)
        .ok_or("its elements are not plain numbers; save one array per column")?;
    let dtype = dtype(descr).ok_or_else(|| unknown_elements(descr))?;
    let shape = shape(value(text, "shape")?)?;
    // With at most one axis longer than 1, both orders are the same.
    let line = shape.iter().filter(|&&axis| axis > 1).count() <= 1;
    if value(text, "fortran_order")?.starts_with("True") && !line {
        return Err("it is in Fortran order; save it with np.ascontiguousarray".to_owned());
    }
    Ok(NpyHeader {
        dtype,
        shape,
        length: end,
    })
}

/// Text after a key of the dictionary.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("the header of the array has no `{key}`");
    let after = ['\'', '"'].iter().find_map(|quote| {
        let (_, after) = text.split_once(&format!("{quote}{key}{quote}"))?;
        after.trim_start().strip_prefix(':')
    });
    after.map(str::trim_start).ok_or_else(missing)
}

fn unquote(text: &str) -> Option<&str> {
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

/// Describes elements that cannot be read, with the fix.
fn unknown_elements(descr: &str) -> String {
    let (elements, fix) = match descr.get(1..2) {
        Some("O") => (
            "pickled Python objects, and reading these would run code from the data",
            "save one array of numbers per column",
        ),
        Some("U" | "S") => ("text", "save the numbers of the words"),
        Some("M" | "m") => ("dates or durations", "convert them with astype(\"int64\")"),
        Some("c") => (
            "complex numbers",
            "save real and imaginary parts as two arrays",
        ),
        _ if descr.starts_with('>') => {
            ("big-endian numbers", "convert them to a little-endian type")
        }
        _ => (
            "elements of an unknown type",
            "convert them to a number type",
        ),
    };
    format!("it holds {elements} (`{descr}`); {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, elements: usize) -> Vec<u8> {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.resize(file.len() + elements, 7);
        file
    }

    #[test]
    fn headers_of_all_versions_give_type_shape_and_offset() {
        let text = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let first = npy(text, 12);
        let mut second = b"\x93NUMPY\x02\x00".to_vec();
        second.extend((text.len() as u32).to_le_bytes());
        second.extend(text.as_bytes());

        for (file, start) in [(&first, 10), (&second, 12)] {
            let header = header(file).expect("a header");

            assert_eq!(
                (header.dtype, &header.shape[..]),
                (DType::Int16, &[2, 3][..])
            );
            assert_eq!(header.length, start + text.len());
            assert_eq!(header.file_bytes(), Some(start + text.len() + 12));
        }
    }

    #[test]
    fn invalid_headers_are_rejected_with_the_reason() {
        let text = |descr: &str, fortran: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}")
        };
        for (text, reason) in [
            (text("'|O'", "False", "(1,)"), "pickled Python objects"),
            (text("'<U3'", "False", "(1,)"), "text (`<U3`)"),
            (text("'<M8[s]'", "False", "(1,)"), "dates or durations"),
            (text("'<c8'", "False", "(1,)"), "complex numbers"),
            (text("'>i2'", "False", "(1,)"), "big-endian numbers"),
            (text("'|V8'", "False", "(1,)"), "an unknown type"),
            (text("[('a', '<i2')]", "False", "(1,)"), "plain"),
            (text("'<i2'", "True", "(2, 2)"), "Fortran"),
            (text("'<i2'", "False", "(-2, 2)"), "no shape"),
            (text("'<i2'", "False", "(2,"), "no shape"),
            (
                text("'<i2'", "False", "(99999999999999999999,)"),
                "no shape",
            ),
            (
                "{'descr': '<i2', 'fortran_order': False}".to_owned(),
                "no `shape`",
            ),
            ("{}".to_owned(), "no `descr`"),
        ] {
            let error = header(&npy(&text, 8)).expect_err(&text);
            assert!(error.contains(reason), "{text}: {error}");
        }
        let large = text("'<i8'", "False", "(4294967296, 4294967296)");
        let large = header(&npy(&large, 8)).expect("a header");
        assert_eq!(large.file_bytes(), None);
        let line = header(&npy(&text("'<i2'", "True", "(1, 4)"), 8));
        assert!(line.is_ok(), "a row is one in both orders");
    }

    #[test]
    fn a_cut_or_changed_header_never_panics() {
        let text = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let whole = npy(text, 0);
        for at in 0..whole.len() {
            assert!(header(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let _ = header(&flipped);
            }
        }
    }
}
