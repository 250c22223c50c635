//! A running pipeline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::loader::any::{AnyLoader, AnyStep};
use infeed::loader::device::DeviceLoader;
use infeed::loader::digest::DigestScope;
use infeed::loader::{BadRecord, CacheLimit, CacheOptions, DiskCacheOptions, LoaderState};
use infeed::{Error, OnError, Options};
use infeed_device::AnyDevice;
use infeed_device::ring::Ring;
use infeed_explain::report::{LoaderMetrics, MetricsServer, prometheus, serve_metrics};
use infeed_explain::{Recorder, RecordingOptions, running, running_on};
use infeed_raw::python::stream_from;
use infeed_source::Source;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::description::{PyHandles, parse};
use crate::device::{self, HostOrDeviceBatch, decode_by, placement, queue_on};
use crate::error::{raise, raise_at_bad_record};
use crate::explain::PyExplanation;
use crate::feed::{PyHosts, make_feeders};
use crate::fill::{FieldTensors, TargetTensors};
use crate::log;
use crate::stats::dict_from;
use crate::waiting::{Closing, SIGNAL_INTERVAL, wait_for};

/// A running pipeline.
#[pyclass(frozen, name = "Loader", module = "infeed._core")]
pub(crate) struct PyLoader {
    inner: Arc<AnyLoader>,
    /// Memory of the tensors that `next_into` fills.
    targets: Arc<TargetTensors>,
    closing: Closing,
    /// Metrics server, if `serve_metrics` was called.
    metrics: Mutex<Option<MetricsServer>>,
    /// Recorder, if `record` was called.
    recorder: Mutex<Option<Recorder>>,
    source: Arc<dyn Source>,
    steps: u64,
    /// Whether a bad record stops the run.
    stops: bool,
}

#[pymethods]
impl PyLoader {
    #[new]
    #[pyo3(signature = (
        description, handles, *, workers, memory, cache, rank, world_size, on_error, max_bad, io_threads,
        timeline_s, stall_s, digest, devices, placement, decode, slots, feeders, epoch_records
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        description: &str,
        handles: PyHandles,
        workers: Option<usize>,
        memory: Option<u64>,
        cache: Option<(Option<u64>, Option<PathBuf>, u64)>,
        rank: u64,
        world_size: u64,
        on_error: &str,
        max_bad: Option<u64>,
        io_threads: Option<usize>,
        timeline_s: Option<f64>,
        stall_s: Option<f64>,
        digest: &str,
        devices: Option<Vec<String>>,
        placement: &str,
        decode: &str,
        slots: usize,
        feeders: Option<FeederArguments<'_>>,
        epoch_records: Option<u64>,
    ) -> PyResult<PyLoader> {
        log::collect();
        let pipeline = parse(py, description)?;
        let mut options = Options::default();
        options.workers = workers;
        options.memory = memory;
        options.cache = cache.map(|(memory, folder, limit_bytes)| CacheOptions {
            memory: memory.map(|bytes| match bytes {
                0 => CacheLimit::Auto,
                bytes => CacheLimit::Bytes(bytes),
            }),
            disk: folder.map(|folder| DiskCacheOptions {
                folder,
                limit_bytes,
            }),
        });
        options.epoch_records = epoch_records;
        options.rank = rank;
        options.world_size = world_size;
        options.on_error = policy(on_error)?;
        options.max_bad = max_bad;
        options.readers = io_threads;
        // A number that is not a duration (negative, too large) means never.
        let time = |seconds: Option<f64>| Duration::try_from_secs_f64(seconds?).ok();
        options.timeline = time(timeline_s);
        options.stall = time(stall_s);
        options.digest = digest_scope(digest)?;
        options.remote = feeders.map(|(hosts, help, deadline, encrypt)| {
            Arc::new(make_feeders(&hosts, help, deadline, encrypt)) as _
        });
        let place = self::placement(placement)?;
        options.decode = decode_by(decode)?;
        let devices = devices.unwrap_or_default();
        let stops = options.on_error == OnError::Stop;
        let open = move || {
            let inner = pipeline.open_any(&devices, place, slots, &handles.0, &options)?;
            let loader = inner.loader();
            let (steps, source) = (loader.steps()?, loader.source()?);
            Ok(PyLoader {
                inner: Arc::new(inner),
                targets: Arc::default(),
                closing: Closing::default(),
                metrics: Mutex::default(),
                recorder: Mutex::default(),
                source,
                steps,
                stops,
            })
        };
        let loader = raise(py, wait_for(py, open)?)?;
        log::hand_over(py)?;
        Ok(loader)
    }

    fn next_parts(
        &self,
        py: Python<'_>,
        streams: Vec<Option<Bound<'_, PyAny>>>,
    ) -> PyResult<Option<Vec<PyBatch>>> {
        let queue =
            |stream: &Option<Bound<'_, PyAny>>| stream.as_ref().map(stream_from).transpose();
        let queues: Vec<_> = streams.iter().map(queue).collect::<PyResult<_>>()?;
        let rings = self.inner.on_device().map_or(&[][..], DeviceLoader::rings);
        let named = queues.into_iter().chain(std::iter::repeat(None));
        let queue = |(ring, stream): (&Ring<AnyDevice>, _)| queue_on(ring.device(), stream);
        let queues: Vec<_> = rings.iter().zip(named).map(queue).collect();
        let batch = |batch| PyBatch::new(batch, Arc::clone(&self.source));
        loop {
            // Before the wait, when an exception of a handler drops no batch.
            log::hand_over(py)?;
            let step = py.detach(|| self.inner.next_within(SIGNAL_INTERVAL, &queues));
            // Another policy fails only after it has tried several substitutes.
            let step = match self.stops {
                true => raise_at_bad_record(py, step),
                false => raise(py, step),
            };
            match step? {
                AnyStep::Host(one) => return Ok(Some(vec![batch(HostOrDeviceBatch::Host(one))])),
                AnyStep::Device(parts) => {
                    let parts = parts.into_iter().map(HostOrDeviceBatch::Device);
                    return Ok(Some(parts.map(batch).collect()));
                }
                AnyStep::End => {
                    log::hand_over(py)?;
                    return Ok(None);
                }
                AnyStep::Timeout => py.check_signals()?,
            }
        }
    }

    fn next_into(
        &self,
        py: Python<'_>,
        tensors: Vec<FieldTensors<'_>>,
        streams: Vec<Option<Bound<'_, PyAny>>>,
    ) -> PyResult<(u64, u64, usize)> {
        let Some(on) = self.inner.on_device() else {
            let problem = "batches are on the host; open the pipeline with device=\"cuda\"";
            return raise(py, Err(Error::config("next_into", problem)));
        };
        let targets = &self.targets;
        let filled = targets.fill(py, on, tensors, &streams, SIGNAL_INTERVAL)?;
        Ok((filled.epoch, filled.step, filled.samples))
    }

    fn end_epoch(&self, py: Python<'_>) -> PyResult<()> {
        let inner = Arc::clone(&self.inner);
        raise(py, wait_for(py, move || inner.end_epoch())?)
    }

    fn seek(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<()> {
        let inner = Arc::clone(&self.inner);
        raise(py, wait_for(py, move || inner.seek(epoch, step))?)
    }

    fn begin_epoch(
        &self,
        py: Python<'_>,
        epoch: u64,
        step: u64,
        records: Vec<u64>,
    ) -> PyResult<()> {
        let inner = Arc::clone(&self.inner);
        let begin = move || inner.begin_epoch(epoch, step, records.into());
        raise(py, wait_for(py, begin)?)
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
        let counters = raise(py, py.detach(|| device::device_stats(&self.inner)))?;
        let all = device::sum(&counters).map(|sum| device::dict_from(py, &sum));
        dict.set_item("device", all.transpose()?)?;
        let each = counters.iter().map(|one| device::dict_from(py, one));
        dict.set_item("devices", each.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }

    fn bad_records(&self) -> Vec<(u64, String, String)> {
        let entry = |bad: BadRecord| (bad.record.index, bad.record.name, bad.reason.chain());
        let bad = self.inner.loader().bad_records();
        bad.into_iter().map(entry).collect()
    }

    fn state(&self) -> String {
        self.inner.loader().state().to_json()
    }

    fn restore(&self, py: Python<'_>, state: &str, strict: bool) -> PyResult<Vec<String>> {
        let state = raise(py, LoaderState::from_json(state))?;
        let inner = Arc::clone(&self.inner);
        raise(
            py,
            wait_for(py, move || match strict {
                true => inner.restore(&state).map(|()| Vec::new()),
                false => inner.restore_anyway(&state),
            })?,
        )
    }

    fn digest(&self) -> String {
        self.inner.loader().digest().to_string()
    }

    fn step_digest(&self) -> String {
        self.inner.loader().step_digest().to_string()
    }

    fn explain(&self, py: Python<'_>, name: &str) -> PyResult<PyExplanation> {
        let made = py.detach(|| match &*self.inner {
            AnyLoader::Host(loader) => running(name, loader.pipeline(), loader),
            AnyLoader::Device(on) => running_on(name, on.loader().pipeline(), on),
        });
        Ok(PyExplanation::new(raise(py, made)?))
    }

    fn serve_metrics(&self, py: Python<'_>, address: &str, name: String) -> PyResult<String> {
        let loader = Arc::downgrade(&self.inner);
        let text = move || {
            let inner = loader.upgrade();
            let counted = inner
                .and_then(|inner| Some((inner.loader().stats().ok()?, inner.device_stats().ok()?)));
            counted.map_or(String::new(), |(stats, devices)| {
                prometheus(&[LoaderMetrics {
                    name: &name,
                    stats: &stats,
                    devices: &devices,
                }])
            })
        };
        let server = py.detach(|| serve_metrics(address, text))?;
        let address = server.address().to_string();
        // This drops the previous server, which ends it.
        *lock(&self.metrics) = Some(server);
        Ok(address)
    }

    fn record(
        &self,
        py: Python<'_>,
        path: PathBuf,
        paths: bool,
        versions: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let started = py.detach(|| {
            // The previous recorder writes its last state before this one begins.
            drop(lock(&self.recorder).take());
            Recorder::start(&path, &self.inner, RecordingOptions { paths, versions })
        });
        *lock(&self.recorder) = Some(raise(py, started)?);
        Ok(())
    }

    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        // A number that is not a duration (too large) means no limit.
        let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let (inner, targets) = (Arc::clone(&self.inner), Arc::clone(&self.targets));
        let metrics = lock(&self.metrics).take();
        let recorder = lock(&self.recorder).take();
        let ended = self.closing.run(py, timeout, move || {
            drop(metrics);
            // It reads the last counters of the open loader.
            drop(recorder);
            inner.close();
            targets.close();
        })?;
        log::hand_over(py)?;
        Ok(ended)
    }
}

/// Hosts, whether the cores of this machine help, the deadline in seconds, and whether connections
/// are encrypted.
type FeederArguments<'py> = (PyRef<'py, PyHosts>, bool, f64, Option<bool>);

/// Parses the name of a policy for bad records.
pub(crate) fn policy(name: &str) -> PyResult<OnError> {
    match name {
        "stop" => Ok(OnError::Stop),
        "substitute" => Ok(OnError::Substitute),
        "skip" => Ok(OnError::Skip),
        other => Err(PyValueError::new_err(format!("unknown on_error: {other}"))),
    }
}

/// Parses the name of the content that digests cover.
pub(crate) fn digest_scope(name: &str) -> PyResult<DigestScope> {
    match name {
        "ids" => Ok(DigestScope::Ids),
        "pixels" => Ok(DigestScope::Pixels),
        other => Err(PyValueError::new_err(format!("unknown digest: {other}"))),
    }
}

fn lock<T>(value: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    // The value is always replaced as a whole, so it is valid even after a panic.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for PyLoader {
    fn drop(&mut self) {
        // A joined thread may own the last reference to a Python buffer, and needs the interpreter
        // to release it.
        let recorder = lock(&self.recorder).take();
        Python::attach(|py| {
            py.detach(|| {
                // It reads the last counters of the open loader.
                drop(recorder);
                self.inner.close();
            });
        });
    }
}
