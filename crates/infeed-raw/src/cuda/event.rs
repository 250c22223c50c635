//! Moments on a stream: recorded on one, waited for by others or by the host.

use std::ffi::c_uint;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::queue::Queue;

/// `CU_EVENT_BLOCKING_SYNC`: who waits sleeps. Cores are what a loader is short of.
const SLEEPING: c_uint = 1;

/// `CU_EVENT_DISABLE_TIMING`, which makes recording and waiting cheaper.
const NO_TIMING: c_uint = 2;

/// A moment on a stream. Recorded again, it stands for the later moment; never recorded, it
/// counts as past, or as a moment that another event stood for: those without timing are used again.
pub struct Event {
    context: Arc<Context>,
    handle: usize,
    is_timed: bool,
}

impl Event {
    /// Records the event on a queue: it is past when all that was put there before is done.
    ///
    /// Recorded on [`Queue::PER_THREAD`], it waits for the default streams of all threads: a
    /// release happens on any thread.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`]; [`CudaError::Foreign`]; what the driver says.
    pub fn record(&self, queue: Queue) -> Result<(), CudaError> {
        let context = &self.context;
        let _bound = context.bind()?;
        let stream = context.stream_of(queue.on_any_thread())?;
        // SAFETY: an event that lives as long as `self`, and a live stream of the same context.
        let code = unsafe { (context.driver.event_record)(self.handle, stream) };
        context.driver.check("cuEventRecord", code)
    }

    /// Makes what is put on a queue from now on wait, on the card, for the moment last recorded.
    ///
    /// # Errors
    ///
    /// As for [`record`](Event::record).
    pub fn hold(&self, queue: Queue) -> Result<(), CudaError> {
        let context = &self.context;
        let _bound = context.bind()?;
        let stream = context.stream_of(queue)?;
        // SAFETY: as in `record`; the flags must be 0, and are.
        let code = unsafe { (context.driver.stream_wait)(stream, self.handle, 0) };
        context.driver.check("cuStreamWaitEvent", code)
    }

    /// Whether the moment is past. Does not block.
    ///
    /// # Errors
    ///
    /// What the driver says, of this and of what was done asynchronously.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        let _bound = self.context.bind()?;
        // SAFETY: an event that lives as long as `self`.
        match unsafe { (self.context.driver.event_query)(self.handle) } {
            code::NOT_READY => Ok(false),
            code => self
                .context
                .driver
                .check("cuEventQuery", code)
                .map(|()| true),
        }
    }

    /// Blocks until the moment is past.
    ///
    /// # Errors
    ///
    /// As for [`is_done`](Event::is_done).
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _bound = self.context.bind()?;
        // SAFETY: an event that lives as long as `self`.
        let code = unsafe { (self.context.driver.event_synchronize)(self.handle) };
        self.context.driver.check("cuEventSynchronize", code)
    }

    /// Time on the card's clock from this moment to a later one; zero if the other is earlier.
    /// Its resolution is half a microsecond.
    ///
    /// # Errors
    ///
    /// If one of them was never recorded, is not past yet, or was made without timing.
    pub fn until(&self, later: &Event) -> Result<Duration, CudaError> {
        if self.context.id != later.context.id {
            return Err(CudaError::Foreign { what: "event" });
        }
        let _bound = self.context.bind()?;
        let mut ms = 0.0_f32;
        // SAFETY: events that live as long as they are borrowed, and writes one number.
        let code =
            unsafe { (self.context.driver.event_elapsed)(&raw mut ms, self.handle, later.handle) };
        self.context.driver.check("cuEventElapsedTime", code)?;
        // Negative where the other is earlier.
        Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default())
    }

    /// The context it is of.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Context {
    /// An event of this card. Only events made `timed` have a clock.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn event(self: &Arc<Context>, timed: bool) -> Result<Event, CudaError> {
        self.check_process()?;
        let idle = (!timed).then(|| self.idle_events().pop());
        if let Some(handle) = idle.flatten() {
            return Ok(Event {
                context: Arc::clone(self),
                handle,
                is_timed: timed,
            });
        }
        let _bound = self.bind()?;
        let mut handle = 0;
        let flags = SLEEPING | if timed { 0 } else { NO_TIMING };
        // SAFETY: writes one handle; the context is current.
        let code = unsafe { (self.driver.event_create)(&raw mut handle, flags) };
        self.driver.check("cuEventCreate", code)?;
        Ok(Event {
            context: Arc::clone(self),
            handle,
            is_timed: timed,
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.check_process().is_err() {
            return;
        }
        if !self.is_timed {
            // Whatever waits for its moment keeps waiting for that one when the event is recorded again.
            self.context.idle_events().push(self.handle);
            return;
        }
        if let Ok(_bound) = self.context.bind() {
            // SAFETY: made in `event`, destroyed once. The driver keeps what is under way of it
            // until that is done, so nobody has to wait here.
            unsafe { (self.context.driver.event_destroy)(self.handle) };
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}
