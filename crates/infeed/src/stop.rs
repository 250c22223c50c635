//! A wish to stop, seen by what waits on a thread.
//!
//! A read from a bucket may wait for minutes. When the loader that made it closes or begins
//! another epoch, nobody wants its bytes: whoever owns the thread wishes that it stop, and what
//! waits there gives up. The wish goes by the thread, so that no source and no format in between
//! has to pass it on.

use std::cell::RefCell;
use std::sync::Arc;

use tokio::sync::watch;

/// A wish that may be made, withdrawn and made again. Clones share it.
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
    /// Makes the wish.
    pub fn wish(&self) {
        self.0.send_replace(true);
    }

    /// Takes it back, for what begins from now on.
    pub fn withdraw(&self) {
        self.0.send_replace(false);
    }

    /// Makes what waits on this thread watch for the wish.
    pub fn watch_here(&self) {
        HERE.set(Some(self.clone()));
    }

    /// The wish that this thread watches for, if it watches for one.
    pub fn here() -> Option<Stop> {
        HERE.with_borrow(Clone::clone)
    }

    /// Whether the wish is made.
    pub fn is_wished(&self) -> bool {
        *self.0.borrow()
    }

    /// Comes back once the wish is made.
    pub async fn wished(&self) {
        // It fails only when the sender is gone, which `self` holds.
        let _ = self.0.subscribe().wait_for(|wished| *wished).await;
    }
}
