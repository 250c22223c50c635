//! Boxes, with the fields that have one row per box.

mod check;
mod kept_boxes;
mod make;
mod plan;

pub use check::{BoxCheck, BoxCount};
pub(crate) use kept_boxes::{BoxPosition, KeptBoxes};
pub(crate) use plan::{BoxesPlan, plans};
