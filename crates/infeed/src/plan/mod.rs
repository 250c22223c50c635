//! Planning: checks a description against the source's fields, infers shapes and arranges the work.
//!
//! Planning finds all errors in a description before the first record is read, and names the transform
//! to add. Its result, [`SamplePlan`], is plain data.

mod added_columns;
mod checks;
pub mod coordinates;
mod describe;
pub mod device;
pub(crate) mod draws;
pub(crate) mod function;
pub(crate) mod function_values;
pub(crate) mod headers;
pub mod image_mixup;
pub mod join;
pub(crate) mod kept_content;
pub(crate) mod mirrored_paste;
pub(crate) mod mix;
pub(crate) mod mosaic;
mod orientation;
mod record_sizes;
mod sample_plan;
pub(crate) mod warnings;

pub use crate::fields::pixels::modes::color_mode;
pub use added_columns::VALID;
pub(crate) use added_columns::measure;
pub use sample_plan::SamplePlan;
pub(crate) use sample_plan::check;
