//! A pool of events.

use crate::{Device, DeviceError};

use super::sync::{self, Arc, Mutex};

/// A pool of events of one kind. An event is reused once only the pool holds it. Waits that are
/// already enqueued refer to its earlier record.
#[derive(Debug)]
pub(super) struct EventPool<D: Device> {
    timed: bool,
    pool: Mutex<PooledEvents<D::Event>>,
}

#[derive(Debug)]
struct PooledEvents<E> {
    made: Vec<Arc<E>>,
    /// Index at which the next search starts.
    next: usize,
}

impl<D: Device> EventPool<D> {
    pub(super) fn new(timed: bool) -> EventPool<D> {
        let pool = Mutex::new(PooledEvents {
            made: Vec::new(),
            next: 0,
        });
        EventPool { timed, pool }
    }

    /// Takes an unused event.
    ///
    /// # Errors
    ///
    /// If no event is free and the device cannot create one.
    pub(super) fn take(&self, device: &D) -> Result<Arc<D::Event>, DeviceError> {
        let mut pool = sync::lock(&self.pool);
        for _ in 0..pool.made.len() {
            let at = pool.next % pool.made.len();
            pool.next = at + 1;
            // Exclusive access: only the pool holds this event, and other threads can take it only
            // under this lock.
            if Arc::get_mut(&mut pool.made[at]).is_some() {
                return Ok(Arc::clone(&pool.made[at]));
            }
        }
        let event = Arc::new(device.event(self.timed)?);
        pool.made.push(Arc::clone(&event));
        Ok(event)
    }
}
