//! Tensors of the user's, filled with the next batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::Error;
use infeed::device::any::{AnyMemory, AnyQueue, Kind};
use infeed::device::ring::Ring;
use infeed::device::{Any, Cuda, Device};
use infeed::loader::ahead::{DeviceLoader, PartsStep};
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
    /// By the device's place among the loader's, and field.
    by_field: HashMap<(usize, String), Arc<AnyMemory>>,
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

/// The same as memory of a card.
type OnCard = (String, Arc<AnyMemory>);

/// What a field of a device's is filled into, by its name.
pub(crate) type Given<'py> = Vec<(String, Bound<'py, PyAny>)>;

impl Places {
    /// Fills tensors of each device with its part of the next batch: of the epoch, or of the next one where
    /// that is over.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        on: &DeviceLoader<Any>,
        each: Vec<Given<'_>>,
        streams: &[Option<Bound<'_, PyAny>>],
        patience: Duration,
    ) -> PyResult<Filled> {
        let rings = on.rings();
        if each.len() != rings.len() || streams.len() != rings.len() {
            let problem = format!(
                "a step has a part on each of {} devices; give tensors, and streams if any, for each of \
                 them, in their order",
                rings.len()
            );
            return raise(py, Err(Error::config("next_into", problem)));
        }
        let mut places = Vec::with_capacity(each.len());
        for (at, tensors) in each.into_iter().enumerate() {
            let mut found = Vec::with_capacity(tensors.len());
            for (field, tensor) in tensors {
                let at = Spot::of(on, at, &field);
                let tensor = Foreign::of(&tensor).map_err(|error| refused(py, &at, error))?;
                raise(py, fits(on, &at, &tensor))?;
                found.push((field, tensor));
            }
            places.push(found);
        }
        let cards = rings.iter().map(|ring| match ring.device() {
            Any::Cuda(cuda) => Some(cuda),
            Any::Sim(_) => None,
        });
        let Some(cards) = cards.collect::<Option<Vec<&Cuda>>>() else {
            return simulated(py, on, &places, streams, patience);
        };
        let queue = |stream: &Option<Bound<'_, PyAny>>| {
            let named = stream.as_ref().map_or(Ok(Queue::LEGACY), stream_from);
            named.map(Kind::Cuda)
        };
        let queues: Vec<AnyQueue> = streams.iter().map(queue).collect::<PyResult<_>>()?;
        let memory = raise(py, self.memory(&cards, places))?;
        let targets: Vec<Vec<_>> = memory
            .iter()
            .map(|of| {
                of.iter()
                    .map(|(name, memory)| (name.as_str(), memory))
                    .collect()
            })
            .collect();
        let each = queues.into_iter().zip(targets.iter().map(Vec::as_slice));
        let each: Vec<_> = each.collect();
        taken(py, || {
            Ok(match on.next_into_each(patience, &each)? {
                IntoStep::Filled(filled) => Got::Filled(filled),
                IntoStep::End => Got::Again,
                IntoStep::Timeout => Got::Timeout,
            })
        })
    }

    /// The tensors as memory of their cards.
    fn memory(&self, cards: &[&Cuda], places: Vec<Vec<Named>>) -> Result<Vec<Vec<OnCard>>, Error> {
        let mut kept = self.lock();
        let is_busy = |memory: &Arc<AnyMemory>| match &**memory {
            Kind::Cuda(memory) => !memory.is_idle(),
            Kind::Sim(_) => false,
        };
        kept.retired.retain(is_busy);
        let mut all = Vec::with_capacity(places.len());
        for (at, (card, tensors)) in cards.iter().zip(places).enumerate() {
            let mut of = Vec::with_capacity(tensors.len());
            for (field, tensor) in tensors {
                let key = (at, field.clone());
                let memory = match kept.by_field.get(&key) {
                    Some(memory) if is_of(memory, &tensor) => Arc::clone(memory),
                    _ => {
                        let made = tensor.on_card(card.context());
                        let made = made.map_err(|error| problem(&field, error.to_string()))?;
                        let made = Arc::new(Kind::Cuda(Arc::new(made)));
                        let before = kept.by_field.insert(key, Arc::clone(&made));
                        kept.retired.extend(before);
                        made
                    }
                };
                of.push((field, memory));
            }
            all.push(of);
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

/// Fills tensors of the host's with what simulated devices have.
fn simulated(
    py: Python<'_>,
    on: &DeviceLoader<Any>,
    places: &[Vec<Named>],
    streams: &[Option<Bound<'_, PyAny>>],
    patience: Duration,
) -> PyResult<Filled> {
    if streams.iter().any(Option::is_some) {
        return Err(no_streams());
    }
    let is_card = |ring: &Ring<Any>| matches!(ring.device(), Any::Cuda(_));
    if on.rings().iter().any(is_card) {
        let names: Vec<_> = on.rings().iter().map(|r| r.device().name()).collect();
        let problem = format!(
            "{} are cards and simulated devices; open with devices of one kind",
            names.join(", ")
        );
        return raise(py, Err(Error::config("next_into", problem)));
    }
    taken(py, || copied(on, places, patience))
}

/// The next batch of simulated devices, copied by the host.
fn copied(on: &DeviceLoader<Any>, places: &[Vec<Named>], patience: Duration) -> Result<Got, Error> {
    let parts = match on.next_parts(patience, &[])? {
        PartsStep::Parts(parts) => parts,
        PartsStep::End => return Ok(Got::Again),
        PartsStep::Timeout => return Ok(Got::Timeout),
    };
    let mut filled: Option<Filled> = None;
    for (part, tensors) in parts.iter().zip(places) {
        for (field, tensor) in tensors {
            let Some(array) = part.array(field)? else {
                return Err(problem(field, "it is not on the device"));
            };
            let bytes = array.to_host()?;
            let copied = tensor.fill(&bytes);
            copied.map_err(|error| problem(field, error.to_string()))?;
        }
        let of = filled.get_or_insert(Filled {
            epoch: part.epoch(),
            step: part.step(),
            samples: 0,
        });
        of.samples += part.samples();
    }
    Ok(filled.map_or(Got::Timeout, Got::Filled))
}

/// A field on one of the loader's devices.
struct Spot<'a> {
    field: &'a str,
    /// The device's place among them; none where there is one.
    at: Option<usize>,
    place: Place,
    /// As PyTorch names it.
    device: String,
}

impl<'a> Spot<'a> {
    fn of(on: &DeviceLoader<Any>, at: usize, field: &'a str) -> Spot<'a> {
        let (place, device) = match on.rings()[at].device() {
            Any::Cuda(cuda) => {
                let ordinal = cuda.card().ordinal;
                (Place::Card(ordinal), format!("cuda:{ordinal}"))
            }
            Any::Sim(_) => (Place::Host, "cpu".to_owned()),
        };
        Spot {
            field,
            at: (on.rings().len() > 1).then_some(at),
            place,
            device,
        }
    }

    fn problem(&self, problem: impl Into<String>) -> Error {
        match self.at {
            None => self::problem(self.field, problem),
            Some(at) => {
                let what = format!("next_into, tensors[{at}], field `{}`", self.field);
                Error::config(what, problem)
            }
        }
    }
}

/// Whether a tensor is one that a field of every batch can be copied to.
fn fits(on: &DeviceLoader<Any>, spot: &Spot<'_>, tensor: &Foreign) -> Result<(), Error> {
    let (dtype, shape) = on.place_of(spot.field)?;
    let named = &spot.device;
    let (are, whose) = match spot.at {
        None => ("the batches are", "the batches'"),
        Some(_) => ("this part of the batches is", "this part's"),
    };
    let is_wrong = if tensor.place() != spot.place {
        format!("is on {}, and {are} on {named}", name_of(tensor.place()))
    } else if tensor.dtype() != data_type(dtype) {
        let found = tensor.dtype().name().unwrap_or("of a type not known here");
        format!("is {found}, and {whose} {}", dtype.name())
    } else if tensor.shape() != shape {
        format!("has shape {:?}, and {whose} {shape:?}", tensor.shape())
    } else if !tensor.is_contiguous() {
        "has gaps between its elements, or another order of them".to_owned()
    } else if tensor.is_read_only() {
        "is read-only".to_owned()
    } else {
        return Ok(());
    };
    let mend = mend(&shape, dtype, named);
    Err(spot.problem(format!("the tensor {is_wrong}; make it by {mend}")))
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
fn refused(py: Python<'_>, spot: &Spot<'_>, raised: PyErr) -> PyErr {
    // Ctrl-C and the end of the interpreter are not about the tensor.
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let error = exception_from(py, &spot.problem(line(py, &raised)));
    error.set_cause(py, Some(raised));
    error
}
