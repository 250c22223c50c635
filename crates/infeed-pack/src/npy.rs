//! The header of a `.npy` file.
//!
//! Source: the NumPy format specification, version 1.0: magic, version, length, a Python
//! dictionary of `descr`, `fortran_order` and `shape`, padded so that the elements begin at a
//! multiple of 64.

use infeed_core::sample::DType;

/// Returns the bytes before the elements of an array in C order. NumPy lacks bfloat16, so its bits
/// become an integer type.
pub(super) fn header(dtype: DType, shape: &[u64]) -> Vec<u8> {
    let descr = match dtype {
        DType::Bool => "|b1",
        DType::UInt8 => "|u1",
        DType::UInt16 | DType::BFloat16 => "<u2",
        DType::UInt32 => "<u4",
        DType::UInt64 => "<u8",
        DType::Int8 => "|i1",
        DType::Int16 => "<i2",
        DType::Int32 => "<i4",
        DType::Int64 => "<i8",
        DType::Float16 => "<f2",
        DType::Float32 => "<f4",
        DType::Float64 => "<f8",
    };
    let axes: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
    // A tuple of one element needs its comma, longer tuples do not need the last one.
    let axes = match shape.len() {
        1 => axes.trim_end(),
        _ => axes.trim_end_matches(", "),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes}), }}");
    let start = b"\x93NUMPY\x01\x00".len() + 2;
    let padded = (start + text.len() + 1).next_multiple_of(64) - start;
    while text.len() < padded - 1 {
        text.push(' ');
    }
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    // A shape of a few axes never reaches 64 KiB.
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_equals_that_of_numpy() {
        // numpy 2.4: np.lib.format.write_array_header_1_0 of uint8 (2, 4, 5, 3) and int64 (7,)
        let images = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 5, 3), }";
        let labels = "{'descr': '<i8', 'fortran_order': False, 'shape': (7,), }";

        for (header, text) in [
            (header(DType::UInt8, &[2, 4, 5, 3]), images),
            (header(DType::Int64, &[7]), labels),
        ] {
            let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
            expected.extend(text.as_bytes());
            expected.resize(127, b' ');
            expected.push(b'\n');
            assert_eq!(header, expected);
        }
    }
}
