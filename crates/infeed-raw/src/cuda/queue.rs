//! Which stream a command goes to: one of our own, or the consumer's.

/// Names a stream of a card.
///
/// Commands that were put on one queue run one after another. A queue of one's own belongs to the
/// [`Context`](super::Context) that made it and is refused by every other. A consumer's is a number
/// that Python gave us; see [`Queue::consumers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Queue {
    handle: usize,
    /// The context that made it; 0 for a consumer's.
    context: u64,
}

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// What a consumer says of its stream in `__dlpack__(stream=…)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    /// Everything it does with the array is put on this queue, behind what is there.
    Queue(Queue),
    /// It sees to the order itself; nothing is to be waited for on its behalf.
    NoSync,
}

/// The number stands for no stream of CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "stream={0} is no CUDA stream; pass None or 1 for the default stream, 2 for the thread's, -1 \
     for none, or the handle of a stream such as torch.cuda.current_stream().cuda_stream"
)]
pub struct StreamError(pub i64);

impl Queue {
    /// The default stream, which waits for all streams that were not made to ignore it.
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

    /// A consumer's stream, by its handle.
    ///
    /// # Safety
    ///
    /// `handle` is a stream of the process, of the card that it is used with, and lives until
    /// nothing is put on it any more: for an array that was handed over, until it was released.
    pub const unsafe fn consumers(handle: usize) -> Queue {
        Queue { handle, context: 0 }
    }

    /// What DLPack's `stream` argument means for CUDA: none and 1 the default stream, 2 that of
    /// the calling thread, -1 no order at all, and else a handle.
    ///
    /// # Errors
    ///
    /// For 0, which the protocol forbids because it could mean the first or the second, and for
    /// other negative numbers.
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

    /// What a stream object of a framework says its handle is: as in
    /// [`from_dlpack`](Queue::from_dlpack), but 0 is the default stream, which is what torch and
    /// CuPy mean by it.
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

    /// Whether a context made it.
    pub fn is_own(self) -> bool {
        self.context != 0
    }

    /// The handle, for the context of that number; none if another context made it.
    pub(super) fn handle_in(self, context: u64) -> Option<usize> {
        (self.context == 0 || self.context == context).then_some(self.handle)
    }

    /// The queue on which an event is recorded, on whatever thread, so that it stands for what
    /// was put on this one.
    ///
    /// The default stream of a thread is another one on every thread, and releases happen on any.
    /// The legacy stream waits for all of them.
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

    fn parsed(stream: Option<i64>) -> Result<Consumer, StreamError> {
        // SAFETY: nothing is put on these queues.
        unsafe { Queue::from_dlpack(stream) }
    }

    #[test]
    fn the_stream_argument_is_read_as_the_protocol_says() {
        assert_eq!(parsed(None), Ok(Consumer::Queue(Queue::LEGACY)));
        assert_eq!(parsed(Some(1)), Ok(Consumer::Queue(Queue::LEGACY)));
        assert_eq!(parsed(Some(2)), Ok(Consumer::Queue(Queue::PER_THREAD)));
        assert_eq!(parsed(Some(-1)), Ok(Consumer::NoSync));
        let Ok(Consumer::Queue(queue)) = parsed(Some(0x5581_2340)) else {
            panic!("a handle is a queue");
        };
        assert_eq!(queue.handle_in(7), Some(0x5581_2340));
        assert!(!queue.is_own());
    }

    #[test]
    fn what_is_no_stream_is_refused_with_what_would_be_one() {
        for stream in [0, -2, i64::MIN] {
            let error = parsed(Some(stream)).unwrap_err();

            assert_eq!(error, StreamError(stream));
            assert!(error.to_string().contains("pass None or 1"));
        }
    }

    #[test]
    fn a_framework_calls_its_default_stream_zero() {
        // SAFETY: nothing is put on these queues.
        let (default, negative) = unsafe { (Queue::from_handle(0), Queue::from_handle(-1)) };

        assert_eq!(default, Ok(Queue::LEGACY));
        assert_eq!(negative, Err(StreamError(-1)));
    }

    #[test]
    fn a_queue_of_ones_own_belongs_to_its_context() {
        let queue = Queue::own(0x10, 3);

        assert_eq!(queue.handle_in(3), Some(0x10));
        assert_eq!(queue.handle_in(4), None);
    }

    #[test]
    fn what_a_thread_did_is_waited_for_from_every_other() {
        assert_eq!(Queue::PER_THREAD.on_any_thread(), Queue::LEGACY);
        assert_eq!(Queue::own(9, 1).on_any_thread(), Queue::own(9, 1));
    }
}
