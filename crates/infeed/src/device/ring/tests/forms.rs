//! A ring whose batches have one of two forms each: what a kernel makes of bytes, or the same come as
//! it is.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::batch::{Array, Batch, Values};
use crate::device::sim::{SimConfig, SimQueue, SimRead, Violation};
use crate::device::{Device, DeviceBatch, Ring, Sim};
use crate::error::Error;
use crate::random;
use crate::sample::DType;

use super::super::Route;
use super::super::sending::Without;
use super::{SIDE, batch, column, expanded, routes, settings};

const ROWS: usize = 2;

/// [`routes`], and those of a host that expands.
fn forms() -> Vec<Vec<Route>> {
    let whole = routes().into_iter().map(|route| match route.upload {
        super::super::Upload::Expand(_) => Route::copy(route.device),
        _ => route,
    });
    vec![routes(), whole.collect()]
}

/// The batch of a step in a form.
fn batch_as(form: usize, step: u64) -> Batch {
    let mut batch = batch(step, ROWS);
    if form == 1 {
        let shape = vec![ROWS, 3, SIDE, SIDE];
        let image = Array::own(&expanded(step, ROWS), shape, DType::BFloat16).expect("memory");
        batch.columns[0].values = Values::Array(image);
    }
    batch
}

fn ring(sim: &Sim, slots: usize) -> Ring<Sim> {
    Ring::of_forms(sim.clone(), forms(), settings(ROWS, slots)).expect("a ring")
}

/// Whether a read saw other bytes than it must.
fn check((read, wanted): (SimRead, Vec<u8>)) -> usize {
    usize::from(read.bytes() != wanted)
}

/// Runs a loop over forms in an order of chance. Returns how many reads saw other bytes than those of
/// their step, and what was out of order.
fn run(seed: u64, steps: u64, without: Option<Without>) -> (usize, Vec<Violation>) {
    let sim = Sim::new(SimConfig {
        bandwidth_bytes_per_s: 50e6,
        latency: Duration::from_micros(4),
        kernel_bytes_per_s: 100e6,
        jitter: 0.9,
        seed,
        ..SimConfig::default()
    });
    let queues: Vec<SimQueue> = (0..2).map(|_| sim.stream().expect("a stream")).collect();
    let ring = ring(&sim, 3);
    if let Some(without) = without {
        ring.without.store(without as u8, Ordering::Relaxed);
    }
    let mut kept: VecDeque<DeviceBatch<Sim>> = VecDeque::new();
    let mut reads = VecDeque::new();
    let mut wrong = 0;
    for step in 0..steps {
        let drawn = random::hash(&[seed, step]);
        let form = (drawn % 2) as usize;
        let sent = ring.send_as(form, batch_as(form, step)).expect("sent");
        if (drawn >> 40).is_multiple_of(8) {
            // Nobody read it, so nobody else's release is waited for.
            drop(sent);
            continue;
        }
        let batch = sent.hand_over(None).expect("handed over");
        let queue = queues[(drawn >> 8) as usize % 2];
        batch.ready_on(queue).expect("a wait");
        let array = batch.array("image").expect("no fault").expect("a column");
        let lasting = Duration::from_micros((drawn >> 16) % 60);
        let read = sim.read(queue, array.memory(), array.bytes(), lasting);
        reads.push_back((read.expect("a read"), expanded(step, ROWS)));
        if (drawn >> 32).is_multiple_of(3) {
            kept.push_back(batch);
        }
        while kept.len() > 2 {
            kept.pop_front();
        }
        while reads.len() > 12 {
            wrong += reads.pop_front().map_or(0, check);
        }
    }
    wrong += reads.into_iter().map(check).sum::<usize>();
    drop(kept);
    ring.close().expect("closed");
    (wrong, sim.violations())
}

#[test]
fn whatever_form_follows_another_in_a_slot_each_batch_has_its_own_bytes() {
    for seed in 0..4 {
        let (wrong, violations) = run(seed, 500, None);

        assert_eq!(wrong, 0);
        assert!(violations.is_empty(), "{}", violations[0]);
    }
}

#[test]
fn a_missing_wait_between_forms_is_noticed() {
    for without in [Without::Kernel, Without::Copied, Without::Release] {
        let noticed = (0..4).any(|seed| !run(seed, 300, Some(without)).1.is_empty());

        assert!(noticed, "{}", without as u8);
    }
}

#[test]
fn a_slot_has_memory_for_both_once_both_came() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let ring = ring(&sim, 1);
    let mut used = Vec::new();

    for form in [1, 0, 1, 0] {
        let sent = ring.send_as(form, batch_as(form, 0)).expect("sent");
        drop(sent.hand_over(None).expect("handed over"));
        used.push(sim.used_bytes());
    }

    let rows = ROWS as u64;
    let whole = rows * (96 + 8);
    assert_eq!(
        used,
        [
            whole,
            whole + rows * 48,
            whole + rows * 48,
            whole + rows * 48
        ]
    );
    let stats = ring.stats().expect("stats");
    assert_eq!(stats.bytes, 2 * whole + 2 * rows * (48 + 8));
}

#[test]
fn forms_that_are_not_the_same_on_the_device_are_refused() {
    let refused = |forms: Vec<Vec<Route>>| {
        let ring = Ring::of_forms(Sim::new(SimConfig::default()), forms, settings(2, 2));
        ring.expect_err("refused").to_string()
    };
    let other = vec![Route::copy(column(
        "image",
        DType::BFloat16,
        &[3, SIDE, SIDE],
    ))];
    let mut unlike = forms();
    unlike[1][1] = Route::copy(column("label", DType::Int32, &[]));

    assert!(refused(Vec::new()).contains("at least one form"));
    assert!(refused(vec![routes(), other]).contains("other columns"));
    assert!(refused(unlike).contains("field `label`"));
}

#[test]
fn a_form_that_there_is_not_is_an_error_and_no_end() {
    let sim = Sim::new(SimConfig::default());
    let ring = ring(&sim, 2);

    let error = ring.send_as(2, batch_as(0, 0)).expect_err("no such form");

    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(ring.send_as(1, batch_as(1, 0)).is_ok());
}
