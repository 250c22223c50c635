//! A ring with batches in three layouts: bytes that a kernel expands, the expanded image, and
//! images with their size in the row that a kernel resizes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};

use crate::sim::{SimConfig, SimQueue, SimRead, Violation};
use crate::{Device, DeviceBatch, DeviceError, Ring, Sim};
use infeed_core::batch::{Array, Batch, Values};
use infeed_core::error::Error;
use infeed_core::random;
use infeed_core::sample::{DType, Size};

use super::super::commands::OmittedWait;
use super::super::{Route, Upload, crops};
use super::{PIXELS, SIDE, batch, column, expected_image, pixels, routes, settings};

const ROWS: usize = 2;
const SIZE: Size = Size {
    height: SIDE as u32,
    width: SIDE as u32,
};

/// Bytes of a row that holds its image's size.
fn crop_bytes() -> usize {
    crops::row_bytes(SIZE, 3).expect("small")
}

/// Returns routes for bytes ([`routes`]), for images expanded on the host, and for images resized
/// on the device.
fn layouts() -> Vec<Vec<Route>> {
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

/// Returns the batch of a step in a layout.
fn batch_in(layout: usize, step: u64) -> Batch {
    let mut batch = batch(step, ROWS);
    let image = match layout {
        1 => {
            let shape = vec![ROWS, 3, SIDE, SIDE];
            Array::own(&expected_image(step, ROWS), shape, DType::BFloat16)
        }
        2 => Array::own(&crops_of(step), vec![ROWS, crop_bytes()], DType::UInt8),
        _ => return batch,
    };
    batch.columns[0].values = Values::Array(image.expect("memory"));
    batch
}

/// Returns rows of images in their final size. The device mirrors the images of odd steps.
fn crops_of(step: u64) -> Vec<u8> {
    let flip = !step.is_multiple_of(2);
    let mut rows = vec![0xa5; ROWS * crop_bytes()];
    let all = pixels(step, ROWS);
    for (row, image) in rows.chunks_exact_mut(crop_bytes()).zip(all.chunks(PIXELS)) {
        let position = crops::begin(row, SIZE, 3, (flip, false)).expect("it fits");
        for (to, line) in position.chunks_mut(3 * SIDE).zip(image.chunks(3 * SIDE)) {
            for (x, pixel) in line.chunks(3).enumerate() {
                let x = if flip { SIDE - 1 - x } else { x };
                to[3 * x..3 * x + 3].copy_from_slice(pixel);
            }
        }
    }
    rows
}

fn ring(sim: &Sim, slots: usize) -> Ring<Sim> {
    Ring::with_layouts(sim.clone(), layouts(), settings(ROWS, slots)).expect("a ring")
}

/// Counts a read of other bytes than expected.
fn check((read, wanted): (SimRead, Vec<u8>)) -> usize {
    usize::from(read.bytes() != wanted)
}

/// Runs a loop over layouts in random order. Returns the number of reads that saw bytes of another
/// step, and the violations.
fn run(seed: u64, steps: u64, without: Option<OmittedWait>) -> (usize, Vec<Violation>) {
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
        let layout = (drawn % 3) as usize;
        let sent = ring.send_as(layout, batch_in(layout, step)).expect("sent");
        if (drawn >> 40).is_multiple_of(8) {
            // No consumer read it, so there is no release to wait for.
            drop(sent);
            continue;
        }
        let batch = sent.hand_over(None).expect("handed over");
        let queue = queues[(drawn >> 8) as usize % 2];
        batch.ready_on(queue).expect("a wait");
        let array = batch.array("image").expect("no fault").expect("a column");
        let lasting = Duration::from_micros((drawn >> 16) % 60);
        let read = sim.read(queue, array.memory(), array.bytes(), lasting);
        reads.push_back((read.expect("a read"), expected_image(step, ROWS)));
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
fn each_batch_has_its_own_bytes_in_any_order_of_layouts() {
    for seed in 0..4 {
        let (wrong, violations) = run(seed, 500, None);

        assert_eq!(wrong, 0);
        assert!(violations.is_empty(), "{}", violations[0]);
    }
}

#[test]
fn a_missing_wait_between_layouts_is_reported() {
    for without in [
        OmittedWait::Kernel,
        OmittedWait::Copied,
        OmittedWait::Release,
    ] {
        let noticed = (0..4).any(|seed| !run(seed, 300, Some(without)).1.is_empty());

        assert!(noticed, "{}", without as u8);
    }
}

#[test]
fn a_slot_has_memory_for_every_layout_until_one_is_kept() {
    let sim = Sim::new(SimConfig::default());
    let ring = ring(&sim, 1);
    let used = |layouts: &[usize]| -> Vec<u64> {
        let send = |layout: &usize| {
            let sent = ring.send_as(*layout, batch_in(*layout, 0)).expect("sent");
            let batch = sent.hand_over(None).expect("handed over");
            batch.synchronize().expect("it has come");
            drop(batch);
            sim.used_bytes()
        };
        layouts.iter().map(send).collect()
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

    // Memory shrinks to the kept layout, but a batch of another layout still gets memory.
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
fn a_slot_shrinks_only_after_the_kernel_that_reads_it() {
    let sim = Sim::new(SimConfig {
        kernel_bytes_per_s: 1e3,
        ..SimConfig::default()
    });
    let ring = ring(&sim, 1);
    let hand = |layout: usize| {
        let sent = ring.send_as(layout, batch_in(layout, 0)).expect("sent");
        sent.hand_over(None).expect("handed over")
    };
    let batch = hand(2);
    let all = sim.used_bytes();
    drop(batch);
    ring.keep(Some(0));

    // The kernel of the previous batch takes half a second.
    let batch = hand(0);
    assert_eq!(sim.used_bytes(), all);
    batch.synchronize().expect("it has come");
    drop(batch);
    let batch = hand(0);
    assert!(sim.used_bytes() < all);
    batch.synchronize().expect("it has come");
    let array = batch.array("image").expect("no fault").expect("a column");
    assert_eq!(array.to_host().expect("read"), expected_image(0, ROWS));
    drop((batch, ring));
    assert!(sim.violations().is_empty(), "{}", sim.violations()[0]);
}

#[test]
fn a_slot_that_cannot_grow_still_accepts_smaller_batches() {
    let sim = Sim::new(SimConfig {
        memory_bytes: 700,
        ..SimConfig::default()
    });
    let ring = ring(&sim, 1);
    for layout in [0, 2, 0, 2, 1] {
        match ring.send_as(layout, batch_in(layout, 3)) {
            Ok(sent) => {
                assert_ne!(layout, 2);
                let batch = sent.hand_over(None).expect("handed over");
                let array = batch.array("image").expect("no fault").expect("a column");
                assert_eq!(array.to_host().expect("read"), expected_image(3, ROWS));
            }
            Err(error) => {
                assert_eq!(layout, 2);
                assert!(DeviceError::is_out_of_memory(&error), "{}", error.chain());
            }
        }
    }
}

#[test]
fn layouts_that_differ_on_the_device_are_rejected() {
    let rejected = |layouts: Vec<Vec<Route>>| {
        let ring = Ring::with_layouts(Sim::new(SimConfig::default()), layouts, settings(2, 2));
        ring.expect_err("refused").to_string()
    };
    let other = vec![Route::copy(column(
        "image",
        DType::BFloat16,
        &[3, SIDE, SIDE],
    ))];
    let mut unlike = layouts();
    unlike[1][1] = Route::copy(column("label", DType::Int32, &[]));

    assert!(rejected(Vec::new()).contains("at least one batch layout"));
    assert!(rejected(vec![routes(), other]).contains("other columns"));
    assert!(rejected(unlike).contains("field `label`"));
}

#[test]
fn an_unknown_layout_is_an_error_and_the_ring_stays_usable() {
    let sim = Sim::new(SimConfig::default());
    let ring = ring(&sim, 2);

    let error = ring.send_as(3, batch_in(0, 0)).expect_err("no such form");

    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(ring.send_as(1, batch_in(1, 0)).is_ok());
}
