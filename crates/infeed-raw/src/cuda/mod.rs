//! CUDA: memory, copies, events and the embedded kernels on NVIDIA GPUs.
//!
//! Nothing is linked. [`probe`] and [`Context::open`] look for the driver and return [`NoCuda`]
//! with the reason if there is none, so one build serves machines with and without a GPU.
//!
//! **Soundness.**
//!
//! - The GPU writes host memory only in [`Context::read`], which owns the memory meanwhile. The GPU
//!   reads host memory only in copies: a [`Transfer`] holds a share of the bytes until the GPU is
//!   done with them, and leaks that share if it cannot determine that.
//! - Memory of another owner is a tensor that is held until the commands that use it are done. Its
//!   address cannot be verified; see `foreign`.
//! - Memory, events and transfers hold a share of their [`Context`], whose handles are valid until
//!   the last share is dropped. A call rejects objects of another context by its number.
//! - Pinned pages belong to one slab, or wait for the next one. They are unpinned before they are
//!   freed.
//! - A kernel runs only after [`Kernel::check`](crate::kernel::Kernel::check), and reads only views
//!   that were checked and then copied to the GPU.
//! - Results of the driver are numbers of any value, not an enum.
//!
//! **Assumptions.** A consumer's stream is valid: Python passes a number, which the driver follows.
//! [`Queue::consumers`] and the feature `python` state the promise of the caller. No other code of
//! the process destroys the GPU's primary context (`cudaDeviceReset`); frameworks never do.
//!
//! Other libraries may read a device's memory through its address. Events order their accesses and
//! those of infeed; `infeed-device` records the events, not the types here.

mod context;
mod copy;
mod driver;
mod entries;
mod error;
mod event;
mod launch;
mod library;
mod memory;
pub mod nvjpeg;
mod pinned_memory;
mod pinning;
mod pool;
mod queue;
mod reading;
mod stream_order;
mod tensor;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use context::{Context, Gpu, gpu_of, probe};
pub use copy::Transfer;
pub use error::{CudaError, NoCuda};
pub use event::Event;
pub use memory::GpuMemory;
pub use queue::{Consumer, Queue, StreamError};
