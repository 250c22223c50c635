//! Workers: take parcels in order, fill their rows, make batches of full trays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::cores::Core;
use super::{Filled, Filling, Job, Place, Shared, State, Taking, Ticket, TrayState, nanos};

/// Time a worker aims to spend on one claim. Claiming costs about a microsecond of lock; rows
/// that take less than this are claimed several at once, so that the lock stays under 1 %.
const CLAIM_NS: u64 = 150_000;

/// Most rows in one claim.
const CLAIM_ROWS: u64 = 32;

/// A row being worked on.
struct Claim<J: Job> {
    ticket: Ticket,
    place: Place,
    parcel: J::Parcel,
    row: J::Row,
}

/// A row that came back.
struct Outcome<J: Job> {
    place: Place,
    /// Kept for another try.
    row: Option<J::Row>,
    filled: Filled<J>,
}

/// Body of worker `number`.
pub(super) fn run<J: Job>(shared: &Shared<J>, number: usize) {
    // Made with the first rows: a worker that never may work needs none.
    let mut scratch = None;
    // Smoothed time of one row; starts high so that the first claims are single rows.
    let mut row_ns = CLAIM_NS;
    let mut state = shared.lock();
    while state.running {
        if number >= state.working {
            state = shared
                .parked
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let rows = (CLAIM_NS / row_ns.max(1)).clamp(1, CLAIM_ROWS);
        let claims = claim(shared, &mut state, rows);
        if claims.is_empty() {
            let waits = &shared.waits;
            let reason = if state.parcels.is_empty() {
                &waits.starved_ns
            } else {
                &waits.blocked_ns
            };
            state.idle_workers += 1;
            let begun = Instant::now();
            state = shared
                .work_wanted
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle_workers -= 1;
            reason.fetch_add(nanos(begun.elapsed()), Ordering::Relaxed);
            continue;
        }
        state.busy += 1;
        let generation = state.generation;
        drop(state);

        let count = claims.len() as u64;
        let core = Core::acquire();
        let begun = Instant::now();
        let outcomes = catch_unwind(AssertUnwindSafe(|| {
            let scratch = scratch.get_or_insert_with(|| shared.job.scratch());
            fill(shared, claims, scratch)
        }));
        let spent = nanos(begun.elapsed());
        shared.work.busy_ns.fetch_add(spent, Ordering::Relaxed);
        row_ns = (3 * row_ns + spent / count) / 4;
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(panic) => {
                drop(shared.come_back(generation));
                return shared.report_panic(&*panic);
            }
        };

        let current;
        (state, current) = shared.come_back_keeping(generation);
        let full = if current {
            settle(shared, &mut state, outcomes)
        } else {
            Vec::new()
        };
        for (tray, filling) in full {
            drop(state);
            let begun = Instant::now();
            let batch = catch_unwind(AssertUnwindSafe(|| close(shared, filling)));
            let spent = nanos(begun.elapsed());
            shared.work.busy_ns.fetch_add(spent, Ordering::Relaxed);
            state = shared.lock();
            match batch {
                Ok(batch) if state.generation == generation => {
                    let at = (tray - state.front) as usize;
                    state.trays[at] = TrayState::Ready(batch);
                    finished(shared, &mut state);
                    if at == 0 {
                        shared.settled.notify_all();
                    }
                }
                Ok(batch) => {
                    drop(state);
                    drop(batch);
                    state = shared.lock();
                }
                Err(panic) => {
                    drop(state);
                    drop(shared.come_back(generation));
                    return shared.report_panic(&*panic);
                }
            }
        }
        drop(core);
        drop(state);
        (state, _) = shared.come_back(generation);
    }
}

impl<J: Job> Shared<J> {
    /// Locks after job code without leaving it yet: a tray may remain to be closed.
    fn come_back_keeping(&self, generation: u64) -> (std::sync::MutexGuard<'_, State<J>>, bool) {
        let state = self.lock();
        let current = state.generation == generation && state.running;
        (state, current)
    }
}

/// Takes up to `rows` parcels in order whose trays may be begun.
fn claim<J: Job>(shared: &Shared<J>, state: &mut State<J>, rows: u64) -> Vec<Claim<J>> {
    let mut claims = Vec::new();
    if state.paused {
        return claims;
    }
    // Leave enough for the other workers, or the tail of a batch waits for one of them.
    let share = state.parcels.len() / (2 * state.working);
    let rows = (rows as usize).min(share.max(1));
    let end = state.front + shared.config.trays as u64;
    while claims.len() < rows {
        let Some((&ticket, _)) = state.parcels.first_key_value() else {
            break;
        };
        let place = shared.job.place(ticket);
        if place.tray >= end {
            break;
        }
        if matches!(state.tray_mut(place.tray), TrayState::Waiting) {
            *state.tray_mut(place.tray) = open(shared, place.tray);
            if matches!(state.tray_mut(place.tray), TrayState::Ready(_)) {
                finished(shared, state);
                shared.settled.notify_all();
            }
        }
        let Some((_, parcel)) = state.parcels.pop_first() else {
            break;
        };
        let at = (place.tray - state.front) as usize;
        // A tray that could not be opened takes no rows; its parcels go.
        if let TrayState::Filling(filling) = &mut state.trays[at]
            && let Some(row) = filling.rows[place.row].take()
        {
            claims.push(Claim {
                ticket,
                place,
                parcel,
                row,
            });
        }
    }
    claims
}

/// Begins a tray.
fn open<J: Job>(shared: &Shared<J>, number: u64) -> TrayState<J> {
    match shared.job.open(number) {
        Ok((tray, rows)) => {
            let missing = rows.len();
            let outcomes = (0..missing).map(|_| None).collect();
            let rows = rows.into_iter().map(Some).collect();
            TrayState::Filling(Filling {
                tray,
                rows,
                outcomes,
                missing,
            })
        }
        Err(fault) => TrayState::Ready(Err(fault)),
    }
}

/// Counts a tray of the own threads as finished: they may take another.
fn finished<J: Job>(shared: &Shared<J>, state: &mut State<J>) {
    state.own = state.own.saturating_sub(1);
    if shared.config.taking != Taking::All && state.idle_readers > 0 {
        shared.reads_wanted.notify_all();
    }
}

fn fill<J: Job>(
    shared: &Shared<J>,
    claims: Vec<Claim<J>>,
    scratch: &mut J::Scratch,
) -> Vec<Outcome<J>> {
    let fill_one = |claim: Claim<J>| {
        let Claim {
            ticket,
            place,
            parcel,
            mut row,
        } = claim;
        let filled = shared.job.fill(ticket, parcel, &mut row, scratch);
        let row = matches!(filled, Filled::Again(_)).then_some(row);
        Outcome { place, row, filled }
    };
    claims.into_iter().map(fill_one).collect()
}

/// Enters outcomes into their trays; gives the trays that are full now.
fn settle<J: Job>(
    shared: &Shared<J>,
    state: &mut State<J>,
    outcomes: Vec<Outcome<J>>,
) -> Vec<(u64, Filling<J>)> {
    let mut full = Vec::new();
    for Outcome { place, row, filled } in outcomes {
        let at = (place.tray - state.front) as usize;
        let TrayState::Filling(filling) = &mut state.trays[at] else {
            unreachable!("a tray with a row under way is being filled");
        };
        let result = match filled {
            Filled::Done(done) => Ok(done),
            Filled::Failed(fault) => Err(fault),
            Filled::Again(read) => {
                filling.rows[place.row] = row;
                state.urgent.push_back(read);
                shared.reads_wanted.notify_one();
                continue;
            }
        };
        shared.work.rows.fetch_add(1, Ordering::Relaxed);
        filling.outcomes[place.row] = Some(result);
        filling.missing -= 1;
        if filling.missing == 0
            && let TrayState::Filling(filling) =
                std::mem::replace(&mut state.trays[at], TrayState::Closing)
        {
            full.push((place.tray, filling));
        }
    }
    full
}

fn close<J: Job>(shared: &Shared<J>, filling: Filling<J>) -> Result<J::Batch, J::Fault> {
    let Filling {
        tray,
        rows,
        outcomes,
        ..
    } = filling;
    drop(rows);
    shared
        .job
        .close(tray, outcomes.into_iter().flatten().collect())
}
