//! What a running loader's counters say, and its forms.

use infeed::explain::Explanation as Inner;
use infeed::report;
use pyo3::prelude::*;

/// What limits a run.
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
