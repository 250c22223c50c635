//! The recording of a watched loop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use infeed_explain::{LoopTotals, RecordingOptions, WatchRecorder};
use pyo3::prelude::*;

use crate::error::raise;
use crate::explain::parse_measurements;

/// Writes the recording of a watched loop.
#[pyclass(frozen, name = "WatchRecorder", module = "infeed._core")]
pub(crate) struct PyWatchRecorder {
    inner: Mutex<WatchRecorder>,
}

#[pymethods]
impl PyWatchRecorder {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        loader: String,
        versions: BTreeMap<String, String>,
    ) -> PyResult<PyWatchRecorder> {
        let options = RecordingOptions {
            paths: false,
            versions,
        };
        let started = py.detach(|| WatchRecorder::start(&path, loader, options));
        Ok(PyWatchRecorder {
            inner: Mutex::new(raise(py, started)?),
        })
    }

    fn add(&self, batches: u64, samples: u64, waited_s: f64, epochs: u64) {
        self.with(|recorder| {
            recorder.add(LoopTotals {
                batches,
                samples,
                waited_s,
                epochs,
                ..LoopTotals::default()
            });
        });
    }

    fn add_error(&self, kind: &str) {
        self.with(|recorder| recorder.add_error(kind));
    }

    #[pyo3(signature = (measurements, closed))]
    fn write(&self, py: Python<'_>, measurements: Option<&str>, closed: bool) -> PyResult<()> {
        let measured = measurements.map(parse_measurements).transpose()?;
        let written = py.detach(|| self.with(|recorder| recorder.write(measured, closed)));
        raise(py, written)
    }
}

impl PyWatchRecorder {
    fn with<T>(&self, work: impl FnOnce(&mut WatchRecorder) -> T) -> T {
        // Counters are valid even after a panic.
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
