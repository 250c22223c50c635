//! The label of a record.

use infeed_core::sample::{DType, Field, FieldKind};

/// Returns the index and type of the field that holds the label of a record: an integer scalar with
/// the name `label`.
pub(crate) fn label_field(fields: &[Field]) -> Option<(usize, DType)> {
    let mut fields = fields.iter().enumerate();
    fields.find_map(|(at, field)| match &field.kind {
        FieldKind::Tensor { dtype, shape }
            if field.name == "label" && shape.is_empty() && dtype.is_integer() =>
        {
            Some((at, *dtype))
        }
        _ => None,
    })
}

/// Returns the label in the bytes of its field. None if it exceeds int64.
pub(crate) fn label_value(dtype: DType, bytes: &[u8]) -> Option<i64> {
    dtype.integer(bytes.get(..dtype.bytes())?)
}
