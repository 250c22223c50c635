//! What is read from buckets, kept on a disk.

use std::path::PathBuf;

use pyo3::prelude::*;

/// Keeps it in a folder, up to so many bytes; None goes by the environment.
#[pyfunction]
pub(crate) fn set_cache(folder: Option<PathBuf>, bytes: u64) {
    infeed::store::set_cache(folder.as_deref(), bytes);
}
