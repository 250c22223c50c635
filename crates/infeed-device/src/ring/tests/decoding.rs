//! Rows of JPEG files, which the simulated device's decoder writes as soon as it is called.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use infeed_raw::jpeg_batch::Baseline;
use infeed_raw::jpeg_encode::{Subsampling, encode};
use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};

use crate::sim::{SimConfig, SimQueue, SimRead, Violation, ViolationKind};
use crate::{Device, DeviceBatch, Ring, Sim};
use infeed_core::batch::{Array, Batch, Column, Values};
use infeed_core::random;
use infeed_core::sample::{DType, Size};

use super::super::commands::OmittedWait;
use super::super::{Route, crops, files};
use super::{column, settings};

const ROWS: usize = 2;

/// Height and width of the files, and of the resized images.
const SIDE: u32 = 32;
const TO: Size = Size {
    height: 24,
    width: 24,
};

fn route() -> Route {
    let (height, width) = (TO.height as usize, TO.width as usize);
    let kernel = Kernel::Resize {
        height,
        width,
        channels: 3,
        dtype: Dtype::U8,
        layout: Layout::Hwc,
        scale: [1.0; 4],
        bias: [0.0; 4],
    };
    let row_bytes = crops::row_bytes(TO, 3).expect("small");
    let host = column("image", DType::UInt8, &[row_bytes]);
    Route::decode(
        host,
        kernel,
        column("image", DType::UInt8, &[height, width, 3]),
    )
}

/// Returns the level of all pixels of a step.
fn level(step: u64) -> u8 {
    (step * 67 % 256) as u8
}

/// Returns a batch of files whose pixels have the level of its step.
fn batch(step: u64) -> Batch {
    let rgb = vec![level(step); (SIDE * SIDE * 3) as usize];
    let file = encode(&rgb, SIDE, SIDE, 95, Subsampling::None).expect("it encodes");
    let scan = Baseline::read(&file, u64::MAX).expect("a plain file");
    let size = Size {
        height: SIDE,
        width: SIDE,
    };
    let cut = files::ImageCrop {
        image: size,
        region: size.whole(),
        flips: (false, false),
    };
    let row_bytes = crops::row_bytes(TO, 3).expect("small");
    let mut bytes = vec![0; ROWS * row_bytes];
    for row in bytes.chunks_exact_mut(row_bytes) {
        assert!(cut.write(&file, scan.subsampling, row));
    }
    let array = Array::own(&bytes, vec![ROWS, row_bytes], DType::UInt8).expect("memory");
    Batch {
        columns: vec![Column {
            name: "image".to_owned(),
            values: Values::Array(array),
        }],
        records: (0..ROWS as u64).collect(),
        epoch: 0,
        step,
    }
}

fn ring(sim: &Sim) -> Ring<Sim> {
    let ring = Ring::new(sim.clone(), vec![route()], settings(ROWS, 3)).expect("a ring");
    ring.with_decoder(sim.decoder(&Default::default()).expect("a decoder"))
}

/// Runs a consumer's step that reads a batch for this long.
fn read(sim: &Sim, queue: SimQueue, batch: &DeviceBatch<Sim>, lasting: Duration) -> SimRead {
    batch.ready_on(queue).expect("a wait");
    let array = batch.array("image").expect("no fault").expect("a column");
    let seen = sim.read(queue, array.memory(), array.bytes(), lasting);
    seen.expect("a read")
}

/// Runs a loop with a lagging consumer. Returns the number of reads that saw pixels of another
/// step, and the violations.
fn run(seed: u64, steps: u64, without: Option<OmittedWait>) -> (usize, Vec<Violation>) {
    let sim = Sim::new(SimConfig {
        bandwidth_bytes_per_s: 200e6,
        latency: Duration::from_micros(4),
        kernel_bytes_per_s: 100e6,
        jpeg_pixels_per_s: Some(100e6),
        jitter: 0.9,
        seed,
        ..SimConfig::default()
    });
    let queue = sim.stream().expect("a stream");
    let ring = ring(&sim);
    if let Some(without) = without {
        ring.without.store(without as u8, Ordering::Relaxed);
    }
    let (batches, sent) = mpsc::sync_channel(1);
    let wrong = |(seen, step): (SimRead, u64)| {
        let seen = seen.bytes();
        assert_eq!(seen.len(), ROWS * 24 * 24 * 3);
        // Quantization changes a few levels.
        usize::from(seen.iter().any(|pixel| pixel.abs_diff(level(step)) > 4))
    };
    let mut others = 0;
    std::thread::scope(|scope| {
        let sender = &ring;
        scope.spawn(move || {
            for step in 0..steps {
                let sent = sender.send(batch(step)).expect("sent");
                batches.send(sent).expect("the consumer takes them all");
            }
        });
        let mut reads = VecDeque::new();
        for (step, sent) in (0..steps).zip(sent) {
            let batch = sent.hand_over(None).expect("handed over");
            let lasting = Duration::from_micros(random::hash(&[seed, step]) % 300);
            reads.push_back((read(&sim, queue, &batch, lasting), step));
            // Runs as far ahead of the device as a training loop that reads its loss now and then.
            while reads.len() > 24 {
                others += reads.pop_front().map_or(0, wrong);
            }
        }
        others += reads.into_iter().map(wrong).sum::<usize>();
    });
    ring.close().expect("closed");
    drop(ring);
    (others, sim.violations())
}

#[test]
fn files_are_decoded_into_memory_that_nothing_reads_any_more() {
    for seed in 0..3 {
        let (others, violations) = run(seed, 300, None);

        assert!(violations.is_empty(), "seed {seed}: {}", violations[0]);
        assert_eq!(others, 0, "seed {seed}");
    }
}

#[test]
fn without_the_wait_on_the_host_files_overwrite_others() {
    let (_, violations) = run(1, 300, Some(OmittedWait::Staging));

    assert!(violations.len() > 10, "{violations:?}");
    let kind = ViolationKind::OverwrittenBeforeRead;
    assert!(violations.iter().any(|found| found.kind == kind));
}

#[test]
fn the_host_waits_for_a_kernel_and_not_for_the_consumer() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let queue = sim.stream().expect("a stream");
    let ring = ring(&sim);
    let lasting = Duration::from_secs(1);
    let send = |step| ring.send(batch(step)).expect("sent");
    let mut ahead: VecDeque<_> = (0..3).map(send).collect();
    let mut reads = Vec::new();
    let mut step = |step: u64| {
        let sent = ahead.pop_front().expect("three are ahead");
        let batch = sent.hand_over(None).expect("handed over");
        reads.push(read(&sim, queue, &batch, lasting));
        drop(batch);
        ahead.push_back(send(step + 3));
        sim.now()
    };

    // Every slot is used twice, and the consumer is still in its first step.
    let times = [0, 1, 2].map(&mut step);
    assert!(times[2] < lasting, "{times:?}");
    // The kernel of the fourth batch, which used this slot, waited for the end of the first step.
    let time = step(3);
    assert!((lasting..2 * lasting).contains(&time), "{time:?}");

    for (step, read) in (0..).zip(reads) {
        let seen = read.bytes();
        assert!(seen.iter().all(|pixel| pixel.abs_diff(level(step)) <= 4));
    }
    assert!(sim.violations().is_empty(), "{}", sim.violations()[0]);
}

#[test]
fn a_device_that_fails_while_the_host_waits_ends_the_ring() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let ring = ring(&sim);
    drop(ring.send(batch(0)).expect("sent"));
    // Only one copy is in flight, so the sender waits for nothing but the slot.
    sim.fail("synchronize", 0);

    let failed = ring.send(batch(1)).expect_err("the device fails");

    assert_eq!(
        ring.send(batch(2)).expect_err("for good").to_string(),
        failed.to_string()
    );
}
