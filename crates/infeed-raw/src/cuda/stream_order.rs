//! Memory that is allocated and freed in the order of streams, from the pool of a context.
//!
//! **Allocations** go to a stream with no other commands and no waits, and the host waits for it at
//! once: when `memory` returns, every stream and the host may use the memory. Consumers, whose
//! streams are unknown, need no order beyond the one that DLPack requires. The pool must not make
//! an allocation wait for another stream's free, since that would be a wait for a consumer.
//!
//! **Frees** go to a stream that waits, on the GPU, for everything that may use the memory: the
//! context's streams, and the events after consumers' commands.

use std::ffi::c_uint;
use std::sync::Arc;

use super::context::{Context, CurrentContext};
use super::driver::code;
use super::error::CudaError;
use super::event::Event;
use super::pool::Pool;
use super::queue::Queue;

impl Context {
    /// Allocates memory of a pool of this context. Returns its address, and a code.
    pub(super) fn allocate_in_order(
        &self,
        pool: &Pool,
        bytes: usize,
        _: &CurrentContext<'_>,
    ) -> (u64, c_uint) {
        let mut address = 0;
        let mut allocate = || {
            // SAFETY: writes one address; the pool and the stream live as long as this context.
            let code = unsafe {
                (pool.functions.allocate)(&raw mut address, bytes, pool.handle, pool.allocations)
            };
            match code {
                // SAFETY: as above.
                code::SUCCESS => unsafe { (self.driver.stream_synchronize)(pool.allocations) },
                code => code,
            }
        };
        let mut code = allocate();
        if code == code::OUT_OF_MEMORY {
            // The pool may keep freed memory because its stream has not reached the free.
            //
            // SAFETY: as above.
            unsafe {
                (self.driver.stream_synchronize)(pool.frees);
                (pool.functions.trim)(pool.handle, 0);
            }
            code = allocate();
        }
        (address, code)
    }

    /// Returns the stream of frees, if memory is freed in stream order.
    fn frees(&self) -> Option<Queue> {
        let pool = self.pool.as_ref()?;
        Some(Queue::own(pool.frees, self.id))
    }

    /// Makes memory that is dropped from now on wait, on the GPU, for the event's last record
    /// before it is freed. Without pools, waits here for the event.
    ///
    /// # Errors
    ///
    /// As [`Event::hold`] and [`Event::synchronize`].
    pub fn free_behind(&self, event: &Event) -> Result<(), CudaError> {
        match self.frees() {
            Some(frees) => event.hold(frees),
            None => event.synchronize(),
        }
    }

    /// Returns an event after the frees of all memory dropped so far; None if memory is freed when
    /// it is dropped.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn free_event(self: &Arc<Context>) -> Result<Option<Event>, CudaError> {
        let Some(frees) = self.frees() else {
            return Ok(None);
        };
        let event = self.event(false)?;
        event.record(frees)?;
        Ok(Some(event))
    }

    /// Returns freed memory to the GPU, for other libraries and processes.
    pub fn trim(&self) {
        if let (Some(pool), Ok(_bound)) = (&self.pool, self.bind()) {
            // SAFETY: the pool lives as long as `self`. Memory that cannot be returned now stays in
            // the pool.
            unsafe { (pool.functions.trim)(pool.handle, 0) };
        }
    }

    /// Frees memory after all commands on the context's streams so far, and after `used`.
    ///
    /// # Errors
    ///
    /// The driver's error; the memory is then not freed.
    pub(super) fn free_later(
        self: &Arc<Context>,
        pool: &Pool,
        address: u64,
        used: &[Event],
    ) -> Result<(), CudaError> {
        let _bound = self.bind()?;
        let frees = Queue::own(pool.frees, self.id);
        used.iter().try_for_each(|event| event.hold(frees))?;
        let event = self.event(false)?;
        for stream in self.own_streams() {
            event.record(stream)?;
            event.hold(frees)?;
        }
        // SAFETY: allocated from the pool, freed once; all commands that use it come before in the
        // stream.
        let code = unsafe { (pool.functions.free)(address, pool.frees) };
        self.driver.check("cuMemFreeAsync", code)
    }
}
