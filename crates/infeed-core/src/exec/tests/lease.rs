//! Leased batches of integers, returned late, twice or never.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use super::*;
use crate::exec::lease::{BatchLeases, LeaseOutcome, ReturnReason};

const SHORT: Duration = Duration::from_millis(5);

fn shared_config(own: usize, in_flight_batches: usize) -> Config {
    Config {
        in_flight_batches,
        ahead: in_flight_batches as u64 * ROWS,
        taking: BatchChoice::Shared { own },
        ..config(2)
    }
}

fn values(in_flight: u64) -> Vec<Result<u64, String>> {
    let sequences = in_flight * ROWS..(in_flight + 1) * ROWS;
    sequences.map(|sequence| Ok(value(sequence))).collect()
}

/// Fills leased batches until `stop`. A hash chooses batches that are lost, declined, dropped while
/// they are filled, or filled after their return.
fn help(leases: &BatchLeases<Integers>, stop: &AtomicBool, seed: u64) -> u64 {
    let mut filled = 0;
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let lease = match leases.take(SHORT) {
            LeaseOutcome::Batch(lease) => lease,
            LeaseOutcome::Timeout => continue,
            LeaseOutcome::Ended => break,
        };
        match crate::random::hash(&[seed, lease.in_flight()]) % 7 {
            0 => leases.give_back(lease, ReturnReason::Lost),
            1 => leases.give_back(lease, ReturnReason::Declined),
            // A remote worker that returned a lease can still deliver its rows.
            2 => {
                leases.give_back(lease, ReturnReason::Lost);
                held.push(lease);
            }
            3 => drop(leases.begin(lease)),
            _ => held.push(lease),
        }
        for lease in held.drain(..) {
            if let Some(begun) = leases.begin(lease) {
                assert_eq!(begun.rows.len() as u64, ROWS);
                begun.finish(values(lease.in_flight()));
                filled += 1;
                assert!(leases.begin(lease).is_none(), "it is filled");
            }
        }
    }
    filled
}

#[test]
fn order_and_rows_do_not_depend_on_leases() {
    for (own, in_flight_batches) in [(0, 4), (1, 2), (2, 6)] {
        for substitute in [false, true] {
            let job = Integers {
                substitute,
                paired: substitute,
                ..Integers::default()
            };
            let alive = Arc::clone(&job.alive);
            let executor =
                Executor::start(job, shared_config(own, in_flight_batches), 0).expect("threads");
            let (stop, filled) = (AtomicBool::new(false), AtomicU64::new(0));

            thread::scope(|scope| {
                for seed in 0..2 {
                    let (leases, stop, filled) = (executor.leases(), &stop, &filled);
                    scope.spawn(move || {
                        filled.fetch_add(help(&leases, stop, seed), Ordering::Relaxed);
                    });
                }
                for in_flight in 0..150 {
                    assert_eq!(
                        take(&executor),
                        expected_batch(in_flight),
                        "own {own}, {in_flight_batches} in_flight_batches"
                    );
                }
                for round in 0..20 {
                    let in_flight = round * 31 % 97;
                    executor.reset(in_flight);
                    assert_eq!(
                        take(&executor),
                        expected_batch(in_flight),
                        "after {round} resets"
                    );
                    assert_eq!(take(&executor), expected_batch(in_flight + 1));
                }
                stop.store(true, Ordering::Relaxed);
            });

            assert!(
                filled.load(Ordering::Relaxed) > 0,
                "the local workers filled some"
            );
            drop(executor);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn local_threads_and_leases_stay_within_their_limits() {
    let executor = Executor::start(Integers::default(), shared_config(0, 3), 0).expect("threads");
    let leases = executor.leases();

    let taken: Vec<_> = (0..3).map(|_| leases.take(LONG)).collect();

    for (number, taken) in taken.iter().enumerate() {
        assert!(matches!(taken, LeaseOutcome::Batch(lease) if lease.in_flight() == number as u64));
    }
    assert_eq!(leases.take(SHORT), LeaseOutcome::Timeout);
    assert!(matches!(executor.next(SHORT), NextBatch::Timeout));
    assert_eq!(executor.situation().leased, 3);
    // The remote workers are gone: the local threads fill their batches.
    for taken in taken {
        if let LeaseOutcome::Batch(lease) = taken {
            leases.give_back(lease, ReturnReason::Lost);
        }
    }
    leases.set_own(2);
    for in_flight in 0..20 {
        assert_eq!(take(&executor), expected_batch(in_flight));
    }
}

#[test]
fn local_threads_fill_a_declined_batch_even_with_a_limit_of_zero() {
    let executor = Executor::start(Integers::default(), shared_config(0, 3), 0).expect("threads");
    let leases = executor.leases();

    for in_flight in 0..5 {
        let LeaseOutcome::Batch(lease) = leases.take(LONG) else {
            panic!("there is one");
        };
        leases.give_back(lease, ReturnReason::Declined);
        assert_eq!(take(&executor), expected_batch(in_flight));
        assert!(!leases.is_wanted(lease));
    }
}

#[test]
fn a_reset_invalidates_leases() {
    // Local threads that may take batches could take all of them before the first lease.
    let executor = Executor::start(Integers::default(), shared_config(0, 4), 0).expect("threads");
    let leases = executor.leases();
    let LeaseOutcome::Batch(lease) = leases.take(LONG) else {
        panic!("there is one");
    };
    leases.set_own(1);

    executor.reset(lease.in_flight());

    assert!(!leases.is_wanted(lease) && leases.begin(lease).is_none());
    leases.give_back(lease, ReturnReason::Lost);
    for in_flight in lease.in_flight()..lease.in_flight() + 10 {
        match leases.take(SHORT) {
            LeaseOutcome::Batch(lease) => leases.give_back(lease, ReturnReason::Declined),
            LeaseOutcome::Timeout => {}
            LeaseOutcome::Ended => panic!("it runs"),
        }
        assert_eq!(take(&executor), expected_batch(in_flight));
    }
    drop(executor);
    assert_eq!(leases.take(LONG), LeaseOutcome::Ended);
}

#[test]
fn a_failed_plan_does_not_stop_returned_batches_before_it() {
    let job = Integers {
        plan_fails_at: Some(8 * ROWS),
        ..Integers::default()
    };
    let executor = Executor::start(job, shared_config(3, 10), 0).expect("threads");
    let leases = executor.leases();
    let mut taken = Vec::new();
    while let LeaseOutcome::Batch(lease) = leases.take(SHORT) {
        taken.push(lease);
    }
    for lease in taken {
        leases.give_back(lease, ReturnReason::Declined);
    }

    for in_flight in 0..8 {
        assert_eq!(take(&executor), expected_batch(in_flight));
    }
    assert!(matches!(executor.next(LONG), NextBatch::Fault(text) if text == "no plan"));
}

#[test]
fn only_requested_batches_are_filled_and_a_fault_can_be_passed_over() {
    let job = Integers {
        fails_at: Some(ROWS + 1),
        ..Integers::default()
    };
    let config = Config {
        taking: BatchChoice::Requested,
        ..config(2)
    };
    let executor = Executor::start(job, config, 0).expect("threads");

    assert!(matches!(executor.next(SHORT), NextBatch::Timeout));
    executor.ask(1);
    assert_eq!(take(&executor), expected_batch(0));
    assert!(matches!(executor.next(SHORT), NextBatch::Timeout));
    executor.ask(3);
    assert!(matches!(executor.next(LONG), NextBatch::Fault(_)));
    executor.pass_over();
    for in_flight in 2..4 {
        assert_eq!(take(&executor), expected_batch(in_flight));
    }
    assert!(matches!(executor.next(SHORT), NextBatch::Timeout));
}
