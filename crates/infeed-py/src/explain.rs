//! The explanation of a running loader, and its output formats. The verdict of a watched loop.

use infeed_explain::report;
use infeed_explain::{Explanation as Inner, Verdict as InnerVerdict, WatchedLoop, loop_verdict};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The limit of a run, with its evidence.
#[pyclass(frozen, name = "Explanation", module = "infeed._core")]
pub(crate) struct PyExplanation {
    inner: Inner,
}

impl PyExplanation {
    pub(crate) fn new(inner: Inner) -> PyExplanation {
        PyExplanation { inner }
    }
}

#[pymethods]
impl PyExplanation {
    fn json(&self) -> String {
        report::json(&self.inner)
    }

    fn text(&self, width: usize) -> String {
        report::text(&self.inner, width, false)
    }

    fn html(&self) -> String {
        report::html(&self.inner)
    }

    fn trace(&self) -> String {
        report::trace(&self.inner)
    }
}

/// The limit of a loop, in words and numbers.
#[pyclass(frozen, name = "Verdict", module = "infeed._core")]
pub(crate) struct PyVerdict {
    inner: InnerVerdict,
}

#[pymethods]
impl PyVerdict {
    #[getter]
    fn limit(&self) -> &'static str {
        self.inner.limit.name()
    }

    #[getter]
    fn rate(&self) -> f64 {
        self.inner.rate
    }

    #[getter]
    fn next_limit(&self) -> Option<&'static str> {
        self.inner.next_limit.map(|limit| limit.name())
    }

    #[getter]
    fn next_rate(&self) -> Option<f64> {
        self.inner.next_rate
    }

    #[getter]
    fn tie(&self) -> bool {
        self.inner.tie
    }

    #[getter]
    fn claim(&self) -> &str {
        &self.inner.claim
    }

    #[getter]
    fn evidence(&self) -> Vec<String> {
        self.inner.evidence.clone()
    }

    #[getter]
    fn capacity(&self) -> Vec<String> {
        self.inner.capacity.clone()
    }

    #[getter]
    fn advice(&self) -> Vec<String> {
        self.inner.advice.clone()
    }

    #[getter]
    fn not_worth(&self) -> Vec<String> {
        self.inner.not_worth.clone()
    }

    fn json(&self) -> String {
        report::verdict_json(&self.inner)
    }

    fn text(&self, width: usize) -> String {
        report::verdict_text(&self.inner, width)
    }

    fn __repr__(&self) -> String {
        format!("<infeed.Verdict: {}>", self.inner.claim)
    }
}

/// Returns the verdict of a watched loop from its measurements as JSON.
#[pyfunction]
pub(crate) fn watch_verdict(measurements: &str) -> PyResult<PyVerdict> {
    Ok(PyVerdict {
        inner: loop_verdict(&parse_measurements(measurements)?),
    })
}

/// Parses the measurements of a watched loop. Raises ValueError for other text.
pub(crate) fn parse_measurements(text: &str) -> PyResult<WatchedLoop> {
    serde_json::from_str(text)
        .map_err(|error| PyValueError::new_err(format!("watch: invalid measurements: {error}")))
}
