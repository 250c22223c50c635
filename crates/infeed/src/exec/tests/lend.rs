//! Trays of integers filled elsewhere, by those who come late, twice or never.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::exec::lend::{Lender, Returned, Taken};

const SHORT: Duration = Duration::from_millis(5);

fn shared(own: usize, trays: usize) -> Config {
    Config {
        trays,
        ahead: trays as u64 * ROWS,
        taking: Taking::Shared { own },
        ..config(2)
    }
}

fn values(tray: u64) -> Vec<Result<u64, String>> {
    let tickets = tray * ROWS..(tray + 1) * ROWS;
    tickets.map(|ticket| Ok(value(ticket))).collect()
}

/// Fills trays until `stop`; of every so many one is lost, one is declined, one comes twice.
fn help(lender: &Lender<Integers>, stop: &AtomicBool, seed: u64) -> u64 {
    let mut filled = 0;
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let lease = match lender.take(SHORT) {
            Taken::Tray(lease) => lease,
            Taken::Timeout => continue,
            Taken::Ended => break,
        };
        match crate::random::hash(&[seed, lease.tray()]) % 7 {
            0 => lender.give_back(lease, Returned::Lost),
            1 => lender.give_back(lease, Returned::Declined),
            // Whoever gives a tray up may come with it all the same.
            2 => {
                lender.give_back(lease, Returned::Lost);
                held.push(lease);
            }
            3 => drop(lender.begin(lease)),
            _ => held.push(lease),
        }
        for lease in held.drain(..) {
            if let Some(begun) = lender.begin(lease) {
                assert_eq!(begun.rows.len() as u64, ROWS);
                begun.finish(values(lease.tray()));
                filled += 1;
            }
            assert!(lender.begin(lease).is_none(), "it is filled");
        }
    }
    filled
}

#[test]
fn order_and_rows_are_the_same_whoever_fills_the_trays_and_however_often_they_come_back() {
    for (own, trays) in [(0, 4), (1, 2), (2, 6)] {
        for substitute in [false, true] {
            let job = Integers {
                substitute,
                paired: substitute,
                ..Integers::default()
            };
            let alive = Arc::clone(&job.alive);
            let conveyor = Conveyor::start(job, shared(own, trays), 0).expect("threads");
            let (stop, filled) = (AtomicBool::new(false), AtomicU64::new(0));

            thread::scope(|scope| {
                for seed in 0..2 {
                    let (lender, stop, filled) = (conveyor.lender(), &stop, &filled);
                    scope.spawn(move || {
                        filled.fetch_add(help(&lender, stop, seed), Ordering::Relaxed);
                    });
                }
                for tray in 0..150 {
                    assert_eq!(take(&conveyor), expected(tray), "own {own}, {trays} trays");
                }
                for round in 0..20 {
                    let tray = round * 31 % 97;
                    conveyor.reset(tray);
                    assert_eq!(take(&conveyor), expected(tray), "after {round} resets");
                    assert_eq!(take(&conveyor), expected(tray + 1));
                }
                stop.store(true, Ordering::Relaxed);
            });

            assert!(filled.load(Ordering::Relaxed) > 0, "somebody helped");
            drop(conveyor);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn own_threads_take_no_more_than_they_may_and_others_never_look_beyond_the_window() {
    let conveyor = Conveyor::start(Integers::default(), shared(0, 3), 0).expect("threads");
    let lender = conveyor.lender();

    let taken: Vec<_> = (0..3).map(|_| lender.take(LONG)).collect();

    for (number, taken) in taken.iter().enumerate() {
        assert!(matches!(taken, Taken::Tray(lease) if lease.tray() == number as u64));
    }
    assert_eq!(lender.take(SHORT), Taken::Timeout);
    assert!(matches!(conveyor.next(SHORT), Next::Timeout));
    assert_eq!(conveyor.situation().away, 3);
    // The last feeder is gone: what it had is made here.
    for taken in taken {
        if let Taken::Tray(lease) = taken {
            lender.give_back(lease, Returned::Lost);
        }
    }
    lender.set_own(2);
    for tray in 0..20 {
        assert_eq!(take(&conveyor), expected(tray));
    }
}

#[test]
fn a_declined_tray_is_made_by_own_threads_even_where_they_are_to_have_none() {
    let conveyor = Conveyor::start(Integers::default(), shared(0, 3), 0).expect("threads");
    let lender = conveyor.lender();

    for tray in 0..5 {
        let Taken::Tray(lease) = lender.take(LONG) else {
            panic!("there is one");
        };
        lender.give_back(lease, Returned::Declined);
        assert_eq!(take(&conveyor), expected(tray));
        assert!(!lender.is_wanted(lease));
    }
}

#[test]
fn what_was_taken_before_a_reset_is_not_wanted_after_it() {
    // Own threads that may have trays could have taken all of them before the first is asked for.
    let conveyor = Conveyor::start(Integers::default(), shared(0, 4), 0).expect("threads");
    let lender = conveyor.lender();
    let Taken::Tray(lease) = lender.take(LONG) else {
        panic!("there is one");
    };
    lender.set_own(1);

    conveyor.reset(lease.tray());

    assert!(!lender.is_wanted(lease) && lender.begin(lease).is_none());
    lender.give_back(lease, Returned::Lost);
    for tray in lease.tray()..lease.tray() + 10 {
        match lender.take(SHORT) {
            Taken::Tray(lease) => lender.give_back(lease, Returned::Declined),
            Taken::Timeout => {}
            Taken::Ended => panic!("it runs"),
        }
        assert_eq!(take(&conveyor), expected(tray));
    }
    drop(conveyor);
    assert_eq!(lender.take(LONG), Taken::Ended);
}

#[test]
fn a_plan_that_fails_stops_at_its_ticket_and_not_what_came_back_before_it() {
    let job = Integers {
        plan_fails_at: Some(8 * ROWS),
        ..Integers::default()
    };
    let conveyor = Conveyor::start(job, shared(3, 10), 0).expect("threads");
    let lender = conveyor.lender();
    let mut leases = Vec::new();
    while let Taken::Tray(lease) = lender.take(SHORT) {
        leases.push(lease);
    }
    for lease in leases {
        lender.give_back(lease, Returned::Declined);
    }

    for tray in 0..8 {
        assert_eq!(take(&conveyor), expected(tray));
    }
    assert!(matches!(conveyor.next(LONG), Next::Fault(text) if text == "no plan"));
}

#[test]
fn trays_that_were_not_asked_for_are_not_filled_and_a_fault_can_be_passed_over() {
    let job = Integers {
        fails_at: Some(ROWS + 1),
        ..Integers::default()
    };
    let config = Config {
        taking: Taking::Asked,
        ..config(2)
    };
    let conveyor = Conveyor::start(job, config, 0).expect("threads");

    assert!(matches!(conveyor.next(SHORT), Next::Timeout));
    conveyor.ask(1);
    assert_eq!(take(&conveyor), expected(0));
    assert!(matches!(conveyor.next(SHORT), Next::Timeout));
    conveyor.ask(3);
    assert!(matches!(conveyor.next(LONG), Next::Fault(_)));
    conveyor.pass_over();
    for tray in 2..4 {
        assert_eq!(take(&conveyor), expected(tray));
    }
    assert!(matches!(conveyor.next(SHORT), Next::Timeout));
}
