//! The stream of a command: the context's own, or the consumer's.

/// Handle of a GPU's stream.
///
/// Commands on one queue run in order. An own queue belongs to the [`Context`](super::Context) that
/// made it; other contexts reject it. A consumer's queue is a number that Python passed; see
/// [`Queue::consumers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Queue {
    handle: usize,
    /// Number of the context that made it; 0 for a consumer's.
    context: u64,
}

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// The consumer's `stream` argument of `__dlpack__`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    /// The consumer's commands on the array go to this queue, after the current ones.
    Queue(Queue),
    /// The consumer orders its commands itself; nothing waits on its behalf.
    NoSync,
}

/// The number is not a CUDA stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "stream={0} is not a CUDA stream; pass None or 1 for the default stream, 2 for the thread's, \
     -1 for none, or the handle of a stream such as torch.cuda.current_stream().cuda_stream"
)]
pub struct StreamError(pub i64);

impl Queue {
    /// The default stream, which waits for all streams except non-blocking ones.
    pub const LEGACY: Queue = Queue {
        handle: LEGACY,
        context: 0,
    };

    /// The default stream of the calling thread.
    pub const PER_THREAD: Queue = Queue {
        handle: PER_THREAD,
        context: 0,
    };

    pub(super) const fn own(handle: usize, context: u64) -> Queue {
        Queue { handle, context }
    }

    /// Wraps a consumer's stream, given by its handle.
    ///
    /// # Safety
    ///
    /// `handle` is a stream of this process on the GPU that it is used with. The stream lives until
    /// no more commands are put on it: for an array that a consumer received, until the array is
    /// released.
    pub const unsafe fn consumers(handle: usize) -> Queue {
        Queue { handle, context: 0 }
    }

    /// Interprets DLPack's `stream` argument for CUDA: None and 1 mean the default stream, 2 that
    /// of the calling thread, -1 no order, other numbers are handles.
    ///
    /// # Errors
    ///
    /// For 0, which the protocol forbids because it is ambiguous, and for other negative numbers.
    ///
    /// # Safety
    ///
    /// As for [`consumers`](Queue::consumers) where the number is a handle.
    pub unsafe fn from_dlpack(stream: Option<i64>) -> Result<Consumer, StreamError> {
        match stream {
            None | Some(1) => Ok(Consumer::Queue(Queue::LEGACY)),
            Some(2) => Ok(Consumer::Queue(Queue::PER_THREAD)),
            Some(-1) => Ok(Consumer::NoSync),
            Some(handle) => match usize::try_from(handle) {
                Ok(handle) if handle != 0 => {
                    // SAFETY: the caller's promise.
                    let queue = unsafe { Queue::consumers(handle) };
                    Ok(Consumer::Queue(queue))
                }
                _ => Err(StreamError(handle)),
            },
        }
    }

    /// Interprets the handle of a framework's stream object: as
    /// [`from_dlpack`](Queue::from_dlpack), but 0 is the default stream, as in torch and CuPy.
    ///
    /// # Errors
    ///
    /// For negative numbers.
    ///
    /// # Safety
    ///
    /// As for [`consumers`](Queue::consumers).
    pub unsafe fn from_handle(handle: i64) -> Result<Queue, StreamError> {
        match usize::try_from(handle) {
            Ok(0) => Ok(Queue::LEGACY),
            // SAFETY: the caller's promise.
            Ok(handle) => Ok(unsafe { Queue::consumers(handle) }),
            Err(_) => Err(StreamError(handle)),
        }
    }

    /// Whether a context made the queue.
    pub fn is_own(self) -> bool {
        self.context != 0
    }

    /// Returns the handle for the context with this number; None if another context made the queue.
    pub(super) fn handle_in(self, context: u64) -> Option<usize> {
        (self.context == 0 || self.context == context).then_some(self.handle)
    }

    /// Returns the queue on which any thread can record an event that covers the commands of this
    /// one.
    ///
    /// The default stream of a thread differs on every thread, and a release may happen on any. The
    /// legacy stream waits for all of them.
    pub(super) fn on_any_thread(self) -> Queue {
        if self == Queue::PER_THREAD {
            return Queue::LEGACY;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stream: Option<i64>) -> Result<Consumer, StreamError> {
        // SAFETY: no command is put on these queues.
        unsafe { Queue::from_dlpack(stream) }
    }

    #[test]
    fn the_stream_argument_follows_the_protocol() {
        assert_eq!(parse(None), Ok(Consumer::Queue(Queue::LEGACY)));
        assert_eq!(parse(Some(1)), Ok(Consumer::Queue(Queue::LEGACY)));
        assert_eq!(parse(Some(2)), Ok(Consumer::Queue(Queue::PER_THREAD)));
        assert_eq!(parse(Some(-1)), Ok(Consumer::NoSync));
        let Ok(Consumer::Queue(queue)) = parse(Some(0x5581_2340)) else {
            panic!("a handle is a queue");
        };
        assert_eq!(queue.handle_in(7), Some(0x5581_2340));
        assert!(!queue.is_own());
    }

    #[test]
    fn an_invalid_stream_is_an_error_that_names_a_valid_one() {
        for stream in [0, -2, i64::MIN] {
            let error = parse(Some(stream)).unwrap_err();

            assert_eq!(error, StreamError(stream));
            assert!(error.to_string().contains("pass None or 1"));
        }
    }

    #[test]
    fn a_framework_calls_its_default_stream_zero() {
        // SAFETY: no command is put on these queues.
        let (default, negative) = unsafe { (Queue::from_handle(0), Queue::from_handle(-1)) };

        assert_eq!(default, Ok(Queue::LEGACY));
        assert_eq!(negative, Err(StreamError(-1)));
    }

    #[test]
    fn an_own_queue_belongs_to_its_context() {
        let queue = Queue::own(0x10, 3);

        assert_eq!(queue.handle_in(3), Some(0x10));
        assert_eq!(queue.handle_in(4), None);
    }

    #[test]
    fn work_of_a_thread_is_waited_for_from_every_other() {
        assert_eq!(Queue::PER_THREAD.on_any_thread(), Queue::LEGACY);
        assert_eq!(Queue::own(9, 1).on_any_thread(), Queue::own(9, 1));
    }
}
