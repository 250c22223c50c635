//! The conveyor with integers: ticket `t` is filled with `value(t)`.

mod lend;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;

const ROWS: u64 = 4;
const LONG: Duration = Duration::from_secs(30);

type Log = Arc<Mutex<Vec<String>>>;

/// Integers on a conveyor; every seventh ticket asks for another read when `substitute`.
struct Integers {
    bytes: u64,
    /// Tickets brought by one read.
    group: u64,
    substitute: bool,
    /// Every ticket needs two reads: one of its group, one of its own.
    paired: bool,
    fails_at: Option<Ticket>,
    panics_at: Option<Ticket>,
    plan_fails_at: Option<Ticket>,
    /// Trays alive, which must all be gone in the end.
    alive: Arc<AtomicUsize>,
    most_alive: Arc<AtomicUsize>,
    /// Workers at rows.
    inside: AtomicUsize,
    most_inside: Arc<AtomicUsize>,
    log: Log,
}

impl Default for Integers {
    fn default() -> Integers {
        Integers {
            bytes: 10,
            group: 1,
            substitute: false,
            paired: false,
            fails_at: None,
            panics_at: None,
            plan_fails_at: None,
            alive: Arc::default(),
            most_alive: Arc::default(),
            inside: AtomicUsize::new(0),
            most_inside: Arc::default(),
            log: Arc::default(),
        }
    }
}

struct Read {
    tickets: Vec<Ticket>,
    again: bool,
}

struct Parcel {
    value: u64,
    again: bool,
    /// Reads that have come.
    reads: usize,
    _permits: Vec<Arc<Permit>>,
}

struct Tray {
    number: u64,
    alive: Arc<AtomicUsize>,
}

impl Drop for Tray {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn value(ticket: Ticket) -> u64 {
    ticket * 10
}

impl Job for Integers {
    type Read = Read;
    type Parcel = Parcel;
    type Tray = Tray;
    type Row = ();
    type Done = u64;
    type Batch = (u64, Vec<u64>);
    type Scratch = ();
    type Fault = String;

    fn place(&self, ticket: Ticket) -> Place {
        Place {
            tray: ticket / ROWS,
            row: (ticket % ROWS) as usize,
        }
    }

    fn first(&self, tray: u64) -> Ticket {
        tray * ROWS
    }

    fn plan(&self, from: Ticket, until: Ticket) -> Result<Run<Read>, String> {
        if self.plan_fails_at.is_some_and(|at| at <= from) {
            return Err("no plan".to_owned());
        }
        let end = (from + 12).min(until);
        let tickets: Vec<Ticket> = (from..end).collect();
        let read = |group: &[Ticket]| {
            let tickets = group.to_vec();
            let again = false;
            (group[0], Read { tickets, again })
        };
        let mut reads: Vec<_> = tickets.chunks(self.group as usize).map(read).collect();
        if self.paired {
            reads.extend(tickets.chunks(1).map(read));
            reads.sort_by_key(|(first, _)| *first);
        }
        Ok(Run { end, reads })
    }

    fn read(&self, read: Read, gate: Gate<'_>) -> Vec<(Ticket, Parcel)> {
        let Ok(permit) = gate.admit(self.bytes) else {
            return Vec::new();
        };
        let permit = Arc::new(permit);
        let parcel = |ticket| Parcel {
            value: value(ticket),
            again: read.again,
            reads: 1,
            _permits: vec![Arc::clone(&permit)],
        };
        read.tickets
            .iter()
            .map(|&ticket| (ticket, parcel(ticket)))
            .collect()
    }

    fn join(&self, waiting: Option<Parcel>, mut come: Parcel) -> Joined<Parcel> {
        if let Some(waiting) = waiting {
            come.reads += waiting.reads;
            come._permits.extend(waiting._permits);
        }
        if self.paired && !come.again && come.reads < 2 {
            Joined::Part(come)
        } else {
            Joined::Whole(come)
        }
    }

    fn open(&self, tray: u64) -> Result<(Tray, Vec<()>), String> {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_alive.fetch_max(alive, Ordering::SeqCst);
        Ok((
            Tray {
                number: tray,
                alive: Arc::clone(&self.alive),
            },
            vec![(); ROWS as usize],
        ))
    }

    fn scratch(&self) {}

    fn fill(&self, ticket: Ticket, parcel: Parcel, _: &mut (), _: &mut ()) -> Filled<Integers> {
        assert_ne!(self.panics_at, Some(ticket), "ticket {ticket} is cursed");
        if self.fails_at == Some(ticket) {
            return Filled::Failed(format!("ticket {ticket} failed"));
        }
        if self.substitute && ticket.is_multiple_of(7) && !parcel.again {
            self.log
                .lock()
                .expect("no panic")
                .push(format!("again {ticket}"));
            return Filled::Again(Read {
                tickets: vec![ticket],
                again: true,
            });
        }
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        std::thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Filled::Done(parcel.value)
    }

    fn close(&self, tray: Tray, rows: Vec<Result<u64, String>>) -> Result<(u64, Vec<u64>), String> {
        let rows = rows.into_iter().collect::<Result<Vec<u64>, String>>()?;
        Ok((tray.number, rows))
    }
}

fn config(workers: usize) -> Config {
    Config {
        workers,
        working: workers,
        readers: 3,
        trays: 3,
        ahead: 40,
        parcel_bytes: 100,
        spare_bytes: 20,
        taking: Taking::All,
    }
}

fn expected(tray: u64) -> (u64, Vec<u64>) {
    (tray, (tray * ROWS..(tray + 1) * ROWS).map(value).collect())
}

fn take(conveyor: &Conveyor<Integers>) -> (u64, Vec<u64>) {
    match conveyor.next(LONG) {
        Next::Batch(batch) => batch,
        other => panic!("not a batch: {other:?}"),
    }
}

#[test]
fn batches_leave_in_order_with_every_row_in_place_whatever_the_number_of_workers() {
    for workers in [1, 2, 7] {
        for group in [1, 5] {
            let job = Integers {
                group,
                ..Integers::default()
            };
            let conveyor = Conveyor::start(job, config(workers), 0).expect("threads");

            for tray in 0..200 {
                assert_eq!(take(&conveyor), expected(tray), "{workers} workers");
            }
        }
    }
}

#[test]
fn rows_that_need_two_reads_are_filled_once_both_have_come_within_the_budget() {
    for (workers, group, bytes) in [(1, 1, 50), (2, 5, 30), (3, 12, 25)] {
        let job = Integers {
            group,
            bytes,
            paired: true,
            substitute: true,
            ..Integers::default()
        };
        let config = Config {
            spare_bytes: bytes,
            ..config(workers)
        };
        let conveyor = Conveyor::start(job, config, 0).expect("threads");

        for tray in 0..100 {
            assert_eq!(take(&conveyor), expected(tray), "reads of {group}");
        }
        // Were parts kept over resets, their bytes would soon be all there are.
        for round in 0..50 {
            let tray = round * 31 % 97;
            conveyor.reset(tray);
            assert_eq!(take(&conveyor), expected(tray), "after {round} resets");
        }
        assert!(conveyor.parcel_bytes().1 <= 100);
    }
}

#[test]
fn no_more_trays_are_open_than_allowed_and_none_is_left() {
    let job = Integers::default();
    let (alive, most) = (Arc::clone(&job.alive), Arc::clone(&job.most_alive));
    let conveyor = Conveyor::start(job, config(2), 0).expect("threads");

    for _ in 0..100 {
        take(&conveyor);
    }
    drop(conveyor);

    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn parcels_never_hold_more_than_their_budget_even_when_reads_bring_many() {
    let job = Integers {
        bytes: 60,
        group: 6,
        ..Integers::default()
    };
    let conveyor = Conveyor::start(job, config(2), 0).expect("threads");

    for tray in 0..100 {
        assert_eq!(take(&conveyor), expected(tray));
    }

    assert!(conveyor.parcel_bytes().1 <= 100);
}

#[test]
fn a_row_that_needs_another_read_gets_it_even_while_all_readers_wait_for_the_budget() {
    for readers in [1, 3] {
        let job = Integers {
            bytes: 20,
            substitute: true,
            ..Integers::default()
        };
        let log = Arc::clone(&job.log);
        let config = Config {
            readers,
            ..config(2)
        };
        let conveyor = Conveyor::start(job, config, 0).expect("threads");

        for tray in 0..50 {
            assert_eq!(take(&conveyor), expected(tray), "{readers} readers");
        }
        drop(conveyor);

        let log: BTreeSet<String> = log.lock().expect("no panic").iter().cloned().collect();
        assert!(
            (0..200)
                .step_by(7)
                .all(|ticket| log.contains(&format!("again {ticket}")))
        );
    }
}

#[test]
fn a_fault_comes_out_in_its_place_and_stays_there() {
    let job = Integers {
        fails_at: Some(9),
        ..Integers::default()
    };
    let conveyor = Conveyor::start(job, config(2), 0).expect("threads");

    assert_eq!(take(&conveyor), expected(0));
    assert_eq!(take(&conveyor), expected(1));
    for _ in 0..2 {
        let Next::Fault(fault) = conveyor.next(LONG) else {
            panic!("no fault")
        };
        assert_eq!(fault, "ticket 9 failed");
    }
    conveyor.reset(3);
    assert_eq!(take(&conveyor), expected(3));
}

#[test]
fn a_plan_that_fails_is_told_after_the_batches_before_it() {
    let job = Integers {
        plan_fails_at: Some(12),
        ..Integers::default()
    };
    let conveyor = Conveyor::start(job, config(2), 0).expect("threads");

    for tray in 0..3 {
        assert_eq!(take(&conveyor), expected(tray));
    }
    assert!(matches!(conveyor.next(LONG), Next::Fault(fault) if fault == "no plan"));
}

#[test]
fn a_panic_in_job_code_reaches_the_consumer_with_its_text() {
    let job = Integers {
        panics_at: Some(5),
        ..Integers::default()
    };
    let conveyor = Conveyor::start(job, config(2), 0).expect("threads");

    let text = loop {
        match conveyor.next(LONG) {
            Next::Batch(_) => {}
            Next::Broken(text) => break text,
            other => panic!("not broken: {other:?}"),
        }
    };
    assert!(text.contains("ticket 5 is cursed"), "{text}");
}

#[test]
fn resets_go_on_at_the_tray_asked_for_with_nothing_left_of_the_old_work() {
    let job = Integers {
        substitute: true,
        ..Integers::default()
    };
    let alive = Arc::clone(&job.alive);
    let conveyor = Conveyor::start(job, config(3), 0).expect("threads");

    for round in 0..200 {
        let tray = round * 31 % 97;
        conveyor.reset(tray);
        assert_eq!(take(&conveyor), expected(tray));
        assert_eq!(take(&conveyor), expected(tray + 1));
    }
    drop(conveyor);

    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn dropping_the_conveyor_at_any_moment_ends_all_its_threads() {
    for taken in 0..20 {
        let conveyor = Conveyor::start(Integers::default(), config(2), 0).expect("threads");
        for _ in 0..taken {
            take(&conveyor);
        }
        let shared = Arc::downgrade(&conveyor.shared);

        drop(conveyor);

        assert_eq!(shared.strong_count(), 0, "a thread still holds the state");
    }
}

#[test]
fn a_consumer_that_does_not_wait_gets_a_timeout() {
    let mut slow = config(1);
    slow.readers = 1;
    let conveyor = Conveyor::start(Integers::default(), slow, 0).expect("threads");

    let mut timeouts = 0;
    for tray in 0..50 {
        loop {
            match conveyor.next(Duration::ZERO) {
                Next::Timeout => timeouts += 1,
                Next::Batch(batch) => break assert_eq!(batch, expected(tray)),
                other => panic!("neither: {other:?}"),
            }
            std::thread::yield_now();
        }
    }
    assert!(timeouts > 0);
}

#[test]
fn workers_may_become_more_and_fewer_at_any_moment_and_nothing_is_lost() {
    for (substitute, group) in [(false, 5), (true, 1)] {
        let job = Integers {
            substitute,
            group,
            ..Integers::default()
        };
        let alive = Arc::clone(&job.alive);
        let conveyor = Conveyor::start(job, config(6), 0).expect("threads");

        for tray in 0..300 {
            let workers = 1 + (crate::random::mix(tray) % 6) as usize;
            conveyor.set_workers(workers);
            assert_eq!(take(&conveyor), expected(tray), "{workers} workers");
            assert_eq!(conveyor.workers(), workers);
            if tray % 50 == 49 {
                conveyor.reset(tray + 1);
            }
        }
        drop(conveyor);

        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn no_more_workers_are_at_rows_than_may_work_and_parked_ones_do_not_count_as_waiting() {
    let job = Integers::default();
    let most = Arc::clone(&job.most_inside);
    let mut one = config(6);
    one.working = 1;
    let conveyor = Conveyor::start(job, one, 0).expect("threads");
    let most_over = |trays: std::ops::Range<u64>| {
        most.store(0, Ordering::SeqCst);
        trays.for_each(|tray| assert_eq!(take(&conveyor), expected(tray)));
        most.load(Ordering::SeqCst)
    };

    assert_eq!(most_over(0..50), 1);
    assert_eq!(conveyor.situation().workers, 1);
    assert!(conveyor.situation().idle_workers <= 1);

    conveyor.set_workers(4);
    assert!((1..=4).contains(&most_over(50..200)));

    conveyor.set_workers(2);
    // Rows begun by more workers are in the trays under way.
    most_over(200..205);
    assert!((1..=2).contains(&most_over(205..300)));

    conveyor.set_workers(0);
    assert_eq!(conveyor.workers(), 1, "somebody has to");
    conveyor.set_workers(99);
    assert_eq!(conveyor.workers(), 6);
}
