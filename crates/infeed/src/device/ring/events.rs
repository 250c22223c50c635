//! Events, used again and again.

use crate::device::{Device, DeviceError};

use super::sync::{self, Arc, Mutex};

/// Events of one kind. One is free once nobody but the pool has it: what waits for it on the
/// device has taken note of its mark.
#[derive(Debug)]
pub(super) struct Events<D: Device> {
    timed: bool,
    pool: Mutex<Pool<D::Event>>,
}

#[derive(Debug)]
struct Pool<E> {
    made: Vec<Arc<E>>,
    /// Where the search goes on.
    next: usize,
}

impl<D: Device> Events<D> {
    pub(super) fn new(timed: bool) -> Events<D> {
        let pool = Mutex::new(Pool {
            made: Vec::new(),
            next: 0,
        });
        Events { timed, pool }
    }

    /// An event that nobody else has.
    ///
    /// # Errors
    ///
    /// If none is free and the device makes none.
    pub(super) fn take(&self, device: &D) -> Result<Arc<D::Event>, DeviceError> {
        let mut pool = sync::lock(&self.pool);
        for _ in 0..pool.made.len() {
            let at = pool.next % pool.made.len();
            pool.next = at + 1;
            // Exclusive: the pool alone has it, and nobody can get it but through this lock.
            if Arc::get_mut(&mut pool.made[at]).is_some() {
                return Ok(Arc::clone(&pool.made[at]));
            }
        }
        let event = Arc::new(device.event(self.timed)?);
        pool.made.push(Arc::clone(&event));
        Ok(event)
    }
}
