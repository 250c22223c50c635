//! How a field of a record becomes a column.

use super::labels::SoftLabel;
use super::pixels::plan::PixelPlan;

/// Processing of one field.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per field, not per record"
)]
pub(crate) enum FieldPlan {
    Pixels(PixelPlan),
    /// Numbers of fixed shape, copied.
    Copy,
    /// Boxes, a field with one row per box, or points.
    Boxed,
    /// A class number, written as a soft label.
    Soft(SoftLabel),
    /// Stored per row.
    Own,
}

impl FieldPlan {
    /// Returns the plan of an image or mask.
    pub(crate) fn pixels(&self) -> Option<&PixelPlan> {
        match self {
            FieldPlan::Pixels(plan) => Some(plan),
            _ => None,
        }
    }
}
