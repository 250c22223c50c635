//! Sends batches to an accelerator ahead of the consumer.
//!
//! [`Device`] is the abstraction: memory, and copies and kernels in streams that events order. CUDA
//! and a simulated device ([`sim`]) implement it. [`ring`] sends batches with the same code to
//! both. The README in this folder states which thread may touch which memory when, and why.
//!
//! The cargo feature `cuda` (default) includes NVIDIA GPUs. Without it, the name of a GPU is an error.
#![forbid(unsafe_code)]

pub mod any;
pub mod busy;
pub mod check;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod error;
pub mod jpeg;
mod named_device;
pub mod ring;
pub mod sim;
pub mod timing;

pub use any::AnyDevice;
#[cfg(feature = "cuda")]
pub use cuda::Cuda;
pub use device::Device;
pub use error::DeviceError;
pub use infeed_raw::host::HostSource;
pub use jpeg::{DecoderSettings, Decoding, ImagePosition, ScannedJpeg};
pub use ring::{
    DeviceArray, DeviceBatch, Ring, RingSettings, RingStats, Route, SLOTS, SentBatch, SentTimes,
    TakenArray, Upload,
};
pub use sim::Sim;
