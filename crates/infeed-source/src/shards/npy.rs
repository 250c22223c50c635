//! Parses an array in the bytes of a `.npy` file.

use bytes::Bytes;

use crate::npy;
use infeed_core::sample::DType;

/// An array in C order, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyArray {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Bytes,
}

/// Whether bytes begin a `.npy` file.
pub(crate) fn is(bytes: &[u8]) -> bool {
    npy::is(bytes)
}

/// Parses a file. The elements are a slice of it.
///
/// # Errors
///
/// The reason why it is not an array of plain numbers in C order, or has more or fewer bytes than
/// its shape.
pub(crate) fn array(file: &Bytes) -> Result<NpyArray, String> {
    let header = npy::header(file)?;
    let expected = header.file_bytes().ok_or("its shape is too large")?;
    if file.len() != expected {
        let bytes = expected - header.length;
        let has = file.len() - header.length;
        return Err(format!(
            "its elements are {has} bytes, not the {bytes} of its shape"
        ));
    }
    Ok(NpyArray {
        dtype: header.dtype,
        shape: header.shape,
        elements: file.slice(header.length..),
    })
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
    fn elements_that_do_not_fit_the_shape_are_rejected() {
        for (shape, bytes, reason) in [
            ("(2, 2)", 7, "7 bytes, not the 8"),
            ("(2, 2)", 9, "9 bytes, not the 8"),
            ("(4294967296, 4294967296)", 8, "too large"),
        ] {
            let header = format!("{{'descr': '<i2', 'fortran_order': False, 'shape': {shape}}}");
            let error = array(&file(&header, &vec![0; bytes])).expect_err(shape);
            assert!(error.contains(reason), "{shape}: {error}");
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
