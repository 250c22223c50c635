//! Which slots there are, and who has them: free, ahead of the consumer, or held by it.
//!
//! It knows no device: what it hands out may still be read there, and what makes that safe are the
//! events that lie in the slot. See "Slots" in the README of `device`.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{self, Condvar, Mutex};

/// Slots of a ring.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// Slots there are if the consumer keeps no batches.
    limit: usize,
    /// How long the first slot beyond the limit is waited for.
    patience: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Longest at rest first, since what was enqueued on it is the likeliest to be done.
    free: VecDeque<T>,
    counts: Counts,
    closed: bool,
}

/// How many slots are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All there are.
    pub(super) made: usize,
    /// Those with nothing in them.
    pub(super) free: usize,
    /// Those taken and not handed over; the rest is held by the consumer.
    pub(super) ahead: usize,
    /// How often one was made because the consumer kept all others.
    pub(super) overflow: u64,
}

/// What a sender gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// A slot. The other is one of so many at rest that it may be given up.
    Free(T, Option<T>),
    /// Leave to make one. True if it is beyond the limit.
    Make(bool),
    /// No more.
    Closed,
}

impl<T> Slots<T> {
    pub(super) fn new(limit: usize, patience: Duration) -> Slots<T> {
        let state = State {
            free: VecDeque::new(),
            counts: Counts::default(),
            closed: false,
        };
        Slots {
            limit,
            patience,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Takes a slot ahead of the consumer. While some are ahead it waits: the consumer has what it
    /// needs, and gives back in its own time. Once it holds them all, waiting could be for ever.
    pub(super) fn take(&self) -> Taken<T> {
        let mut state = sync::lock(&self.state);
        // A consumer that kept them all once keeps them; only the first is waited for.
        let mut patient = state.counts.overflow == 0;
        loop {
            if state.closed {
                return Taken::Closed;
            }
            if let Some(slot) = state.free.pop_front() {
                state.counts.ahead += 1;
                let idle = state.free.len() > self.limit;
                let surplus = if idle { state.free.pop_front() } else { None };
                return Taken::Free(slot, surplus);
            }
            if state.counts.made < self.limit {
                state.counts.made += 1;
                state.counts.ahead += 1;
                return Taken::Make(false);
            }
            if state.counts.ahead > 0 {
                state = sync::wait(&self.changed, state);
            } else if patient {
                let (guard, passed) =
                    sync::wait_for(&self.state, &self.changed, state, self.patience);
                state = guard;
                patient = !passed;
            } else {
                state.counts.made += 1;
                state.counts.ahead += 1;
                state.counts.overflow += 1;
                return Taken::Make(true);
            }
        }
    }

    /// Whether [`take`](Slots::take) would not wait for the consumer to go on, or does not any more
    /// within so long.
    pub(super) fn has_room(&self, patience: Duration) -> bool {
        let mut state = sync::lock(&self.state);
        loop {
            let waits = state.free.is_empty()
                && state.counts.made >= self.limit
                && state.counts.ahead > 0
                && !state.closed;
            if !waits {
                return true;
            }
            let (guard, passed) = sync::wait_for(&self.state, &self.changed, state, patience);
            state = guard;
            if passed {
                return false;
            }
        }
    }

    /// The consumer has one of those ahead.
    pub(super) fn hand_over(&self) {
        sync::lock(&self.state).counts.ahead -= 1;
        self.changed.notify_all();
    }

    /// Gives a slot back; `ahead` if it was never handed over. Returns it if the ring is closed.
    pub(super) fn give(&self, slot: T, ahead: bool) -> Option<T> {
        let mut state = sync::lock(&self.state);
        state.counts.ahead -= usize::from(ahead);
        let refused = if state.closed {
            state.counts.made -= 1;
            Some(slot)
        } else {
            state.free.push_back(slot);
            None
        };
        drop(state);
        self.changed.notify_all();
        refused
    }

    /// A slot is no more, or could not be made; `ahead` if it was never handed over.
    pub(super) fn gone(&self, ahead: bool) {
        let mut state = sync::lock(&self.state);
        state.counts.ahead -= usize::from(ahead);
        state.counts.made -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Ends taking, for whoever waits too, and returns the slots that were free.
    pub(super) fn close(&self) -> Vec<T> {
        let mut state = sync::lock(&self.state);
        state.closed = true;
        let free: Vec<T> = state.free.drain(..).collect();
        state.counts.made -= free.len();
        drop(state);
        self.changed.notify_all();
        free
    }

    pub(super) fn counts(&self) -> Counts {
        let state = sync::lock(&self.state);
        Counts {
            free: state.free.len(),
            ..state.counts
        }
    }
}
