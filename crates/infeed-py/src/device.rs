//! Batches on a device, and their arrays.

use std::sync::Arc;

use infeed::batch::Values;
use infeed::device::any::{AnyQueue, Kind};
use infeed::device::ring::{DeviceArray as OnDevice, DeviceBatch, Ring, RingStats};
use infeed::device::{Any, Device};
use infeed::loader::DecodeBy;
use infeed::loader::ahead::{DeviceLoader, Placed, Placement};
use infeed::{Batch, Error};
use infeed_raw::cuda::{Consumer, Queue};
use infeed_raw::dlpack::Tensor;
use infeed_raw::host::HostBytes;
use infeed_raw::python::{consumer_stream, dlpack_capsule, stream_from};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{CPU, data_type, refuse_copy};
use crate::error::raise;

/// A batch, wherever it is.
pub(crate) enum Delivered {
    Host(Batch),
    Device(DeviceBatch<Any>),
}

/// The stream that a consumer works in, for a loader on this device; none where that has no streams
/// that it could name.
pub(crate) fn queue_on(device: &Any, stream: Option<Queue>) -> Option<AnyQueue> {
    stream
        .filter(|_| matches!(device, Any::Cuda(_)))
        .map(Kind::Cuda)
}

/// A loader's device, or all of them, and what was sent there.
pub(crate) struct Sent {
    name: String,
    stats: RingStats,
    placed: Placed,
}

/// What is sent to each of a loader's devices, and who makes rows larger for it.
pub(crate) fn sent(on: &DeviceLoader<Any>) -> Result<Vec<Sent>, Error> {
    let of = |ring: &Ring<Any>| {
        Ok(Sent {
            name: ring.device().name(),
            stats: ring.stats()?,
            placed: on.placed(),
        })
    };
    on.rings().iter().map(of).collect()
}

/// All devices together.
pub(crate) fn together(each: &[Sent]) -> Option<Sent> {
    let names: Vec<&str> = each.iter().map(|sent| sent.name.as_str()).collect();
    let stats: Vec<RingStats> = each.iter().map(|sent| sent.stats).collect();
    Some(Sent {
        name: names.join(", "),
        stats: RingStats::together(&stats)?,
        placed: each.first()?.placed.clone(),
    })
}

impl Delivered {
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Delivered::Host(batch) => {
                let names = batch.columns.iter().map(|column| column.name.as_str());
                names.collect()
            }
            Delivered::Device(batch) => batch.names().collect(),
        }
    }

    pub(crate) fn records(&self) -> &[u64] {
        match self {
            Delivered::Host(batch) => &batch.records,
            Delivered::Device(batch) => batch.records(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        match self {
            Delivered::Host(batch) => batch.epoch,
            Delivered::Device(batch) => batch.epoch(),
        }
    }

    pub(crate) fn step(&self) -> u64 {
        match self {
            Delivered::Host(batch) => batch.step,
            Delivered::Device(batch) => batch.step(),
        }
    }

    /// The column of a field that is on the host.
    pub(crate) fn host(&self, name: &str) -> Option<&Values> {
        match self {
            Delivered::Host(batch) => batch.get(name),
            Delivered::Device(batch) => batch.host(name),
        }
    }

    /// The column of a field that is on the device.
    pub(crate) fn array(&self, name: &str) -> Result<Option<DeviceArray>, Error> {
        match self {
            Delivered::Host(_) => Ok(None),
            Delivered::Device(batch) => {
                let array = batch.array(name)?;
                Ok(array.map(|inner| DeviceArray { inner }))
            }
        }
    }

    /// Says that the stream of an object uses the batch too.
    pub(crate) fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = stream.py();
        match self {
            Delivered::Device(batch) if matches!(batch.device(), Any::Cuda(_)) => {
                let queue = Kind::Cuda(stream_from(stream)?);
                raise(py, py.detach(|| batch.record_stream(queue)))
            }
            Delivered::Host(_) | Delivered::Device(_) => Err(no_streams()),
        }
    }
}

/// The arrays are the CPU's.
pub(crate) fn no_streams() -> PyErr {
    PyTypeError::new_err(
        "the arrays are the CPU's, where there are no streams; open with device=\"cuda\"",
    )
}

/// One column of a batch on a device.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct DeviceArray {
    inner: OnDevice<Any>,
}

impl DeviceArray {
    /// Number of the card that it lies on; none where the device is simulated.
    fn ordinal(&self) -> Option<usize> {
        match self.inner.device() {
            Any::Cuda(cuda) => Some(cuda.card().ordinal),
            Any::Sim(_) => None,
        }
    }
}

#[pymethods]
impl DeviceArray {
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
            None => "sim".to_owned(),
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
                "the array is on {}; move it from there, or open the pipeline with that device",
                self.device()
            )));
        }
        refuse_copy(copy)?;
        let array = &self.inner;
        let (shape, dtype) = (array.shape(), data_type(array.dtype()));
        let tensor = match &**array.memory() {
            Kind::Cuda(memory) => {
                let handed = match consumer_stream(stream.as_ref())? {
                    Consumer::Queue(queue) => py.detach(|| array.ready_on(Kind::Cuda(queue))),
                    // It waits for nothing, so the bytes are there before it has them.
                    Consumer::NoSync => py.detach(|| {
                        array.synchronize()?;
                        array.record_stream(Kind::Cuda(Queue::LEGACY))
                    }),
                };
                raise(py, handed)?;
                Tensor::on_card(Arc::clone(memory), array.clone(), 0, shape, dtype)
            }
            Kind::Sim(_) => {
                if stream.is_some() {
                    return Err(no_streams());
                }
                let host = raise(py, py.detach(|| array.to_host()))?;
                Tensor::new(Arc::new(aligned(&host)?), 0, shape, dtype)
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

/// The bytes as aligned as a card's memory is: TensorFlow ends the process over less.
fn aligned(bytes: &[u8]) -> PyResult<HostBytes> {
    let mut memory = HostBytes::zeroed(bytes.len())
        .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    memory.copy_from_slice(bytes);
    Ok(memory)
}

/// What is done where, by its name.
pub(crate) fn placement(name: &str) -> PyResult<Placement> {
    match name {
        "auto" => Ok(Placement::Auto),
        "device" => Ok(Placement::Device),
        "device-resize" => Ok(Placement::Resize),
        "host" => Ok(Placement::Host),
        other => Err(PyValueError::new_err(format!("unknown placement: {other}"))),
    }
}

/// Who decodes, by its name.
pub(crate) fn decode_by(name: &str) -> PyResult<DecodeBy> {
    name.parse().map_err(PyValueError::new_err::<String>)
}

/// What was sent to a device.
pub(crate) fn dict_from<'py>(py: Python<'py>, sent: &Sent) -> PyResult<Bound<'py, PyDict>> {
    let Sent {
        name,
        stats,
        placed,
    } = sent;
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("batches", stats.batches)?;
    dict.set_item("transfers", stats.transfers)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("jpegs", stats.jpegs)?;
    dict.set_item("slots", stats.slots)?;
    dict.set_item("overflow", stats.overflow)?;
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
