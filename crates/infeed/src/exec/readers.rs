//! I/O threads: plan runs of tickets and perform their reads, a bounded way ahead of the consumer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Gate, Job, Joined, Shared, State, Taking, Ticket, TrayState, Way, nanos};

/// What an I/O thread does next.
enum Task<J: Job> {
    /// From a ticket on, and none from the other on.
    Plan(Ticket, Ticket),
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
            Task::Plan(from, until) => {
                state.planning = true;
                drop(state);
                let run = catch_unwind(AssertUnwindSafe(|| shared.job.plan(from, until)));
                let current;
                (state, current) = shared.come_back(generation);
                state.planning = false;
                match run {
                    Ok(Ok(run)) if current => {
                        assert!(run.end > from && run.end <= until, "a run holds a ticket");
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
    if !state.reads.is_empty() || state.planning {
        return None;
    }
    if state.planned == state.until {
        take_tray(shared, state, horizon);
    } else if state.plan_fault.is_some() {
        return None;
    }
    let (from, until) = (state.planned, state.until);
    (from < until && from < horizon).then_some(Task::Plan(from, until))
}

/// Takes the next tray for the own threads, where trays are taken one by one and there is one.
fn take_tray<J: Job>(shared: &Shared<J>, state: &mut State<J>, horizon: Ticket) {
    let job = &shared.job;
    // Behind a fault nothing is planned.
    let end = match &state.plan_fault {
        Some((ticket, _)) => job.place(*ticket).tray,
        None => u64::MAX,
    };
    let room = state.own < state.own_most;
    let returned = state.returned.iter();
    let mut returned = returned.filter(|(tray, own)| **tray < end && (room || **own));
    let tray = match returned.next() {
        Some((&tray, _)) => {
            state.returned.remove(&tray);
            tray
        }
        None => {
            let tray = state.untaken;
            let may_be_open = match shared.config.taking {
                // What is read must be of a tray that may be open, since what comes back is read
                // after it and needs its bytes: see "Trays that are filled elsewhere".
                Taking::Shared { .. } => tray < state.front + shared.config.trays as u64,
                Taking::All | Taking::Asked => job.first(tray) < horizon,
            };
            if !room || !may_be_open || tray >= state.asked.min(end) {
                return;
            }
            state.untaken += 1;
            tray
        }
    };
    state.own += 1;
    *state.tray_mut(tray) = TrayState::Waiting;
    (state.planned, state.until) = (job.first(tray), job.first(tray + 1));
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
