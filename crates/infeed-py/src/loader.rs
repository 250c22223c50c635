//! A running pipeline.

use std::sync::Arc;
use std::time::Duration;

use infeed::loader::{BadRecord, State};
use infeed::source::Source;
use infeed::{OnError, Options, Step};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;
use crate::description::{Handles, parse};
use crate::error::raise;
use crate::explain::Explanation;
use crate::log;
use crate::stats::dict_from;

/// Longest wait without a look at signals, so that Ctrl-C works at once.
const SLICE: Duration = Duration::from_millis(100);

/// A running pipeline.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct Loader {
    inner: infeed::Loader,
    pipeline: infeed::Pipeline,
    source: Arc<dyn Source>,
    steps: u64,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (
        description, handles, *, workers, memory, rank, world_size, on_error, max_bad, io_threads,
        timeline_s
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        description: &str,
        handles: Handles,
        workers: Option<usize>,
        memory: Option<u64>,
        rank: u64,
        world_size: u64,
        on_error: &str,
        max_bad: Option<u64>,
        io_threads: Option<usize>,
        timeline_s: Option<f64>,
    ) -> PyResult<Loader> {
        log::collect();
        let pipeline = parse(py, description)?;
        let mut options = Options::default();
        options.workers = workers;
        options.memory = memory;
        options.rank = rank;
        options.world_size = world_size;
        options.on_error = match on_error {
            "stop" => OnError::Stop,
            "substitute" => OnError::Substitute,
            "skip" => OnError::Skip,
            other => return Err(PyValueError::new_err(format!("unknown on_error: {other}"))),
        };
        options.max_bad = max_bad;
        options.readers = io_threads;
        // What is no duration (negative, too large) records nothing.
        options.timeline = timeline_s.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let inner = raise(py, py.detach(|| pipeline.open_with(&handles.0, &options)))?;
        log::hand_over(py)?;
        let steps = raise(py, inner.steps())?;
        let source = raise(py, inner.source())?;
        Ok(Loader {
            inner,
            pipeline,
            source,
            steps,
        })
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            let step = py.detach(|| self.inner.next_within(SLICE));
            log::hand_over(py)?;
            match raise(py, step)? {
                Step::Batch(batch) => {
                    return Ok(Some(Batch::new(batch, Arc::clone(&self.source))));
                }
                Step::End => return Ok(None),
                Step::Timeout => py.check_signals()?,
            }
        }
    }

    fn end_epoch(&self, py: Python<'_>) -> PyResult<()> {
        raise(py, py.detach(|| self.inner.end_epoch()))
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.steps
    }

    #[getter]
    fn records(&self) -> u64 {
        self.source.len()
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.inner.place().0
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = raise(py, py.detach(|| self.inner.stats()))?;
        dict_from(py, &stats)
    }

    fn quarantine(&self) -> Vec<(u64, String, String)> {
        let entry = |bad: BadRecord| (bad.record.index, bad.record.name, bad.reason.chain());
        self.inner.quarantine().into_iter().map(entry).collect()
    }

    fn state(&self) -> String {
        self.inner.state().to_json()
    }

    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = raise(py, State::from_json(state))?;
        raise(py, py.detach(|| self.inner.restore(&state)))
    }

    fn explain(&self, py: Python<'_>, name: &str) -> PyResult<Explanation> {
        let made = py.detach(|| infeed::explain::running(name, &self.pipeline, &self.inner));
        Ok(Explanation::new(raise(py, made)?))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.close());
        log::hand_over(py)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Threads that are joined may hold the last share of a Python buffer and need the
        // interpreter to give it back.
        Python::attach(|py| py.detach(|| self.inner.close()));
    }
}
