//! Conversions at the boundary to Python: arrays to DLPack capsules, buffers to bytes, consumers'
//! streams to queues.

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda::{Consumer, Queue};
use crate::dlpack::{ManagedTensor, ManagedTensorVersioned, Tensor};

/// Name of a capsule with a struct from before version 1.
pub(crate) const LEGACY: &CStr = c"dltensor";

/// Name of a capsule with a struct of version 1.
pub(crate) const VERSIONED: &CStr = c"dltensor_versioned";

/// Returns the capsule for `__dlpack__(max_version=...)`: versioned if the consumer accepts version
/// 1, else legacy.
///
/// A consumer renames the capsule and takes over the deleter. A capsule that is never consumed
/// frees the tensor itself.
///
/// # Errors
///
/// If Python has no memory for the capsule; the tensor is then freed.
pub fn dlpack_capsule<'py>(
    py: Python<'py>,
    tensor: Tensor,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyAny>> {
    if max_version.is_some_and(|(major, _)| major >= 1) {
        let managed = tensor.into_managed_versioned();
        return capsule(py, managed, VERSIONED, free_versioned, delete_versioned);
    }
    capsule(
        py,
        tensor.into_managed(),
        LEGACY,
        free_legacy,
        delete_legacy,
    )
}

fn capsule<'py, T>(
    py: Python<'py>,
    managed: NonNull<T>,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
    delete: unsafe fn(NonNull<T>),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached, as `py` shows; the pointer is not null, and the name is static.
    let object = unsafe {
        let object = ffi::PyCapsule_New(managed.as_ptr().cast(), name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, object)
    };
    if object.is_err() {
        // SAFETY: no capsule was made, so this is the only owner.
        unsafe { delete(managed) };
    }
    object
}

/// # Safety
///
/// `managed` is valid and not used again.
unsafe fn delete_legacy(managed: NonNull<ManagedTensor>) {
    // SAFETY: valid, as the caller promises.
    if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
        // SAFETY: the deleter of this struct, called once, as the caller promises.
        unsafe { deleter(managed.as_ptr()) };
    }
}

/// # Safety
///
/// `managed` is valid and not used again.
unsafe fn delete_versioned(managed: NonNull<ManagedTensorVersioned>) {
    // SAFETY: valid, as the caller promises.
    if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
        // SAFETY: the deleter of this struct, called once, as the caller promises.
        unsafe { deleter(managed.as_ptr()) };
    }
}

/// # Safety
///
/// Python calls this once, with a capsule made in [`capsule`] under the name [`LEGACY`].
unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule; Python attaches the thread before it calls a destructor.
    if let Some(managed) = unsafe { unconsumed_pointer(capsule, LEGACY) } {
        // SAFETY: the capsule has its first name, so no consumer has taken over the struct.
        unsafe { delete_legacy(managed) };
    }
}

/// # Safety
///
/// Python calls this once, with a capsule made in [`capsule`] under the name [`VERSIONED`].
unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule; Python attaches the thread before it calls a destructor.
    if let Some(managed) = unsafe { unconsumed_pointer(capsule, VERSIONED) } {
        // SAFETY: the capsule has its first name, so no consumer has taken over the struct.
        unsafe { delete_versioned(managed) };
    }
}

/// Returns the capsule's pointer, unless a consumer has renamed the capsule. Raises no exception,
/// since one may be in flight when a destructor runs.
///
/// # Safety
///
/// `capsule` is a capsule whose pointer under `name` is a `T`; the thread is attached.
unsafe fn unconsumed_pointer<T>(capsule: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<T>> {
    // SAFETY: as the caller promises; the pointer is requested only under the capsule's name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 0 {
            return None;
        }
        NonNull::new(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast())
    }
}

/// Interprets the `stream` argument of `__dlpack__` for an array on a GPU.
///
/// The hazard: a stream is a number here, which the driver follows. The protocol obliges the
/// calling library to pass a stream of this process that lives until the array is released; this
/// cannot be checked.
///
/// # Errors
///
/// `BufferError` for 0 and for other numbers that are not streams; `TypeError` for other objects.
pub fn consumer_stream(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Consumer> {
    let number = stream.map(|stream| stream.extract::<i64>()).transpose()?;
    // SAFETY: the consumer's promise, above.
    unsafe { Queue::from_dlpack(number) }.map_err(|error| PyBufferError::new_err(error.to_string()))
}

/// Returns the stream of a framework's stream object: one with `__cuda_stream__()` as in CUDA's
/// packages, `cuda_stream` as in torch, or `ptr` as in CuPy; or a handle. 0 is the default stream.
///
/// The hazard is that of [`consumer_stream`].
///
/// # Errors
///
/// `TypeError` for other objects, `ValueError` for a negative number.
pub fn stream_from(stream: &Bound<'_, PyAny>) -> PyResult<Queue> {
    let handle = match stream.extract::<i64>() {
        Ok(handle) => handle,
        Err(_) => handle_of(stream)?,
    };
    // SAFETY: the caller's promise, above.
    unsafe { Queue::from_handle(handle) }.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn handle_of(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(protocol) = stream.getattr("__cuda_stream__") {
        let (_version, handle) = protocol.call0()?.extract::<(i64, i64)>()?;
        return Ok(handle);
    }
    for name in ["cuda_stream", "ptr"] {
        if let Ok(handle) = stream.getattr(name) {
            return handle.extract();
        }
    }
    Err(PyTypeError::new_err(format!(
        "{} is not a CUDA stream; pass one such as torch.cuda.current_stream(), or its handle",
        stream.get_type().name()?
    )))
}

/// The bytes of a Python object, in place: a C-contiguous uint8 buffer such as a NumPy array, a
/// `bytes` object or a memory-mapped `.npy`.
///
/// The hazard: while this lives, the object cannot be resized or freed, but Python code can write
/// to its elements, on another thread even while they are read here. Pixels are then old, new or
/// mixed. There are no other consequences, since the readers trust no byte. The documentation asks
/// users not to do this; an array set read-only cannot be written to.
///
/// # Cost
///
/// No copy. Dropping it attaches to the interpreter, so it must not happen while holding a lock
/// that a Python thread waits for. If the interpreter has ended, the memory is leaked.
pub struct BufferView {
    bytes: NonNull<[u8]>,
    /// Keeps `bytes` in place.
    _buffer: PyBuffer<u8>,
}

impl BufferView {
    /// Acquires the object's buffer.
    ///
    /// # Errors
    ///
    /// `BufferError` or `TypeError` if the object has no buffer, or if the buffer is not uint8 or
    /// not C-contiguous.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<BufferView> {
        let buffer = PyBuffer::<u8>::get(object)?;
        let failed = "the array is not C-contiguous; pass numpy.ascontiguousarray(array)";
        let bytes = buffer
            .as_slice_ptr()
            .ok_or_else(|| PyBufferError::new_err(failed))?;
        Ok(BufferView {
            bytes,
            _buffer: buffer,
        })
    }
}

impl AsRef<[u8]> for BufferView {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer is held, so the object keeps the memory valid, initialised and at its
        // address. The user ensures that no code writes to it meanwhile, as the documentation of
        // the type requires; this cannot be checked.
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for BufferView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferView")
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

// SAFETY: `bytes` is only read, and is not bound to a thread; `PyBuffer` is `Send` itself and
// attaches before it releases.
unsafe impl Send for BufferView {}
// SAFETY: as above.
unsafe impl Sync for BufferView {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlpack::DataType;
    use crate::slab::Slab;
    use pyo3::types::{PyByteArray, PyBytes};
    use std::sync::Arc;

    fn slab_and_tensor() -> (Arc<Slab>, Tensor) {
        let slab = Arc::new(Slab::zeroed(2, 8).unwrap());
        let tensor = Tensor::new(Arc::clone(&slab), 0, &[2, 8], DataType::U8).unwrap();
        (slab, tensor)
    }

    #[test]
    fn an_unconsumed_capsule_frees_its_tensor() {
        Python::initialize();
        for (max_version, name) in [(None, LEGACY), (Some((1, 0)), VERSIONED)] {
            let (slab, tensor) = slab_and_tensor();
            Python::attach(|py| {
                let capsule = dlpack_capsule(py, tensor, max_version).unwrap();
                // SAFETY: a live capsule, and attached.
                let valid = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) };
                assert_eq!(valid, 1);
                assert_eq!(Arc::strong_count(&slab), 2);
            });
            assert_eq!(Arc::strong_count(&slab), 1);
        }
    }

    #[test]
    fn a_consumed_capsule_leaves_the_tensor_to_its_consumer() {
        Python::initialize();
        let (slab, tensor) = slab_and_tensor();

        let managed = Python::attach(|py| {
            let capsule = dlpack_capsule(py, tensor, None).unwrap();
            // SAFETY: a live capsule, attached; the new name is static.
            unsafe {
                let managed =
                    unconsumed_pointer::<ManagedTensor>(capsule.as_ptr(), LEGACY).unwrap();
                ffi::PyCapsule_SetName(capsule.as_ptr(), c"used_dltensor".as_ptr());
                managed
            }
        });

        assert_eq!(Arc::strong_count(&slab), 2);
        // SAFETY: the consumer's only call.
        unsafe { delete_legacy(managed) };
        assert_eq!(Arc::strong_count(&slab), 1);
    }

    #[test]
    fn the_consumers_stream_is_read_from_its_argument() {
        Python::initialize();
        Python::attach(|py| {
            let eval = |code| py.eval(code, None, None).unwrap();
            assert_eq!(
                consumer_stream(None).unwrap(),
                Consumer::Queue(Queue::LEGACY)
            );
            assert_eq!(
                consumer_stream(Some(&eval(c"-1"))).unwrap(),
                Consumer::NoSync
            );
            let error = consumer_stream(Some(&eval(c"0"))).unwrap_err();
            assert!(error.is_instance_of::<PyBufferError>(py));
            assert!(error.to_string().contains("stream=0 is not a CUDA stream"));
            assert!(consumer_stream(Some(&eval(c"'fast'"))).is_err());
            assert!(consumer_stream(Some(&eval(c"1 << 70"))).is_err());
        });
    }

    #[test]
    fn stream_objects_of_frameworks_are_recognised_by_their_attributes() {
        Python::initialize();
        Python::attach(|py| {
            let stream = |code| stream_from(&py.eval(code, None, None).unwrap());
            let handle = stream(c"0x5000").unwrap();
            for code in [
                c"type('S', (), {'cuda_stream': 0x5000})()",
                c"type('S', (), {'ptr': 0x5000})()",
                c"type('S', (), {'__cuda_stream__': lambda self: (0, 0x5000), 'ptr': 1})()",
            ] {
                assert_eq!(stream(code).unwrap(), handle);
            }
            let default = stream(c"type('S', (), {'cuda_stream': 0})()").unwrap();
            assert_eq!(default, Queue::LEGACY);
            let error = stream(c"[]").unwrap_err().to_string();
            assert!(
                error.contains("list is not a CUDA stream; pass one such as"),
                "{error}"
            );
            assert!(stream(c"-7").is_err());
        });
    }

    #[test]
    fn a_view_holds_the_object_and_can_be_dropped_on_any_thread() {
        Python::initialize();
        let (view, array) = Python::attach(|py| {
            let array = PyByteArray::new(py, b"pixels");
            (BufferView::new(&array).unwrap(), array.unbind())
        });

        assert_eq!(view.as_ref(), b"pixels");
        // An exported buffer cannot be resized.
        Python::attach(|py| assert!(array.bind(py).resize(0).is_err()));
        std::thread::spawn(move || drop(view)).join().unwrap();
        Python::attach(|py| assert!(array.bind(py).resize(0).is_ok()));
    }

    #[test]
    fn objects_other_than_contiguous_uint8_buffers_are_rejected() {
        Python::initialize();
        Python::attach(|py| {
            assert!(BufferView::new(py.None().bind(py)).is_err());
            let eval = |code| py.eval(code, None, None).unwrap();
            assert!(BufferView::new(&eval(c"memoryview(b'abcdef')[::2]")).is_err());
            assert!(BufferView::new(&eval(c"memoryview(b'abcd').cast('i')")).is_err());
            assert!(
                BufferView::new(&PyBytes::new(py, b""))
                    .unwrap()
                    .as_ref()
                    .is_empty()
            );
        });
    }
}
