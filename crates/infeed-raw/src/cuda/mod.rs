//! CUDA: memory, copies, events and the embedded kernels on NVIDIA cards.
//!
//! Nothing is linked. The driver is looked for when [`probe`] or [`Context::open`] is called, and
//! [`NoCuda`] says why there is none, so one build serves machines with a card and without.
//!
//! **Why it is sound.**
//!
//! - The card writes host memory only in [`Context::read`], which owns it meanwhile, and reads it
//!   only in copies: a [`Transfer`] holds a share of the bytes until the card is done with them,
//!   and keeps that share for good when it cannot find out.
//! - Memory of others is a tensor that is held until what was enqueued there is done. That it lies where
//!   it says cannot be proved; `foreign` says so.
//! - Memory, events and transfers hold a share of their [`Context`], whose handles are valid until
//!   the last is dropped. What belongs to another context is refused by number.
//! - Pinned pages are a slab's own, and the slab undoes the pinning before it frees them.
//! - A kernel runs only after [`Kernel::check`](crate::kernel::Kernel::check), and over views that
//!   are written to the card from those that were checked.
//! - Results of the driver are numbers of any value, not an enum.
//!
//! **What cannot be proved.** That a consumer's stream is one: Python gives us a number, and the
//! driver follows it. [`Queue::consumers`] and the feature `python` say what its giver
//! promises. And that nobody else of the process destroys the card's primary context
//! (`cudaDeviceReset`), which frameworks never do.
//!
//! A device's memory may be read by other libraries through its address; order between them and
//! us is made by events, which `infeed::device` does, and not by the types here.

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
mod pool;
mod queue;
mod reading;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use context::{Card, Context, card_of, probe};
pub use copy::Transfer;
pub use error::{CudaError, NoCuda};
pub use event::Event;
pub use memory::Memory;
pub use queue::{Consumer, Queue, StreamError};
pub use reading::HostSource;
