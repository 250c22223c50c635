//! Feeders: one that runs in this process, and the addresses of a loader's feeders.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed_feed::wire::channel::Encryption;
use infeed_feed::wire::token::Token;
use infeed_feed::{FeedOptions, FeederAddress, Feeders, Local, serve};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::description::{PyHandles, parse};
use crate::error::raise;
use crate::log;
use crate::waiting::wait_for;

/// Addresses of a loader's feeders, which may change while the loader runs.
#[pyclass(frozen, name = "Hosts", module = "infeed._core")]
pub(crate) struct PyHosts {
    inner: infeed_feed::Hosts,
}

#[pymethods]
impl PyHosts {
    #[new]
    fn new(count: usize) -> PyHosts {
        PyHosts {
            inner: infeed_feed::Hosts::without_addresses(count),
        }
    }

    #[pyo3(signature = (number, host, token=None, node=""))]
    fn set(
        &self,
        py: Python<'_>,
        number: usize,
        host: &str,
        token: Option<&str>,
        node: &str,
    ) -> PyResult<()> {
        let address = FeederAddress {
            host: host.to_owned(),
            node: node.to_owned(),
            token: token.map(|text| raise(py, Token::new(text))).transpose()?,
        };
        raise(py, self.inner.set(number, address))
    }
}

/// A running feeder.
#[pyclass(frozen, name = "Feeder", module = "infeed._core")]
pub(crate) struct PyFeeder {
    /// None after `close`.
    inner: Mutex<Option<infeed_feed::Feeder>>,
    address: String,
}

#[pymethods]
impl PyFeeder {
    #[new]
    fn new(
        py: Python<'_>,
        description: &str,
        handles: PyHandles,
        listen: String,
        token: Option<&str>,
        workers: Option<usize>,
        memory: Option<u64>,
    ) -> PyResult<PyFeeder> {
        log::collect();
        let pipeline = parse(py, description)?;
        let mut options = FeedOptions::default();
        options.listen = listen;
        if let Some(text) = token {
            options.token = raise(py, Token::new(text))?;
        }
        (options.workers, options.memory) = (workers, memory);
        let serve = move || {
            let feeder = serve(&pipeline, &handles.0, &options)?;
            Ok(PyFeeder {
                address: feeder.address().to_string(),
                inner: Mutex::new(Some(feeder)),
            })
        };
        let feeder = raise(py, wait_for(py, serve)?)?;
        log::hand_over(py)?;
        Ok(feeder)
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        log::hand_over(py)?;
        let stats = py.detach(|| self.lock().as_ref().map(infeed_feed::Feeder::stats));
        let Some(stats) = stats else {
            return Ok(None);
        };
        let dict = PyDict::new(py);
        dict.set_item("sessions", stats.sessions)?;
        dict.set_item("batches", stats.batches)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("declined", stats.declined)?;
        dict.set_item("refused", stats.refused)?;
        dict.set_item("problem", stats.problem)?;
        Ok(Some(dict))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end());
        log::hand_over(py)
    }
}

impl PyFeeder {
    fn end(&self) {
        // The drop joins threads, so the lock must be free.
        let feeder = self.lock().take();
        drop(feeder);
    }

    fn lock(&self) -> MutexGuard<'_, Option<infeed_feed::Feeder>> {
        // The value is always replaced as a whole, so it is valid even after a panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PyFeeder {
    fn drop(&mut self) {
        // The feeder's threads may wait for the interpreter to release Python objects.
        Python::attach(|py| py.detach(|| self.end()));
    }
}

/// Returns the feeders of a loader: their addresses, whether this process also makes batches, the
/// deadline of a batch in seconds, and whether connections are encrypted.
pub(crate) fn make_feeders(
    hosts: &PyHosts,
    help: bool,
    deadline: f64,
    encrypt: Option<bool>,
) -> Feeders {
    let mut feeders = Feeders::at(hosts.inner.clone());
    if !help {
        feeders.local = Local::Fallback;
    }
    if let Some(encrypt) = encrypt {
        feeders.encryption = match encrypt {
            true => Encryption::Always,
            false => Encryption::Never,
        };
    }
    if let Ok(deadline) = Duration::try_from_secs_f64(deadline) {
        feeders.deadline = deadline;
    }
    feeders
}
