//! Thousands of steps with random delays, on threads, with a consumer that uses every allowed
//! operation.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use crate::sim::{SimConfig, SimQueue, SimRead, Violation, ViolationKind};
use crate::{Device, DeviceBatch, Ring, Sim};
use infeed_core::random;

use super::super::commands::OmittedWait;
use super::{batch, expected_image, labels, routes, settings};

const ROWS: usize = 2;

/// A sequence of random numbers from a seed.
struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        random::hash(&[self.seed, self.drawn]) % n
    }
}

/// A read in flight, and the bytes it must see.
type ExpectedRead = (SimRead, Vec<u8>);

fn read(
    sim: &Sim,
    queue: SimQueue,
    batch: &DeviceBatch<Sim>,
    name: &str,
    lasting: Duration,
) -> ExpectedRead {
    let array = batch.array(name).expect("no fault").expect("a column");
    let seen = sim.read(queue, array.memory(), array.bytes(), lasting);
    let expected = match name {
        "image" => expected_image(batch.step(), ROWS),
        _ => labels(batch.step(), ROWS),
    };
    (seen.expect("a read"), expected)
}

/// Runs a loop of `steps` steps. Returns the number of reads that saw bytes of another step, and
/// the violations.
fn run(seed: u64, steps: u64, without: Option<OmittedWait>) -> (usize, Vec<Violation>) {
    let sim = Sim::new(SimConfig {
        bandwidth_bytes_per_s: 50e6,
        latency: Duration::from_micros(4),
        kernel_bytes_per_s: 100e6,
        jitter: 0.9,
        seed,
        ..SimConfig::default()
    });
    let queues: Vec<SimQueue> = (0..3).map(|_| sim.stream().expect("a stream")).collect();
    let ring = Ring::new(sim.clone(), routes(), settings(ROWS, 3)).expect("a ring");
    if let Some(without) = without {
        ring.without.store(without as u8, Ordering::Relaxed);
    }
    let fixed = sim.memory(ROWS * 96).expect("memory");
    let mut draws = Draws { seed, drawn: 0 };
    let (batches, sent) = mpsc::sync_channel(1);
    let (garbage, dropped) = mpsc::channel::<DeviceBatch<Sim>>();
    let mut wrong = 0;

    std::thread::scope(|scope| {
        let sender = &ring;
        scope.spawn(move || {
            for step in 0..steps {
                let sent = sender.send(batch(step, ROWS)).expect("sent");
                batches.send(sent).expect("the consumer takes them all");
            }
        });
        scope.spawn(move || dropped.iter().for_each(drop));
        let mut kept: VecDeque<DeviceBatch<Sim>> = VecDeque::new();
        let mut reads: VecDeque<ExpectedRead> = VecDeque::new();
        for sent in sent {
            let queue = queues[draws.below(3) as usize];
            let request = (draws.below(2) == 0).then(|| ring.ask(queue).expect("a request"));
            if draws.below(40) == 0 {
                drop(sent);
                continue;
            }
            let batch = sent.hand_over(request).expect("handed over");
            let lasting = Duration::from_micros(draws.below(60));
            batch.ready_on(queue).expect("a wait");
            reads.push_back(read(&sim, queue, &batch, "image", lasting));
            reads.push_back(read(&sim, queue, &batch, "label", lasting));
            match draws.below(8) {
                0 => {
                    // A side stream that the consumer orders without the ring.
                    let side = queues[draws.below(3) as usize];
                    let event = sim.event(false).expect("an event");
                    sim.record(&event, queue).expect("recorded");
                    sim.wait(side, &event).expect("a wait");
                    batch.record_stream(side).expect("recorded");
                    reads.push_back(read(&sim, side, &batch, "image", lasting));
                }
                1 => {
                    // Another stream that waits for the ring.
                    let other = queues[draws.below(3) as usize];
                    batch.ready_on(other).expect("a wait");
                    reads.push_back(read(&sim, other, &batch, "label", lasting));
                }
                2 => {
                    // Only one stream uses the fixed memory, so its reads are in order.
                    let step = batch.step();
                    batch
                        .copy_into(queues[0], &[("image", &fixed)])
                        .expect("a copy");
                    let seen = sim.read(queues[0], &fixed, ROWS * 96, lasting);
                    reads.push_back((seen.expect("a read"), expected_image(step, ROWS)));
                    continue;
                }
                3 => kept.push_back(batch.clone()),
                _ => {}
            }
            if draws.below(2) == 0 {
                garbage.send(batch).expect("the dropper lives");
            }
            while kept.len() > 4 + draws.below(3) as usize {
                kept.pop_front();
            }
            // Runs as far ahead as a training loop that reads its loss now and then.
            while reads.len() > 24 {
                wrong += reads.pop_front().map_or(0, check);
            }
        }
        drop(garbage);
        wrong += reads.into_iter().map(check).sum::<usize>();
    });

    ring.close().expect("closed");
    if without.is_none() {
        let stats = ring.stats().expect("stats");
        assert_eq!(stats.batches, steps);
        assert!(stats.gaps.batches > 0);
    }
    drop((ring, fixed));
    (wrong, sim.violations())
}

fn check((seen, expected): ExpectedRead) -> usize {
    usize::from(seen.bytes() != expected)
}

#[test]
fn every_use_is_in_order_over_thousands_of_steps() {
    for seed in 0..6 {
        let (wrong, violations) = run(seed, 1000, None);

        assert!(violations.is_empty(), "seed {seed}: {}", violations[0]);
        assert_eq!(wrong, 0, "seed {seed}");
    }
}

#[test]
fn without_the_wait_for_the_release_uses_are_out_of_order() {
    for seed in 0..3 {
        let (_, violations) = run(seed, 200, Some(OmittedWait::Release));

        assert!(violations.len() > 10, "seed {seed}");
        let kind = ViolationKind::OverwrittenBeforeRead;
        assert!(violations.iter().all(|found| found.kind == kind));
    }
}

#[test]
fn without_the_wait_for_the_kernel_before_staging_memory_is_overwritten() {
    let (_, violations) = run(1, 400, Some(OmittedWait::Kernel));

    let kind = ViolationKind::OverwrittenBeforeRead;
    assert!(violations.iter().any(|found| found.kind == kind));
}

#[test]
fn without_the_wait_for_the_copy_kernels_read_too_early() {
    let (_, violations) = run(1, 50, Some(OmittedWait::Copied));

    let kind = ViolationKind::ReadBeforeReady;
    assert!(violations.iter().any(|found| found.kind == kind));
}
