//! Measurements of the work that host and device can both do: what a placement, or a share of the
//! JPEGs for the device's decoder, costs.
//!
//! Trials measure the host's part. Bus and device are timed or planned. The arithmetic that chooses
//! is in [`crate::model`].

mod decoding;
mod placement;
pub(crate) mod trials;
