//! Trays that are filled elsewhere than on the conveyor's threads, such as on another machine.
//!
//! Whoever fills them takes the next tray that nobody has, as the own threads do. The first who
//! brings a tray's rows fills it; what others bring for it is not wanted any more. A tray that was
//! given back goes to the next who asks, and after two losses to the own threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Job, Shared, State, TrayState};

/// How often a tray is taken elsewhere before only the own threads may have it.
const TRIES: u32 = 2;

/// A tray that is filled elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Away {
    /// How often it was taken.
    tries: u32,
    /// Whether its rows are out.
    filling: bool,
}

/// Gives trays of a conveyor to those who fill them elsewhere. It keeps the conveyor's memory, not its
/// threads.
pub struct Lender<J: Job> {
    shared: Arc<Shared<J>>,
}

/// A tray that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    generation: u64,
    tray: u64,
}

/// What somebody got who asked for a tray.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// This one.
    Tray(Lease),
    /// None so far.
    Timeout,
    /// The conveyor has ended.
    Ended,
}

/// Why a tray is to be filled by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// Who had it is gone or slow: by anyone.
    Lost,
    /// It cannot be filled elsewhere: by the own threads.
    Declined,
}

/// The rows of a tray in somebody's hands. Dropped unfinished it is given back.
pub struct Begun<'a, J: Job> {
    lender: &'a Lender<J>,
    lease: Lease,
    tray: Option<J::Tray>,
    /// Its rows, in order.
    pub rows: Vec<J::Row>,
}

impl Lease {
    /// Number of the tray.
    pub fn tray(self) -> u64 {
        self.tray
    }
}

impl<J: Job> Lender<J> {
    pub(super) fn new(shared: Arc<Shared<J>>) -> Lender<J> {
        Lender { shared }
    }

    /// What the conveyor carries.
    pub fn job(&self) -> &J {
        &self.shared.job
    }

    /// Whether what is under way is not wanted: a reset waits for it, or the conveyor ends.
    pub fn is_stopping(&self) -> bool {
        self.shared.stop.is_wished()
    }

    /// Takes the next tray; waits for one at most `patience`.
    pub fn take(&self, patience: Duration) -> Taken {
        let shared = &*self.shared;
        let begun = Instant::now();
        let mut state = shared.lock();
        loop {
            if !state.running || state.broken.is_some() {
                return Taken::Ended;
            }
            if let Some(tray) = next(shared, &mut state) {
                let generation = state.generation;
                return Taken::Tray(Lease { generation, tray });
            }
            let left = patience.checked_sub(begun.elapsed());
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                return Taken::Timeout;
            };
            let woken = shared.lend_wanted.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a tray is still to be filled by whoever took it, or took it again.
    pub fn is_wanted(&self, lease: Lease) -> bool {
        away(&mut self.shared.lock(), lease).is_some_and(|away| !away.filling)
    }

    /// Begins to fill a tray; None where it is not wanted any more.
    pub fn begin(&self, lease: Lease) -> Option<Begun<'_, J>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        if state.paused || !state.running {
            return None;
        }
        let away = away(&mut state, lease).filter(|away| !away.filling)?;
        away.filling = true;
        state.returned.remove(&lease.tray);
        state.busy += 1;
        drop(state);
        let opened = catch_unwind(AssertUnwindSafe(|| shared.job.open(lease.tray)));
        let fault = match opened {
            Ok(Ok((tray, rows))) => {
                return Some(Begun {
                    lender: self,
                    lease,
                    tray: Some(tray),
                    rows,
                });
            }
            Ok(Err(fault)) => fault,
            Err(panic) => {
                drop(shared.come_back(lease.generation));
                shared.report_panic(&*panic);
                return None;
            }
        };
        let (mut state, current) = shared.come_back(lease.generation);
        if current {
            *state.tray_mut(lease.tray) = TrayState::Ready(Err(fault));
            shared.settled.notify_all();
        }
        None
    }

    /// Leaves a tray to others.
    pub fn give_back(&self, lease: Lease, why: Returned) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        if away(&mut state, lease).is_some_and(|away| !away.filling) {
            give_back(shared, &mut state, lease.tray, why);
        }
    }

    /// How many trays the own threads may have at once from now on.
    pub fn set_own(&self, trays: usize) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.own_most, trays) < trays {
            self.shared.reads_wanted.notify_all();
        }
    }
}

impl<J: Job> Clone for Lender<J> {
    fn clone(&self) -> Lender<J> {
        Lender::new(Arc::clone(&self.shared))
    }
}

impl<J: Job> std::fmt::Debug for Lender<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender").finish_non_exhaustive()
    }
}

impl<J: Job> Begun<'_, J> {
    /// Makes the batch of what the rows became.
    pub fn finish(mut self, rows: Vec<Result<J::Done, J::Fault>>) {
        let (lease, shared) = (self.lease, &*self.lender.shared);
        self.rows.clear();
        let Some(tray) = self.tray.take() else {
            return;
        };
        let closed = catch_unwind(AssertUnwindSafe(|| shared.job.close(tray, rows)));
        let (mut state, current) = shared.come_back(lease.generation);
        match closed {
            Ok(batch) if current => {
                *state.tray_mut(lease.tray) = TrayState::Ready(batch);
                if lease.tray == state.front {
                    shared.settled.notify_all();
                }
            }
            Ok(batch) => {
                drop(state);
                drop(batch);
            }
            Err(panic) => {
                drop(state);
                shared.report_panic(&*panic);
            }
        }
    }
}

impl<J: Job> Drop for Begun<'_, J> {
    fn drop(&mut self) {
        // A tray recycles its memory once its rows are gone.
        self.rows.clear();
        let Some(tray) = self.tray.take() else {
            return;
        };
        drop(tray);
        let shared = &*self.lender.shared;
        let (mut state, current) = shared.come_back(self.lease.generation);
        if current {
            give_back(shared, &mut state, self.lease.tray, Returned::Lost);
        }
    }
}

/// The next tray for somebody else: what came back before what nobody had.
fn next<J: Job>(shared: &Shared<J>, state: &mut State<J>) -> Option<u64> {
    if state.paused {
        return None;
    }
    let returned = state.returned.iter().find(|(_, own)| !**own);
    let tray = match returned.map(|(&tray, _)| tray) {
        Some(tray) => {
            state.returned.remove(&tray);
            tray
        }
        None => {
            let tray = state.untaken;
            if tray >= state.front + shared.config.trays as u64 {
                return None;
            }
            state.untaken += 1;
            *state.tray_mut(tray) = TrayState::Away(Away::default());
            tray
        }
    };
    if let TrayState::Away(away) = state.tray_mut(tray) {
        away.tries += 1;
    }
    Some(tray)
}

/// A tray that is away under this lease or a later one.
fn away<J: Job>(state: &mut State<J>, lease: Lease) -> Option<&mut Away> {
    if state.generation != lease.generation || !state.running || lease.tray < state.front {
        return None;
    }
    match state.tray_mut(lease.tray) {
        TrayState::Away(away) => Some(away),
        _ => None,
    }
}

fn give_back<J: Job>(shared: &Shared<J>, state: &mut State<J>, tray: u64, why: Returned) {
    let TrayState::Away(away) = state.tray_mut(tray) else {
        return;
    };
    away.filling = false;
    let own = why == Returned::Declined || away.tries >= TRIES;
    let known = state.returned.entry(tray).or_insert(own);
    *known |= own;
    shared.lend_wanted.notify_all();
    shared.reads_wanted.notify_all();
}
