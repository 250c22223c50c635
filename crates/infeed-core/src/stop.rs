//! A stop request for blocking work on a thread.
//!
//! A read from a bucket can wait for minutes. When its loader closes or starts another epoch, the
//! bytes are no longer needed: the loader requests a stop, and the waiting call returns. The
//! request belongs to the thread, so sources and formats do not have to pass it on.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A stop request, which can be made, withdrawn and made again. Clones share one request.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

struct StopState {
    sender: watch::Sender<bool>,
    check: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for StopState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("StopState");
        debug.field("sender", &self.sender).finish_non_exhaustive()
    }
}

thread_local! {
    static HERE: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Default for Stop {
    fn default() -> Stop {
        Stop::new(None)
    }
}

impl Stop {
    fn new(check: Option<Box<dyn Fn() -> bool + Send + Sync>>) -> Stop {
        let sender = watch::Sender::new(false);
        Stop(Arc::new(StopState { sender, check }))
    }

    /// Creates a request that blocking work makes itself when `check` returns true. The work calls
    /// it several times per second, on its thread.
    pub fn with_check(check: impl Fn() -> bool + Send + Sync + 'static) -> Stop {
        Stop::new(Some(Box::new(check)))
    }

    /// Whether blocking work must call [`Stop::check`].
    pub fn has_check(&self) -> bool {
        self.0.check.is_some()
    }

    /// Requests the stop if its condition holds.
    pub fn check(&self) {
        if self.0.check.as_ref().is_some_and(|check| check()) {
            self.request();
        }
    }

    /// Requests the stop.
    pub fn request(&self) {
        self.0.sender.send_replace(true);
    }

    /// Withdraws the request for work that begins from now on.
    pub fn withdraw(&self) {
        self.0.sender.send_replace(false);
    }

    /// Runs `work` on this thread, which observes the request until `work` ends.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        struct RestoreGuard(Option<Stop>);
        impl Drop for RestoreGuard {
            fn drop(&mut self) {
                HERE.set(self.0.take());
            }
        }
        let _restored = RestoreGuard(HERE.replace(Some(self.clone())));
        work()
    }

    /// Makes blocking work on this thread observe the request.
    pub fn watch_here(&self) {
        HERE.set(Some(self.clone()));
    }

    /// Returns the stop request that this thread observes, if any.
    pub fn here() -> Option<Stop> {
        HERE.with_borrow(Clone::clone)
    }

    /// Whether a stop is requested.
    pub fn is_requested(&self) -> bool {
        *self.0.sender.borrow()
    }

    /// Completes once a stop is requested.
    pub async fn wait_for_request(&self) {
        // `wait_for` fails only after the sender is dropped, and `self` holds the sender.
        let _ = self
            .0
            .sender
            .subscribe()
            .wait_for(|requested| *requested)
            .await;
    }
}
