//! Feeders in an extension without the cargo feature `feed`: creating one raises an error that names
//! the feature.

use std::convert::Infallible;

use infeed::Error;
use infeed_explain::Feeders;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::raise;

pub(crate) use NoFeeder as PyFeeder;
pub(crate) use NoHosts as PyHosts;

fn missing<T>(py: Python<'_>) -> PyResult<T> {
    let problem = "this build was compiled without the cargo feature `feed`; build infeed with its \
                   default features, or install the wheel, which has it";
    raise(py, Err(Error::config("feeders", problem)))
}

/// Addresses of a loader's feeders. None can be created.
#[pyclass(frozen, name = "Hosts", module = "infeed._core")]
pub(crate) struct NoHosts(Infallible);

#[pymethods]
impl NoHosts {
    #[new]
    fn new(py: Python<'_>, _count: usize) -> PyResult<NoHosts> {
        missing(py)
    }
}

/// A feeder. None can be created.
#[pyclass(frozen, name = "Feeder", module = "infeed._core")]
pub(crate) struct NoFeeder(Infallible);

#[pymethods]
impl NoFeeder {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(
        py: Python<'_>,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<NoFeeder> {
        missing(py)
    }
}

pub(crate) fn make_feeders(hosts: &NoHosts, _: bool, _: f64, _: Option<bool>) -> Feeders {
    match hosts.0 {}
}
