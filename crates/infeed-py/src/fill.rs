//! Copies of the next batch into tensors of the user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::Error;
use infeed::loader::device::{DeviceLoader, PartsStep};
use infeed::loader::targets::{FilledTargets, IntoStep};
use infeed_core::sample::DType;
use infeed_device::any::{AnyMemory, AnyQueue};
use infeed_device::ring::Ring;
use infeed_device::{AnyDevice, Cuda, Device};
use infeed_raw::cuda::Queue;
use infeed_raw::foreign::{ForeignTensor, TensorLocation};
use infeed_raw::python::stream_from;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::data_type;
use crate::device::no_streams;
use crate::error::{exception_from, raise};
use crate::log;
use crate::raised_exception::line;

/// Tensors on a GPU that copies in flight may write to.
#[derive(Default)]
pub(crate) struct TargetTensors {
    kept: Mutex<KeptMemory>,
}

/// Memory of the tensors of earlier calls. A tensor that the caller passes again keeps its entry,
/// so that no call waits for the end of an earlier copy.
#[derive(Default)]
struct KeptMemory {
    /// By index of the device in the loader, and field.
    by_field: HashMap<(usize, String), Arc<AnyMemory>>,
    /// Tensors of earlier calls that a copy in flight still writes to.
    retired: Vec<Arc<AnyMemory>>,
}

/// Outcome of one wait for the next batch.
enum FillResult {
    Filled(FilledTargets),
    Again,
    Timeout,
}

/// A field's name, and a tensor that passed the checks for it.
type CheckedTensor = (String, ForeignTensor);

/// A field's name, and the tensor as GPU memory.
type FieldMemory = (String, Arc<AnyMemory>);

/// Tensors of one device, by field.
pub(crate) type FieldTensors<'py> = Vec<(String, Bound<'py, PyAny>)>;

impl TargetTensors {
    /// Fills the tensors of each device with its part of the next batch. If the epoch has ended,
    /// this is the first batch of the next epoch.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        on: &DeviceLoader<AnyDevice>,
        each: Vec<FieldTensors<'_>>,
        streams: &[Option<Bound<'_, PyAny>>],
        timeout: Duration,
    ) -> PyResult<FilledTargets> {
        let rings = on.rings();
        if each.len() != rings.len() || streams.len() != rings.len() {
            let problem = format!(
                "a step has one part for each of the {} devices; pass one set of tensors for each device, in \
                 their order, and the same number of streams",
                rings.len()
            );
            return raise(py, Err(Error::config("next_into", problem)));
        }
        let mut checked = Vec::with_capacity(each.len());
        for (at, tensors) in each.into_iter().enumerate() {
            let mut found = Vec::with_capacity(tensors.len());
            for (field, tensor) in tensors {
                let at = TargetField::of(on, at, &field);
                let tensor =
                    ForeignTensor::of(&tensor).map_err(|error| tensor_error(py, &at, error))?;
                raise(py, fits(on, &at, &tensor))?;
                found.push((field, tensor));
            }
            checked.push(found);
        }
        let gpus = rings.iter().map(|ring| ring.device().cuda());
        let Some(gpus) = gpus.collect::<Option<Vec<&Cuda>>>() else {
            return fill_simulated(py, on, &checked, streams, timeout);
        };
        let queue = |stream: &Option<Bound<'_, PyAny>>| {
            let named = stream.as_ref().map_or(Ok(Queue::LEGACY), stream_from);
            named.map(AnyQueue::Cuda)
        };
        let queues: Vec<AnyQueue> = streams.iter().map(queue).collect::<PyResult<_>>()?;
        let memory = raise(py, self.memory(&gpus, checked))?;
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
        wait_for_batch(py, || {
            Ok(match on.next_into_each(timeout, &each)? {
                IntoStep::Filled(filled) => FillResult::Filled(filled),
                IntoStep::End => FillResult::Again,
                IntoStep::Timeout => FillResult::Timeout,
            })
        })
    }

    /// Returns the tensors as memory of their GPUs.
    fn memory(
        &self,
        gpus: &[&Cuda],
        checked: Vec<Vec<CheckedTensor>>,
    ) -> Result<Vec<Vec<FieldMemory>>, Error> {
        let mut kept = self.lock();
        let is_busy =
            |memory: &Arc<AnyMemory>| memory.cuda().is_some_and(|memory| !memory.is_idle());
        kept.retired.retain(is_busy);
        let mut all = Vec::with_capacity(checked.len());
        for (at, (gpu, tensors)) in gpus.iter().zip(checked).enumerate() {
            let mut of = Vec::with_capacity(tensors.len());
            for (field, tensor) in tensors {
                let key = (at, field.clone());
                let memory = match kept.by_field.get(&key) {
                    Some(memory) if is_of(memory, &tensor) => Arc::clone(memory),
                    _ => {
                        let made = tensor.on_gpu(gpu.context());
                        let made = made.map_err(|error| problem(&field, error.to_string()))?;
                        let made = Arc::new(AnyMemory::Cuda(Arc::new(made)));
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

    /// Waits for the copies in flight, and releases the tensors.
    pub(crate) fn close(&self) {
        let kept = std::mem::take(&mut *self.lock());
        drop(kept);
    }

    fn lock(&self) -> MutexGuard<'_, KeptMemory> {
        // The value is valid after every statement, so also after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of(memory: &AnyMemory, tensor: &ForeignTensor) -> bool {
    memory.cuda().is_some_and(|memory| {
        (memory.address(), memory.len()) == (tensor.address(), tensor.bytes())
    })
}

/// Waits until there is a batch. Begins the next epoch when one ends.
fn wait_for_batch(
    py: Python<'_>,
    next: impl Fn() -> Result<FillResult, Error> + Sync,
) -> PyResult<FilledTargets> {
    loop {
        // Before the wait, when an exception of a handler loses no batch.
        log::hand_over(py)?;
        let got = py.detach(&next);
        match raise(py, got)? {
            FillResult::Filled(filled) => return Ok(filled),
            FillResult::Again => {}
            FillResult::Timeout => py.check_signals()?,
        }
    }
}

/// Fills tensors on the host with batches of simulated devices.
fn fill_simulated(
    py: Python<'_>,
    on: &DeviceLoader<AnyDevice>,
    checked: &[Vec<CheckedTensor>],
    streams: &[Option<Bound<'_, PyAny>>],
    timeout: Duration,
) -> PyResult<FilledTargets> {
    if streams.iter().any(Option::is_some) {
        return Err(no_streams());
    }
    let is_gpu = |ring: &Ring<AnyDevice>| ring.device().cuda().is_some();
    if on.rings().iter().any(is_gpu) {
        let names: Vec<_> = on.rings().iter().map(|r| r.device().name()).collect();
        let problem = format!(
            "{} are GPUs and simulated devices; open the pipeline with devices of one kind",
            names.join(", ")
        );
        return raise(py, Err(Error::config("next_into", problem)));
    }
    wait_for_batch(py, || copy_batch(on, checked, timeout))
}

/// Copies the next batch of simulated devices on the host.
fn copy_batch(
    on: &DeviceLoader<AnyDevice>,
    checked: &[Vec<CheckedTensor>],
    timeout: Duration,
) -> Result<FillResult, Error> {
    let parts = match on.next_parts(timeout, &[])? {
        PartsStep::Parts(parts) => parts,
        PartsStep::End => return Ok(FillResult::Again),
        PartsStep::Timeout => return Ok(FillResult::Timeout),
    };
    let mut filled: Option<FilledTargets> = None;
    for (part, tensors) in parts.iter().zip(checked) {
        for (field, tensor) in tensors {
            let Some(array) = part.array(field)? else {
                return Err(problem(
                    field,
                    "the field stays on the host; take it from a batch of the loop",
                ));
            };
            let bytes = array.to_host()?;
            let copied = tensor.fill(&bytes);
            copied.map_err(|error| problem(field, error.to_string()))?;
        }
        let of = filled.get_or_insert(FilledTargets {
            epoch: part.epoch(),
            step: part.step(),
            samples: 0,
        });
        of.samples += part.samples();
    }
    Ok(filled.map_or(FillResult::Timeout, FillResult::Filled))
}

/// A field on one of the loader's devices.
struct TargetField<'a> {
    field: &'a str,
    /// Index of the device. None if the loader has a single device.
    at: Option<usize>,
    place: TensorLocation,
    /// PyTorch's name of the device.
    device: String,
}

impl<'a> TargetField<'a> {
    fn of(on: &DeviceLoader<AnyDevice>, at: usize, field: &'a str) -> TargetField<'a> {
        let (place, device) = match on.rings()[at].device().cuda() {
            Some(cuda) => {
                let ordinal = cuda.gpu().ordinal;
                (TensorLocation::Gpu(ordinal), format!("cuda:{ordinal}"))
            }
            None => (TensorLocation::Host, "cpu".to_owned()),
        };
        TargetField {
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
                let part = format!("next_into, tensors[{at}], field `{}`", self.field);
                Error::config(part, problem)
            }
        }
    }
}

/// Checks that a tensor has the device, type, shape and layout of a field.
fn fits(
    on: &DeviceLoader<AnyDevice>,
    target: &TargetField<'_>,
    tensor: &ForeignTensor,
) -> Result<(), Error> {
    let (dtype, shape) = on.place_of(target.field)?;
    let named = &target.device;
    let (are, whose) = match target.at {
        None => ("the batches are", "the batches'"),
        Some(_) => ("this part of the batches is", "this part's"),
    };
    let is_wrong = if tensor.location() != target.place {
        format!("is on {}, and {are} on {named}", name_of(tensor.location()))
    } else if tensor.dtype() != data_type(dtype) {
        let found = tensor.dtype().name().unwrap_or("of an unknown type");
        format!("is {found}, and {whose} {}", dtype.name())
    } else if tensor.shape() != shape {
        format!("has shape {:?}, and {whose} {shape:?}", tensor.shape())
    } else if !tensor.is_contiguous() {
        "is not contiguous in row-major order".to_owned()
    } else if tensor.is_read_only() {
        "is read-only".to_owned()
    } else {
        return Ok(());
    };
    let fix = fix(&shape, dtype, named);
    Err(target.problem(format!("the tensor {is_wrong}; make it with {fix}")))
}

fn name_of(place: TensorLocation) -> String {
    match place {
        TensorLocation::Host => "cpu".to_owned(),
        TensorLocation::Gpu(ordinal) => format!("cuda:{ordinal}"),
        TensorLocation::Other(kind) => format!("a device of DLPack type {kind}"),
    }
}

/// Returns the PyTorch call that makes a tensor that passes the checks.
fn fix(shape: &[usize], dtype: DType, device: &str) -> String {
    let dtype = dtype.name();
    format!("torch.empty({shape:?}, dtype=torch.{dtype}, device=\"{device}\")")
}

fn problem(field: &str, problem: impl Into<String>) -> Error {
    Error::config(format!("next_into, field `{field}`"), problem)
}

/// Returns the error for an exception that the tensor's methods raised. The error names the field.
fn tensor_error(py: Python<'_>, target: &TargetField<'_>, raised: PyErr) -> PyErr {
    // Ctrl-C and SystemExit are not errors of the tensor.
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let error = exception_from(py, &target.problem(line(py, &raised)));
    error.set_cause(py, Some(raised));
    error
}
