//! A ring whose batches have one of three forms each: what a kernel makes of bytes, the same as it is, or
//! what a kernel makes of images that say themselves how large they are.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};

use crate::batch::{Array, Batch, Values};
use crate::device::sim::{SimConfig, SimQueue, SimRead, Violation};
use crate::device::{Device, DeviceBatch, DeviceError, Ring, Sim};
use crate::error::Error;
use crate::random;
use crate::sample::{DType, Size};

use super::super::sending::Without;
use super::super::{Route, Upload, crops};
use super::{PIXELS, SIDE, batch, column, expanded, pixels, routes, settings};

const ROWS: usize = 2;
const SIZE: Size = Size {
    height: SIDE as u32,
    width: SIDE as u32,
};

/// Bytes of a row that says how large its image is.
fn crop_bytes() -> usize {
    crops::row_bytes(SIZE, 3).expect("small")
}

/// [`routes`], those of a host that expands, and those of a device that resizes.
fn forms() -> Vec<Vec<Route>> {
    let whole = routes().into_iter().map(|route| match route.upload {
        Upload::Expand(_) => Route::copy(route.device),
        _ => route,
    });
    let resize = Kernel::Resize {
        height: SIDE,
        width: SIDE,
        channels: 3,
        dtype: Dtype::BF16,
        layout: Layout::Chw,
        scale: [1.0; 4],
        bias: [-1.0; 4],
    };
    let resized = routes().into_iter().map(|route| match route.upload {
        Upload::Expand(_) => {
            let crop = column("image", DType::UInt8, &[crop_bytes()]);
            Route::resize(crop, resize.clone(), route.device)
        }
        _ => route,
    });
    vec![routes(), whole.collect(), resized.collect()]
}

/// The batch of a step in a form.
fn batch_as(form: usize, step: u64) -> Batch {
    let mut batch = batch(step, ROWS);
    let image = match form {
        1 => {
            let shape = vec![ROWS, 3, SIDE, SIDE];
            Array::own(&expanded(step, ROWS), shape, DType::BFloat16)
        }
        2 => Array::own(&crops_of(step), vec![ROWS, crop_bytes()], DType::UInt8),
        _ => return batch,
    };
    batch.columns[0].values = Values::Array(image.expect("memory"));
    batch
}

/// Rows of images that have their size, of which those of odd steps are mirrored on the device.
fn crops_of(step: u64) -> Vec<u8> {
    let flip = !step.is_multiple_of(2);
    let mut rows = vec![0xa5; ROWS * crop_bytes()];
    let all = pixels(step, ROWS);
    for (row, image) in rows.chunks_exact_mut(crop_bytes()).zip(all.chunks(PIXELS)) {
        let place = crops::begin(row, SIZE, 3, (flip, false)).expect("it fits");
        for (to, line) in place.chunks_mut(3 * SIDE).zip(image.chunks(3 * SIDE)) {
            for (x, pixel) in line.chunks(3).enumerate() {
                let x = if flip { SIDE - 1 - x } else { x };
                to[3 * x..3 * x + 3].copy_from_slice(pixel);
            }
        }
    }
    rows
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
        let form = (drawn % 3) as usize;
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
fn a_slot_has_memory_for_all_that_came_until_one_of_them_is_kept() {
    let sim = Sim::new(SimConfig::default());
    let ring = ring(&sim, 1);
    let used = |forms: &[usize]| -> Vec<u64> {
        let send = |form: &usize| {
            let sent = ring.send_as(*form, batch_as(*form, 0)).expect("sent");
            let batch = sent.hand_over(None).expect("handed over");
            batch.synchronize().expect("it has come");
            drop(batch);
            sim.used_bytes()
        };
        forms.iter().map(send).collect()
    };
    let rows = ROWS as u64;
    let (whole, bytes) = (rows * (96 + 8), rows * 48);

    assert_eq!(
        used(&[1, 0, 1, 0]),
        [whole, whole + bytes, whole + bytes, whole + bytes]
    );
    let both = ring.stats().expect("stats").bytes;
    assert_eq!(both, 2 * whole + 2 * (bytes + rows * 8));
    let crops = rows * crop_bytes() as u64;
    let all = used(&[2])[0];
    assert!(all > whole + crops, "a table, too");
    assert_eq!(used(&[0, 1, 2]), [all; 3]);

    // What is kept is fitted; what comes of another form has memory all the same.
    ring.keep(Some(0));
    assert_eq!(used(&[0, 0, 1]), [whole + bytes; 3]);
    assert_eq!(used(&[2, 1, 0]), [all, all, whole + bytes]);
    ring.keep(Some(1));
    assert_eq!(used(&[0, 1, 1]), [whole + bytes, whole, whole]);
    ring.keep(Some(2));
    assert_eq!(used(&[2, 2]), [all; 2]);
    ring.keep(None);
    assert_eq!(used(&[0, 1, 2]), [all; 3]);
    drop(ring);
    assert!(sim.violations().is_empty(), "{}", sim.violations()[0]);
}

#[test]
fn a_slot_is_fitted_only_once_the_kernel_that_reads_it_is_done() {
    let sim = Sim::new(SimConfig {
        kernel_bytes_per_s: 1e3,
        ..SimConfig::default()
    });
    let ring = ring(&sim, 1);
    let hand = |form: usize| {
        let sent = ring.send_as(form, batch_as(form, 0)).expect("sent");
        sent.hand_over(None).expect("handed over")
    };
    let batch = hand(2);
    let all = sim.used_bytes();
    drop(batch);
    ring.keep(Some(0));

    // The kernel of the batch before takes half a second.
    let batch = hand(0);
    assert_eq!(sim.used_bytes(), all);
    batch.synchronize().expect("it has come");
    drop(batch);
    let batch = hand(0);
    assert!(sim.used_bytes() < all);
    batch.synchronize().expect("it has come");
    let array = batch.array("image").expect("no fault").expect("a column");
    assert_eq!(array.to_host().expect("read"), expanded(0, ROWS));
    drop((batch, ring));
    assert!(sim.violations().is_empty(), "{}", sim.violations()[0]);
}

#[test]
fn a_slot_that_cannot_grow_takes_what_fits_it_still() {
    let sim = Sim::new(SimConfig {
        memory_bytes: 700,
        ..SimConfig::default()
    });
    let ring = ring(&sim, 1);
    for form in [0, 2, 0, 2, 1] {
        match ring.send_as(form, batch_as(form, 3)) {
            Ok(sent) => {
                assert_ne!(form, 2);
                let batch = sent.hand_over(None).expect("handed over");
                let array = batch.array("image").expect("no fault").expect("a column");
                assert_eq!(array.to_host().expect("read"), expanded(3, ROWS));
            }
            Err(error) => {
                assert_eq!(form, 2);
                assert!(DeviceError::denies_memory(&error), "{}", error.chain());
            }
        }
    }
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

    let error = ring.send_as(3, batch_as(0, 0)).expect_err("no such form");

    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(ring.send_as(1, batch_as(1, 0)).is_ok());
}
