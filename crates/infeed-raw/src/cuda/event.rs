//! Events: recorded on one stream, waited for by others or by the host.

use std::ffi::c_uint;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::queue::Queue;

/// `CU_EVENT_BLOCKING_SYNC`: a waiting thread sleeps and leaves its core to workers.
const SLEEPING: c_uint = 1;

/// `CU_EVENT_DISABLE_TIMING`, which makes recording and waiting cheaper.
const NO_TIMING: c_uint = 2;

/// A mark on a stream. Recording the event again replaces the mark. An event that was never
/// recorded counts as done, or keeps the mark of an earlier event, since events without timing are
/// reused.
pub struct Event {
    context: Arc<Context>,
    handle: usize,
    is_timed: bool,
}

impl Event {
    /// Records the event on a queue: it is done when all commands put there before are done.
    ///
    /// Recorded on [`Queue::PER_THREAD`], it waits for the default streams of all threads, since a
    /// batch may be released on any thread.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`]; [`CudaError::Foreign`]; the driver's error.
    pub fn record(&self, queue: Queue) -> Result<(), CudaError> {
        let context = &self.context;
        let _bound = context.bind()?;
        let stream = context.stream_of(queue.on_any_thread())?;
        // SAFETY: an event that lives as long as `self`, and a live stream of the same context.
        let code = unsafe { (context.driver.event_record)(self.handle, stream) };
        context.driver.check("cuEventRecord", code)
    }

    /// Makes commands that are put on a queue from now on wait, on the GPU, for the last record.
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

    /// Whether the event is done. Does not block.
    ///
    /// # Errors
    ///
    /// The driver's error, of this call or of an earlier command.
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

    /// Blocks until the event is done.
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

    /// Returns the time on the GPU's clock from this event to a later one; zero if `later` is
    /// earlier. The resolution is half a microsecond.
    ///
    /// # Errors
    ///
    /// If an event was never recorded, is not done, or has no timing.
    pub fn until(&self, later: &Event) -> Result<Duration, CudaError> {
        if self.context.id != later.context.id {
            return Err(CudaError::Foreign { what: "event" });
        }
        let _bound = self.context.bind()?;
        let mut ms = 0.0_f32;
        // SAFETY: both events live as long as they are borrowed; writes one number.
        let code =
            unsafe { (self.context.driver.event_elapsed)(&raw mut ms, self.handle, later.handle) };
        self.context.driver.check("cuEventElapsedTime", code)?;
        // Negative if `later` is earlier.
        Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default())
    }

    /// The context of the event.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Context {
    /// Makes an event of this GPU. Only `timed` events measure time.
    ///
    /// # Errors
    ///
    /// The driver's error.
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
            // A new record of the event does not affect commands that wait for an earlier record.
            self.context.idle_events().push(self.handle);
            return;
        }
        if let Ok(_bound) = self.context.bind() {
            // SAFETY: created in `event`, destroyed once. The driver keeps pending records until
            // they are done, so no wait is necessary.
            unsafe { (self.context.driver.event_destroy)(self.handle) };
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}
