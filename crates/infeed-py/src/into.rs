//! Tensors of the user's, filled with the next batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::Error;
use infeed::device::any::{AnyMemory, Kind};
use infeed::device::{Any, Cuda};
use infeed::loader::ahead::{DeviceLoader, DeviceStep};
use infeed::loader::into::{Filled, IntoStep};
use infeed::sample::DType;
use infeed_raw::cuda::Queue;
use infeed_raw::foreign::{Foreign, Place};
use infeed_raw::python::stream_from;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::data_type;
use crate::device::no_streams;
use crate::error::{exception_from, raise};
use crate::log;
use crate::raised::line;

/// Tensors on a card that copies may be under way to.
#[derive(Default)]
pub(crate) struct Places {
    kept: Mutex<Kept>,
}

/// A tensor that comes again is one memory, so that nobody waits for its last copy to let go of it.
#[derive(Default)]
struct Kept {
    by_field: HashMap<String, Arc<AnyMemory>>,
    /// Tensors that came before, until nothing is under way to them.
    retired: Vec<Arc<AnyMemory>>,
}

/// What a call got.
enum Got {
    Filled(Filled),
    Again,
    Timeout,
}

/// A field's name and the tensor for it, which fits.
type Named = (String, Foreign);

impl Places {
    /// Fills tensors with the next batch: of the epoch, or of the next one where that is over.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        on: &DeviceLoader<Any>,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        stream: Option<&Bound<'_, PyAny>>,
        patience: Duration,
    ) -> PyResult<Filled> {
        let mut places = Vec::with_capacity(tensors.len());
        for (field, tensor) in tensors {
            let found = Foreign::of(&tensor).map_err(|error| refused(py, &field, error))?;
            raise(py, fits(on, &field, &found))?;
            places.push((field, found));
        }
        match on.ring().device() {
            Any::Cuda(cuda) => {
                let queue = stream.map_or(Ok(Queue::LEGACY), stream_from)?;
                let memory = raise(py, self.memory(cuda, places))?;
                let targets: Vec<_> = memory.iter().map(|(n, m)| (n.as_str(), m)).collect();
                taken(py, || {
                    Ok(match on.next_into(patience, Kind::Cuda(queue), &targets)? {
                        IntoStep::Filled(filled) => Got::Filled(filled),
                        IntoStep::End => Got::Again,
                        IntoStep::Timeout => Got::Timeout,
                    })
                })
            }
            Any::Sim(_) if stream.is_some() => Err(no_streams()),
            Any::Sim(_) => taken(py, || copied(on, &places, patience)),
        }
    }

    /// The tensors as memory of the card.
    fn memory(
        &self,
        cuda: &Cuda,
        places: Vec<Named>,
    ) -> Result<Vec<(String, Arc<AnyMemory>)>, Error> {
        let mut kept = self.lock();
        let is_busy = |memory: &Arc<AnyMemory>| match &**memory {
            Kind::Cuda(memory) => !memory.is_idle(),
            Kind::Sim(_) => false,
        };
        kept.retired.retain(is_busy);
        let mut all = Vec::with_capacity(places.len());
        for (field, tensor) in places {
            let memory = match kept.by_field.get(&field) {
                Some(memory) if is_of(memory, &tensor) => Arc::clone(memory),
                _ => {
                    let made = tensor.on_card(cuda.context());
                    let made = made.map_err(|error| problem(&field, error.to_string()))?;
                    let made = Arc::new(Kind::Cuda(Arc::new(made)));
                    let before = kept.by_field.insert(field.clone(), Arc::clone(&made));
                    kept.retired.extend(before);
                    made
                }
            };
            all.push((field, memory));
        }
        Ok(all)
    }

    /// Waits for the copies that are under way, and lets go of the tensors.
    pub(crate) fn close(&self) {
        let kept = std::mem::take(&mut *self.lock());
        drop(kept);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // What it guards is whole after every statement.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of(memory: &AnyMemory, tensor: &Foreign) -> bool {
    match memory {
        Kind::Cuda(memory) => {
            (memory.address(), memory.len()) == (tensor.address(), tensor.bytes())
        }
        Kind::Sim(_) => false,
    }
}

/// Calls until there is a batch, beginning the next epoch where one is over.
fn taken(py: Python<'_>, next: impl Fn() -> Result<Got, Error> + Sync) -> PyResult<Filled> {
    loop {
        let got = py.detach(&next);
        log::hand_over(py)?;
        match raise(py, got)? {
            Got::Filled(filled) => return Ok(filled),
            Got::Again => {}
            Got::Timeout => py.check_signals()?,
        }
    }
}

/// The next batch of a simulated device, copied by the host.
fn copied(on: &DeviceLoader<Any>, places: &[Named], patience: Duration) -> Result<Got, Error> {
    let batch = match on.next_within(patience, None)? {
        DeviceStep::Batch(batch) => batch,
        DeviceStep::End => return Ok(Got::Again),
        DeviceStep::Timeout => return Ok(Got::Timeout),
    };
    for (field, tensor) in places {
        let Some(array) = batch.array(field)? else {
            return Err(problem(field, "it is not on the device"));
        };
        let bytes = array.to_host()?;
        let filled = tensor.fill(&bytes);
        filled.map_err(|error| problem(field, error.to_string()))?;
    }
    Ok(Got::Filled(Filled {
        epoch: batch.epoch(),
        step: batch.step(),
        samples: batch.samples(),
    }))
}

/// Whether a tensor is one that a field of every batch can be copied to.
fn fits(on: &DeviceLoader<Any>, field: &str, tensor: &Foreign) -> Result<(), Error> {
    let (dtype, shape) = on.place_of(field)?;
    let (place, named) = match on.ring().device() {
        Any::Cuda(cuda) => {
            let ordinal = cuda.card().ordinal;
            (Place::Card(ordinal), format!("cuda:{ordinal}"))
        }
        Any::Sim(_) => (Place::Host, "cpu".to_owned()),
    };
    let is_wrong = if tensor.place() != place {
        format!(
            "is on {}, and the batches are on {named}",
            name_of(tensor.place())
        )
    } else if tensor.dtype() != data_type(dtype) {
        let found = tensor.dtype().name().unwrap_or("of a type not known here");
        format!("is {found}, and the batches' {}", dtype.name())
    } else if tensor.shape() != shape {
        format!("has shape {:?}, and the batches' {shape:?}", tensor.shape())
    } else if !tensor.is_contiguous() {
        "has gaps between its elements, or another order of them".to_owned()
    } else if tensor.is_read_only() {
        "is read-only".to_owned()
    } else {
        return Ok(());
    };
    let mend = mend(&shape, dtype, &named);
    Err(problem(
        field,
        format!("the tensor {is_wrong}; make it by {mend}"),
    ))
}

fn name_of(place: Place) -> String {
    match place {
        Place::Host => "cpu".to_owned(),
        Place::Card(ordinal) => format!("cuda:{ordinal}"),
        Place::Other(kind) => format!("a device of DLPack's kind {kind}"),
    }
}

/// The call that makes a tensor that fits.
fn mend(shape: &[usize], dtype: DType, device: &str) -> String {
    let dtype = dtype.name();
    format!("torch.empty({shape:?}, dtype=torch.{dtype}, device=\"{device}\")")
}

fn problem(field: &str, problem: impl Into<String>) -> Error {
    Error::config(format!("next_into, field `{field}`"), problem)
}

/// What the tensor's own methods raised, with the field's name.
fn refused(py: Python<'_>, field: &str, raised: PyErr) -> PyErr {
    // Ctrl-C and the end of the interpreter are not about the tensor.
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let error = exception_from(py, &problem(field, line(py, &raised)));
    error.set_cause(py, Some(raised));
    error
}
