//! Faults are reported by the next call, never by a drop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sim::{SimConfig, SimQueue};
use crate::{Device, DeviceBatch, Ring, Sim};
use infeed_core::error::Error;

use super::super::TakenArray;
use super::{batch, routes, settings};

fn ring(config: SimConfig) -> (Ring<Sim>, Sim, SimQueue) {
    let sim = Sim::with_own_clock(config);
    let queue = sim.stream().expect("a stream");
    let ring = Ring::new(sim.clone(), routes(), settings(2, 2)).expect("a ring");
    (ring, sim, queue)
}

#[test]
fn a_failed_release_is_reported_by_the_next_calls_and_its_slot_is_not_reused() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let sent = ring.send(batch(0, 2)).expect("sent");
    let other = ring.send(batch(1, 2)).expect("sent");
    let other = other.hand_over(None).expect("handed over");
    let first = sent.hand_over(None).expect("handed over");
    first.ready_on(queue).expect("a wait");
    sim.fail("record", 0);

    drop(first);

    let send = ring.send(batch(2, 2)).expect_err("rejected");
    let array = other.array("image").expect_err("rejected");
    for error in [&send, &array] {
        let text = error.chain();
        assert!(matches!(error, Error::Device { .. }), "{text}");
        assert!(text.contains("device sim failed: record failed"), "{text}");
    }
    let memory = sim.used_bytes();
    drop((other, ring.close()));
    assert!(sim.used_bytes() < memory);
    drop(ring);
    assert_eq!(sim.used_bytes(), 0, "kept until the end, and no longer");
}

/// Reads a batch in a step of this long. Drops the batch after `made` changed its stream.
fn read_and_drop(
    ring: &Ring<Sim>,
    queue: SimQueue,
    step: u64,
    lasting: Duration,
    made: impl FnOnce(&Sim),
) {
    let sent = ring.send(batch(step, 2)).expect("sent");
    let batch = sent.hand_over(None).expect("handed over");
    let image = batch.array("image").expect("no fault").expect("a column");
    image.ready_on(queue).expect("a wait");
    let read = ring
        .device()
        .read(queue, image.memory(), image.bytes(), lasting);
    drop(read.expect("a read"));
    made(ring.device());
    drop((batch, image));
}

#[test]
fn a_slot_given_back_during_a_capture_is_reused_after_its_readers() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let capture = |sim: &Sim| sim.capture(queue, true).expect("a stream");

    read_and_drop(&ring, queue, 0, Duration::from_secs(3), capture);

    let stats = ring.stats().expect("no fault");
    assert_eq!((stats.slots, stats.free), (1, 0), "it is not known yet");
    sim.capture(queue, false).expect("a stream");
    let stats = ring.stats().expect("no fault");
    assert_eq!((stats.slots, stats.free), (1, 1));
    drop(ring.send(batch(1, 2)).expect("sent"));
    assert_eq!(ring.stats().expect("no fault").slots, 1);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_capture_that_never_ends_costs_a_slot_and_is_not_an_error() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let capture = |sim: &Sim| sim.capture(queue, true).expect("a stream");
    read_and_drop(&ring, queue, 0, Duration::from_secs(3), capture);

    for step in 1..6 {
        let sent = ring.send(batch(step, 2)).expect("sent");
        drop(sent.hand_over(None).expect("handed over"));
    }
    let rejected = ring.ask(queue).expect_err("it is captured");

    assert!(
        rejected.chain().contains("captured"),
        "{}",
        rejected.chain()
    );
    assert_eq!(ring.stats().expect("no fault").slots, 2);
    drop(ring);
    assert!(sim.used_bytes() > 0, "a graph may read it for ever");
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

/// Checks that a destroyed stream ended the ring and that the slot of the stream is leaked.
fn assert_ended(ring: Ring<Sim>, sim: &Sim) {
    let text = ring
        .send(batch(1, 2))
        .expect_err("the end of the stream's commands is unknown")
        .chain();
    assert!(text.contains("keep a stream until"), "{text}");
    drop(ring);
    assert!(sim.used_bytes() > 0, "the stream may still read it");
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_stream_that_is_destroyed_before_its_batch_is_dropped_ends_the_ring() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let destroy = |sim: &Sim| sim.destroy(queue).expect("a stream");

    read_and_drop(&ring, queue, 0, Duration::from_secs(3), destroy);

    assert!(sim.now() < Duration::from_secs(3), "a drop does not wait");
    assert_ended(ring, &sim);
}

#[test]
fn a_stream_that_is_destroyed_before_its_arrays_are_released_ends_the_ring() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let (held, image) = take_image(&ring, queue, 0, Duration::from_secs(3));
    sim.destroy(queue).expect("a stream");

    drop(image);
    drop(held);

    assert_ended(ring, &sim);
}

#[test]
fn a_batch_dropped_during_a_capture_after_the_ring_closed_is_freed_or_kept() {
    for ends in [true, false] {
        let (ring, sim, queue) = ring(SimConfig::default());
        let (held, image) = take_image(&ring, queue, 0, Duration::from_secs(3));
        let kept = held.clone();
        ring.close().expect("closed");
        sim.capture(queue, true).expect("a stream");
        drop((image, held));
        sim.capture(queue, !ends).expect("a stream");

        drop(kept);
        drop(ring);

        assert_eq!(sim.used_bytes() == 0, ends);
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

/// Hands over a batch, and takes its image on a stream that reads it for this long.
fn take_image(
    ring: &Ring<Sim>,
    queue: SimQueue,
    step: u64,
    lasting: Duration,
) -> (DeviceBatch<Sim>, TakenArray<Sim>) {
    let sent = ring.send(batch(step, 2)).expect("sent");
    let batch = sent.hand_over(None).expect("handed over");
    let image = batch.array("image").expect("no fault").expect("a column");
    let taken = image.take_on(queue).expect("a wait");
    let read = ring
        .device()
        .read(queue, image.memory(), image.bytes(), lasting);
    drop(read.expect("a read"));
    (batch, taken)
}

#[test]
fn a_stream_may_be_destroyed_once_its_arrays_are_released() {
    let (ring, sim, first) = ring(SimConfig::default());
    let second = sim.stream().expect("a stream");
    let (held, one) = take_image(&ring, first, 0, Duration::from_secs(3));
    let image = held.array("image").expect("no fault").expect("a column");
    let two = image.take_on(first).expect("a wait");
    drop((one, image));
    drop(two);
    sim.destroy(first).expect("a stream");

    drop(held);

    assert_eq!(ring.stats().expect("no fault").free, 1);
    // The next batch waits on the device, not on the host.
    let (held, image) = take_image(&ring, second, 1, Duration::ZERO);
    assert!(sim.now() < Duration::from_secs(3));
    drop((image, held));
    assert_eq!(ring.stats().expect("no fault").slots, 1);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    drop(ring);
    assert_eq!(sim.used_bytes(), 0);
}

#[test]
fn an_array_released_during_a_capture_keeps_its_slot_until_the_batch_is_dropped() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let (held, image) = take_image(&ring, queue, 0, Duration::from_secs(3));
    sim.capture(queue, true).expect("a stream");
    drop(image);
    sim.capture(queue, false).expect("a stream");

    drop(held);

    let other = sim.stream().expect("a stream");
    drop(take_image(&ring, other, 1, Duration::ZERO));
    assert_eq!(ring.stats().expect("no fault").slots, 1);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn an_array_that_is_taken_many_times_uses_few_events() {
    let (ring, sim, queue) = ring(SimConfig::default());
    sim.fail("event", 40);
    let sent = ring.send(batch(0, 2)).expect("sent");
    let held = sent.hand_over(None).expect("handed over");
    let image = held.array("image").expect("no fault").expect("a column");

    for _ in 0..100 {
        drop(image.take_on(queue).expect("a wait"));
        sim.set_now(sim.now() + Duration::from_millis(1));
    }
}

#[test]
fn a_destroyed_stream_is_rejected_and_the_ring_stays_usable() {
    let (ring, sim, queue) = ring(SimConfig::default());
    sim.destroy(queue).expect("a stream");
    let sent = ring.send(batch(0, 2)).expect("sent");
    let held = sent.hand_over(None).expect("handed over");

    let text = held
        .ready_on(queue)
        .expect_err("the stream is destroyed")
        .chain();

    assert!(text.contains("keep a stream until"), "{text}");
    drop(held);
    assert_eq!(ring.stats().expect("no fault").free, 1, "nothing used it");
}

#[test]
fn memory_is_freed_after_its_last_reader() {
    let long = Duration::from_secs(3);
    // The slot grows.
    let (ring, sim, queue) = self::ring(SimConfig::default());
    read_and_drop(&ring, queue, 0, long, |_| ());
    drop(ring.send(batch(1, 5)).expect("sent"));
    assert!(sim.now() >= long);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    drop(ring);

    // The slot is returned to a closed ring.
    let (ring, sim, queue) = self::ring(SimConfig::default());
    read_and_drop(&ring, queue, 0, long, |_| {
        ring.close().expect("closed");
    });
    assert!(sim.now() >= long);
    assert_eq!(sim.used_bytes(), 0);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn memory_freed_too_early_is_reported() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let queue = sim.stream().expect("a stream");
    let memory = sim.memory(8).expect("memory");
    let bytes: crate::HostSource = std::sync::Arc::new(vec![1_u8; 8]);
    drop(sim.copy(queue, bytes, 8, &memory, 0).expect("a copy"));
    let read = sim.read(queue, &memory, 8, Duration::from_secs(1));
    drop(read.expect("a read"));

    drop(memory);

    let reported = sim.violations()[0].to_string();
    assert_eq!(
        reported,
        "memory 0 was freed before stream 0 was done with it"
    );
}

#[test]
fn a_copy_that_fails_ends_the_ring_with_one_error() {
    let (ring, sim, queue) = ring(SimConfig::default());
    sim.fail("copy", 1);

    let first = ring.send(batch(0, 2)).expect_err("the second column");
    let second = ring.send(batch(1, 2)).expect_err("still");

    assert!(first.chain().contains("copy failed"), "{}", first.chain());
    assert_eq!(first.chain(), second.chain());
    assert!(ring.ask(queue).is_err());
    assert!(ring.stats().is_err());
    drop(ring);
    assert_eq!(sim.used_bytes(), 0);
}

#[test]
fn every_call_that_can_fail_while_sending_leaves_nothing_behind() {
    for call in [
        "event", "memory", "copy", "record", "wait", "launch", "is_done",
    ] {
        for after in 0..6 {
            let (ring, sim, queue) = ring(SimConfig::default());
            sim.fail(call, after);
            let mut kept = Vec::new();
            for step in 0..6 {
                if let Ok(sent) = ring.send(batch(step, 2))
                    && let Ok(batch) = sent.hand_over(ring.ask(queue).ok())
                {
                    let _ = batch.ready_on(queue);
                    kept.extend((step % 2 == 0).then_some(batch));
                }
            }
            assert!(ring.send(batch(9, 2)).is_err(), "{call} after {after}");
            drop(ring);
            drop(kept);
            assert_eq!(sim.used_bytes(), 0, "{call} after {after}");
        }
    }
}

#[test]
fn a_full_device_reports_the_bytes_and_accepts_the_next_batch() {
    let slot = 2 * (48 + 96 + 8);
    let (ring, sim, _) = ring(SimConfig {
        memory_bytes: 2 * slot + 100,
        ..SimConfig::default()
    });
    let mut kept = Vec::new();
    for step in 0..2 {
        let sent = ring.send(batch(step, 2)).expect("sent");
        kept.push(sent.hand_over(None).expect("handed over"));
    }

    let error = ring.send(batch(2, 2)).expect_err("it is full");
    let text = error.chain();
    assert!(
        text.contains("a batch needs 304 bytes on the device, in addition to 2 other batches"),
        "{text}"
    );
    assert!(
        text.contains("2 slots need 608 bytes. Use a smaller"),
        "{text}"
    );
    assert!(
        text.contains("cannot allocate 192 bytes (4 are free)"),
        "{text}"
    );

    kept.pop();
    let sent = ring.send(batch(3, 2)).expect("a slot came back");
    assert_eq!(sent.step(), 3);
    assert_eq!(sim.used_bytes(), 2 * slot);
}

#[test]
fn a_fork_touches_nothing_of_its_parent_and_is_an_error() {
    let (ring, sim, queue) = ring(SimConfig::default());
    let sent = ring.send(batch(0, 2)).expect("sent");
    let held = ring.send(batch(1, 2)).expect("sent");
    let held = held.hand_over(None).expect("handed over");
    let array = held.array("image").expect("no fault").expect("a column");
    held.ready_on(queue).expect("a wait");
    let before = (sim.used_bytes(), sim.spans().len());

    // The check depends only on the process number, so the test needs no fork.
    ring.shared.in_fork.store(true, Ordering::Relaxed);
    // In a forked child, these calls might fail, or block on a lock that a thread of the parent
    // held.
    for call in ["record", "wait", "synchronize", "is_done", "copy"] {
        sim.fail(call, 0);
    }

    let forked = [
        ring.send(batch(2, 2)).err(),
        ring.ask(queue).err(),
        ring.stats().err(),
        ring.close().err(),
        held.array("image").err(),
        held.synchronize().err(),
        array.ready_on(queue).err(),
        array.record_stream(queue).err(),
        sent.hand_over(None).err(),
    ];
    for error in forked {
        assert!(matches!(error, Some(Error::Forked)), "{error:?}");
    }
    assert!(ring.take_gaps().is_empty());
    drop((held, array, ring));
    assert_eq!((sim.used_bytes(), sim.spans().len()), before);
}
