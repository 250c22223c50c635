//! I/O threads: plan runs of tickets and perform their reads, a bounded way ahead of the consumer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Gate, Job, Joined, Shared, State, Way, nanos};

/// What an I/O thread does next.
enum Task<J: Job> {
    Plan,
    InTurn(J::Read, u64),
    Urgent(J::Read),
}

/// Body of an I/O thread.
pub(super) fn run<J: Job>(shared: &Shared<J>) {
    let mut state = shared.lock();
    while state.running {
        let Some(task) = next_task(shared, &mut state) else {
            state.idle_readers += 1;
            let begun = Instant::now();
            state = shared
                .reads_wanted
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
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
            Task::Plan => {
                let from = state.planned;
                state.planning = true;
                drop(state);
                let run = catch_unwind(AssertUnwindSafe(|| shared.job.plan(from)));
                let current;
                (state, current) = shared.come_back(generation);
                state.planning = false;
                match run {
                    Ok(Ok(run)) if current => {
                        assert!(run.end > from, "a run holds a ticket");
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
            Task::InTurn(read, turn) => {
                drop(state);
                let way = Way::InTurn {
                    budget: &shared.budget,
                    turn: Some(turn),
                };
                match perform(shared, read, way, generation) {
                    Some(back) => state = back,
                    None => return,
                }
                state.in_turn -= 1;
            }
            Task::Urgent(read) => {
                drop(state);
                match perform(shared, read, Way::Spare(&shared.spare), generation) {
                    Some(back) => state = back,
                    None => return,
                }
            }
        }
    }
}

fn next_task<J: Job>(shared: &Shared<J>, state: &mut State<J>) -> Option<Task<J>> {
    if state.paused {
        return None;
    }
    if let Some(read) = state.urgent.pop_front() {
        return Some(Task::Urgent(read));
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
        return Some(Task::InTurn(read, turn));
    }
    let plan = state.reads.is_empty() && !state.planning && state.plan_fault.is_none();
    (plan && state.planned < horizon).then_some(Task::Plan)
}

/// Performs a read and shelves what it brought. None after a panic.
fn perform<'a, J: Job>(
    shared: &'a Shared<J>,
    read: J::Read,
    way: Way<'_>,
    generation: u64,
) -> Option<std::sync::MutexGuard<'a, State<J>>> {
    let parcels = catch_unwind(AssertUnwindSafe(|| shared.job.read(read, Gate { way })));
    let parcels = match parcels {
        Ok(parcels) => parcels,
        Err(panic) => {
            drop(shared.come_back(generation));
            shared.report_panic(&*panic);
            return None;
        }
    };
    let (mut state, current) = shared.come_back(generation);
    if !current {
        // Dropping parcels gives bytes back, which takes another lock.
        drop(state);
        drop(parcels);
        return Some(shared.lock());
    }
    let several = parcels.len() > 1;
    for (ticket, parcel) in parcels {
        let waiting = state.parts.remove(&ticket);
        match shared.job.join(waiting, parcel) {
            Joined::Whole(parcel) => drop(state.parcels.insert(ticket, parcel)),
            Joined::Part(parcel) => drop(state.parts.insert(ticket, parcel)),
        }
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
