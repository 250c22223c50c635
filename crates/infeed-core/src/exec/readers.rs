//! I/O threads: plan and perform reads, up to a limit ahead of the consumer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::budget::{MemoryReservation, ReservationSource};
use super::config::BatchChoice;
use super::executor_shared::ExecutorShared;
use super::job::{Job, Sequence};
use super::lock::LockGuard;
use super::state::{ExecutorState, FetchedPart, InFlightState};
use super::totals::nanos;

/// Next task of an I/O thread.
enum ReaderTask<J: Job> {
    /// Plan from the first sequence number up to the second (exclusive).
    Plan(Sequence, Sequence),
    InTurn(J::Read, u64),
    Urgent(J::Read),
}

/// Body of an I/O thread.
pub(super) fn run<J: Job>(shared: &ExecutorShared<J>) {
    let mut state = shared.lock();
    while state.running {
        let Some(task) = next_task(shared, &mut state) else {
            state.idle_readers += 1;
            let begun = Instant::now();
            state = state.wait(&shared.reads_wanted);
            state.idle_readers -= 1;
            shared
                .waits
                .readers_idle_ns
                .fetch_add(nanos(begun.elapsed()), Ordering::Relaxed);
            continue;
        };
        state.busy += 1;
        let generation = state.generation;
        match task {
            ReaderTask::Plan(from, until) => {
                state.planning = true;
                drop(state);
                let run = catch_unwind(AssertUnwindSafe(|| shared.job.plan(from, until)));
                let current;
                (state, current) = shared.lock_after_job(generation);
                state.planning = false;
                match run {
                    Ok(Ok(run)) if current => {
                        assert!(run.end > from && run.end <= until, "a run holds a sequence");
                        state.planned = run.end;
                        state.reads.extend(run.reads);
                    }
                    Ok(Err(fault)) if current => {
                        state.plan_fault = Some((from, fault));
                        shared.settled.notify_all();
                    }
                    Ok(_) => {}
                    Err(panic) => {
                        drop(state);
                        return shared.report_panic(&*panic);
                    }
                }
                if state.idle_readers > 0 {
                    shared.reads_wanted.notify_all();
                }
            }
            ReaderTask::InTurn(read, turn) => {
                drop(state);
                let source = ReservationSource::InTurn {
                    budget: &shared.budget,
                    turn: Some(turn),
                };
                match perform(shared, read, source, generation) {
                    Some(back) => state = back,
                    None => return,
                }
                state.in_turn -= 1;
            }
            ReaderTask::Urgent(read) => {
                drop(state);
                match perform(
                    shared,
                    read,
                    ReservationSource::Spare(&shared.spare),
                    generation,
                ) {
                    Some(back) => state = back,
                    None => return,
                }
            }
        }
    }
}

fn next_task<J: Job>(
    shared: &ExecutorShared<J>,
    state: &mut ExecutorState<J>,
) -> Option<ReaderTask<J>> {
    if state.paused {
        return None;
    }
    if let Some(read) = state.urgent.pop_front() {
        return Some(ReaderTask::Urgent(read));
    }
    let horizon = shared
        .job
        .first(state.front)
        .saturating_add(shared.config.ahead);
    if state.in_turn < shared.config.readers
        && let Some((_, read)) = state.reads.pop_front_if(|(first, _)| *first < horizon)
    {
        state.in_turn += 1;
        let turn = state.turn;
        state.turn += 1;
        return Some(ReaderTask::InTurn(read, turn));
    }
    if !state.reads.is_empty() || state.planning {
        return None;
    }
    if state.planned == state.until {
        take_in_flight(shared, state, horizon);
    } else if state.plan_fault.is_some() {
        return None;
    }
    let (from, until) = (state.planned, state.until);
    (from < until && from < horizon).then_some(ReaderTask::Plan(from, until))
}

/// Takes the next in-flight batch for the local threads, if batches are taken one by one and one is
/// available.
fn take_in_flight<J: Job>(
    shared: &ExecutorShared<J>,
    state: &mut ExecutorState<J>,
    horizon: Sequence,
) {
    let job = &shared.job;
    // Nothing is planned after a fault.
    let end = match &state.plan_fault {
        Some((sequence, _)) => job.place(*sequence).in_flight,
        None => u64::MAX,
    };
    let room = state.own < state.own_most;
    let returned = state.returned.iter();
    let mut returned = returned.filter(|(in_flight, own)| **in_flight < end && (room || **own));
    let in_flight = match returned.next() {
        Some((&in_flight, _)) => {
            state.returned.remove(&in_flight);
            in_flight
        }
        None => {
            let in_flight = state.untaken;
            let may_be_open = match shared.config.taking {
                // Reads may only belong to a batch that may be open. A returned batch is read later
                // and needs their bytes: see "Leased batches".
                BatchChoice::Shared { .. } => {
                    in_flight < state.front + shared.config.in_flight_batches as u64
                }
                BatchChoice::All | BatchChoice::Requested => job.first(in_flight) < horizon,
            };
            if !room || !may_be_open || in_flight >= state.requested.min(end) {
                return;
            }
            state.untaken += 1;
            in_flight
        }
    };
    state.own += 1;
    *state.in_flight_mut(in_flight) = InFlightState::Waiting;
    (state.planned, state.until) = (job.first(in_flight), job.first(in_flight + 1));
}

/// Performs a read and stores its results. None after a panic.
fn perform<'a, J: Job>(
    shared: &'a ExecutorShared<J>,
    read: J::Read,
    source: ReservationSource<'_>,
    generation: u64,
) -> Option<LockGuard<'a, ExecutorState<J>>> {
    let fetched_records = catch_unwind(AssertUnwindSafe(|| {
        let fetched_records = shared.job.read(read, MemoryReservation { source });
        // Outside the lock: it looks up costs that are in no cache.
        let with_cost = |(sequence, data): (Sequence, J::FetchedData)| {
            let is_expensive = shared.job.is_expensive(&data);
            (sequence, FetchedPart::<J> { data, is_expensive })
        };
        fetched_records
            .into_iter()
            .map(with_cost)
            .collect::<Vec<_>>()
    }));
    let fetched_records = match fetched_records {
        Ok(fetched_records) => fetched_records,
        Err(panic) => {
            drop(shared.lock_after_job(generation));
            shared.report_panic(&*panic);
            return None;
        }
    };
    let (mut state, current) = shared.lock_after_job(generation);
    if !current {
        // Dropping fetched records releases permits, which takes another lock.
        drop(state);
        drop(fetched_records);
        return Some(shared.lock());
    }
    let several = fetched_records.len() > 1;
    for (sequence, part) in fetched_records {
        state.add_fetched(&shared.job, sequence, part);
    }
    if state.idle_workers > 0 {
        if several {
            shared.work_wanted.notify_all()
        } else {
            shared.work_wanted.notify_one()
        }
    }
    Some(state)
}
