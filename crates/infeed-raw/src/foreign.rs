//! Tensors of other Python libraries, as targets of copies.
//!
//! **The hazard.** A tensor's address, device and size come from the library that made it, and
//! cannot be checked. DLPack and CUDA's array interface oblige that library to keep the memory
//! valid while its capsule or object is held. Code that accesses the tensor during a copy sees old
//! bytes, new bytes or both, as with every function that fills an array; infeed does not read them.
//!
//! Source: `dlpack.h` of DLPack 1.0; the CUDA array interface, version 3.

use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cuda::{Context, CudaError, GpuMemory};
use crate::dlpack::{DataType, DlTensor, ManagedTensor, ManagedTensorVersioned, READ_ONLY};
use crate::python::{LEGACY, VERSIONED};

/// Upper limit of axes; no library uses more.
const MAX_AXES: usize = 64;

/// Memory that holds a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorLocation {
    /// Host memory.
    Host,
    /// Memory of the GPU with this number in the process.
    Gpu(usize),
    /// Another device, by DLPack's number of its kind.
    Other(i32),
}

/// A writable tensor, whose owner is kept alive.
#[derive(Debug)]
pub struct ForeignTensor {
    location: TensorLocation,
    address: usize,
    bytes: usize,
    dtype: DataType,
    shape: Vec<usize>,
    is_contiguous: bool,
    is_read_only: bool,
    /// Keeps the memory alive: a capsule that is never consumed, or the object itself.
    held: Py<PyAny>,
}

/// A tensor's description by its library, before it is checked.
struct TensorDescription {
    location: TensorLocation,
    address: usize,
    dtype: DataType,
    shape: Vec<i64>,
    /// Strides in elements; None for row-major without gaps.
    strides: Option<Vec<i64>>,
    is_read_only: bool,
}

impl ForeignTensor {
    /// Takes a share of an object with `__dlpack__` or `__cuda_array_interface__`.
    ///
    /// Waits for nothing: the caller orders the copies.
    ///
    /// # Errors
    ///
    /// `TypeError` if it has neither; exceptions of its methods, as for a tensor that needs
    /// gradients; `BufferError` if the description is inconsistent.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<ForeignTensor> {
        if object.hasattr("__dlpack__")? {
            let (description, capsule) = from_dlpack(object)?;
            return ForeignTensor::new(description, capsule.unbind());
        }
        if let Ok(interface) = object.getattr("__cuda_array_interface__") {
            return ForeignTensor::new(from_interface(&interface)?, object.clone().unbind());
        }
        Err(PyTypeError::new_err(format!(
            "{} is not a tensor: it has neither __dlpack__ nor __cuda_array_interface__",
            object.get_type().name()?
        )))
    }

    fn new(description: TensorDescription, held: Py<PyAny>) -> PyResult<ForeignTensor> {
        let wrong = |what: &str| PyBufferError::new_err(format!("the tensor's {what}"));
        let extents = description
            .shape
            .iter()
            .map(|&extent| usize::try_from(extent));
        let shape: Vec<usize> = extents
            .collect::<Result<_, _>>()
            .map_err(|_| wrong("shape is negative"))?;
        let bytes = shape
            .iter()
            .try_fold(description.dtype.bytes(), |n, &extent| {
                n.checked_mul(extent)
            })
            .filter(|&bytes| description.address.checked_add(bytes).is_some())
            .ok_or_else(|| wrong("shape is larger than memory"))?;
        if description.address == 0 && bytes > 0 {
            return Err(wrong("address is null"));
        }
        let is_contiguous = match &description.strides {
            None => true,
            Some(strides) => bytes == 0 || is_row_major(&shape, strides),
        };
        Ok(ForeignTensor {
            location: description.location,
            address: description.address,
            bytes,
            dtype: description.dtype,
            shape,
            is_contiguous,
            is_read_only: description.is_read_only,
            held,
        })
    }

    /// Memory that holds the tensor.
    pub fn location(&self) -> TensorLocation {
        self.location
    }

    /// Address of its first byte, on its device.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Number of bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether the elements are contiguous, the last axis innermost.
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Whether it is read-only. Old versions of the protocol cannot express this.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn writable(&self) -> Result<(), CudaError> {
        let wrong = |what: &str| Err(CudaError::Mismatch(what.to_owned()));
        match (self.is_contiguous, self.is_read_only) {
            (false, _) => wrong("the tensor is not contiguous"),
            (_, true) => wrong("the tensor is read-only"),
            (true, false) => Ok(()),
        }
    }

    /// Writes the tensor, in host memory.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] if it is in other memory, has gaps, is read-only, or has another
    /// length.
    pub fn fill(&self, bytes: &[u8]) -> Result<(), CudaError> {
        self.writable()?;
        if self.location != TensorLocation::Host || bytes.len() != self.bytes {
            let what = "the tensor is not on the host, or has another length";
            return Err(CudaError::Mismatch(what.to_owned()));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: the tensor's `bytes.len()` bytes start at this address, row-major and without
        // gaps, and stay valid while `held` is alive. That the library describes them correctly is
        // the hazard at the head of this file. `bytes` belongs to the caller and is only read.
        unsafe { std::ptr::copy(bytes.as_ptr(), start, bytes.len()) };
        Ok(())
    }

    /// Wraps the tensor as GPU memory, to copy to. Holds the tensor until the commands on the
    /// memory are done.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] if it is not on that GPU, has gaps or is read-only.
    pub fn on_gpu(self, context: &Arc<Context>) -> Result<GpuMemory, CudaError> {
        self.writable()?;
        if self.location != TensorLocation::Gpu(context.gpu().ordinal) {
            let what = "the tensor is not on that GPU";
            return Err(CudaError::Mismatch(what.to_owned()));
        }
        let held = Box::new(self.held);
        // SAFETY: the tensor's bytes start at this address on this GPU and stay valid while `held`
        // is alive. That the library describes them correctly is the hazard at the head of this
        // file.
        Ok(unsafe { GpuMemory::foreign(context, self.address as u64, self.bytes, held) })
    }
}

/// Whether the elements are contiguous. Strides along axes of one element do not matter.
fn is_row_major(shape: &[usize], strides: &[i64]) -> bool {
    let mut step = 1_i64;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 && stride != step {
            return false;
        }
        // Cannot overflow: the product of all extents was checked, and none is 0.
        step = step.saturating_mul(extent as i64);
    }
    shape.len() == strides.len()
}

fn from_dlpack<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<(TensorDescription, Bound<'py, PyAny>)> {
    let py = object.py();
    let (kind, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let arguments = PyDict::new(py);
    // -1: the producer need not wait, since the caller orders the copies. The CPU has no streams.
    if kind == CUDA {
        arguments.set_item("stream", -1)?;
    }
    let plain = arguments.copy()?;
    arguments.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Older libraries do not support that argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method("__dlpack__", (), Some(&plain))?
        }
        capsule => capsule?,
    };
    let pointer = |name: &std::ffi::CStr| {
        // SAFETY: a Python object, attached; the pointer is requested only under the capsule's
        // name.
        unsafe {
            match ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) {
                0 => std::ptr::null_mut(),
                _ => ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()),
            }
        }
    };
    let (versioned, legacy) = (pointer(VERSIONED), pointer(LEGACY));
    let description = if !versioned.is_null() {
        let managed = versioned.cast::<ManagedTensorVersioned>();
        // SAFETY: a capsule with this name contains such a struct until its deleter is called. The
        // deleter runs when the capsule is freed, since no consumer has taken it over. The version
        // is the first field in all versions.
        unsafe {
            if (*managed).major != 1 {
                let text = "the DLPack version of the tensor is not supported";
                return Err(PyBufferError::new_err(text));
            }
            description_of(&(*managed).tensor, (*managed).flags & READ_ONLY != 0)?
        }
    } else if !legacy.is_null() {
        // SAFETY: as above.
        unsafe { description_of(&(*legacy.cast::<ManagedTensor>()).tensor, false)? }
    } else {
        let text = "__dlpack__ did not return an unconsumed DLPack capsule";
        return Err(PyBufferError::new_err(text));
    };
    Ok((description, capsule))
}

/// `kDLCPU`, `kDLCUDA`, `kDLCUDAHost`, `kDLCUDAManaged`.
const CPU: i32 = 1;
const CUDA: i32 = 2;
const PINNED: i32 = 3;
const MANAGED: i32 = 13;

/// # Safety
///
/// Shape and strides are null or have as many entries as the tensor's `ndim`.
unsafe fn description_of(tensor: &DlTensor, is_read_only: bool) -> PyResult<TensorDescription> {
    let wrong = |what: &str| PyBufferError::new_err(format!("the tensor's {what}"));
    let axes = usize::try_from(tensor.ndim).map_err(|_| wrong("number of axes is negative"))?;
    if axes > MAX_AXES || (axes > 0 && tensor.shape.is_null()) {
        return Err(wrong("axes are too many, or its shape is missing"));
    }
    let list = |start: *const i64| -> Vec<i64> {
        match axes {
            0 => Vec::new(),
            // SAFETY: not null if it is required, and as long as the caller promises.
            axes => unsafe { std::slice::from_raw_parts(start, axes) }.to_vec(),
        }
    };
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| wrong("offset is too large"))?;
    let start = tensor.data.expose_provenance();
    let address = start.checked_add(offset);
    let ordinal = usize::try_from(tensor.device.device_id).unwrap_or(usize::MAX);
    Ok(TensorDescription {
        location: match tensor.device.device_type {
            CPU | PINNED => TensorLocation::Host,
            CUDA | MANAGED => TensorLocation::Gpu(ordinal),
            other => TensorLocation::Other(other),
        },
        address: address.ok_or_else(|| wrong("offset is too large"))?,
        dtype: tensor.dtype,
        shape: list(tensor.shape),
        strides: (!tensor.strides.is_null()).then(|| list(tensor.strides)),
        is_read_only,
    })
}

/// The array interface does not name the GPU, but the driver knows it.
fn from_interface(interface: &Bound<'_, PyAny>) -> PyResult<TensorDescription> {
    let item = |name: &str| interface.get_item(name);
    let (address, is_read_only): (usize, bool) = item("data")?.extract()?;
    let typestr: String = item("typestr")?.extract()?;
    let shape: Vec<i64> = item("shape")?.extract()?;
    let unknown =
        || PyBufferError::new_err(format!("the tensor's type {typestr} is not supported"));
    let dtype = DataType::from_typestr(&typestr).ok_or_else(unknown)?;
    let strides: Option<Vec<i64>> = match interface.call_method1("get", ("strides",))? {
        none if none.is_none() => None,
        // Strides are in bytes here.
        some => {
            let bytes: Vec<i64> = some.extract()?;
            let size = dtype.bytes() as i64;
            let whole = |&step: &i64| if step % size == 0 { step / size } else { 0 };
            Some(bytes.iter().map(whole).collect())
        }
    };
    let ordinal = crate::cuda::gpu_of(address as u64).ok_or_else(|| {
        PyBufferError::new_err("the tensor's address is not on a GPU that the driver knows")
    })?;
    Ok(TensorDescription {
        location: TensorLocation::Gpu(ordinal),
        address,
        dtype,
        shape,
        strides,
        is_read_only,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlpack::Tensor;
    use crate::python::dlpack_capsule;
    use crate::slab::Slab;

    /// A Python object whose methods return a capsule for a slab's rows of eight bytes.
    fn object<'py>(
        py: Python<'py>,
        slab: &Arc<Slab>,
        read_only: bool,
        version: Option<(u32, u32)>,
    ) -> Bound<'py, PyAny> {
        let tensor = Tensor::new(Arc::clone(slab), 0, &[2, 2], DataType::F32).unwrap();
        let tensor = if read_only {
            tensor.read_only()
        } else {
            tensor
        };
        let capsule = dlpack_capsule(py, tensor, version).unwrap();
        let locals = PyDict::new(py);
        locals.set_item("capsule", capsule).unwrap();
        // An old library does not support the version argument, and is called again without it.
        let code = match version {
            None => c"type('T', (), {'__dlpack_device__': lambda self: (1, 0), '__dlpack__': (lambda capsule: lambda self: capsule)(capsule)})()",
            Some(_) => c"type('T', (), {'__dlpack_device__': lambda self: (1, 0), '__dlpack__': (lambda capsule: lambda self, max_version: capsule)(capsule)})()",
        };
        py.eval(code, None, Some(&locals)).unwrap()
    }

    /// Frees the types of the test, which refer to themselves.
    fn collect(py: Python<'_>) {
        py.import("gc").unwrap().call_method0("collect").unwrap();
    }

    #[test]
    fn a_tensor_of_either_version_is_described_and_written() {
        Python::initialize();
        for version in [None, Some((1, 0))] {
            let slab = Arc::new(Slab::zeroed(2, 8).unwrap());
            Python::attach(|py| {
                let foreign = ForeignTensor::of(&object(py, &slab, false, version)).unwrap();
                assert_eq!(foreign.location(), TensorLocation::Host);
                assert_eq!(
                    (foreign.shape(), foreign.dtype()),
                    (&[2, 2][..], DataType::F32)
                );
                assert!(foreign.is_contiguous() && !foreign.is_read_only());

                foreign.fill(&[7; 16]).unwrap();

                assert_eq!((*slab).as_ref(), [7; 16]);
                assert!(foreign.fill(&[7; 15]).is_err(), "another length");
                let context = crate::cuda::testing::context();
                assert!(foreign.on_gpu(&context).is_err(), "not on a GPU");
                collect(py);
            });
            assert_eq!(Arc::strong_count(&slab), 1, "released");
        }
    }

    #[test]
    fn a_tensor_that_is_read_only_is_not_written() {
        Python::initialize();
        let slab = Arc::new(Slab::zeroed(2, 8).unwrap());
        Python::attach(|py| {
            let foreign = ForeignTensor::of(&object(py, &slab, true, Some((1, 0)))).unwrap();

            assert!(foreign.is_read_only());
            assert!(foreign.fill(&[7; 16]).is_err());
            assert_eq!((*slab).as_ref(), [0; 16]);
        });
    }

    #[test]
    fn an_object_without_an_unconsumed_tensor_is_rejected() {
        Python::initialize();
        Python::attach(|py| {
            let error = ForeignTensor::of(&py.eval(c"[1]", None, None).unwrap()).unwrap_err();
            assert!(
                error.to_string().contains("list is not a tensor"),
                "{error}"
            );

            let slab = Arc::new(Slab::zeroed(2, 8).unwrap());
            let object = object(py, &slab, false, None);
            let capsule = object.call_method0("__dlpack__").unwrap();
            // SAFETY: a live capsule, attached; the name is static.
            unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), c"used_dltensor".as_ptr()) };
            let error = ForeignTensor::of(&object).unwrap_err();
            assert!(error.to_string().contains("unconsumed"), "{error}");
            // SAFETY: as above; restores the name under which the capsule is freed.
            unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), LEGACY.as_ptr()) };
        });
    }

    #[test]
    fn an_address_on_no_gpu_is_rejected() {
        Python::initialize();
        Python::attach(|py| {
            let code = c"type('T', (), {'__cuda_array_interface__': {'version': 3, 'shape': (2,), 'typestr': '<f4', 'data': (64, False)}})()";
            let error = ForeignTensor::of(&py.eval(code, None, None).unwrap()).unwrap_err();
            assert!(error.to_string().contains("not on a GPU"), "{error}");
            let code = c"type('T', (), {'__cuda_array_interface__': {'version': 3, 'shape': (2,), 'typestr': '<c8', 'data': (64, False)}})()";
            let error = ForeignTensor::of(&py.eval(code, None, None).unwrap()).unwrap_err();
            assert!(error.to_string().contains("type <c8"), "{error}");
        });
    }

    #[test]
    fn strides_along_axes_of_one_element_are_ignored() {
        assert!(is_row_major(&[4, 3, 2], &[6, 2, 1]));
        assert!(is_row_major(&[4, 1, 2], &[2, 77, 1]));
        assert!(is_row_major(&[], &[]));
        assert!(!is_row_major(&[4, 3], &[1, 4]), "transposed");
        assert!(!is_row_major(&[4, 3], &[6, 2]), "every other element");
    }

    #[test]
    fn foreign_memory_is_held_until_its_commands_are_done_and_never_freed() {
        Python::initialize();
        let context = crate::cuda::testing::context();
        let queue = context.stream().unwrap();
        let slab = Arc::new(Slab::zeroed(2, 8).unwrap());
        let foreign =
            Python::attach(|py| ForeignTensor::of(&object(py, &slab, false, None)).unwrap());
        let other = Arc::new(context.memory(16).unwrap());
        let held = Box::new(foreign.held);
        // SAFETY: the memory has that many bytes, and outlives this one.
        let memory = Arc::new(unsafe { GpuMemory::foreign(&context, other.address(), 16, held) });
        let source = Arc::new(vec![9_u8; 16]);
        let from = Arc::new(context.memory(16).unwrap());
        drop(context.copy(queue, source, 16, &from, 0).unwrap());

        context.copy_within(queue, &from, &memory, 16).unwrap();
        drop(memory);

        Python::attach(collect);
        assert_eq!(Arc::strong_count(&slab), 1);
        let seen = Slab::zeroed(1, 16).unwrap();
        let seen = context.read(queue, &other, seen).unwrap();
        assert_eq!(seen.as_ref(), [9; 16]);
        drop(other);
        assert_eq!(fake_cuda::testing::live("memory"), 1, "of `from`");
    }
}
