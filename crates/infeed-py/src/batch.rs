//! A batch in host memory or on a device, and its columns.

use std::sync::Arc;

use infeed::Batch;
use infeed_core::batch::PADDING;
use infeed_source::Source;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::object_from;
use crate::device::HostOrDeviceBatch;
use crate::error::raise;

/// The samples of one step.
#[pyclass(frozen, name = "Batch", module = "infeed._core")]
pub(crate) struct PyBatch {
    inner: HostOrDeviceBatch,
    source: Arc<dyn Source>,
}

impl PyBatch {
    pub(crate) fn new(inner: HostOrDeviceBatch, source: Arc<dyn Source>) -> PyBatch {
        PyBatch { inner, source }
    }

    /// Returns the batch if it is in host memory.
    pub(crate) fn on_host(&self) -> Option<&Batch> {
        match &self.inner {
            HostOrDeviceBatch::Host(batch) => Some(batch),
            HostOrDeviceBatch::Device(_) => None,
        }
    }
}

#[pymethods]
impl PyBatch {
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.names())
    }

    #[getter]
    fn rows(&self) -> usize {
        self.inner.records().len()
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    #[getter]
    fn step(&self) -> u64 {
        self.inner.step()
    }

    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(values) = self.inner.host(name) {
            return object_from(py, values);
        }
        match raise(py, self.inner.array(name))? {
            Some(array) => Ok(Bound::new(py, array)?.into_any()),
            None => {
                let names = self.inner.names().join(", ");
                let problem = format!("no field `{name}`; the fields are {names}");
                Err(PyKeyError::new_err(problem))
            }
        }
    }

    fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        self.inner.record_stream(stream)
    }

    fn records(&self) -> Vec<(i64, String)> {
        let id = |&record: &u64| match record {
            PADDING => (-1, String::new()),
            record => {
                let id = self.source.id(record, None);
                (id.index as i64, id.name)
            }
        };
        self.inner.records().iter().map(id).collect()
    }
}
