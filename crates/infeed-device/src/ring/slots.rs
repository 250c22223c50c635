//! Counts slots by state: free, ahead of the consumer, or held by the consumer.
//!
//! The device may still read a slot when it is taken again. The events in the slot make writing to
//! it safe. See "Slots" in the README of this crate.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{self, Condvar, Mutex};

/// Slots of a ring.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// Number of slots for a consumer that keeps no batches.
    limit: usize,
    /// Time to wait before the first slot beyond the limit is made.
    timeout: Duration,
    state: Mutex<SlotState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct SlotState<T> {
    /// The slot that has been free the longest comes first, because its commands are most likely
    /// done.
    free: VecDeque<T>,
    counts: SlotCounts,
    closed: bool,
}

/// Number of slots in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotCounts {
    /// All slots.
    pub(super) made: usize,
    /// Slots without a batch.
    pub(super) free: usize,
    /// Slots that are taken and not handed over. The consumer holds the remaining ones.
    pub(super) ahead: usize,
    /// Number of slots made because the consumer kept all others.
    pub(super) overflow: u64,
}

/// Result of taking a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakenSlot<T> {
    /// A slot, and a surplus slot to free, if there is one.
    Free(T, Option<T>),
    /// Permission to make a slot; true if it is beyond the limit.
    Make(bool),
    /// The ring is closed.
    Closed,
}

impl<T> Slots<T> {
    pub(super) fn new(limit: usize, timeout: Duration) -> Slots<T> {
        let state = SlotState {
            free: VecDeque::new(),
            counts: SlotCounts::default(),
            closed: false,
        };
        Slots {
            limit,
            timeout,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Takes a slot. Waits while batches are ahead of the consumer, because the consumer will
    /// return slots. If the consumer holds all slots, waiting might never end, so the caller may
    /// make another.
    pub(super) fn take(&self) -> TakenSlot<T> {
        let mut state = sync::lock(&self.state);
        // A consumer that kept all slots once will probably keep them again, so this waits only the
        // first time.
        let mut may_wait = state.counts.overflow == 0;
        loop {
            if state.closed {
                return TakenSlot::Closed;
            }
            if let Some(slot) = state.free.pop_front() {
                state.counts.ahead += 1;
                let idle = state.free.len() > self.limit;
                let surplus = if idle { state.free.pop_front() } else { None };
                return TakenSlot::Free(slot, surplus);
            }
            if state.counts.made < self.limit {
                state.counts.made += 1;
                state.counts.ahead += 1;
                return TakenSlot::Make(false);
            }
            if state.counts.ahead > 0 {
                state = sync::wait(&self.changed, state);
            } else if may_wait {
                let (guard, passed) =
                    sync::wait_for(&self.state, &self.changed, state, self.timeout);
                state = guard;
                may_wait = !passed;
            } else {
                state.counts.made += 1;
                state.counts.ahead += 1;
                state.counts.overflow += 1;
                return TakenSlot::Make(true);
            }
        }
    }

    /// Whether [`take`](Slots::take) would return without waiting for the consumer, now or within
    /// `timeout`.
    pub(super) fn has_room(&self, timeout: Duration) -> bool {
        let mut state = sync::lock(&self.state);
        loop {
            let waits = state.free.is_empty()
                && state.counts.made >= self.limit
                && state.counts.ahead > 0
                && !state.closed;
            if !waits {
                return true;
            }
            let (guard, passed) = sync::wait_for(&self.state, &self.changed, state, timeout);
            state = guard;
            if passed {
                return false;
            }
        }
    }

    /// Hands one of the slots ahead to the consumer.
    pub(super) fn hand_over(&self) {
        sync::lock(&self.state).counts.ahead -= 1;
        self.changed.notify_all();
    }

    /// Returns a slot; `ahead` if it was never handed over. Gives the slot back to the caller if
    /// the ring is closed.
    pub(super) fn give(&self, slot: T, ahead: bool) -> Option<T> {
        let mut state = sync::lock(&self.state);
        state.counts.ahead -= usize::from(ahead);
        let rejected = if state.closed {
            state.counts.made -= 1;
            Some(slot)
        } else {
            state.free.push_back(slot);
            None
        };
        drop(state);
        self.changed.notify_all();
        rejected
    }

    /// Removes a slot that was freed or could not be made; `ahead` if it was never handed over.
    pub(super) fn remove_slot(&self, ahead: bool) {
        let mut state = sync::lock(&self.state);
        state.counts.ahead -= usize::from(ahead);
        state.counts.made -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Closes the slots, also for senders that wait, and returns the free ones.
    pub(super) fn close(&self) -> Vec<T> {
        let mut state = sync::lock(&self.state);
        state.closed = true;
        let free: Vec<T> = state.free.drain(..).collect();
        state.counts.made -= free.len();
        drop(state);
        self.changed.notify_all();
        free
    }

    pub(super) fn is_closed(&self) -> bool {
        sync::lock(&self.state).closed
    }

    pub(super) fn counts(&self) -> SlotCounts {
        let state = sync::lock(&self.state);
        SlotCounts {
            free: state.free.len(),
            ..state.counts
        }
    }
}

/// Rounds an allocation up by at most a fifth, so that the next batch can reuse it although it
/// needs a slightly different size.
pub(super) fn roomy(bytes: usize) -> usize {
    let step = bytes.max(1 << 12).next_power_of_two() / 8;
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(bytes)
}
