//! Planning: checks a description against the source's fields, infers shapes and arranges the work.
//!
//! Planning finds all errors in a description before the first record is read, and names the transform
//! to add. Its result, [`SamplePlan`], is plain data.

mod added;
mod checks;
pub mod coordinates;
mod describe;
pub mod device;
pub(crate) mod draws;
pub(crate) mod function;
pub(crate) mod function_values;
pub(crate) mod headers;
pub mod join;
pub(crate) mod mix;
pub(crate) mod prepared;
mod sample_plan;
mod turned;
pub(crate) mod warnings;

pub use crate::fields::pixels::modes::color_mode;
pub use added::VALID;
pub(crate) use added::measure;
pub use sample_plan::SamplePlan;
pub(crate) use sample_plan::check;
