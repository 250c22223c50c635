//! Batches on a device, and their arrays.

use std::sync::Arc;

use infeed::loader::DecodeBy;
use infeed::loader::any::AnyLoader;
use infeed::loader::device::{Placement, PlacementState};
use infeed::{Batch, Error};
use infeed_core::batch::Values;
use infeed_device::AnyDevice;
use infeed_device::any::AnyQueue;
use infeed_device::ring::{DeviceArray as OnDevice, DeviceBatch, RingStats};
use infeed_raw::cuda::{Consumer, Queue};
use infeed_raw::dlpack::Tensor;
use infeed_raw::host::HostBytes;
use infeed_raw::python::{consumer_stream, dlpack_capsule, stream_from};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{CPU, data_type, refuse_copy};
use crate::error::raise;

/// A batch in host memory or on a device.
pub(crate) enum HostOrDeviceBatch {
    Host(Batch),
    Device(DeviceBatch<AnyDevice>),
}

/// Returns the consumer's stream on a device. None for a device without streams.
pub(crate) fn queue_on(device: &AnyDevice, stream: Option<Queue>) -> Option<AnyQueue> {
    stream
        .filter(|_| device.cuda().is_some())
        .map(AnyQueue::Cuda)
}

/// Counters of one device of a loader, or the sums over all of them.
pub(crate) struct DeviceStats {
    name: String,
    stats: RingStats,
    placed: PlacementState,
}

/// Returns the counters of each device of a loader.
pub(crate) fn device_stats(loader: &AnyLoader) -> Result<Vec<DeviceStats>, Error> {
    let Some(placed) = loader.placement() else {
        return Ok(Vec::new());
    };
    let of = |(name, stats)| DeviceStats {
        name,
        stats,
        placed: placed.clone(),
    };
    Ok(loader.device_stats()?.into_iter().map(of).collect())
}

/// Sums the counters of all devices.
pub(crate) fn sum(each: &[DeviceStats]) -> Option<DeviceStats> {
    let names: Vec<&str> = each.iter().map(|one| one.name.as_str()).collect();
    let stats: Vec<RingStats> = each.iter().map(|one| one.stats).collect();
    Some(DeviceStats {
        name: names.join(", "),
        stats: RingStats::together(&stats)?,
        placed: each.first()?.placed.clone(),
    })
}

impl HostOrDeviceBatch {
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            HostOrDeviceBatch::Host(batch) => {
                let names = batch.columns.iter().map(|column| column.name.as_str());
                names.collect()
            }
            HostOrDeviceBatch::Device(batch) => batch.names().collect(),
        }
    }

    pub(crate) fn records(&self) -> &[u64] {
        match self {
            HostOrDeviceBatch::Host(batch) => &batch.records,
            HostOrDeviceBatch::Device(batch) => batch.records(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        match self {
            HostOrDeviceBatch::Host(batch) => batch.epoch,
            HostOrDeviceBatch::Device(batch) => batch.epoch(),
        }
    }

    pub(crate) fn step(&self) -> u64 {
        match self {
            HostOrDeviceBatch::Host(batch) => batch.step,
            HostOrDeviceBatch::Device(batch) => batch.step(),
        }
    }

    /// Returns the column of a field that is in host memory.
    pub(crate) fn host(&self, name: &str) -> Option<&Values> {
        match self {
            HostOrDeviceBatch::Host(batch) => batch.get(name),
            HostOrDeviceBatch::Device(batch) => batch.host(name),
        }
    }

    /// Returns the column of a field that is on the device.
    pub(crate) fn array(&self, name: &str) -> Result<Option<PyDeviceArray>, Error> {
        match self {
            HostOrDeviceBatch::Host(_) => Ok(None),
            HostOrDeviceBatch::Device(batch) => {
                let array = batch.array(name)?;
                Ok(array.map(|inner| PyDeviceArray { inner }))
            }
        }
    }

    /// Marks the batch as in use by a stream, given as a Python object.
    pub(crate) fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = stream.py();
        match self {
            HostOrDeviceBatch::Device(batch) if batch.device().cuda().is_some() => {
                let queue = AnyQueue::Cuda(stream_from(stream)?);
                raise(py, py.detach(|| batch.record_stream(queue)))
            }
            HostOrDeviceBatch::Host(_) | HostOrDeviceBatch::Device(_) => Err(no_streams()),
        }
    }
}

/// Returns the error for a stream that was named for arrays on the CPU.
pub(crate) fn no_streams() -> PyErr {
    PyTypeError::new_err(
        "arrays on the CPU have no streams; leave out the stream, or open the pipeline with device=\"cuda\"",
    )
}

/// One column of a batch on a device.
#[pyclass(frozen, name = "DeviceArray", module = "infeed._core")]
pub(crate) struct PyDeviceArray {
    inner: OnDevice<AnyDevice>,
}

impl PyDeviceArray {
    /// Ordinal of the GPU. None for a device whose arrays consumers read on the host.
    fn ordinal(&self) -> Option<usize> {
        let gpu = self.inner.device().cuda();
        gpu.map(|gpu| gpu.gpu().ordinal)
    }
}

#[pymethods]
impl PyDeviceArray {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.dtype().name()
    }

    #[getter]
    fn device(&self) -> String {
        match self.ordinal() {
            Some(ordinal) => format!("cuda:{ordinal}"),
            None => self.inner.device().kind().to_owned(),
        }
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        raise(py, py.detach(|| self.inner.synchronize()))
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(format!(
                "the array is on {}; copy it from there, or open the pipeline with the other device",
                self.device()
            )));
        }
        refuse_copy(copy)?;
        let array = &self.inner;
        let (shape, dtype) = (array.shape(), data_type(array.dtype()));
        let tensor = match array.memory().cuda() {
            Some(memory) => {
                let taken = match consumer_stream(stream.as_ref())? {
                    Consumer::Queue(queue) => py.detach(|| array.take_on(AnyQueue::Cuda(queue))),
                    // This consumer does not wait, so the copy must end before the consumer has the
                    // array.
                    Consumer::NoSync => py.detach(|| {
                        array.synchronize()?;
                        array.take_on(AnyQueue::Cuda(Queue::LEGACY))
                    }),
                };
                Tensor::on_gpu(Arc::clone(memory), raise(py, taken)?, 0, shape, dtype)
            }
            None => {
                if stream.is_some() {
                    return Err(no_streams());
                }
                let host = raise(py, py.detach(|| array.to_host()))?;
                Tensor::new(Arc::new(copy_aligned(&host)?), 0, shape, dtype)
            }
        };
        let tensor = tensor.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        dlpack_capsule(py, tensor, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        match self.ordinal() {
            Some(ordinal) => (2, i32::try_from(ordinal).unwrap_or(i32::MAX)),
            None => CPU,
        }
    }
}

/// Copies bytes to memory with the alignment of GPU memory. TensorFlow aborts the process for a
/// smaller alignment.
fn copy_aligned(bytes: &[u8]) -> PyResult<HostBytes> {
    let mut memory = HostBytes::zeroed(bytes.len())
        .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    memory.copy_from_slice(bytes);
    Ok(memory)
}

/// Parses the name of a placement.
pub(crate) fn placement(name: &str) -> PyResult<Placement> {
    match name {
        "auto" => Ok(Placement::Auto),
        "device" => Ok(Placement::Device),
        "device-resize" => Ok(Placement::Resize),
        "host" => Ok(Placement::Host),
        other => Err(PyValueError::new_err(format!("unknown placement: {other}"))),
    }
}

/// Parses the name of the decoder: `auto`, `cpu`, `gpu`, or the GPU's share.
pub(crate) fn decode_by(name: &str) -> PyResult<DecodeBy> {
    name.parse().map_err(PyValueError::new_err::<String>)
}

/// Converts counters of a device to the dictionary that `infeed.stats.DeviceStats` describes.
pub(crate) fn dict_from<'py>(
    py: Python<'py>,
    counters: &DeviceStats,
) -> PyResult<Bound<'py, PyDict>> {
    let DeviceStats {
        name,
        stats,
        placed,
    } = counters;
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("batches", stats.batches)?;
    dict.set_item("transfers", stats.transfers)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("jpegs", stats.jpegs)?;
    dict.set_item("slots", stats.slots)?;
    dict.set_item("overflow", stats.overflow)?;
    dict.set_item("unpinned_bytes", stats.unpinned)?;
    dict.set_item("gap_s", stats.gaps.waited.as_secs_f64())?;
    dict.set_item("gap_batches", stats.gaps.batches)?;
    dict.set_item("late_s", stats.late.waited.as_secs_f64())?;
    dict.set_item("late_batches", stats.late.batches)?;
    let placement = PyDict::new(py);
    placement.set_item("name", placed.choice.name())?;
    placement.set_item("settled", placed.settled)?;
    placement.set_item("text", &placed.why)?;
    placement.set_item("step_s", placed.step.map(|step| step.as_secs_f64()))?;
    let others = PyDict::new(py);
    for tried in &placed.others {
        others.set_item(tried.placement.name(), tried.ratio)?;
    }
    placement.set_item("others", others)?;
    dict.set_item("placement", placement)?;
    Ok(dict)
}
