//! A running pipeline.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::device::ring::{Ring, RingStats};
use infeed::device::{Any, Device};
use infeed::explain::{running, running_on};
use infeed::loader::ahead::{DeviceLoader, PartsStep};
use infeed::loader::digest::{Digest, Digested};
use infeed::loader::feeders::{Feeders, Local};
use infeed::loader::{BadRecord, State};
use infeed::report::{Counted, MetricsServer, prometheus, serve_metrics};
use infeed::source::Source;
use infeed::{Error, OnError, Options, Stats, Step};
use infeed_raw::cuda::Queue;
use infeed_raw::python::stream_from;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;
use crate::description::{Handles, parse};
use crate::device::{self, Delivered, decode_by, placement, queue_on};
use crate::error::raise;
use crate::explain::Explanation;
use crate::feed::Hosts;
use crate::into::{Given, Places};
use crate::log;
use crate::stats::dict_from;

/// Longest wait without a look at signals, so that Ctrl-C works at once.
const SLICE: Duration = Duration::from_millis(100);

/// A running pipeline.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct Loader {
    inner: Arc<Inner>,
    /// Tensors that are filled.
    places: Places,
    /// Answers Prometheus, if it was asked for.
    metrics: Mutex<Option<MetricsServer>>,
    source: Arc<dyn Source>,
    steps: u64,
}

enum Inner {
    Host(Box<infeed::Loader>),
    Device(DeviceLoader<Any>),
}

/// What a call got.
enum Got {
    /// One, or one a device.
    Batches(Vec<Delivered>),
    End,
    Timeout,
}

impl Inner {
    fn loader(&self) -> &infeed::Loader {
        match self {
            Inner::Host(loader) => loader,
            Inner::Device(on) => on.loader(),
        }
    }

    /// Devices that each get a part of a batch; one, where it is not cut.
    fn parts(&self) -> usize {
        match self {
            Inner::Host(_) => 1,
            Inner::Device(on) => on.rings().len(),
        }
    }

    /// The next batch, where the consumer works in these streams, one a device.
    fn next_within(&self, patience: Duration, streams: &[Option<Queue>]) -> Result<Got, Error> {
        match self {
            Inner::Host(loader) => Ok(match loader.next_within(patience)? {
                Step::Batch(batch) => Got::Batches(vec![Delivered::Host(batch)]),
                Step::End => Got::End,
                Step::Timeout => Got::Timeout,
            }),
            Inner::Device(on) => {
                let named = streams.iter().copied().chain(std::iter::repeat(None));
                let queue = |(ring, stream): (&Ring<Any>, _)| queue_on(ring.device(), stream);
                let queues: Vec<_> = on.rings().iter().zip(named).map(queue).collect();
                Ok(match on.next_parts(patience, &queues)? {
                    PartsStep::Parts(parts) => {
                        Got::Batches(parts.into_iter().map(Delivered::Device).collect())
                    }
                    PartsStep::End => Got::End,
                    PartsStep::Timeout => Got::Timeout,
                })
            }
        }
    }

    /// What the loader counted, and its devices.
    fn counted(&self) -> Result<(Stats, Vec<(String, RingStats)>), Error> {
        let of = |ring: &Ring<Any>| Ok((ring.device().name(), ring.stats()?));
        let devices = match self {
            Inner::Host(_) => Vec::new(),
            Inner::Device(on) => on.rings().iter().map(of).collect::<Result<_, Error>>()?,
        };
        Ok((self.loader().stats()?, devices))
    }

    fn end_epoch(&self) -> Result<(), Error> {
        match self {
            Inner::Host(loader) => loader.end_epoch(),
            Inner::Device(on) => on.end_epoch(),
        }
    }

    fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        match self {
            Inner::Host(loader) => loader.seek(epoch, step),
            Inner::Device(on) => on.seek(epoch, step),
        }
    }

    fn restore(&self, state: &State, strict: bool) -> Result<Vec<String>, Error> {
        match self {
            Inner::Host(loader) if strict => loader.restore(state).map(|()| Vec::new()),
            Inner::Host(loader) => loader.restore_anyway(state),
            Inner::Device(on) if strict => on.restore(state).map(|()| Vec::new()),
            Inner::Device(on) => on.restore_anyway(state),
        }
    }

    fn close(&self) {
        match self {
            Inner::Host(loader) => loader.close(),
            Inner::Device(on) => on.close(),
        }
    }
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (
        description, handles, *, workers, memory, rank, world_size, on_error, max_bad, io_threads,
        timeline_s, stall_s, digest, digest_file, devices, placement, decode, slots, feeders
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
        stall_s: Option<f64>,
        digest: &str,
        digest_file: Option<PathBuf>,
        devices: Option<Vec<String>>,
        placement: &str,
        decode: &str,
        slots: usize,
        feeders: Option<(PyRef<'_, Hosts>, bool, f64)>,
    ) -> PyResult<Loader> {
        log::collect();
        let pipeline = parse(py, description)?;
        let mut options = Options::default();
        options.workers = workers;
        options.memory = memory;
        options.rank = rank;
        options.world_size = world_size;
        options.on_error = policy(on_error)?;
        options.max_bad = max_bad;
        options.readers = io_threads;
        // What is no duration (negative, too large) means never.
        let time = |seconds: Option<f64>| Duration::try_from_secs_f64(seconds?).ok();
        options.timeline = time(timeline_s);
        options.stall = time(stall_s);
        options.digest = digested(digest)?;
        options.digest_file = digest_file;
        options.feeders = feeders.map(|(hosts, help, deadline)| fed_by(&hosts, help, deadline));
        let place = self::placement(placement)?;
        options.decode = decode_by(decode)?;
        let open = || match &devices {
            None => {
                let loader = pipeline.open_with(&handles.0, &options)?;
                Ok(Inner::Host(Box::new(loader)))
            }
            Some(names) => {
                let devices = names.iter().map(|name| Any::open(name));
                let devices = devices.collect::<Result<Vec<_>, Error>>()?;
                let loader = pipeline.open_on_all(devices, place, slots, &handles.0, &options)?;
                Ok(Inner::Device(loader))
            }
        };
        let inner = raise(py, py.detach(open))?;
        log::hand_over(py)?;
        let steps = raise(py, inner.loader().steps())?;
        let source = raise(py, inner.loader().source())?;
        Ok(Loader {
            inner: Arc::new(inner),
            places: Places::default(),
            metrics: Mutex::default(),
            source,
            steps,
        })
    }

    #[pyo3(signature = (stream=None))]
    fn next(&self, py: Python<'_>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Option<Batch>> {
        let parts = self.inner.parts();
        if parts != 1 {
            let problem = format!("a step gives {parts} batches, one a device");
            return raise(py, Err(Error::config("devices", problem)));
        }
        let batches = self.next_parts(py, vec![stream])?;
        Ok(batches.and_then(|batches| batches.into_iter().next()))
    }

    fn next_parts(
        &self,
        py: Python<'_>,
        streams: Vec<Option<Bound<'_, PyAny>>>,
    ) -> PyResult<Option<Vec<Batch>>> {
        let queue =
            |stream: &Option<Bound<'_, PyAny>>| stream.as_ref().map(stream_from).transpose();
        let queues: Vec<_> = streams.iter().map(queue).collect::<PyResult<_>>()?;
        loop {
            let step = py.detach(|| self.inner.next_within(SLICE, &queues));
            log::hand_over(py)?;
            match raise(py, step)? {
                Got::Batches(batches) => {
                    let batch = |batch| Batch::new(batch, Arc::clone(&self.source));
                    return Ok(Some(batches.into_iter().map(batch).collect()));
                }
                Got::End => return Ok(None),
                Got::Timeout => py.check_signals()?,
            }
        }
    }

    fn next_into(
        &self,
        py: Python<'_>,
        tensors: Vec<Given<'_>>,
        streams: Vec<Option<Bound<'_, PyAny>>>,
    ) -> PyResult<(u64, u64, usize)> {
        let Inner::Device(on) = &*self.inner else {
            let problem = "batches are on the host; open the pipeline with device=\"cuda\"";
            return raise(py, Err(Error::config("next_into", problem)));
        };
        let places = &self.places;
        let filled = places.fill(py, on, tensors, &streams, SLICE)?;
        Ok((filled.epoch, filled.step, filled.samples))
    }

    fn end_epoch(&self, py: Python<'_>) -> PyResult<()> {
        raise(py, py.detach(|| self.inner.end_epoch()))
    }

    fn seek(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<()> {
        raise(py, py.detach(|| self.inner.seek(epoch, step)))
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
        self.inner.loader().place().0
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.loader().is_closed()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = raise(py, py.detach(|| self.inner.loader().stats()))?;
        let dict = dict_from(py, &stats)?;
        let sent = match &*self.inner {
            Inner::Host(_) => Vec::new(),
            Inner::Device(on) => raise(py, py.detach(|| device::sent(on)))?,
        };
        let all = device::together(&sent).map(|sent| device::dict_from(py, &sent));
        dict.set_item("device", all.transpose()?)?;
        let each = sent.iter().map(|sent| device::dict_from(py, sent));
        dict.set_item("devices", each.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }

    fn quarantine(&self) -> Vec<(u64, String, String)> {
        let entry = |bad: BadRecord| (bad.record.index, bad.record.name, bad.reason.chain());
        let met = self.inner.loader().quarantine();
        met.into_iter().map(entry).collect()
    }

    fn state(&self) -> String {
        self.inner.loader().state().to_json()
    }

    fn restore(&self, py: Python<'_>, state: &str, strict: bool) -> PyResult<Vec<String>> {
        let state = raise(py, State::from_json(state))?;
        raise(py, py.detach(|| self.inner.restore(&state, strict)))
    }

    fn digest(&self) -> String {
        self.inner.loader().digest().to_string()
    }

    fn step_digest(&self) -> String {
        self.inner.loader().step_digest().to_string()
    }

    fn explain(&self, py: Python<'_>, name: &str) -> PyResult<Explanation> {
        let made = py.detach(|| match &*self.inner {
            Inner::Host(loader) => running(name, loader.pipeline(), loader),
            Inner::Device(on) => running_on(name, on.loader().pipeline(), on),
        });
        Ok(Explanation::new(raise(py, made)?))
    }

    fn serve_metrics(&self, py: Python<'_>, address: &str, name: String) -> PyResult<String> {
        let loader = Arc::downgrade(&self.inner);
        let text = move || {
            let counted = loader.upgrade().and_then(|inner| inner.counted().ok());
            counted.map_or(String::new(), |(stats, devices)| {
                prometheus(&[Counted {
                    name: &name,
                    stats: &stats,
                    devices: &devices,
                }])
            })
        };
        let server = py.detach(|| serve_metrics(address, text))?;
        let address = server.address().to_string();
        // One that was there ends here.
        *lock(&self.metrics) = Some(server);
        Ok(address)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            drop(lock(&self.metrics).take());
            self.inner.close();
            self.places.close();
        });
        log::hand_over(py)
    }
}

/// Feeders, of their hosts, whether own cores help, and the deadline in seconds.
fn fed_by(hosts: &Hosts, help: bool, deadline: f64) -> Feeders {
    let mut feeders = Feeders::at(hosts.inner.clone());
    if !help {
        feeders.local = Local::Fallback;
    }
    if let Ok(deadline) = Duration::try_from_secs_f64(deadline) {
        feeders.deadline = deadline;
    }
    feeders
}

/// What becomes of bad records, by its name.
pub(crate) fn policy(name: &str) -> PyResult<OnError> {
    match name {
        "stop" => Ok(OnError::Stop),
        "substitute" => Ok(OnError::Substitute),
        "skip" => Ok(OnError::Skip),
        other => Err(PyValueError::new_err(format!("unknown on_error: {other}"))),
    }
}

/// What digests cover, by its name.
pub(crate) fn digested(name: &str) -> PyResult<Digested> {
    match name {
        "ids" => Ok(Digested::Ids),
        "pixels" => Ok(Digested::Pixels),
        other => Err(PyValueError::new_err(format!("unknown digest: {other}"))),
    }
}

/// Digests of ranks or steps, added up.
#[pyfunction]
pub(crate) fn add_digests(py: Python<'_>, digests: Vec<String>) -> PyResult<String> {
    let parsed = digests.iter().map(|text| text.parse::<Digest>());
    let parsed = raise(py, parsed.collect::<Result<Vec<_>, _>>())?;
    let sum = parsed.into_iter().reduce(Digest::plus);
    Ok(sum.unwrap_or(Digest::empty(Digested::Ids)).to_string())
}

fn lock(metrics: &Mutex<Option<MetricsServer>>) -> MutexGuard<'_, Option<MetricsServer>> {
    // What it guards is replaced whole, so a panic elsewhere leaves nothing half done.
    metrics.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Threads that are joined may hold the last share of a Python buffer and need the
        // interpreter to give it back.
        Python::attach(|py| py.detach(|| self.inner.close()));
    }
}
