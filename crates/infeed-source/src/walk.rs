//! Walks over the records of a source outside the loader. Claims keep groups together that can only
//! be read whole; a budget limits the bytes that the reads of all threads hold.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Source;
use infeed_core::exec::budget::BudgetError;
use infeed_core::order::window::Groups;

/// The reads of a walk may hold one part in `SHARE` of this process's memory.
const SHARE: u64 = 8;

/// Minimum of the bytes that they may hold.
const MIN_BYTES: u64 = 64 << 20;

/// Boundaries of the claims of a walk.
///
/// A source keeps nothing between reads. Where a group can only be read whole, each read of one of
/// its records decodes the whole group. Claims of such a source are therefore groups.
#[derive(Clone, Debug)]
pub struct Claims {
    whole: Option<Arc<Groups>>,
    most: u64,
}

impl Claims {
    /// Claims at most `most` records, where the source allows any number.
    pub fn of(source: &dyn Source, most: u64) -> Claims {
        Claims {
            whole: source.groups().filter(|groups| groups.whole),
            most: most.max(1),
        }
    }

    /// Returns the end of the claim that begins at position `from`, out of `len` positions.
    /// `record` returns the record at a position; records must ascend where the source is read in
    /// whole groups.
    pub fn end(&self, from: u64, len: u64, record: impl Fn(u64) -> u64) -> u64 {
        let Some(groups) = &self.whole else {
            return from.saturating_add(self.most).min(len);
        };
        let group_end = groups.ends.get(groups.of(record(from)));
        let group_end = group_end.copied().unwrap_or(u64::MAX);
        let (mut in_group, mut end) = (from, len);
        while in_group + 1 < end {
            let middle = in_group + (end - in_group) / 2;
            match record(middle) < group_end {
                true => in_group = middle,
                false => end = middle,
            }
        }
        end.min(len)
    }
}

/// Limits the bytes that the reads of a walk hold. A single read may exceed the limit.
#[derive(Debug)]
pub struct WalkBudget {
    limit_bytes: u64,
    state: Mutex<WalkState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WalkState {
    held_bytes: u64,
    closed: bool,
}

/// Bytes that a read holds; released when dropped.
#[derive(Debug)]
pub struct HeldBytes<'a> {
    room: &'a WalkBudget,
    bytes: u64,
}

impl Default for WalkBudget {
    /// Allows an eighth of the memory that this process may use.
    fn default() -> WalkBudget {
        WalkBudget::new((infeed_raw::machine::memory_limit_bytes() / SHARE).max(MIN_BYTES))
    }
}

impl WalkBudget {
    /// Allows `limit_bytes`.
    pub fn new(limit_bytes: u64) -> WalkBudget {
        WalkBudget {
            limit_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a read of `bytes` fits, or no other read holds any bytes, or `is_next` returns
    /// true: then all other reads may wait for this one. A thread that holds bytes while it waits
    /// needs an `is_next` that eventually returns true.
    ///
    /// # Errors
    ///
    /// [`BudgetError::Closed`] after [`WalkBudget::close`].
    pub fn admit(
        &self,
        bytes: u64,
        is_next: impl Fn() -> bool,
    ) -> Result<HeldBytes<'_>, BudgetError> {
        let fits = |state: &WalkState| {
            let after = state.held_bytes.saturating_add(bytes);
            state.held_bytes == 0 || after <= self.limit_bytes
        };
        let waits = |state: &mut WalkState| !state.closed && !fits(state) && !is_next();
        let state = self.changed.wait_while(self.lock(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(BudgetError::Closed);
        }
        state.held_bytes = state.held_bytes.saturating_add(bytes);
        Ok(HeldBytes { room: self, bytes })
    }

    /// Makes waiting threads evaluate `is_next` again. The caller holds no lock that `is_next`
    /// takes.
    pub fn ask_again(&self) {
        // Takes the lock, so that no thread is between its check and its sleep.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Rejects all waiting and future calls of [`WalkBudget::admit`].
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        state.held_bytes = state.held_bytes.saturating_sub(self.bytes);
        drop(state);
        self.room.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    fn claims(ends: &[u64], whole: bool) -> Claims {
        let groups = Groups {
            ends: ends.to_vec(),
            bytes: vec![1; ends.len()],
            whole,
        };
        Claims {
            whole: whole.then(|| Arc::new(groups)),
            most: 8,
        }
    }

    #[test]
    fn a_claim_is_a_group_or_a_part_of_it() {
        let whole = claims(&[10, 10, 25], true);
        assert_eq!(whole.end(0, 25, |position| position), 10);
        assert_eq!(whole.end(3, 25, |position| position), 10);
        assert_eq!(whole.end(10, 25, |position| position), 25);
        assert_eq!(whole.end(24, 25, |position| position), 25);
        let some = [2, 9, 10, 24];
        let at = |position: u64| some[position as usize];
        assert_eq!((whole.end(0, 4, at), whole.end(2, 4, at)), (2, 4));

        let single = claims(&[10, 25], false);
        assert_eq!(single.end(0, 25, |position| position), 8);
        assert_eq!(single.end(20, 25, |position| position), 25);
    }

    #[test]
    fn reads_stay_below_the_limit_unless_a_single_read_exceeds_it() {
        let room = WalkBudget::new(100);
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for bytes in [60, 50, 40, 300] {
                let (room, held, most) = (&room, &held, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let _held = room.admit(bytes as u64, || false).expect("is let in");
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        held.fetch_sub(bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 300, "alone, never with another");
    }

    #[test]
    fn the_next_read_is_admitted_and_waiting_reads_see_the_close() {
        let room = WalkBudget::new(100);
        let is_next = AtomicBool::new(false);
        let held = room.admit(100, || false).expect("fits");

        thread::scope(|scope| {
            let next = scope.spawn(|| room.admit(50, || is_next.load(Ordering::SeqCst)).is_ok());
            let other = scope.spawn(|| room.admit(50, || false).err());
            is_next.store(true, Ordering::SeqCst);
            room.ask_again();
            assert!(next.join().expect("no panic"));
            room.close();
            assert_eq!(other.join().expect("no panic"), Some(BudgetError::Closed));
        });

        drop(held);
    }
}
