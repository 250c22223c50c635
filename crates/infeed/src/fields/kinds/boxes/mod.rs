//! Boxes, with the fields that have one row per box.

mod kept;
mod make;
mod plan;

pub(crate) use kept::KeptBoxes;
pub(crate) use plan::{BoxesPlan, plans};
