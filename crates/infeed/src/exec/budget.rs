//! Bytes under a limit, granted in turn.
//!
//! Reads ask for their bytes in the order in which the consumer will need them. Granting out of
//! order could fill the budget with records that wait for one which no longer fits: see
//! "Admission" in this folder's README.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A number of bytes that permits may not exceed together.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: bool,
    used: u64,
    peak: u64,
    /// The turn that may be granted next.
    turn: u64,
    /// Later turns that were given up or need no bytes.
    passed: BTreeSet<u64>,
    /// Who waits, by turn, and for how much.
    waiting: BTreeMap<u64, (u64, Arc<Condvar>)>,
    /// Who waits without a turn.
    unordered: usize,
}

/// Bytes granted; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    signal: Option<Arc<Condvar>>,
    bytes: u64,
}

/// Why bytes were not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// More than the whole budget: waiting would not help.
    TooLarge {
        /// The whole budget in bytes.
        limit: u64,
    },
    /// The budget was closed while waiting.
    Closed,
}

impl Budget {
    /// A budget of `limit` bytes, open, with turn 0 next.
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Shared {
            limit,
            state: Mutex::new(State {
                open: true,
                used: 0,
                peak: 0,
                turn: 0,
                passed: BTreeSet::new(),
                waiting: BTreeMap::new(),
                unordered: 0,
            }),
        }))
    }

    /// The whole budget in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit
    }

    /// Bytes granted now.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used
    }

    /// The most that was ever granted at once.
    pub fn peak_bytes(&self) -> u64 {
        self.0.lock().peak
    }

    /// Waits until every earlier turn was granted or passed and `bytes` fit.
    ///
    /// # Errors
    ///
    /// [`Refused::TooLarge`] at once, the turn then still to be passed; [`Refused::Closed`] if
    /// the budget closes first.
    pub fn admit(&self, turn: u64, bytes: u64) -> Result<Permit, Refused> {
        let shared = &self.0;
        if bytes > shared.limit {
            return Err(Refused::TooLarge {
                limit: shared.limit,
            });
        }
        let mut state = shared.lock();
        let mut signal: Option<Arc<Condvar>> = None;
        loop {
            if !state.open {
                state.waiting.remove(&turn);
                return Err(Refused::Closed);
            }
            if state.turn == turn && state.used + bytes <= shared.limit {
                state.waiting.remove(&turn);
                state.grant(bytes);
                state.advance();
                state.wake_next(shared.limit);
                return Ok(Permit {
                    shared: Arc::clone(shared),
                    signal: None,
                    bytes,
                });
            }
            let signal = signal.get_or_insert_with(|| Arc::new(Condvar::new()));
            state.waiting.insert(turn, (bytes, Arc::clone(signal)));
            let signal = Arc::clone(signal);
            state = signal.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives a turn up, so that later ones need not wait for it.
    pub fn pass(&self, turn: u64) {
        let mut state = self.0.lock();
        if turn >= state.turn {
            state.passed.insert(turn);
            if turn == state.turn {
                state.passed.remove(&turn);
                state.advance();
            }
            state.wake_next(self.0.limit);
        }
    }

    /// Refuses all who wait and all who come, until [`Budget::reopen`].
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.open = false;
        for (_, signal) in state.waiting.values() {
            signal.notify_one();
        }
    }

    /// Opens again, with `turn` next.
    pub fn reopen(&self, turn: u64) {
        let mut state = self.0.lock();
        state.open = true;
        state.turn = turn;
        state.passed.clear();
    }
}

/// Bytes under a limit for whoever comes, in no order: room that is always given back soon
/// because nobody waits for anything else while holding it.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    freed: Arc<Condvar>,
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: u64) -> Pool {
        Pool {
            shared: Budget::new(limit).0,
            freed: Arc::new(Condvar::new()),
        }
    }

    /// The whole pool in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.limit
    }

    /// The most that was ever granted at once.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.lock().peak
    }

    /// Waits until `bytes` are free. The caller must hold no permit of this pool.
    ///
    /// # Errors
    ///
    /// [`Refused::TooLarge`] when they never could be.
    pub fn take(&self, bytes: u64) -> Result<Permit, Refused> {
        let limit = self.shared.limit;
        if bytes > limit {
            return Err(Refused::TooLarge { limit });
        }
        let mut state = self.shared.lock();
        while state.used + bytes > limit {
            state.unordered += 1;
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.unordered -= 1;
        }
        state.grant(bytes);
        let signal = Some(Arc::clone(&self.freed));
        Ok(Permit {
            shared: Arc::clone(&self.shared),
            signal,
            bytes,
        })
    }
}

impl Permit {
    /// Bytes granted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but `bytes`; keeps what it has where that is less.
    pub fn keep(&mut self, bytes: u64) {
        let given = self.bytes.saturating_sub(bytes);
        self.bytes -= given;
        self.give(given);
    }

    fn give(&self, bytes: u64) {
        let mut state = self.shared.lock();
        state.used -= bytes;
        match &self.signal {
            Some(freed) if state.unordered > 0 => freed.notify_all(),
            Some(_) => {}
            None => state.wake_next(self.shared.limit),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is a set of counters, consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn grant(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    fn advance(&mut self) {
        self.turn += 1;
        while self.passed.remove(&self.turn) {
            self.turn += 1;
        }
    }

    /// Wakes the one whose turn it is, if what it asks for fits now.
    fn wake_next(&self, limit: u64) {
        if let Some((bytes, signal)) = self.waiting.get(&self.turn)
            && self.used + bytes <= limit
        {
            signal.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn bytes_are_granted_in_turn_even_when_a_later_request_would_fit() {
        let budget = Budget::new(100);
        let first = budget.admit(0, 80).expect("fits");
        let (sent, granted) = mpsc::channel();

        thread::scope(|scope| {
            for (turn, bytes) in [(1, 60), (2, 10)] {
                let (budget, sent) = (budget.clone(), sent.clone());
                scope.spawn(move || {
                    let permit = budget.admit(turn, bytes).expect("fits in the end");
                    sent.send(turn).expect("the test listens");
                    permit
                });
            }
            while budget.0.lock().waiting.len() < 2 {
                thread::yield_now();
            }
            assert!(
                granted.try_recv().is_err(),
                "10 bytes would fit, but it is not their turn"
            );
            drop(first);
        });

        assert_eq!(granted.try_iter().count(), 2);
        assert!(budget.peak_bytes() <= 100);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_request_over_the_limit_is_refused_at_once_and_its_turn_can_be_passed() {
        let budget = Budget::new(10);

        assert_eq!(
            budget.admit(0, 11).err(),
            Some(Refused::TooLarge { limit: 10 })
        );
        budget.pass(0);

        assert!(budget.admit(1, 10).is_ok());
    }

    #[test]
    fn turns_passed_early_are_skipped_when_their_time_comes() {
        let budget = Budget::new(10);
        budget.pass(2);
        budget.pass(1);

        let first = budget.admit(0, 4);
        let fourth = budget.admit(3, 4);

        assert!(first.is_ok() && fourth.is_ok());
    }

    #[test]
    fn closing_refuses_who_waits_and_reopening_starts_at_the_turn_given() {
        let budget = Budget::new(10);
        let held = budget.admit(0, 10).expect("fits");

        let refused = thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.admit(1, 5).err());
            while budget.0.lock().waiting.is_empty() {
                thread::yield_now();
            }
            budget.close();
            waiter.join().expect("no panic")
        });
        assert_eq!(refused, Some(Refused::Closed));

        drop(held);
        budget.reopen(7);
        assert!(budget.admit(7, 10).is_ok());
    }

    #[test]
    fn what_a_permit_does_not_keep_is_for_the_next_turn() {
        let budget = Budget::new(100);
        let mut first = budget.admit(0, 90).expect("fits");

        let second = thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.admit(1, 60).map(|permit| permit.bytes()));
            while budget.0.lock().waiting.is_empty() {
                thread::yield_now();
            }
            first.keep(40);
            waiter.join().expect("no panic")
        });

        assert_eq!(second, Ok(60));
        assert_eq!((first.bytes(), budget.used_bytes()), (40, 40));
        first.keep(70);
        assert_eq!(first.bytes(), 40, "nothing is taken again");
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_pool_never_grants_more_than_its_limit() {
        let pool = Pool::new(3);

        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        drop(pool.take(2).expect("fits"));
                    }
                });
            }
        });

        assert_eq!(pool.peak_bytes(), 2);
        assert_eq!(pool.take(4).err(), Some(Refused::TooLarge { limit: 3 }));
    }
}
