//! A host or GPU buffer as a DLPack tensor, which torch, JAX, TensorFlow, CuPy and NumPy use
//! without a copy.
//!
//! The consumer receives a struct with a deleter, which it calls once, on any thread, with or
//! without the interpreter. The struct refers to memory of Rust only.
//!
//! Source: `dlpack.h` of DLPack 1.0 and the legacy struct of 0.x.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// `DLDevice`: the device that holds the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DlDevice {
    /// `kDLCPU` is 1, `kDLCUDA` is 2.
    pub device_type: i32,
    /// Number among the devices of this type.
    pub device_id: i32,
}

impl DlDevice {
    /// Memory that the processor can address.
    pub const CPU: DlDevice = DlDevice {
        device_type: 1,
        device_id: 0,
    };

    /// `kDLCUDA`: memory of the GPU with this number in the process, as in `cuda:0`.
    pub fn cuda(ordinal: usize) -> DlDevice {
        DlDevice {
            device_type: 2,
            // No machine has that many GPUs.
            device_id: i32::try_from(ordinal).unwrap_or(i32::MAX),
        }
    }
}

/// `DLDataType`: type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DataType {
    /// `uint8`.
    pub const U8: DataType = DataType::of(1, 8);
    /// `uint16`.
    pub const U16: DataType = DataType::of(1, 16);
    /// `uint32`.
    pub const U32: DataType = DataType::of(1, 32);
    /// `uint64`.
    pub const U64: DataType = DataType::of(1, 64);
    /// `int8`.
    pub const I8: DataType = DataType::of(0, 8);
    /// `int16`.
    pub const I16: DataType = DataType::of(0, 16);
    /// `int32`.
    pub const I32: DataType = DataType::of(0, 32);
    /// `int64`.
    pub const I64: DataType = DataType::of(0, 64);
    /// `float16`.
    pub const F16: DataType = DataType::of(2, 16);
    /// `bfloat16`, which NumPy lacks.
    pub const BF16: DataType = DataType::of(4, 16);
    /// `float32`.
    pub const F32: DataType = DataType::of(2, 32);
    /// `float64`.
    pub const F64: DataType = DataType::of(2, 64);
    /// `bool`, one byte each.
    pub const BOOL: DataType = DataType::of(6, 8);

    const fn of(code: u8, bits: u8) -> DataType {
        DataType {
            code,
            bits,
            lanes: 1,
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        usize::from(self.bits / 8) * usize::from(self.lanes)
    }

    /// The type with this array interface name; None for other names.
    #[cfg(feature = "python")]
    pub(crate) fn from_typestr(text: &str) -> Option<DataType> {
        let (code, bytes) = text.strip_prefix(['<', '|', '='])?.split_at_checked(1)?;
        let bits = bytes.parse::<u8>().ok()?.checked_mul(8)?;
        let dtype = match code {
            "i" => DataType::of(0, bits),
            "u" => DataType::of(1, bits),
            "f" => DataType::of(2, bits),
            "b" => DataType::of(6, bits),
            _ => return None,
        };
        dtype.name().is_some().then_some(dtype)
    }

    /// The type's name; None for types other than the above.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            DataType::U8 => "uint8",
            DataType::U16 => "uint16",
            DataType::U32 => "uint32",
            DataType::U64 => "uint64",
            DataType::I8 => "int8",
            DataType::I16 => "int16",
            DataType::I32 => "int32",
            DataType::I64 => "int64",
            DataType::F16 => "float16",
            DataType::BF16 => "bfloat16",
            DataType::F32 => "float32",
            DataType::F64 => "float64",
            DataType::BOOL => "bool",
            _ => return None,
        })
    }
}

/// `DLTensor`: a view of memory.
#[derive(Debug)]
#[repr(C)]
pub struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DlDevice,
    pub(crate) ndim: i32,
    pub(crate) dtype: DataType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

/// `DLManagedTensor`, as before version 1.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    pub(crate) tensor: DlTensor,
    context: *mut c_void,
    /// Frees the struct and its memory; must be called once.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensorVersioned {
    pub(crate) major: u32,
    minor: u32,
    context: *mut c_void,
    /// Frees the struct and its memory; must be called once.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: DlTensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub(crate) const READ_ONLY: u64 = 1;

/// The bytes do not form a tensor of this shape and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The shape needs more bytes than follow the offset, or overflows.
    #[error("the tensor does not fit into the {available_bytes} bytes after its offset")]
    TooLarge {
        /// Bytes from the offset to the end of the buffer.
        available_bytes: usize,
    },
    /// The first element is not aligned.
    #[error("the tensor's address is not aligned to its element type")]
    Misaligned,
}

/// Shared bytes, viewed as a C-contiguous array in host or GPU memory.
///
/// The consumer may write to it unless [`read_only`](Tensor::read_only) is set, which legacy
/// consumers cannot see. So the owner of a writable buffer must neither read the buffer nor share
/// it again: infeed returns each field of a batch once.
pub struct Tensor {
    /// Keeps `data` alive.
    _owner: Box<dyn Any + Send + Sync>,
    /// Address of the first element, which only code of the device may follow.
    data: *mut u8,
    device: DlDevice,
    dtype: DataType,
    shape: Vec<i64>,
    read_only: bool,
}

impl Tensor {
    /// Views the bytes of `owner` from `byte_offset` on as an array of `shape`; an empty shape is a
    /// single element.
    ///
    /// `owner.as_ref()` must return the same bytes for as long as it lives, as buffers do.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if the bytes are too few or misaligned.
    pub fn new<T: AsRef<[u8]> + Send + Sync + 'static>(
        owner: Arc<T>,
        byte_offset: usize,
        shape: &[usize],
        dtype: DataType,
    ) -> Result<Tensor, TensorError> {
        let bytes = (*owner).as_ref();
        let (len, start) = (bytes.len(), bytes.as_ptr().cast_mut());
        // Keeps the bytes at their address: the box's contents do not move.
        Tensor::at(
            Box::new(owner),
            start,
            len,
            DlDevice::CPU,
            byte_offset,
            shape,
            dtype,
        )
    }

    /// `start` is valid for `len` bytes on the device as long as `owner` lives.
    pub(crate) fn at(
        owner: Box<dyn Any + Send + Sync>,
        start: *mut u8,
        len: usize,
        device: DlDevice,
        byte_offset: usize,
        shape: &[usize],
        dtype: DataType,
    ) -> Result<Tensor, TensorError> {
        let available_bytes = len.saturating_sub(byte_offset);
        let failed = TensorError::TooLarge { available_bytes };
        if byte_offset > len {
            return Err(failed);
        }
        let product = |n: usize, &extent: &usize| n.checked_mul(extent);
        // Empty arrays must also have strides that can be represented.
        let strides_fit = shape
            .iter()
            .map(|n| n.max(&1))
            .try_fold(1, product)
            .is_some();
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), product)
            .ok_or(failed)?;
        if !strides_fit || needed > available_bytes || i32::try_from(shape.len()).is_err() {
            return Err(failed);
        }
        let data = start.wrapping_add(byte_offset);
        if !data.addr().is_multiple_of(dtype.bytes()) {
            return Err(TensorError::Misaligned);
        }
        let extents = shape
            .iter()
            .map(|&n| i64::try_from(n))
            .collect::<Result<Vec<_>, _>>();
        let shape = extents.map_err(|_| failed)?;
        Ok(Tensor {
            _owner: owner,
            data,
            device,
            dtype,
            shape,
            read_only: false,
        })
    }

    /// Marks the tensor as read-only. Only versioned consumers see the mark.
    pub fn read_only(mut self) -> Tensor {
        self.read_only = true;
        self
    }

    /// Converts it to a legacy struct, whose deleter must be called once; otherwise the memory
    /// leaks.
    pub fn into_managed(self) -> NonNull<ManagedTensor> {
        let kept = TensorContext::new(self);
        let tensor = kept.view();
        let context = Box::into_raw(kept).cast();
        leak(ManagedTensor {
            tensor,
            context,
            deleter: Some(delete_managed),
        })
    }

    /// Converts it to a struct of version 1.0, whose deleter must be called once; otherwise the
    /// memory leaks.
    pub fn into_managed_versioned(self) -> NonNull<ManagedTensorVersioned> {
        let flags = if self.read_only { READ_ONLY } else { 0 };
        let kept = TensorContext::new(self);
        let tensor = kept.view();
        let context = Box::into_raw(kept).cast();
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedTensorVersioned));
        leak(ManagedTensorVersioned {
            major: 1,
            minor: 0,
            context,
            deleter,
            flags,
            tensor,
        })
    }
}

// SAFETY: `data` points into `owner`, which is `Send` and `Sync`, and is not read or
// written through here.
unsafe impl Send for Tensor {}

fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

/// The data behind the view, kept in `context` until the deleter runs.
struct TensorContext {
    tensor: Tensor,
    strides: Vec<i64>,
}

impl TensorContext {
    fn new(tensor: Tensor) -> Box<TensorContext> {
        let mut strides = vec![1; tensor.shape.len()];
        for n in (1..strides.len()).rev() {
            // Cannot overflow: checked for these extents in `Tensor::new`.
            strides[n - 1] = strides[n] * tensor.shape[n].max(1);
        }
        Box::new(TensorContext { tensor, strides })
    }

    /// The pointers are valid as long as `self`, wherever its box moves: they point to heap memory
    /// that is never resized. Consumers read shape and strides, and write neither.
    fn view(&self) -> DlTensor {
        DlTensor {
            data: self.tensor.data.cast(),
            device: self.tensor.device,
            // Fits: checked in `Tensor::new`.
            ndim: self.tensor.shape.len() as i32,
            dtype: self.tensor.dtype,
            shape: self.tensor.shape.as_ptr().cast_mut(),
            strides: self.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }
}

/// # Safety
///
/// `managed` comes from [`Tensor::into_managed`] and is not used again.
unsafe extern "C" fn delete_managed(managed: *mut ManagedTensor) {
    // SAFETY: `leak` made the pointer from a box, and the consumer calls the deleter once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `Box::into_raw` made the pointer in `into_managed`, and only this function frees it.
    drop(unsafe { Box::from_raw(managed.context.cast::<TensorContext>()) });
}

/// # Safety
///
/// `managed` comes from [`Tensor::into_managed_versioned`] and is not used again.
unsafe extern "C" fn delete_versioned(managed: *mut ManagedTensorVersioned) {
    // SAFETY: `leak` made the pointer from a box, and the consumer calls the deleter once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `Box::into_raw` made the pointer in `into_managed_versioned`, and only this function
    // frees it.
    drop(unsafe { Box::from_raw(managed.context.cast::<TensorContext>()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    fn slab() -> Arc<Slab> {
        let mut slab = Slab::zeroed(2, 24).unwrap();
        slab.as_mut()
            .iter_mut()
            .enumerate()
            .for_each(|(n, byte)| *byte = n as u8);
        Arc::new(slab)
    }

    #[test]
    fn a_legacy_tensor_shows_shape_strides_and_data_until_it_is_deleted() {
        let owner = slab();
        let tensor = Tensor::new(Arc::clone(&owner), 4, &[2, 1, 5], DataType::F32).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);

        let managed = tensor.into_managed();

        // SAFETY: just made, and deleted below.
        let view = unsafe { &managed.as_ref().tensor };
        assert_eq!(
            (view.ndim, view.dtype, view.byte_offset),
            (3, DataType::F32, 0)
        );
        assert_eq!(view.device, DlDevice::CPU);
        // SAFETY: three dimensions, as just checked.
        let (shape, strides) = unsafe {
            (
                std::slice::from_raw_parts(view.shape, 3),
                std::slice::from_raw_parts(view.strides, 3),
            )
        };
        assert_eq!((shape, strides), (&[2, 1, 5][..], &[5, 5, 1][..]));
        // SAFETY: 40 bytes of the slab, from 4 on.
        let data = unsafe { std::slice::from_raw_parts(view.data.cast::<u8>(), 40) };
        assert_eq!(data, &(*owner).as_ref()[4..44]);
        // SAFETY: called once, and `managed` not used again.
        unsafe { (managed.as_ref().deleter.unwrap())(managed.as_ptr()) };
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn a_versioned_tensor_carries_its_version_and_flags_to_another_thread() {
        let owner = slab();
        let tensor = Tensor::new(Arc::clone(&owner), 0, &[], DataType::BF16).unwrap();

        let address = tensor
            .read_only()
            .into_managed_versioned()
            .as_ptr()
            .expose_provenance();
        let deleted = std::thread::spawn(move || {
            let managed = std::ptr::with_exposed_provenance_mut::<ManagedTensorVersioned>(address);
            // SAFETY: this thread is the only user of the new tensor; deleted once.
            unsafe {
                let seen = ((*managed).major, (*managed).flags, (*managed).tensor.ndim);
                ((*managed).deleter.unwrap())(managed);
                seen
            }
        });

        assert_eq!(deleted.join().unwrap(), (1, READ_ONLY, 0));
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn the_memory_outlives_every_other_owner() {
        let tensor = Tensor::new(slab(), 0, &[48], DataType::U8).unwrap();

        let managed = tensor.into_managed();

        // SAFETY: the tensor keeps the slab alive; deleted once.
        unsafe {
            assert_eq!(*managed.as_ref().tensor.data.cast::<u8>().add(47), 47);
            (managed.as_ref().deleter.unwrap())(managed.as_ptr());
        }
    }

    #[test]
    fn a_tensor_that_does_not_fit_or_is_misaligned_is_an_error() {
        let fails = |offset, shape: &[usize], dtype| {
            Tensor::new(slab(), offset, shape, dtype).err().unwrap()
        };

        assert_eq!(
            fails(0, &[49], DataType::U8),
            TensorError::TooLarge {
                available_bytes: 48
            }
        );
        assert_eq!(
            fails(40, &[3], DataType::F32),
            TensorError::TooLarge { available_bytes: 8 }
        );
        assert_eq!(
            fails(49, &[0], DataType::U8),
            TensorError::TooLarge { available_bytes: 0 }
        );
        let huge = [usize::MAX, 2, 0];
        assert_eq!(
            fails(0, &huge, DataType::I64),
            TensorError::TooLarge {
                available_bytes: 48
            }
        );
        assert_eq!(fails(2, &[1], DataType::F32), TensorError::Misaligned);
    }

    #[test]
    fn empty_arrays_are_tensors() {
        let managed = Tensor::new(slab(), 48, &[0, 3], DataType::I64)
            .unwrap()
            .into_managed();

        // SAFETY: just made, called once.
        unsafe { (managed.as_ref().deleter.unwrap())(managed.as_ptr()) };
    }

    #[test]
    fn the_structs_have_the_layout_of_the_header() {
        assert_eq!(size_of::<DlTensor>(), 48);
        assert_eq!(size_of::<ManagedTensor>(), 64);
        assert_eq!(std::mem::offset_of!(ManagedTensor, deleter), 56);
        assert_eq!(size_of::<ManagedTensorVersioned>(), 80);
        assert_eq!(std::mem::offset_of!(ManagedTensorVersioned, deleter), 16);
        assert_eq!(std::mem::offset_of!(ManagedTensorVersioned, tensor), 32);
    }
}
