//! Bytes under a limit, granted in turn.
//!
//! Reads request bytes in the order in which the consumer needs their records. Granting bytes in
//! another order could fill the budget with records that wait for one that no longer fits: see
//! "Admission" in this folder's README.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar};

use super::lock::{Lock, LockGuard};
use super::lock_times;

/// A limit on the bytes that all permits hold together.
#[derive(Clone, Debug)]
pub struct Budget(Arc<BudgetShared>);

#[derive(Debug)]
struct BudgetShared {
    limit: u64,
    state: Lock<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    open: bool,
    used: u64,
    peak: u64,
    /// Turn that is granted next.
    turn: u64,
    /// Later turns that were passed.
    passed: BTreeSet<u64>,
    /// Waiting threads by turn: requested bytes and wake-up signal.
    waiting: BTreeMap<u64, (u64, Arc<Condvar>)>,
    /// Number of waiting threads without a turn.
    unordered: usize,
}

/// Granted bytes. Dropping the permit releases them.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<BudgetShared>,
    signal: Option<Arc<Condvar>>,
    bytes: u64,
}

/// Reason why bytes were not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// The request exceeds the whole budget, so waiting would not help.
    TooLarge {
        /// The whole budget in bytes.
        limit: u64,
    },
    /// The budget was closed while waiting.
    Closed,
}

impl Budget {
    /// Creates an open budget of `limit` bytes. Turn 0 is next.
    pub fn new(limit: u64) -> Budget {
        let state = BudgetState {
            open: true,
            used: 0,
            peak: 0,
            turn: 0,
            passed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            unordered: 0,
        };
        Budget(Arc::new(BudgetShared {
            limit,
            state: Lock::new(state, &lock_times::BUDGET),
        }))
    }

    /// Returns the limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit
    }

    /// Returns the bytes granted now.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used
    }

    /// Returns the most bytes granted at once so far.
    pub fn peak_bytes(&self) -> u64 {
        self.0.lock().peak
    }

    /// Waits until every earlier turn is granted or passed and `bytes` fit.
    ///
    /// # Errors
    ///
    /// [`BudgetError::TooLarge`] immediately; the caller must still [`pass`](Budget::pass) the
    /// turn. [`BudgetError::Closed`] if the budget closes first.
    pub fn admit(&self, turn: u64, bytes: u64) -> Result<Permit, BudgetError> {
        let shared = &self.0;
        if bytes > shared.limit {
            return Err(BudgetError::TooLarge {
                limit: shared.limit,
            });
        }
        let mut state = shared.lock();
        let mut signal: Option<Arc<Condvar>> = None;
        loop {
            if !state.open {
                state.waiting.remove(&turn);
                return Err(BudgetError::Closed);
            }
            if state.turn == turn && state.used + bytes <= shared.limit {
                state.waiting.remove(&turn);
                state.grant(bytes);
                state.advance();
                shared.unlock_and_wake_next(state);
                return Ok(Permit {
                    shared: Arc::clone(shared),
                    signal: None,
                    bytes,
                });
            }
            let signal = signal.get_or_insert_with(|| Arc::new(Condvar::new()));
            state.waiting.insert(turn, (bytes, Arc::clone(signal)));
            let signal = Arc::clone(signal);
            state = state.wait(&signal);
        }
    }

    /// Gives up a turn, so that later turns do not wait for it.
    pub fn pass(&self, turn: u64) {
        let mut state = self.0.lock();
        if turn >= state.turn {
            state.passed.insert(turn);
            if turn == state.turn {
                state.passed.remove(&turn);
                state.advance();
            }
            self.0.unlock_and_wake_next(state);
        }
    }

    /// Rejects all requests, also waiting ones, until [`Budget::reopen`].
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.open = false;
        for (_, signal) in state.waiting.values() {
            signal.notify_one();
        }
    }

    /// Opens the budget again, with `turn` next.
    pub fn reopen(&self, turn: u64) {
        let mut state = self.0.lock();
        state.open = true;
        state.turn = turn;
        state.passed.clear();
    }
}

/// A limit on bytes without turns. Holders wait for nothing else, so they always release their
/// bytes soon.
#[derive(Clone, Debug)]
pub struct BytePool {
    shared: Arc<BudgetShared>,
    freed: Arc<Condvar>,
}

impl BytePool {
    /// Creates a pool of `limit` bytes.
    pub fn new(limit: u64) -> BytePool {
        BytePool {
            shared: Budget::new(limit).0,
            freed: Arc::new(Condvar::new()),
        }
    }

    /// Returns the limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.limit
    }

    /// Returns the most bytes granted at once so far.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.lock().peak
    }

    /// Waits until `bytes` are free. The caller must hold no permit of this pool.
    ///
    /// # Errors
    ///
    /// [`BudgetError::TooLarge`] if `bytes` exceed the whole pool.
    pub fn take(&self, bytes: u64) -> Result<Permit, BudgetError> {
        let limit = self.shared.limit;
        if bytes > limit {
            return Err(BudgetError::TooLarge { limit });
        }
        let mut state = self.shared.lock();
        while state.used + bytes > limit {
            state.unordered += 1;
            state = state.wait(&self.freed);
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
    /// Returns the granted bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases all but `bytes`. Does nothing if the permit has less.
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
            None => self.shared.unlock_and_wake_next(state),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

impl BudgetShared {
    fn lock(&self) -> LockGuard<'_, BudgetState> {
        self.state.lock()
    }

    /// Unlocks the state, then wakes the thread whose turn it is, if its request fits now.
    fn unlock_and_wake_next(&self, state: LockGuard<'_, BudgetState>) {
        let next = state.waiting.get(&state.turn);
        let next = next.filter(|(bytes, _)| state.used + bytes <= self.limit);
        let signal = next.map(|(_, signal)| Arc::clone(signal));
        drop(state);
        if let Some(signal) = signal {
            signal.notify_one();
        }
    }
}

impl BudgetState {
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
}

/// Memory reservation of a read, requested once the read knows its size.
#[derive(Debug)]
pub struct MemoryReservation<'a> {
    pub(super) source: ReservationSource<'a>,
}

#[derive(Debug)]
pub(super) enum ReservationSource<'a> {
    InTurn {
        budget: &'a Budget,
        turn: Option<u64>,
    },
    Spare(&'a BytePool),
}

impl MemoryReservation<'_> {
    /// Waits until `bytes` are reserved.
    ///
    /// # Errors
    ///
    /// As [`Budget::admit`].
    pub fn admit(mut self, bytes: u64) -> Result<Permit, BudgetError> {
        match &mut self.source {
            ReservationSource::Spare(pool) => pool.take(bytes),
            ReservationSource::InTurn { budget, turn } => {
                let number = turn.take().expect("a reservation is used once");
                let answer = budget.admit(number, bytes);
                if answer.is_err() {
                    budget.pass(number);
                }
                answer
            }
        }
    }
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        if let ReservationSource::InTurn {
            budget,
            turn: Some(turn),
        } = self.source
        {
            budget.pass(turn);
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
    fn a_request_over_the_limit_is_rejected_at_once_and_its_turn_can_be_passed() {
        let budget = Budget::new(10);

        assert_eq!(
            budget.admit(0, 11).err(),
            Some(BudgetError::TooLarge { limit: 10 })
        );
        budget.pass(0);

        assert!(budget.admit(1, 10).is_ok());
    }

    #[test]
    fn turns_passed_early_are_skipped() {
        let budget = Budget::new(10);
        budget.pass(2);
        budget.pass(1);

        let first = budget.admit(0, 4);
        let fourth = budget.admit(3, 4);

        assert!(first.is_ok() && fourth.is_ok());
    }

    #[test]
    fn close_rejects_waiting_requests_and_reopen_sets_the_turn() {
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
        assert_eq!(refused, Some(BudgetError::Closed));

        drop(held);
        budget.reopen(7);
        assert!(budget.admit(7, 10).is_ok());
    }

    #[test]
    fn bytes_that_a_permit_releases_go_to_the_next_turn() {
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
        let pool = BytePool::new(3);

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
        assert_eq!(pool.take(4).err(), Some(BudgetError::TooLarge { limit: 3 }));
    }
}
