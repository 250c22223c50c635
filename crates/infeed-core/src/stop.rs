//! A stop request for blocking work on a thread.
//!
//! A read from a bucket can wait for minutes. When its loader closes or starts another epoch, the
//! bytes are no longer needed: the loader requests a stop, and the waiting call returns. The
//! request belongs to the thread, so sources and formats do not have to pass it on.

use std::cell::RefCell;
use std::sync::Arc;

use tokio::sync::watch;

/// A stop request, which can be made, withdrawn and made again. Clones share one request.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

thread_local! {
    static HERE: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Default for Stop {
    fn default() -> Stop {
        Stop(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Requests the stop.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Withdraws the request for work that begins from now on.
    pub fn withdraw(&self) {
        self.0.send_replace(false);
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
        *self.0.borrow()
    }

    /// Completes once a stop is requested.
    pub async fn requested(&self) {
        // `wait_for` fails only after the sender is dropped, and `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}
