//! The disk cache of data from buckets.

use std::path::PathBuf;

use pyo3::prelude::*;

/// Sets the folder of the cache and its limit in bytes; None uses the environment variables.
#[pyfunction]
pub(crate) fn set_cache(folder: Option<PathBuf>, bytes: u64) {
    infeed_source::store::set_cache(folder.as_deref(), bytes);
}
