//! GPU memory as a DLPack tensor.

use std::sync::Arc;

use super::memory::GpuMemory;
use crate::dlpack::{DataType, DlDevice, Tensor, TensorError};

impl Tensor {
    /// Views the bytes of GPU memory from `byte_offset` on as an array of `shape`. The memory and
    /// `release` are kept until the consumer is done. `release` is dropped first, on any thread;
    /// its drop informs the owner.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if the bytes are too few or misaligned.
    pub fn on_gpu<T: Send + Sync + 'static>(
        memory: Arc<GpuMemory>,
        release: T,
        byte_offset: usize,
        shape: &[usize],
        dtype: DataType,
    ) -> Result<Tensor, TensorError> {
        let device = DlDevice::cuda(memory.context().gpu().ordinal);
        // An address of the GPU, which the host never follows.
        let start = std::ptr::without_provenance_mut(memory.address() as usize);
        let len = memory.len();
        // Fields of a tuple are dropped in order.
        Tensor::at(
            Box::new((release, memory)),
            start,
            len,
            device,
            byte_offset,
            shape,
            dtype,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::testing;

    /// Records its drop, like a batch that returns to its ring.
    struct Release(Arc<std::sync::Mutex<Vec<&'static str>>>);

    impl Drop for Release {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("released");
        }
    }

    #[test]
    fn the_deleter_releases_gpu_memory_before_it_is_freed() {
        let context = testing::context();
        let memory = Arc::new(context.memory(64).unwrap());
        let (start, reported) = (memory.address(), Arc::default());
        let release = Release(Arc::clone(&reported));
        let tensor = Tensor::on_gpu(Arc::clone(&memory), release, 16, &[2, 3], DataType::F32);

        let managed = tensor.unwrap().into_managed_versioned();

        // SAFETY: just made, and deleted below.
        let view = unsafe { &managed.as_ref().tensor };
        assert_eq!((view.device.device_type, view.device.device_id), (2, 1));
        assert_eq!(view.data.addr() as u64, start + 16);
        assert_eq!(Arc::strong_count(&memory), 2);
        assert!(reported.lock().unwrap().is_empty());
        // SAFETY: called once, and `managed` not used again.
        unsafe { (managed.as_ref().deleter.unwrap())(managed.as_ptr()) };
        assert_eq!(*reported.lock().unwrap(), ["released"]);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn an_array_larger_than_its_gpu_memory_is_rejected() {
        let context = testing::context();
        let memory = Arc::new(context.memory(64).unwrap());
        let fails = |offset, shape: &[usize]| {
            Tensor::on_gpu(Arc::clone(&memory), (), offset, shape, DataType::F32).err()
        };

        let available_bytes = 60;
        assert_eq!(
            fails(4, &[16]),
            Some(TensorError::TooLarge { available_bytes })
        );
        assert_eq!(fails(2, &[1]), Some(TensorError::Misaligned));
    }
}
