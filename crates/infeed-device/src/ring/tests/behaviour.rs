//! Contents, reuse and counters of a ring.

use std::sync::Arc;
use std::time::Duration;

use crate::sim::{SimConfig, SimQueue};
use crate::{Device, DeviceBatch, Ring, Sim};
use infeed_core::batch::{Batch, Batcher, RowCell, Values};
use infeed_core::error::Error;
use infeed_core::sample::DType;

use super::super::Route;
use super::{batch, column, expected_image, labels, routes, settings};

fn ring(slots: usize) -> (Ring<Sim>, SimQueue) {
    let sim = Sim::with_own_clock(SimConfig::default());
    let queue = sim.stream().expect("a stream");
    let ring = Ring::new(sim, routes(), settings(2, slots)).expect("a ring");
    (ring, queue)
}

fn next(ring: &Ring<Sim>, step: u64, rows: usize) -> DeviceBatch<Sim> {
    let sent = ring.send(batch(step, rows)).expect("sent");
    sent.hand_over(None).expect("handed over")
}

/// Returns the bytes of a column as a consumer's stream reads them.
fn read_column(ring: &Ring<Sim>, batch: &DeviceBatch<Sim>, name: &str, queue: SimQueue) -> Vec<u8> {
    let array = batch.array(name).expect("no fault").expect("on the device");
    array.ready_on(queue).expect("a wait");
    let read = ring
        .device()
        .read(queue, array.memory(), array.bytes(), Duration::ZERO);
    read.expect("a read").bytes()
}

fn assert_in_order(sim: &Sim) {
    let violations = sim.violations();
    assert!(violations.is_empty(), "{}", violations[0]);
}

#[test]
fn each_column_arrives_as_its_route_says() {
    let (ring, queue) = ring(2);

    let batch = next(&ring, 5, 2);

    let image = batch.array("image").expect("no fault").expect("a column");
    assert_eq!(image.shape(), [2, 3, 4, 4]);
    assert_eq!(image.dtype(), DType::BFloat16);
    assert_eq!(
        read_column(&ring, &batch, "image", queue),
        expected_image(5, 2)
    );
    assert_eq!(read_column(&ring, &batch, "label", queue), labels(5, 2));
    let Some(Values::Text(names)) = batch.host("name") else {
        panic!("it stays on the host")
    };
    assert_eq!(names[1], "5.1");
    assert!(batch.array("name").expect("no fault").is_none());
    assert!(batch.host("image").is_none());
    assert_eq!(
        batch.names().collect::<Vec<_>>(),
        ["image", "label", "name"]
    );
    assert_eq!((batch.epoch(), batch.step(), batch.rows()), (0, 5, 2));
    assert_in_order(ring.device());
}

#[test]
fn a_slot_is_used_again_and_bytes_and_transfers_are_counted() {
    let (ring, queue) = ring(2);

    for step in 0..10 {
        let batch = next(&ring, step, 2);
        assert_eq!(
            read_column(&ring, &batch, "image", queue),
            expected_image(step, 2)
        );
    }

    let stats = ring.stats().expect("stats");
    assert_eq!((stats.batches, stats.transfers), (10, 20));
    assert_eq!(stats.bytes, 10 * 2 * (48 + 8));
    // One slot is enough, since each batch is dropped before the next is sent.
    assert_eq!((stats.slots, stats.free, stats.overflow), (1, 1, 0));
    assert_in_order(ring.device());
}

#[test]
fn a_batch_without_a_request_is_timed_from_its_first_use() {
    // The bus takes a second for two rows.
    let sim = Sim::with_own_clock(SimConfig {
        bandwidth_bytes_per_s: 2.0 * (48.0 + 8.0),
        latency: Duration::ZERO,
        ..SimConfig::default()
    });
    let queue = sim.stream().expect("a stream");
    let ring = Ring::new(sim.clone(), routes(), settings(2, 4)).expect("a ring");
    let at = |ms: u64| sim.set_now(Duration::from_millis(ms));
    let late = |ring: &Ring<Sim>| ring.stats().expect("stats").late;

    // Used in a stream a quarter of a second after it was handed over, and then a second time.
    let first = next(&ring, 0, 2);
    at(250);
    first.ready_on(queue).expect("a wait");
    at(5_000);
    first.ready_on(queue).expect("a wait");
    first.synchronize().expect("it is there");
    drop(first);
    let found = late(&ring);
    assert_eq!((found.batches, found.first), (1, found.waited));
    let off = found.waited.abs_diff(Duration::from_millis(750));
    assert!(off < Duration::from_millis(1), "{found:?}");

    // The host waits for the batch first, then a stream uses it when it is ready.
    let second = next(&ring, 1, 2);
    at(10_000);
    second.synchronize().expect("it is there");
    second.ready_on(queue).expect("a wait");
    drop(second);
    assert_eq!(late(&ring).batches, 2);

    // Requested: the request is timed, not the use.
    let request = ring.ask(queue).expect("a request");
    let sent = ring.send(batch(2, 2)).expect("sent");
    let third = sent.hand_over(Some(request)).expect("handed over");
    third.ready_on(queue).expect("a wait");
    at(20_000);
    drop(third);
    let stats = ring.stats().expect("stats");
    assert_eq!((stats.gaps.batches, stats.late.batches), (1, 2));
    // Never used.
    drop(next(&ring, 3, 2));
    at(30_000);
    assert_eq!(late(&ring).batches, 2);
    assert_in_order(&sim);
}

#[test]
fn events_are_used_again() {
    let (ring, queue) = ring(2);
    let sim = ring.device().clone();
    // Two for each slot, two that the consumer records, and some for copies in flight.
    sim.fail("event", 12);

    for step in 0..300 {
        let request = ring.ask(queue).expect("a request");
        let sent = ring.send(batch(step, 2)).expect("sent");
        let batch = sent.hand_over(Some(request)).expect("handed over");
        batch.ready_on(queue).expect("a wait");
        sim.set_now(sim.now() + Duration::from_millis(1));
    }

    assert_eq!(ring.stats().expect("stats").gaps.batches, 300);
}

/// Sends batches two ahead of a consumer, each a second before the consumer requests it. The
/// requests of the steps `late` come at once.
fn run_ahead(steps: u64, late: std::ops::Range<u64>) -> super::super::RingStats {
    let (ring, queue) = ring(4);
    let sim = ring.device().clone();
    let mut ahead: std::collections::VecDeque<_> = (0..2)
        .map(|step| ring.send(batch(step, 2)).expect("sent"))
        .collect();
    for step in 0..steps {
        if !late.contains(&step) {
            sim.set_now(sim.now() + Duration::from_secs(1));
        }
        let request = ring.ask(queue).expect("a request");
        let sent = ahead.pop_front().expect("two are ahead");
        let held = sent.hand_over(Some(request)).expect("handed over");
        held.ready_on(queue).expect("a wait");
        drop(held);
        ahead.push_back(ring.send(batch(step + 2, 2)).expect("sent"));
    }
    sim.set_now(sim.now() + Duration::from_secs(3600));
    ring.stats().expect("stats")
}

#[test]
fn a_loop_without_late_batches_times_one_step_of_64() {
    let stats = run_ahead(64 * 6, 0..0);

    // The first 64 and the first of each 64 after that; two are still ahead.
    assert_eq!(stats.times.batches, 64 + 6);
    assert_eq!(stats.gaps.batches, 64 * 6);
    assert_eq!(stats.gaps.waited, Duration::ZERO);
}

#[test]
fn steps_after_a_late_batch_are_timed() {
    let stats = run_ahead(64 * 6, 100..400);

    // Steps that were sent before the ring knew of the late batch are not timed: the steps ahead,
    // and the late one.
    assert!(stats.times.batches >= 64 * 5 - 40, "{stats:?}");
    assert!(stats.gaps.batches >= 64 * 6 - 4, "{stats:?}");
    assert!(stats.gaps.waited > Duration::ZERO);
}

#[test]
fn closing_leaks_memory_that_a_consumer_never_finishes_with() {
    let sim = Sim::new(SimConfig::default());
    let queue = sim.stream().expect("a stream");
    let mut settings = settings(2, 2);
    settings.closing = Duration::from_millis(1);
    let ring = Ring::new(sim.clone(), routes(), settings).expect("a ring");
    let held = [0, 1].map(|step| next(&ring, step, 2));
    held.iter().for_each(|batch| {
        batch.ready_on(queue).expect("a wait");
    });
    // Practically forever: nothing in this test waits for it.
    sim.work(queue, Duration::from_secs(1 << 20))
        .expect("a step");
    let [dropped, kept] = held;
    drop(dropped);

    assert!(!ring.close().expect("closed"));
    assert!(!ring.close().expect("closed twice"));
    // A slot that is returned to a closed ring is not waited for either.
    drop(kept);
    drop(ring);

    assert!(sim.used_bytes() > 0, "it may be read");
    assert_in_order(&sim);
}

#[test]
fn an_array_that_outlives_its_batch_keeps_its_bytes() {
    let (ring, queue) = ring(1);
    let first = next(&ring, 0, 2);
    let array = first.array("image").expect("no fault").expect("a column");
    drop(first);

    let second = next(&ring, 1, 2);

    assert_eq!(ring.stats().expect("stats").overflow, 1);
    assert_eq!(
        read_column(&ring, &second, "image", queue),
        expected_image(1, 2)
    );
    array.ready_on(queue).expect("a wait");
    let read = ring
        .device()
        .read(queue, array.memory(), array.bytes(), Duration::ZERO);
    assert_eq!(read.expect("a read").bytes(), expected_image(0, 2));
    assert_in_order(ring.device());
}

#[test]
fn a_consumer_that_keeps_batches_gets_more_slots_and_they_are_given_up_later() {
    let (ring, queue) = ring(2);
    let kept: Vec<_> = (0..9).map(|step| next(&ring, step, 2)).collect();

    let stats = ring.stats().expect("stats");
    assert_eq!((stats.slots, stats.overflow), (9, 7));
    for (step, batch) in kept.iter().enumerate() {
        assert_eq!(
            read_column(&ring, batch, "image", queue),
            expected_image(step as u64, 2)
        );
    }

    drop(kept);
    let sim = ring.device().clone();
    for step in 9..30 {
        sim.set_now(sim.now() + Duration::from_secs(1));
        drop(next(&ring, step, 2));
    }
    let stats = ring.stats().expect("stats");
    assert_eq!(
        (stats.slots, stats.overflow),
        (3, 7),
        "two at rest, one taken"
    );
    assert_in_order(ring.device());
}

#[test]
fn a_slot_beyond_need_is_not_freed_while_a_stream_may_read_it() {
    let (ring, queue) = ring(1);
    let kept: Vec<_> = (0..4).map(|step| next(&ring, step, 2)).collect();
    for batch in &kept {
        batch.ready_on(queue).expect("a wait");
    }
    let sim = ring.device().clone();
    sim.work(queue, Duration::from_secs(5))
        .expect("a long step");
    drop(kept);

    drop(next(&ring, 4, 2));
    assert_eq!(ring.stats().expect("stats").slots, 4, "the step goes on");

    sim.set_now(Duration::from_secs(60));
    for step in 5..12 {
        drop(next(&ring, step, 2));
    }
    assert_eq!(ring.stats().expect("stats").slots, 2);
}

#[test]
fn a_sender_waits_for_the_consumer_while_batches_are_ahead_of_it() {
    let (ring, _) = ring(1);
    let first = ring.send(batch(0, 2)).expect("sent");

    std::thread::scope(|scope| {
        let second = scope.spawn(|| ring.send(batch(1, 2)).map(|sent| sent.step()));
        // Returned without having been handed over, as when an epoch ends early.
        drop(first);
        assert_eq!(second.join().expect("no panic").expect("sent"), 1);
    });

    let stats = ring.stats().expect("stats");
    assert_eq!((stats.slots, stats.overflow), (1, 0));
}

#[test]
fn closing_ends_a_sender_that_waits() {
    let (ring, _) = ring(1);
    let first = ring.send(batch(0, 2)).expect("sent");

    std::thread::scope(|scope| {
        let second = scope.spawn(|| ring.send(batch(1, 2)).map(|sent| sent.step()));
        ring.close().expect("closed");
        assert!(matches!(
            second.join().expect("no panic"),
            Err(Error::Closed)
        ));
    });

    assert!(matches!(ring.send(batch(2, 2)), Err(Error::Closed)));
    let held = first.hand_over(None).expect("it was sent before");
    ring.close().expect("closed twice");
    let sim = ring.device().clone();
    drop((ring, held));
    assert_eq!(sim.used_bytes(), 0);
}

#[test]
fn closing_waits_for_commands_of_consumers() {
    let (ring, queue) = ring(2);
    let batch = next(&ring, 0, 2);
    batch.ready_on(queue).expect("a wait");
    let sim = ring.device().clone();
    sim.work(queue, Duration::from_secs(3)).expect("a step");
    drop(batch);

    ring.close().expect("closed");

    assert!(sim.now() >= Duration::from_secs(3));
    assert_eq!(sim.used_bytes(), 0);
}

#[test]
fn larger_batches_grow_their_slot_and_smaller_ones_leave_it() {
    let (ring, queue) = ring(1);
    let mut used = Vec::new();

    for (step, rows) in [(0, 2), (1, 5), (2, 1), (3, 0), (4, 5)] {
        let batch = next(&ring, step, rows);
        assert_eq!(
            read_column(&ring, &batch, "image", queue),
            expected_image(step, rows)
        );
        assert_eq!(
            read_column(&ring, &batch, "label", queue),
            labels(step, rows)
        );
        used.push(ring.device().used_bytes());
    }

    let rows = |n: u64| n * (48 + 96 + 8);
    assert_eq!(used, [2, 5, 5, 5, 5].map(rows));
    assert_in_order(ring.device());
}

/// Returns two rows of threes, in the memory of a pool.
fn threes(batcher: &Batcher) -> Batch {
    let (in_flight, rows) = batcher.begin(2).expect("memory");
    let fill = |mut row: infeed_core::batch::BatchRow| {
        if let RowCell::Slab(row) = &mut row.cells[0] {
            row.bytes_mut().fill(3);
        }
        Some(row.finish(0))
    };
    let done = rows.into_iter().map(fill).collect();
    batcher.finish(in_flight, done, 0, 0).expect("memory")
}

#[test]
fn arrays_on_the_host_go_back_to_their_pool_once_they_are_copied() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let spec = column("label", DType::Int64, &[]);
    let ring = Ring::new(sim, vec![Route::copy(spec.clone())], settings(2, 2)).expect("a ring");
    let batcher = Batcher::new(vec![spec], 2, 1);
    let sent = ring.send(threes(&batcher)).expect("sent");
    ring.stats().expect("stats");
    assert_eq!(batcher.live(), 1, "on its way");

    ring.device().set_now(Duration::from_secs(1));
    ring.stats().expect("stats");
    assert_eq!(batcher.live(), 0);
    drop(sent);
}

#[test]
fn a_consumer_that_never_waits_for_the_device_leaves_no_more_arrays_on_the_host_than_slots() {
    let sim = Sim::with_own_clock(SimConfig::default());
    let queue = sim.stream().expect("a stream");
    let spec = column("label", DType::Int64, &[]);
    let ring = Ring::new(sim, vec![Route::copy(spec.clone())], settings(2, 3)).expect("a ring");
    let batcher = Batcher::new(vec![spec], 2, 1);

    let mut most = 0;
    for _ in 0..50 {
        let sent = ring.send(threes(&batcher)).expect("sent");
        let batch = sent.hand_over(None).expect("handed over");
        batch.ready_on(queue).expect("a wait");
        ring.device()
            .work(queue, Duration::from_secs(1))
            .expect("a step");
        most = most.max(batcher.live());
    }

    assert_eq!(most, 3);
    ring.close().expect("closed");
    assert_eq!(batcher.live(), 0);
    assert_in_order(ring.device());
}

#[test]
fn columns_are_copied_into_memory_of_the_callers_and_the_slot_is_free_at_once() {
    let (ring, queue) = ring(1);
    let sim = ring.device().clone();
    let memory = |bytes| sim.memory(bytes).expect("memory");
    let (image, label) = (memory(2 * 96), memory(2 * 8));

    for step in 0..5 {
        let batch = next(&ring, step, 2);
        batch
            .copy_into(queue, &[("image", &image), ("label", &label)])
            .expect("copies");
        assert_eq!(ring.stats().expect("stats").free, 1);
        let read = |memory: &Arc<_>, bytes| {
            let read = sim.read(queue, memory, bytes, Duration::ZERO);
            read.expect("a read").bytes()
        };
        assert_eq!(read(&image, 2 * 96), expected_image(step, 2));
        assert_eq!(read(&label, 2 * 8), labels(step, 2));
    }

    assert_eq!(ring.stats().expect("stats").slots, 1);
    assert_in_order(&sim);
}

#[test]
fn memory_of_another_size_is_rejected_before_anything_is_copied() {
    let (ring, queue) = ring(2);
    let small = ring.device().memory(95).expect("memory");
    let fit = ring.device().memory(16).expect("memory");

    let wrong = next(&ring, 0, 2).copy_into(queue, &[("label", &fit), ("image", &small)]);
    let absent = next(&ring, 1, 2).copy_into(queue, &[("name", &fit)]);

    let text = wrong.expect_err("too small").to_string();
    assert!(text.contains("field `image`"), "{text}");
    assert!(
        text.contains("192 bytes of bfloat16 [2, 3, 4, 4]"),
        "{text}"
    );
    assert!(text.contains("has 95 bytes;"), "{text}");
    let text = absent.expect_err("on the host").to_string();
    assert!(text.contains("field `name`"), "{text}");
    let read = ring.device().read(queue, &fit, 16, Duration::ZERO);
    drop(read);
    assert!(
        !ring.device().violations().is_empty(),
        "nothing was written to it"
    );
}

#[test]
fn a_batch_waited_for_on_the_host_is_ready() {
    let (ring, _) = ring(2);
    let batch = next(&ring, 3, 2);
    let array = batch.array("image").expect("no fault").expect("a column");

    array.synchronize().expect("ready");

    // Everything that the host enqueues from now on comes after the batch.
    let fresh = ring.device().stream().expect("a stream");
    let read = ring
        .device()
        .read(fresh, array.memory(), array.bytes(), Duration::ZERO);
    assert_eq!(read.expect("a read").bytes(), expected_image(3, 2));
    assert_in_order(ring.device());
}

#[test]
fn a_stream_that_was_recorded_keeps_the_memory() {
    let (ring, queue) = ring(1);
    let sim = ring.device().clone();
    let side = sim.stream().expect("a stream");
    let consume = |step: u64, record: bool| {
        let batch = next(&ring, step, 2);
        let array = batch.array("image").expect("no fault").expect("a column");
        array.ready_on(queue).expect("a wait");
        let event = sim.event(false).expect("an event");
        sim.record(&event, queue).expect("recorded");
        sim.wait(side, &event).expect("a wait");
        if record {
            array.record_stream(side).expect("recorded");
        }
        let read = sim.read(side, array.memory(), array.bytes(), Duration::from_secs(1));
        drop(read.expect("a read"));
    };

    consume(0, true);
    consume(1, true);
    assert_in_order(&sim);

    consume(2, false);
    consume(3, false);
    let reported = sim.violations()[0].to_string();
    assert!(reported.contains("was overwritten by stream"), "{reported}");
    assert!(
        reported.contains(&format!("stream {}'s read", side.number())),
        "{reported}"
    );
}

#[test]
fn a_sender_waits_for_consumers_if_waiting_kernels_slow_the_device_down() {
    let now_after_sending = |is_slowed_by_waits: bool, slots: usize| {
        let sim = Sim::with_own_clock(SimConfig {
            is_slowed_by_waits,
            ..SimConfig::default()
        });
        let queue = sim.stream().expect("a stream");
        let ring = Ring::new(sim.clone(), routes(), settings(2, slots)).expect("a ring");
        let batch = next(&ring, 0, 2);
        let array = batch.array("image").expect("no fault").expect("a column");
        array.ready_on(queue).expect("a wait");
        let read = sim.read(queue, array.memory(), array.bytes(), Duration::from_secs(1));
        drop(read.expect("a read"));
        drop((array, batch));

        drop(next(&ring, 1, 2));

        assert_in_order(&sim);
        sim.now()
    };

    assert!(now_after_sending(true, 2) >= Duration::from_secs(1));
    assert!(now_after_sending(true, 1) < Duration::from_secs(1));
    assert!(now_after_sending(false, 2) < Duration::from_secs(1));
}

#[test]
fn batches_and_arrays_go_to_any_thread() {
    fn goes<T: Send + Sync + 'static>() {}
    goes::<Ring<Sim>>();
    goes::<DeviceBatch<Sim>>();
    goes::<crate::DeviceArray<Sim>>();
}

#[test]
fn a_batch_with_other_columns_is_rejected() {
    let (ring, _) = ring(2);
    let mut other = batch(0, 2);
    other.columns.swap(0, 1);
    let mut short = batch(0, 2);
    short.records.push(9);

    assert!(matches!(ring.send(other), Err(Error::Config { .. })));
    let text = ring.send(short).expect_err("rows differ").to_string();
    assert!(text.contains("field `image`"), "{text}");
    assert_eq!(ring.stats().expect("stats").slots, 0);
}

#[test]
fn routes_that_do_not_match_their_kernel_are_rejected() {
    let image = column("image", DType::UInt8, &[4, 4, 3]);
    let half = column("image", DType::Float32, &[3, 4, 4]);
    let ragged = infeed_core::batch::ColumnSpec {
        name: "boxes".to_owned(),
        kind: infeed_core::batch::ColumnKind::Ragged {
            dtype: DType::Float32,
            item: Vec::new(),
        },
    };
    let huge = column("huge", DType::Float64, &[usize::MAX / 4]);
    let sim = || Sim::with_own_clock(SimConfig::default());
    let rejected = |route: Route| {
        let error = Ring::new(sim(), vec![route], settings(2, 2)).expect_err("refused");
        assert!(matches!(error, Error::Config { .. }), "{error}");
        error.to_string()
    };

    assert!(rejected(Route::expand(image, super::kernel(), half)).contains("field `image`"));
    assert!(rejected(Route::copy(ragged)).contains("fixed shape"));
    assert!(rejected(Route::copy(huge)).contains("field `huge`"));
    assert!(Ring::new(sim(), routes(), settings(2, 0)).is_err());
    assert!(Ring::new(sim(), routes(), settings(0, 2)).is_err());
}
