//! Run records: the keys of rows, the file, and the comparison.

use std::path::PathBuf;

use infeed::loader::run_record::{
    ComparedSteps, RecordedStep, RowHashes, RowKey, RunDifference, RunRecord, RunWriter,
    compare_runs,
};
use infeed_raw::python::BufferView;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::batch::PyBatch;
use crate::error::raise;

/// Name and values of a field: the bytes of an array with a number of rows, or a value per row.
#[derive(FromPyObject)]
enum FieldValues<'py> {
    Array(String, usize, Bound<'py, PyAny>),
    Values(String, Vec<PyBackedBytes>),
}

/// Step, row, samples, counts and text of a difference.
type DifferenceFacts = (
    u64,
    Option<usize>,
    (Option<String>, Option<String>),
    (u64, u64, u64),
    String,
);

/// The keys of a step.
#[pyclass(frozen, name = "RowKeys", module = "infeed._core")]
pub(crate) struct PyRowKeys {
    rows: Vec<RowKey>,
}

#[pymethods]
impl PyRowKeys {
    #[staticmethod]
    fn of_ids(ids: Vec<String>) -> PyRowKeys {
        let rows = ids.into_iter().map(|id| RowKey::Id(id.into()));
        PyRowKeys {
            rows: rows.collect(),
        }
    }

    #[staticmethod]
    fn of_fields(py: Python<'_>, fields: Vec<FieldValues<'_>>) -> PyResult<PyRowKeys> {
        let mut hashes = RowHashes::default();
        for field in fields {
            let added = match &field {
                FieldValues::Array(name, rows, array) => {
                    hashes.add_array(name, *rows, BufferView::new(array)?.as_ref())
                }
                FieldValues::Values(name, values) => hashes.add_values(name, values),
            };
            raise(py, added)?;
        }
        let rows = raise(py, hashes.keys())?;
        Ok(PyRowKeys { rows })
    }

    #[staticmethod]
    fn of_batch(py: Python<'_>, batch: &PyBatch) -> PyResult<Option<PyRowKeys>> {
        let rows = batch.on_host().map(RowHashes::of_batch).transpose();
        Ok(raise(py, rows)?.map(|rows| PyRowKeys { rows }))
    }
}

impl PyRowKeys {
    fn at(&self, step: u64) -> RecordedStep {
        RecordedStep {
            step,
            rows: self.rows.clone(),
            digest: None,
        }
    }
}

/// A file that is being written.
#[pyclass(name = "RunWriter", module = "infeed._core")]
pub(crate) struct PyRunWriter {
    inner: RunWriter,
}

#[pymethods]
impl PyRunWriter {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, continues: bool) -> PyResult<PyRunWriter> {
        let open = || match continues {
            true => RunWriter::resume(&path),
            false => RunWriter::create(&path, None),
        };
        let inner = raise(py, py.detach(open))?;
        Ok(PyRunWriter { inner })
    }

    fn write(&mut self, py: Python<'_>, step: u64, keys: &PyRowKeys) -> PyResult<()> {
        raise(py, py.detach(|| self.inner.write(&keys.at(step))))
    }
}

/// A recorded run in memory.
#[pyclass(name = "RunRecord", module = "infeed._core")]
pub(crate) struct PyRunRecord {
    inner: RunRecord,
}

#[pymethods]
impl PyRunRecord {
    #[new]
    fn new() -> PyRunRecord {
        PyRunRecord {
            inner: RunRecord::default(),
        }
    }

    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<PyRunRecord> {
        let inner = raise(py, py.detach(|| RunRecord::read(&path)))?;
        Ok(PyRunRecord { inner })
    }

    #[getter]
    fn last_step(&self) -> Option<u64> {
        self.inner.steps().last().map(|last| last.step)
    }

    fn add(&mut self, py: Python<'_>, step: u64, keys: &PyRowKeys) -> PyResult<()> {
        raise(py, self.inner.push(keys.at(step)))
    }

    fn compare(
        &self,
        py: Python<'_>,
        found: &PyRunRecord,
        common: bool,
        goes_on: bool,
    ) -> PyResult<Option<DifferenceFacts>> {
        let steps = match (common, goes_on) {
            (true, _) => ComparedSteps::Common,
            (false, true) => ComparedSteps::UpToExpected,
            (false, false) => ComparedSteps::All,
        };
        let compared = py.detach(|| compare_runs(&self.inner, &found.inner, steps));
        let facts = |one: RunDifference| {
            let samples = (one.expected, one.found);
            let counts = (one.lost, one.doubled, one.moved);
            (one.step, one.row, samples, counts, one.text)
        };
        Ok(raise(py, compared)?.map(facts))
    }
}
