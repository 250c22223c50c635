//! Batches on a device, and their arrays.

use std::sync::Arc;
use std::time::Duration;

use infeed::batch::Values;
use infeed::device::Device;
use infeed::device::cuda::Cuda;
use infeed::device::named::Named;
use infeed::device::ring::{DeviceArray as OnDevice, DeviceBatch, RingStats};
use infeed::device::sim::Sim;
use infeed::loader::State;
use infeed::loader::ahead::{DeviceLoader, DeviceStep, Placement};
use infeed::pipeline::Handle;
use infeed::{Batch, Error, Options, Pipeline};
use infeed_raw::cuda::{Consumer, Queue};
use infeed_raw::dlpack::Tensor;
use infeed_raw::python::{consumer_stream, dlpack_capsule, stream_from};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{CPU, data_type, refuse_copy};
use crate::error::raise;

/// A loader that delivers on a device.
pub(crate) enum Ahead {
    Cuda(DeviceLoader<Cuda>),
    Sim(DeviceLoader<Sim>),
}

/// A batch, wherever it is.
pub(crate) enum Delivered {
    Host(Batch),
    Cuda(DeviceBatch<Cuda>),
    Sim(DeviceBatch<Sim>),
}

/// What a call got.
pub(crate) enum Got {
    Batch(Delivered),
    End,
    Timeout,
}

/// Does the same with either.
macro_rules! either {
    ($of:expr, $kind:ident, $inner:ident => $do:expr) => {
        match $of {
            $kind::Cuda($inner) => $do,
            $kind::Sim($inner) => $do,
        }
    };
}

impl Ahead {
    pub(crate) fn open(
        pipeline: &Pipeline,
        (name, placement, slots): (&str, Placement, usize),
        handles: &[Handle],
        options: &Options,
    ) -> Result<Ahead, Error> {
        Ok(match Named::open(name)? {
            Named::Cuda(cuda) => {
                Ahead::Cuda(pipeline.open_on(cuda, placement, slots, handles, options)?)
            }
            Named::Sim(sim) => {
                Ahead::Sim(pipeline.open_on(sim, placement, slots, handles, options)?)
            }
        })
    }

    pub(crate) fn loader(&self) -> &infeed::Loader {
        either!(self, Ahead, on => on.loader())
    }

    /// The next batch within `patience`, for a consumer that works in this stream of a card.
    pub(crate) fn next_within(
        &self,
        patience: Duration,
        stream: Option<Queue>,
    ) -> Result<Got, Error> {
        Ok(match self {
            Ahead::Cuda(on) => match on.next_within(patience, stream)? {
                DeviceStep::Batch(batch) => Got::Batch(Delivered::Cuda(batch)),
                DeviceStep::End => Got::End,
                DeviceStep::Timeout => Got::Timeout,
            },
            Ahead::Sim(on) => match on.next_within(patience, None)? {
                DeviceStep::Batch(batch) => Got::Batch(Delivered::Sim(batch)),
                DeviceStep::End => Got::End,
                DeviceStep::Timeout => Got::Timeout,
            },
        })
    }

    pub(crate) fn end_epoch(&self) -> Result<(), Error> {
        either!(self, Ahead, on => on.end_epoch())
    }

    pub(crate) fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        either!(self, Ahead, on => on.seek(epoch, step))
    }

    pub(crate) fn restore(&self, state: &State, strict: bool) -> Result<Vec<String>, Error> {
        either!(self, Ahead, on => match strict {
            true => on.restore(state).map(|()| Vec::new()),
            false => on.restore_anyway(state),
        })
    }

    /// Name of the device, and what was sent there.
    pub(crate) fn sent(&self) -> Result<(String, RingStats), Error> {
        either!(self, Ahead, on => Ok((on.ring().device().name(), on.ring().stats()?)))
    }

    pub(crate) fn close(&self) {
        either!(self, Ahead, on => on.close());
    }
}

impl Delivered {
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Delivered::Host(batch) => {
                let names = batch.columns.iter().map(|column| column.name.as_str());
                names.collect()
            }
            Delivered::Cuda(batch) => batch.names().collect(),
            Delivered::Sim(batch) => batch.names().collect(),
        }
    }

    pub(crate) fn records(&self) -> &[u64] {
        match self {
            Delivered::Host(batch) => &batch.records,
            Delivered::Cuda(batch) => batch.records(),
            Delivered::Sim(batch) => batch.records(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        match self {
            Delivered::Host(batch) => batch.epoch,
            Delivered::Cuda(batch) => batch.epoch(),
            Delivered::Sim(batch) => batch.epoch(),
        }
    }

    pub(crate) fn step(&self) -> u64 {
        match self {
            Delivered::Host(batch) => batch.step,
            Delivered::Cuda(batch) => batch.step(),
            Delivered::Sim(batch) => batch.step(),
        }
    }

    /// The column of a field that is on the host.
    pub(crate) fn host(&self, name: &str) -> Option<&Values> {
        match self {
            Delivered::Host(batch) => batch.get(name),
            Delivered::Cuda(batch) => batch.host(name),
            Delivered::Sim(batch) => batch.host(name),
        }
    }

    /// The column of a field that is on the device.
    pub(crate) fn array(&self, name: &str) -> Result<Option<DeviceArray>, Error> {
        let inner = match self {
            Delivered::Host(_) => None,
            Delivered::Cuda(batch) => batch.array(name)?.map(Inner::Cuda),
            Delivered::Sim(batch) => batch.array(name)?.map(Inner::Sim),
        };
        Ok(inner.map(|inner| DeviceArray { inner }))
    }

    /// Says that the stream of an object uses the batch too.
    pub(crate) fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = stream.py();
        match self {
            Delivered::Cuda(batch) => {
                let queue = stream_from(stream)?;
                raise(py, py.detach(|| batch.record_stream(queue)))
            }
            Delivered::Host(_) | Delivered::Sim(_) => Err(no_streams()),
        }
    }
}

fn no_streams() -> PyErr {
    PyTypeError::new_err(
        "the arrays are the CPU's, where there are no streams; open with device=\"cuda\"",
    )
}

/// One column of a batch on a device.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct DeviceArray {
    inner: Inner,
}

enum Inner {
    Cuda(OnDevice<Cuda>),
    Sim(OnDevice<Sim>),
}

#[pymethods]
impl DeviceArray {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, either!(&self.inner, Inner, array => array.shape()))
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        either!(&self.inner, Inner, array => array.dtype()).name()
    }

    #[getter]
    fn device(&self) -> String {
        match &self.inner {
            Inner::Cuda(array) => format!("cuda:{}", ordinal(array)),
            Inner::Sim(_) => "sim".to_owned(),
        }
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| either!(&self.inner, Inner, array => array.synchronize()));
        raise(py, done)
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
        let tensor = match &self.inner {
            Inner::Cuda(array) => {
                let Consumer::Queue(queue) = consumer_stream(stream.as_ref())? else {
                    return Err(PyBufferError::new_err(
                        "stream=-1 does not tell when the memory may be used again; name the \
                         stream that reads it, or use device=None",
                    ));
                };
                raise(py, py.detach(|| array.ready_on(queue)))?;
                let (memory, release) = (Arc::clone(array.memory()), array.clone());
                let (shape, dtype) = (array.shape(), data_type(array.dtype()));
                Tensor::on_card(memory, release, 0, shape, dtype)
            }
            Inner::Sim(array) => {
                if stream.is_some() {
                    return Err(no_streams());
                }
                let host = raise(py, py.detach(|| array.to_host()))?;
                let (shape, dtype) = (array.shape(), data_type(array.dtype()));
                Tensor::new(Arc::new(host), 0, shape, dtype)
            }
        };
        let tensor = tensor.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        dlpack_capsule(py, tensor, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        match &self.inner {
            Inner::Cuda(array) => (2, i32::try_from(ordinal(array)).unwrap_or(i32::MAX)),
            Inner::Sim(_) => CPU,
        }
    }
}

/// Number of the card that an array lies on.
fn ordinal(array: &OnDevice<Cuda>) -> usize {
    array.memory().context().card().ordinal
}

/// What is done where, by its name.
pub(crate) fn placement(name: &str) -> PyResult<Placement> {
    match name {
        "auto" | "device" => Ok(Placement::Device),
        "host" => Ok(Placement::Host),
        other => Err(PyValueError::new_err(format!("unknown placement: {other}"))),
    }
}

/// What was sent to a device.
pub(crate) fn dict_from<'py>(
    py: Python<'py>,
    (name, stats): &(String, RingStats),
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("batches", stats.batches)?;
    dict.set_item("transfers", stats.transfers)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("slots", stats.slots)?;
    dict.set_item("overflow", stats.overflow)?;
    dict.set_item("gap_s", stats.gaps.waited.as_secs_f64())?;
    dict.set_item("gap_batches", stats.gaps.batches)?;
    Ok(dict)
}
