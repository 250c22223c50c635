//! Images and masks.
//!
//! `planner` decides how a field is decoded, transformed and written; `plan` is the result. For each
//! record, `header` reads the header and arranges the drawn steps, and `make` decodes, transforms and
//! writes the pixels.

mod classes;
pub(crate) mod device;
pub(crate) mod files;
pub(crate) mod header;
mod make;
pub(crate) mod modes;
pub(crate) mod plan;
pub(crate) mod planner;
pub mod prepared_record;
mod write;
