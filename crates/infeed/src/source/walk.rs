//! A walk over the records of a source beside the loader: what is claimed at a time, so that what
//! can only be read whole is read once, and how many bytes the reads of all threads hold.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Source;
use crate::exec::budget::Refused;
use crate::order::window::Groups;

/// Share of the memory that this process may use which the reads of a walk may hold.
const SHARE: u64 = 8;

/// Bytes that they may hold where that is less.
const LEAST_BYTES: u64 = 64 << 20;

/// Where claims of a walk end.
///
/// A source keeps nothing between reads, and where a group can only be read whole, each read of one
/// of its records decodes all of it. So claims of such a source are groups.
#[derive(Clone, Debug)]
pub struct Claims {
    whole: Option<Arc<Groups>>,
    most: u64,
}

impl Claims {
    /// Claims of at most so many records, where the source leaves a choice.
    pub fn of(source: &dyn Source, most: u64) -> Claims {
        Claims {
            whole: source.groups().filter(|groups| groups.whole),
            most: most.max(1),
        }
    }

    /// One past the last place of the claim that begins at `from`, of `len` places; `record` gives
    /// the record at each, which must ascend where the source is read in whole groups.
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

/// Bytes that the reads of a walk hold, under a limit that one read alone may exceed.
#[derive(Debug)]
pub struct Room {
    limit_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held_bytes: u64,
    closed: bool,
}

/// Bytes that a read holds; given back when dropped.
#[derive(Debug)]
pub struct Held<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Default for Room {
    /// An eighth of the memory that this process may use.
    fn default() -> Room {
        Room::new((infeed_raw::machine::memory_limit_bytes() / SHARE).max(LEAST_BYTES))
    }
}

impl Room {
    /// Room for so many bytes.
    pub fn new(limit_bytes: u64) -> Room {
        Room {
            limit_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a read of so many bytes fits, or no other holds any, or `is_next`: then all others
    /// may wait for what this one brings. Whoever holds bytes while it waits must be let in by
    /// `is_next` in the end.
    ///
    /// # Errors
    ///
    /// [`Refused::Closed`] after [`Room::close`].
    pub fn admit(&self, bytes: u64, is_next: impl Fn() -> bool) -> Result<Held<'_>, Refused> {
        let fits = |state: &State| {
            let after = state.held_bytes.saturating_add(bytes);
            state.held_bytes == 0 || after <= self.limit_bytes
        };
        let waits = |state: &mut State| !state.closed && !fits(state) && !is_next();
        let state = self.changed.wait_while(self.lock(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Refused::Closed);
        }
        state.held_bytes = state.held_bytes.saturating_add(bytes);
        Ok(Held { room: self, bytes })
    }

    /// Lets those who wait ask again whether they are next. The caller holds no lock that `is_next`
    /// takes.
    pub fn ask_again(&self) {
        // With the lock, so that none is between its question and its sleep.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Refuses all who wait and all who come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Drop for Held<'_> {
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
    fn a_claim_is_a_group_or_what_is_wanted_of_it() {
        let whole = claims(&[10, 10, 25], true);
        assert_eq!(whole.end(0, 25, |place| place), 10);
        assert_eq!(whole.end(3, 25, |place| place), 10);
        assert_eq!(whole.end(10, 25, |place| place), 25);
        assert_eq!(whole.end(24, 25, |place| place), 25);
        let some = [2, 9, 10, 24];
        let at = |place: u64| some[place as usize];
        assert_eq!((whole.end(0, 4, at), whole.end(2, 4, at)), (2, 4));

        let single = claims(&[10, 25], false);
        assert_eq!(single.end(0, 25, |place| place), 8);
        assert_eq!(single.end(20, 25, |place| place), 25);
    }

    #[test]
    fn reads_hold_no_more_than_the_room_unless_one_alone_does() {
        let room = Room::new(100);
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
    fn who_is_next_is_let_in_and_who_waits_is_told_of_the_end() {
        let room = Room::new(100);
        let is_next = AtomicBool::new(false);
        let held = room.admit(100, || false).expect("fits");

        thread::scope(|scope| {
            let next = scope.spawn(|| room.admit(50, || is_next.load(Ordering::SeqCst)).is_ok());
            let other = scope.spawn(|| room.admit(50, || false).err());
            is_next.store(true, Ordering::SeqCst);
            room.ask_again();
            assert!(next.join().expect("no panic"));
            room.close();
            assert_eq!(other.join().expect("no panic"), Some(Refused::Closed));
        });

        drop(held);
    }
}
