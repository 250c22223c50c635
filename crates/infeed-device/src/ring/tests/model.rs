//! The ring under a model checker. It compiles the ring's files again, with locks at each of which
//! the checker chooses the next thread.
//!
//! The checker reports a lost wake-up as a deadlock. Commands go to a simulated device without
//! threads. That device reports every memory access that is not ordered, whatever the order in
//! which the ring's threads enqueued the commands.
#![allow(dead_code, unreachable_pub, clippy::duplicate_mod)]

#[path = "../batch.rs"]
mod batch;
#[path = "../closing.rs"]
mod closing;
#[path = "../commands.rs"]
mod commands;
#[path = "../crops.rs"]
mod crops;
#[path = "../decoding.rs"]
mod decoding;
#[path = "../device_ring.rs"]
mod device_ring;
#[path = "../events.rs"]
mod events;
#[path = "../files.rs"]
mod files;
#[path = "../gaps.rs"]
mod gaps;
#[path = "../ring_state.rs"]
mod ring_state;
#[path = "../route.rs"]
mod route;
#[path = "../sampling.rs"]
mod sampling;
#[path = "../sending.rs"]
mod sending;
#[path = "../slot_memory.rs"]
mod slot_memory;
#[path = "../slots.rs"]
mod slots;
#[path = "../stats.rs"]
mod stats;
#[path = "../times.rs"]
mod times;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::mpsc;
use shuttle::{Runner, thread};

use crate::sim::{SimConfig, SimQueue};
use crate::{Device, Sim};
use infeed_core::error::Error;

use commands::OmittedWait;
use device_ring::{Ring, RingSettings};
use route::Route;
use slots::{Slots, TakenSlot};

/// Locks of the checker, under the names that the ring uses.
mod sync {
    use std::sync::PoisonError;
    use std::time::Duration;

    use shuttle::rand::Rng;
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    std::thread_local! {
        /// Number of waits without limit. The checker runs all threads of a test on one system
        /// thread, so a thread-local counts all of them.
        pub(super) static WAITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub(super) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        WAITS.set(WAITS.get() + 1);
        changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Time does not pass here: the checker chooses whether a timeout expires.
    pub(super) fn wait_for<'a, T>(
        mutex: &'a Mutex<T>,
        _changed: &Condvar,
        guard: MutexGuard<'a, T>,
        _limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        drop(guard);
        shuttle::thread::yield_now();
        let passed = shuttle::rand::thread_rng().gen_bool(0.5);
        (lock(mutex), passed)
    }
}

/// Number of thread orders tried with each strategy.
const ORDERS: usize = 1000;

/// Calls `test` in `orders` random thread orders, and again in orders with few preemptions.
fn check(orders: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = shuttle::Config::new();
    // Bytes. Kernels and messages need more than the checker's default.
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new(orders), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new(3, orders), config).run(test);
}

/// Same routes as in the other tests, compiled here with the checker's locks.
fn routes() -> Vec<Route> {
    let routes = super::routes().into_iter().map(|route| {
        let upload = match route.upload {
            super::super::Upload::Stay => route::Upload::Stay,
            super::super::Upload::Copy => route::Upload::Copy,
            super::super::Upload::Expand(kernel) => route::Upload::Expand(kernel),
            super::super::Upload::Resize(kernel) => route::Upload::Resize(kernel),
            super::super::Upload::Decode(kernel) => route::Upload::Decode(kernel),
        };
        Route {
            host: route.host,
            upload,
            device: route.device,
        }
    });
    routes.collect()
}

/// Runs a sender, a consumer on two streams that keeps some batches, a thread that drops batches,
/// and a thread that closes the ring. Returns the number of violations.
fn run(without: Option<OmittedWait>) -> usize {
    let sim = Sim::with_own_clock(SimConfig::default());
    let queues: Vec<SimQueue> = (0..2).map(|_| sim.stream().expect("a stream")).collect();
    let settings = RingSettings {
        rows: 1,
        slots: 2,
        timeout: Duration::ZERO,
        closing: Duration::from_secs(5),
    };
    let ring = Ring::new(sim.clone(), routes(), settings).expect("a ring");
    if let Some(without) = without {
        ring.without.store(without as u8, Ordering::Relaxed);
    }
    let ring = Arc::new(ring);
    let (batches, sent) = mpsc::channel();
    let (garbage, dropped) = mpsc::channel();

    let sender = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            for step in 0..6 {
                match ring.send(super::batch(step, 1)) {
                    Ok(sent) => batches.send(sent).expect("the consumer takes them all"),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let dropper = thread::spawn(move || dropped.iter().for_each(drop));
    let closer = {
        let ring = Arc::clone(&ring);
        // Closes later if there are more batches: in three of four runs, after the last batch.
        thread::spawn(move || {
            for _ in 0..12 {
                thread::yield_now();
            }
            ring.close().expect("closed");
        })
    };
    let mut kept = Vec::new();
    for (n, sent) in sent.iter().enumerate() {
        if n % 3 == 2 {
            // As when an epoch ends early: no stream of the consumer waits for the batch.
            drop(sent);
            continue;
        }
        let (step, queue) = (sent.step(), queues[n % 2]);
        let request = ring.ask(queue).expect("a request");
        let batch = sent.hand_over(Some(request)).expect("handed over");
        let array = batch.array("image").expect("no fault").expect("a column");
        array.ready_on(queue).expect("a wait");
        let read = sim.read(queue, array.memory(), array.bytes(), Duration::ZERO);
        let read = read.expect("a read").bytes();
        if without.is_none() {
            assert_eq!(read, super::expected_image(step, 1));
        }
        // Two owners: the last one to drop the batch returns the slot.
        garbage.send(batch.clone()).expect("the dropper lives");
        if n == 4 {
            kept.push(array);
        }
    }
    drop(garbage);
    for thread in [sender, dropper, closer] {
        thread.join().expect("no panic");
    }
    drop((kept, ring));
    assert_eq!(sim.used_bytes(), 0, "a slot was forgotten");
    sim.violations().len()
}

#[test]
fn no_order_of_threads_breaks_the_ring() {
    check(ORDERS, || assert_eq!(run(None), 0));
}

#[test]
fn a_wait_that_is_left_out_is_found() {
    for without in [
        OmittedWait::Release,
        OmittedWait::Kernel,
        OmittedWait::Copied,
    ] {
        let found = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&found);
        check(50, move || {
            count.fetch_add(u64::from(run(Some(without)) > 0), Ordering::Relaxed);
        });
        // Found in some of a hundred orders. In others, no slot is reused before the ring closes.
        let found = found.load(Ordering::Relaxed);
        assert!(found >= 25, "found in {found}");
    }
}

/// Slots without a ring: two senders and two consumers. Every slot is in one place at a time.
#[test]
fn no_order_of_threads_loses_or_doubles_a_slot() {
    fn run() {
        let slots = Arc::new(Slots::new(2, Duration::ZERO));
        let numbers = Arc::new(AtomicU64::new(0));
        let owned = Arc::new(sync::Mutex::new(vec![false; 16]));
        let (sent, taken) = mpsc::channel();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (slots, numbers) = (Arc::clone(&slots), Arc::clone(&numbers));
                let (owned, sent) = (Arc::clone(&owned), sent.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let slot = match slots.take() {
                            TakenSlot::Closed => return,
                            TakenSlot::Make(_) => numbers.fetch_add(1, Ordering::Relaxed),
                            TakenSlot::Free(slot, surplus) => {
                                if surplus.is_some() {
                                    slots.remove_slot(false);
                                }
                                slot
                            }
                        };
                        let twice = std::mem::replace(&mut sync::lock(&owned)[slot as usize], true);
                        assert!(!twice, "slot {slot} has two owners");
                        sent.send(slot).expect("consumers live");
                    }
                })
            })
            .collect();
        drop(sent);
        for (n, slot) in taken.iter().enumerate() {
            if n != 2 {
                slots.hand_over();
            }
            sync::lock(&owned)[slot as usize] = false;
            assert_eq!(slots.give(slot, n == 2), None);
            if n == 4 {
                let (slots, before) = (Arc::clone(&slots), slots.counts().made);
                let closer = thread::spawn(move || slots.close().len());
                assert!(closer.join().expect("no panic") <= before);
                break;
            }
        }
        // Slots that were taken when the ring closed.
        for slot in taken.iter() {
            slots.hand_over();
            assert_eq!(slots.give(slot, false), Some(slot));
        }
        for sender in senders {
            sender.join().expect("no panic");
        }
        let counts = slots.counts();
        assert_eq!((counts.made, counts.free, counts.ahead), (0, 0, 0));
    }
    check(ORDERS, run);
}

/// Takes `n` slots on a thread and passes them on. The thread returns the number of slots it got.
fn taking(slots: &Arc<Slots<u64>>, n: u64) -> (thread::JoinHandle<u64>, mpsc::Receiver<u64>) {
    let (slots, (sent, taken)) = (Arc::clone(slots), mpsc::channel());
    let sender = thread::spawn(move || {
        for got in 0..n {
            let slot = match slots.take() {
                TakenSlot::Closed => return got,
                TakenSlot::Make(_) => got,
                TakenSlot::Free(slot, _) => slot,
            };
            sent.send(slot).expect("the receiver lives");
        }
        n
    });
    (sender, taken)
}

#[test]
fn no_order_leaves_a_consumer_that_keeps_all_slots_waiting() {
    check(ORDERS, || {
        let slots = Arc::new(Slots::new(2, Duration::ZERO));
        let (sender, taken) = taking(&slots, 5);

        // The consumer returns no slot, so only handing batches over lets the sender continue.
        for _ in taken.iter() {
            slots.hand_over();
        }

        assert_eq!(sender.join().expect("no panic"), 5);
        let counts = slots.counts();
        assert_eq!((counts.made, counts.overflow), (5, 3));
    });
}

#[test]
fn no_order_makes_a_surplus_slot_for_a_consumer_that_keeps_one() {
    check(ORDERS, || {
        let slots = Arc::new(Slots::new(2, Duration::ZERO));
        let (sender, taken) = taking(&slots, 6);

        for slot in taken.iter() {
            slots.hand_over();
            assert_eq!(slots.give(slot, false), None);
        }

        assert_eq!(sender.join().expect("no panic"), 6);
        assert_eq!(slots.counts().overflow, 0);
    });
}

#[test]
fn no_order_leaves_a_sender_waiting_after_closing() {
    check(ORDERS, || {
        let slots = Arc::new(Slots::<u64>::new(2, Duration::ZERO));
        let (sender, taken) = taking(&slots, 5);
        let first = taken.recv().expect("one is taken");

        assert!(slots.close().is_empty());

        // No slot is handed over or returned before the sender ends.
        let got = sender.join().expect("no panic");
        assert!((1..=2).contains(&got), "{got}");
        assert_eq!(slots.give(first, true), Some(first));
    });
}

#[test]
fn no_order_blocks_a_sender_that_checks_for_room() {
    check(ORDERS, || {
        let slots = Arc::new(Slots::<u64>::new(2, Duration::ZERO));
        let leaves = Arc::new(AtomicBool::new(false));
        let before = sync::WAITS.get();
        let (sent, taken) = mpsc::channel();
        let sender = {
            let (slots, leaves) = (Arc::clone(&slots), Arc::clone(&leaves));
            thread::spawn(move || {
                let mut made = 0;
                while !leaves.load(Ordering::Relaxed) {
                    if slots.has_room(Duration::ZERO) {
                        let slot = match slots.take() {
                            TakenSlot::Free(slot, _) => slot,
                            _ => made + 1,
                        };
                        made = made.max(slot);
                        sent.send(slot).expect("the consumer takes them all");
                    }
                }
            })
        };

        // The consumer keeps one batch, returns one, and then expects the sender to end with
        // batches ahead.
        for gives in [false, true] {
            let slot = taken.recv().expect("one is sent");
            slots.hand_over();
            if gives {
                assert_eq!(slots.give(slot, false), None);
            }
        }
        leaves.store(true, Ordering::Relaxed);

        sender.join().expect("no panic");
        assert_eq!(sync::WAITS.get(), before);
    });
}

#[test]
fn no_order_leaves_a_sender_waiting_after_a_fault() {
    check(ORDERS, || {
        let sim = Sim::with_own_clock(SimConfig::default());
        let queue = sim.stream().expect("a stream");
        let settings = RingSettings {
            rows: 1,
            slots: 2,
            timeout: Duration::ZERO,
            closing: Duration::from_secs(5),
        };
        let ring = Arc::new(Ring::new(sim.clone(), routes(), settings).expect("a ring"));
        let send = |step| ring.send(super::batch(step, 1));
        let held = send(0).and_then(|sent| sent.hand_over(None));
        let held = held.expect("handed over");
        held.ready_on(queue).expect("a wait");
        let ahead = send(1).expect("sent");
        let sender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send(super::batch(2, 1)).map(|sent| sent.step()))
        };
        sim.fail("record", 0);
        let enqueued = sim.spans().len();

        drop(held);

        let reported = sender.join().expect("no panic").expect_err("a fault");
        assert!(matches!(reported, Error::Device { .. }), "{reported}");
        assert_eq!(sim.spans().len(), enqueued);
        drop((ahead, ring));
        assert_eq!(sim.used_bytes(), 0);
    });
}
