//! The explanation of a running loader, and its output formats.

use infeed_explain::Explanation as Inner;
use infeed_explain::report;
use pyo3::prelude::*;

/// The limit of a run, with its evidence.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct Explanation {
    inner: Inner,
}

impl Explanation {
    pub(crate) fn new(inner: Inner) -> Explanation {
        Explanation { inner }
    }
}

#[pymethods]
impl Explanation {
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
