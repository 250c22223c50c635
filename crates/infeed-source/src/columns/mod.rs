//! Columns of tables and arrays of archives as fields of records.
//!
//! This module determines the field for an array of numbers. The module `table` does the same for
//! columns of Arrow tables, and reads their rows; the cargo feature `tables` includes it.

pub(crate) mod open;
#[cfg(feature = "tables")]
pub(crate) mod table;

use bytes::Bytes;

use infeed_core::sample::{DType, FieldKind, Pixels};

/// Kind of field that a column should become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldChoice {
    /// Encoded images, or pixels.
    Image,
    /// Encoded masks, or class labels by pixel.
    Mask,
    /// Numbers of one shape.
    Tensor,
    /// Bytes of any length.
    Bytes,
    /// UTF-8 of any length.
    Text,
    /// Lists of numbers, each with its length.
    Ragged,
}

/// A column that the user requested, with optional kind, type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRequest {
    /// Name of the field.
    pub name: String,
    /// Name of the column, or of an array in an `.npz`.
    pub column: String,
    /// Kind of the field. None: derived from the column's type and first value.
    pub kind: Option<FieldChoice>,
    /// Element type. None: that of the column.
    pub dtype: Option<DType>,
    /// Shape of one record. Empty: that of the column.
    pub shape: Vec<usize>,
}

/// Returns the field for an array whose records have this type and shape. If integers are widened
/// to int64, also returns their original type.
///
/// # Errors
///
/// The reason why the array cannot become the requested field.
pub fn array_field(
    dtype: DType,
    dims: Vec<usize>,
    wanted: &ColumnRequest,
) -> Result<(FieldKind, Option<DType>), String> {
    number_field(dtype, dims, false, wanted)
}

/// Like [`array_field`], for numbers that are known to be class numbers if `has_classes`.
fn number_field(
    dtype: DType,
    dims: Vec<usize>,
    has_classes: bool,
    wanted: &ColumnRequest,
) -> Result<(FieldKind, Option<DType>), String> {
    let length = product(&dims)?;
    let whole = !matches!(
        dtype,
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 | DType::UInt64
    );
    let is_label = dims.is_empty() && (has_classes || wanted.name == "label");
    let wide = match wanted.dtype {
        Some(requested) => requested == DType::Int64,
        None => is_label && wanted.kind.is_none_or(|kind| kind == FieldChoice::Tensor),
    };
    if wide && whole && dtype != DType::Int64 && dims.is_empty() {
        return Ok((scalar(DType::Int64), Some(dtype)));
    }
    if let Some(requested) = wanted.dtype.filter(|&requested| requested != dtype) {
        let problem = "only integer scalars can be converted, and only to int64";
        return Err(format!(
            "it holds {}, not {}; {problem}",
            dtype.name(),
            requested.name()
        ));
    }
    let shape = match wanted.shape.is_empty() {
        true => dims,
        false if product(&wanted.shape)? == length => wanted.shape.clone(),
        false => return Err(format!("it has shape {dims:?}, not {:?}", wanted.shape)),
    };
    let kind = match wanted.kind {
        Some(FieldChoice::Image) => FieldKind::Image(Pixels::raw(dtype, &shape)?),
        Some(FieldChoice::Mask) => FieldKind::Mask(Pixels::raw(dtype, &shape)?),
        None => guess(&wanted.name, dtype, shape),
        Some(FieldChoice::Tensor) => FieldKind::Tensor { dtype, shape },
        Some(FieldChoice::Bytes | FieldChoice::Text | FieldChoice::Ragged) => {
            return Err("it holds numbers of one shape; its kind is tensor".to_owned());
        }
    };
    Ok((kind, None))
}

/// Converts a little-endian integer to int64.
pub fn widen(from: DType, bytes: &[u8]) -> Option<Bytes> {
    let wide = integer(from, bytes)?;
    Some(Bytes::copy_from_slice(&wide.to_le_bytes()))
}

/// Reads a little-endian integer, or a truth value as 0 or 1.
pub(crate) fn integer(dtype: DType, bytes: &[u8]) -> Option<i64> {
    let dtype = match dtype {
        DType::Bool => DType::UInt8,
        dtype => dtype,
    };
    (bytes.len() == dtype.bytes()).then(|| dtype.integer(bytes))?
}

fn scalar(dtype: DType) -> FieldKind {
    FieldKind::Tensor {
        dtype,
        shape: Vec::new(),
    }
}

/// Number of elements of a shape, if their bytes can be counted.
fn product(shape: &[usize]) -> Result<usize, String> {
    let product = shape
        .iter()
        .try_fold(8_usize, |n, &axis| n.checked_mul(axis));
    let product = product.ok_or_else(|| format!("shape {shape:?} has too many elements"))?;
    Ok(product / 8)
}

/// Kind of an array without a request.
fn guess(name: &str, dtype: DType, shape: Vec<usize>) -> FieldKind {
    let mask = names_masks(name);
    let pixels = match (dtype, &shape[..]) {
        (DType::UInt8, [_, _, 1 | 3 | 4]) => true,
        (DType::UInt8 | DType::UInt16, [_, _]) => mask,
        (DType::UInt16, [_, _, 1]) => mask,
        _ => false,
    };
    match Pixels::raw(dtype, &shape) {
        Ok(raw) if pixels && mask => FieldKind::Mask(raw),
        Ok(raw) if pixels => FieldKind::Image(raw),
        _ => FieldKind::Tensor { dtype, shape },
    }
}

/// Whether the name of a column suggests that its images are class labels per pixel.
pub fn names_masks(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["mask", "annotation", "segmentation"]
        .iter()
        .any(|word| name.contains(word))
}

/// Whether the name of a column, feature or file suggests that its encoded images are masks: as
/// [`names_masks`], or a word of the name is `label`, `labels` or `seg`. All formats use this rule.
pub(crate) fn names_encoded_masks(name: &str) -> bool {
    let is_word = |word: &str| {
        ["label", "labels", "seg"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word))
    };
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    names_masks(name) || words.any(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_images_are_masks_by_the_words_of_their_name() {
        for (name, expected) in [
            ("mask", true),
            ("road_mask", true),
            ("image/segmentation/class/encoded", true),
            ("Annotation", true),
            ("label", true),
            ("gt.labels", true),
            ("seg", true),
            ("image", false),
            ("labelled_image", false),
            ("segment", false),
        ] {
            assert_eq!(names_encoded_masks(name), expected, "{name}");
        }
    }
}
