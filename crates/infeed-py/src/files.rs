//! Reads of files for Python code, by the rules of the engine.

use std::borrow::Cow;
use std::path::PathBuf;

use infeed::Error;
use infeed_raw::file;
use pyo3::prelude::*;

use crate::error::raise;

/// Reads a regular file. Raises OpenError for a named pipe and a device, instead of waiting for bytes.
#[pyfunction]
pub(crate) fn read_file(py: Python<'_>, path: PathBuf) -> PyResult<Cow<'static, [u8]>> {
    let read = || file::read(&path, u64::MAX).map_err(|error| Error::open(&path, error));
    raise(py, py.detach(read)).map(Cow::Owned)
}
