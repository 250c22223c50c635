//! The shape of raw pixels, which the first good record determines for all records.

use super::make::{Maker, PackScratch};
use super::product::{Product, Shape};
use super::selection::RecordSelection;
use super::targets::Target;
use infeed_core::error::Error;
use infeed_core::sample::RecordId;
use infeed_source::read_one;

/// Returns the first good record and its output, which determines the shapes.
///
/// # Errors
///
/// The error of the first bad record, if `max_bad` is 0 or if all records are bad.
pub(super) fn first_good(
    maker: &Maker<'_>,
    chosen: &RecordSelection,
    max_bad: Option<u64>,
) -> Result<(u64, Vec<Product>), Error> {
    let mut scratch = PackScratch::default();
    let mut first = None;
    for record in chosen.iter() {
        let products = read_one(maker.source, record);
        match products.and_then(|found| maker.make(&found, &mut scratch)) {
            Ok(products) => return Ok((record, products)),
            Err(error) if error.is_bad_record() && max_bad != Some(0) => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first.unwrap_or_else(none_left))
}

/// Returns the error of a dataset without good records.
pub(super) fn none_left() -> Error {
    Error::config("source", "there are no records to pack")
}

/// Returns the error of two records whose pixels differ in shape.
pub(super) fn differs(
    to: Target,
    field: &str,
    (one, first): (Option<Shape>, RecordId),
    (other, record): (Option<Shape>, RecordId),
) -> Error {
    let problem = format!(
        "an array needs one shape, but `{field}` has {} in {first} and {} in {record}; give all \
         one size with --crop or --center-crop, after --short-side if some are too small",
        words(one),
        words(other),
    );
    Error::config(to.name(), problem)
}

/// Formats a shape of pixels for a message.
fn words(shape: Option<Shape>) -> String {
    match shape {
        Some(shape) => format!(
            "{} px with {} x {} bits",
            shape.size,
            shape.channels,
            shape.depth.bytes() * 8
        ),
        None => "other numbers".to_owned(),
    }
}
