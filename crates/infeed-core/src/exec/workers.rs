//! Workers: take fetched records in order, but expensive ones first, fill their rows, finish full
//! batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::config::BatchChoice;
use super::cores::CorePermit;
use super::executor_shared::ExecutorShared;
use super::job::{FillOutcome, Job, RowLocation, Sequence};
use super::state::{BatchInWork, ExecutorState, InFlightState};
use super::totals::nanos;

/// Target duration of one claim. A claim holds the lock for about a microsecond. A worker claims
/// several short rows together, so that the lock takes less than 1 % of the time.
const CLAIM_NS: u64 = 150_000;

/// Most rows in one claim.
const CLAIM_ROWS: u64 = 32;

/// A row that a worker fills.
struct RowClaim<J: Job> {
    sequence: Sequence,
    location: RowLocation,
    fetched: J::FetchedData,
    row: J::Row,
}

/// A row after [`Job::fill`].
struct RowOutcome<J: Job> {
    location: RowLocation,
    /// Number of rows of the batch.
    rows: u64,
    /// Kept if the row has to be filled again.
    row: Option<J::Row>,
    filled: FillOutcome<J>,
}

/// Body of worker `number`.
pub(super) fn run<J: Job>(shared: &ExecutorShared<J>, number: usize) {
    // Created with the first rows: a worker that never may work needs no scratch.
    let mut scratch = None;
    // Smoothed time of one row. It starts high so that the first claims are single rows.
    let mut row_ns = CLAIM_NS;
    let mut claims = Vec::with_capacity(CLAIM_ROWS as usize);
    let mut state = shared.lock();
    while state.running {
        if number >= state.working {
            state = state.wait(&shared.parked);
            continue;
        }
        let rows = (CLAIM_NS / row_ns.max(1)).clamp(1, CLAIM_ROWS);
        claim(shared, &mut state, rows, &mut claims);
        if claims.is_empty() {
            let waits = &shared.waits;
            let reason = if state.fetched_records.is_empty() {
                &waits.starved_ns
            } else {
                &waits.blocked_ns
            };
            state.idle_workers += 1;
            let begun = Instant::now();
            state = state.wait(&shared.work_wanted);
            state.idle_workers -= 1;
            reason.fetch_add(nanos(begun.elapsed()), Ordering::Relaxed);
            continue;
        }
        state.busy += 1;
        let generation = state.generation;
        drop(state);

        let count = claims.len() as u64;
        let core = CorePermit::acquire();
        let begun = Instant::now();
        let outcomes = catch_unwind(AssertUnwindSafe(|| {
            let scratch = scratch.get_or_insert_with(|| shared.job.scratch());
            fill(shared, &mut claims, scratch)
        }));
        let spent = nanos(begun.elapsed());
        shared.work.busy_ns.fetch_add(spent, Ordering::Relaxed);
        row_ns = (3 * row_ns + spent / count) / 4;
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(panic) => {
                drop(shared.lock_after_job(generation));
                return shared.report_panic(&*panic);
            }
        };

        let current;
        (state, current) = shared.lock_within_job(generation);
        let full = if current {
            settle(shared, &mut state, outcomes)
        } else {
            Vec::new()
        };
        for (in_flight, filling) in full {
            drop(state);
            let begun = Instant::now();
            let batch = catch_unwind(AssertUnwindSafe(|| close(shared, filling)));
            let spent = nanos(begun.elapsed());
            shared.work.busy_ns.fetch_add(spent, Ordering::Relaxed);
            state = shared.lock();
            match batch {
                Ok(batch) if state.generation == generation => {
                    let at = (in_flight - state.front) as usize;
                    state.in_flight_batches[at] = InFlightState::Ready(batch);
                    count_finished(shared, &mut state);
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
                    drop(shared.lock_after_job(generation));
                    return shared.report_panic(&*panic);
                }
            }
        }
        drop(core);
        shared.leave_job(&mut state, generation);
    }
}

/// Adds up to `rows` fetched records whose batches may be open to `claims`, which is empty: one
/// expensive record, or others in order.
fn claim<J: Job>(
    shared: &ExecutorShared<J>,
    state: &mut ExecutorState<J>,
    rows: u64,
    claims: &mut Vec<RowClaim<J>>,
) {
    if state.paused {
        return;
    }
    // Leave enough for the other workers, or the tail of a batch waits for one of them.
    let share = state.fetched_records.len() / (2 * state.working);
    let rows = (rows as usize).min(share.max(1));
    let end = state.front + shared.config.in_flight_batches as u64;
    while claims.len() < rows {
        let may_be_open = |sequence: &Sequence| shared.job.place(*sequence).in_flight < end;
        let expensive = state.expensive.first().copied().filter(may_be_open);
        // Not with others, whose batches would wait for it.
        if expensive.is_some() && !claims.is_empty() {
            break;
        }
        let in_order = || state.fetched_records.keys().next().copied();
        let Some(sequence) = expensive.or_else(in_order) else {
            break;
        };
        let location = shared.job.place(sequence);
        if location.in_flight >= end {
            break;
        }
        if matches!(
            state.in_flight_mut(location.in_flight),
            InFlightState::Waiting
        ) {
            *state.in_flight_mut(location.in_flight) = open(shared, location.in_flight);
            if matches!(
                state.in_flight_mut(location.in_flight),
                InFlightState::Ready(_)
            ) {
                count_finished(shared, state);
                shared.settled.notify_all();
            }
        }
        state.expensive.remove(&sequence);
        let Some(fetched) = state.fetched_records.remove(&sequence) else {
            break;
        };
        let at = (location.in_flight - state.front) as usize;
        // A batch that failed to open has no rows; its fetched records are dropped.
        if let InFlightState::Filling(filling) = &mut state.in_flight_batches[at]
            && let Some(row) = filling.rows[location.row].take()
        {
            claims.push(RowClaim {
                sequence,
                location,
                fetched,
                row,
            });
        }
        if expensive.is_some() {
            break;
        }
    }
}

/// Opens an in-flight batch.
fn open<J: Job>(shared: &ExecutorShared<J>, number: u64) -> InFlightState<J> {
    match shared.job.open(number) {
        Ok((in_flight, rows)) => {
            let missing = rows.len();
            let outcomes = (0..missing).map(|_| None).collect();
            let rows = rows.into_iter().map(Some).collect();
            InFlightState::Filling(BatchInWork {
                in_flight,
                rows,
                outcomes,
                missing,
            })
        }
        Err(fault) => InFlightState::Ready(Err(fault)),
    }
}

/// Counts a batch of the local threads as finished, so that they may take another.
fn count_finished<J: Job>(shared: &ExecutorShared<J>, state: &mut ExecutorState<J>) {
    state.own = state.own.saturating_sub(1);
    if shared.config.taking != BatchChoice::All && state.idle_readers > 0 {
        shared.reads_wanted.notify_all();
    }
}

fn fill<J: Job>(
    shared: &ExecutorShared<J>,
    claims: &mut Vec<RowClaim<J>>,
    scratch: &mut J::Scratch<'_>,
) -> Vec<RowOutcome<J>> {
    let fill_one = |claim: RowClaim<J>| {
        let RowClaim {
            sequence,
            location,
            fetched,
            mut row,
        } = claim;
        let filled = shared.job.fill(sequence, fetched, &mut row, scratch);
        let row = matches!(filled, FillOutcome::Again(_)).then_some(row);
        RowOutcome {
            location,
            rows: shared.job.rows(sequence),
            row,
            filled,
        }
    };
    claims.drain(..).map(fill_one).collect()
}

/// Stores outcomes in their batches. Returns the batches that are now full.
fn settle<J: Job>(
    shared: &ExecutorShared<J>,
    state: &mut ExecutorState<J>,
    outcomes: Vec<RowOutcome<J>>,
) -> Vec<(u64, BatchInWork<J>)> {
    let mut full = Vec::new();
    for RowOutcome {
        location,
        rows,
        row,
        filled,
    } in outcomes
    {
        let at = (location.in_flight - state.front) as usize;
        let InFlightState::Filling(filling) = &mut state.in_flight_batches[at] else {
            unreachable!("a batch with a claimed row is being filled");
        };
        let result = match filled {
            FillOutcome::Done(done) => Ok(done),
            FillOutcome::Failed(fault) => Err(fault),
            FillOutcome::Again(read) => {
                filling.rows[location.row] = row;
                state.urgent.push_back(read);
                shared.reads_wanted.notify_one();
                continue;
            }
        };
        shared.work.rows.fetch_add(rows, Ordering::Relaxed);
        filling.outcomes[location.row] = Some(result);
        filling.missing -= 1;
        if filling.missing == 0
            && let InFlightState::Filling(filling) =
                std::mem::replace(&mut state.in_flight_batches[at], InFlightState::Closing)
        {
            full.push((location.in_flight, filling));
        }
    }
    full
}

fn close<J: Job>(
    shared: &ExecutorShared<J>,
    filling: BatchInWork<J>,
) -> Result<J::Batch, J::Fault> {
    let BatchInWork {
        in_flight,
        rows,
        outcomes,
        ..
    } = filling;
    drop(rows);
    shared
        .job
        .close(in_flight, outcomes.into_iter().flatten().collect())
}
