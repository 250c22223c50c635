//! Tests of the simulated device without a ring.

use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use infeed_raw::kernel::{Bilinear, Kernel, ResizeTable, ResizeView, RowView, Table};
use infeed_raw::simd::{Dtype, Layout};

use super::{Sim, SimConfig, SimMemory, SimQueue, ViolationKind};
use crate::{Device, DeviceError, HostSource};

const NONE: Duration = Duration::ZERO;

/// 1 byte per nanosecond over the bus, 2 on the device, 100 ns of latency.
fn config() -> SimConfig {
    SimConfig {
        bandwidth_bytes_per_s: 1e9,
        kernel_bytes_per_s: 2e9,
        latency: Duration::from_nanos(100),
        ..SimConfig::default()
    }
}

fn host(bytes: &[u8]) -> HostSource {
    Arc::new(bytes.to_vec())
}

fn stream_and_memory(sim: &Sim, bytes: usize) -> (SimQueue, Arc<SimMemory>) {
    let memory = sim.memory(bytes).expect("memory");
    (sim.stream().expect("a stream"), memory)
}

fn ns(elapsed: Result<Duration, DeviceError>) -> u128 {
    elapsed.expect("both are done").as_nanos()
}

#[test]
fn times_follow_from_rates_streams_events_and_the_one_bus() {
    let sim = Sim::with_own_clock(config());
    let ((one, a), (two, b)) = (stream_and_memory(&sim, 1000), stream_and_memory(&sim, 1000));
    let events: Vec<_> = (0..4).map(|_| sim.event(true).expect("an event")).collect();
    let at = |n: usize, queue| sim.record(&events[n], queue).expect("recorded");

    at(0, one);
    let first = sim.copy(one, host(&[1; 1000]), 1000, &a, 0);
    at(1, one);
    // On another stream; both copies share the bus.
    let second = sim.copy(two, host(&[2; 500]), 500, &b, 0);
    at(2, two);
    sim.wait(one, &events[2]).expect("a wait");
    sim.copy_within(one, &b, &a, 500).expect("a copy");
    at(3, one);

    assert!(!sim.is_done(&events[1]).expect("no fault"));
    sim.set_now(Duration::from_nanos(1100));
    assert!(sim.is_done(&events[1]).expect("no fault"));
    assert!(matches!(
        sim.elapsed(&events[0], &events[2]),
        Err(DeviceError::Untimed)
    ));
    sim.synchronize(&events[3]).expect("no fault");
    assert_eq!(ns(sim.elapsed(&events[0], &events[1])), 1100);
    assert_eq!(ns(sim.elapsed(&events[0], &events[2])), 1700);
    // 500 bytes read and 500 written, at 2 per nanosecond.
    assert_eq!(ns(sim.elapsed(&events[0], &events[3])), 2300);
    assert_eq!(ns(sim.elapsed(&events[3], &events[0])), 0);
    drop((first, second));
    assert_eq!(sim.now(), Duration::from_nanos(2300));
}

#[test]
fn jitter_is_drawn_from_the_seed_and_within_its_bounds() {
    let times = |seed: u64| -> Vec<u64> {
        let sim = Sim::with_own_clock(SimConfig {
            jitter: 0.3,
            seed,
            ..config()
        });
        let (queue, memory) = stream_and_memory(&sim, 900);
        for _ in 0..300 {
            drop(sim.copy(queue, host(&[0; 900]), 900, &memory, 0));
        }
        sim.spans()
            .iter()
            .map(|(_, start, end)| end - start)
            .collect()
    };

    let one = times(1);

    assert_eq!(one, times(1));
    assert_ne!(one, times(2));
    assert!(one.iter().all(|ns| (700..=1300).contains(ns)), "{one:?}");
    let mean = one.iter().sum::<u64>() as f64 / 300.0;
    assert!((970.0..1030.0).contains(&mean), "{mean}");
    assert!(one.iter().any(|&ns| ns < 750) && one.iter().any(|&ns| ns > 1250));
}

#[test]
fn threads_take_at_least_as_long_as_the_times_say() {
    let sim = Sim::new(SimConfig::default());
    let (queue, memory) = stream_and_memory(&sim, 64);
    let (from, to) = (sim.event(true), sim.event(true));
    let (from, to) = (from.expect("an event"), to.expect("an event"));
    let start = std::time::Instant::now();
    let transfer = sim.copy(queue, host(&[7; 64]), 64, &memory, 0);
    sim.record(&from, queue).expect("recorded");
    let read = sim.read(queue, &memory, 64, Duration::from_millis(20));
    sim.record(&to, queue).expect("recorded");

    assert_eq!(read.expect("a read").bytes(), [7; 64]);
    sim.synchronize(&to).expect("no fault");

    assert!(start.elapsed() >= Duration::from_millis(20));
    // It takes longer if this thread was suspended between the two events.
    assert!(ns(sim.elapsed(&from, &to)) >= 20_000_000);
    drop(transfer);
    assert!(sim.violations().is_empty());
}

#[test]
fn violations_name_stream_and_memory() {
    let sim = Sim::with_own_clock(config());
    let ((one, memory), (two, _)) = (stream_and_memory(&sim, 8), stream_and_memory(&sim, 8));

    drop(sim.read(two, &memory, 8, NONE));
    drop(sim.copy(one, host(&[1; 8]), 8, &memory, 0));
    drop(sim.read(two, &memory, 8, NONE));
    drop(sim.copy(one, host(&[2; 8]), 8, &memory, 0));
    drop(sim.copy(two, host(&[3; 8]), 8, &memory, 0));

    let reported: Vec<String> = sim.violations().iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "memory 0 was read by stream 1 before anything was written there",
            "memory 0 was overwritten by stream 0 before stream 1's read of it was ordered",
            "memory 0 was read by stream 1 before stream 0's write of it was ordered",
            "memory 0 was overwritten by stream 0 before stream 1's read of it was ordered",
            "memory 0 was overwritten by stream 1 before stream 0's write of it was ordered",
        ]
    );
}

#[test]
fn an_event_orders_commands_after_the_wait_behind_those_before_its_mark() {
    let sim = Sim::with_own_clock(config());
    let ((one, memory), (two, _)) = (stream_and_memory(&sim, 8), stream_and_memory(&sim, 8));
    let event = sim.event(false).expect("an event");
    drop(sim.copy(one, host(&[1; 8]), 8, &memory, 0));
    sim.record(&event, one).expect("recorded");
    sim.wait(two, &event).expect("a wait");
    drop(sim.read(two, &memory, 8, NONE));
    assert!(sim.violations().is_empty());

    // The command is done by now, but another timing would not guarantee it.
    sim.record(&event, two).expect("recorded");
    sim.set_now(Duration::from_secs(1));
    assert!(sim.is_done(&event).expect("no fault"));
    drop(sim.copy(one, host(&[2; 8]), 8, &memory, 0));
    assert_eq!(
        sim.violations()[0].kind,
        ViolationKind::OverwrittenBeforeRead
    );

    // The host has waited for it, so everything that the host enqueues comes later.
    drop(sim.read(two, &memory, 8, NONE));
    let before = sim.violations().len();
    sim.record(&event, two).expect("recorded");
    sim.synchronize(&event).expect("no fault");
    drop(sim.copy(one, host(&[3; 8]), 8, &memory, 0));
    assert_eq!(sim.violations().len(), before);
}

/// Bytes that are different on every thread except their creator's.
struct ChangingBytes {
    first: ThreadId,
}

impl AsRef<[u8]> for ChangingBytes {
    fn as_ref(&self) -> &[u8] {
        match thread::current().id() == self.first {
            true => &[0; 16],
            false => &[1; 16],
        }
    }
}

#[test]
fn host_bytes_that_change_before_they_are_copied_are_reported() {
    let sim = Sim::new(config());
    let (queue, memory) = stream_and_memory(&sim, 16);
    let first = thread::current().id();

    drop(sim.copy(queue, Arc::new(ChangingBytes { first }), 16, &memory, 0));

    let violations = sim.violations();
    assert_eq!(violations.len(), 1);
    assert_eq!(
        violations[0].to_string(),
        "the host's bytes for memory 0 changed before stream 0 had copied them"
    );
}

#[test]
fn a_transfer_keeps_the_hosts_bytes_and_waits_for_them_when_dropped() {
    let sim = Sim::new(config());
    let (queue, memory) = stream_and_memory(&sim, 16);
    sim.work(queue, Duration::from_millis(20)).expect("a step");
    let bytes = Arc::new(vec![4; 16]);
    let from: HostSource = bytes.clone();

    let transfer = sim.copy(queue, from, 16, &memory, 0).expect("a copy");
    assert!(Arc::strong_count(&bytes) > 1);
    drop(transfer);

    assert!(sim.now() >= Duration::from_millis(20));
    let read = sim.read(queue, &memory, 16, NONE);
    assert_eq!(read.expect("a read").bytes(), [4; 16]);
}

fn expand() -> Kernel {
    Kernel::Expand {
        height: 2,
        width: 3,
        channels: 1,
        dtype: Dtype::F32,
        layout: Layout::Hwc,
        scale: [2.0; 4],
        bias: [1.0; 4],
    }
}

#[test]
fn a_kernel_gives_the_hosts_bytes_with_and_without_views() {
    let sim = Sim::with_own_clock(config());
    let (queue, input) = stream_and_memory(&sim, 64);
    let output = sim.memory(200).expect("memory");
    let pixels: Vec<u8> = (0..64).collect();
    let views = [(5, 8, 0), (2, 10, RowView::FLIP_X)].map(|(offset, row_bytes, flags)| RowView {
        offset,
        row_bytes,
        flags,
    });
    let table = sim.memory(32).expect("memory");
    drop(sim.copy(queue, host(&pixels), 64, &input, 0));
    let seen = || {
        let read = sim.read(queue, &output, 48, NONE);
        read.expect("a read").bytes()
    };
    let mut expected = vec![0; 48];

    let launched = sim.launch(queue, &expand(), 2, &input, None, &output);
    launched.expect("launched");
    expand()
        .run(2, &pixels[..12], None, &mut expected)
        .expect("it fits");
    assert_eq!(seen(), expected);

    let launched = sim.launch(
        queue,
        &expand(),
        2,
        &input,
        Some((Table::Views(&views), &table)),
        &output,
    );
    launched.expect("launched");
    expand()
        .run(2, &pixels, Some(Table::Views(&views)), &mut expected)
        .expect("it fits");
    assert_eq!(seen(), expected);
    assert!(sim.violations().is_empty());

    for memory in [&input, &output, &sim.memory(31).expect("memory")] {
        let table = Some((Table::Views(&views), memory));
        let launched = sim.launch(queue, &expand(), 2, &input, table, &output);
        assert!(matches!(launched, Err(DeviceError::Bounds { .. })));
    }
}

#[test]
fn a_resize_reads_only_the_images_in_its_table() {
    let sim = Sim::with_own_clock(config());
    let (queue, input) = stream_and_memory(&sim, 40);
    let output = sim.memory(100).expect("memory");
    let kernel = Kernel::Resize {
        height: 3,
        width: 2,
        channels: 1,
        dtype: Dtype::F32,
        layout: Layout::Hwc,
        scale: [2.0; 4],
        bias: [1.0; 4],
    };
    let view = |offset, height, width| ResizeView {
        offset,
        row_bytes: 7,
        flags: RowView::FLIP_X,
        height,
        width,
    };
    let table =
        |views: &[ResizeView]| ResizeTable::of(3, 2, views, &mut Bilinear::new()).expect("images");
    let images = table(&[view(1, 2, 6), view(15, 3, 2)]);
    let pixels: Vec<u8> = (0..31).map(|n| n * 7).collect();
    let position = sim.memory(images.bytes().len()).expect("memory");
    // Bytes after the last image were never written, and are not read.
    drop(sim.copy(queue, host(&pixels), 31, &input, 0));
    let launch = |table: &ResizeTable| {
        let table = Some((Table::Resize(table), &position));
        sim.launch(queue, &kernel, 2, &input, table, &output)
    };

    launch(&images).expect("launched");

    let mut expected = vec![0; 48];
    let reported = Some(Table::Resize(&images));
    kernel
        .run(2, &pixels, reported, &mut expected)
        .expect("it fits");
    let read = sim.read(queue, &output, 48, NONE);
    assert_eq!(read.expect("a read").bytes(), expected);
    assert!(sim.violations().is_empty());
    let beyond = launch(&table(&[view(1, 2, 6), view(34, 1, 7)]));
    assert!(
        matches!(beyond, Err(DeviceError::Bounds { .. })),
        "{beyond:?}"
    );
}

#[test]
fn commands_beyond_a_memory_are_rejected() {
    let sim = Sim::with_own_clock(config());
    let (queue, memory) = stream_and_memory(&sim, 8);
    let small = sim.memory(7).expect("memory");
    let bounds = |result: Result<(), DeviceError>| {
        assert!(
            matches!(result, Err(DeviceError::Bounds { .. })),
            "{result:?}"
        );
    };

    bounds(sim.copy(queue, host(&[0; 4]), 5, &memory, 0).map(drop));
    bounds(sim.copy(queue, host(&[0; 4]), 4, &memory, 5).map(drop));
    bounds(
        sim.copy(queue, host(&[0; 4]), 4, &memory, usize::MAX)
            .map(drop),
    );
    bounds(sim.copy_within(queue, &memory, &small, 8));
    bounds(sim.copy_within(queue, &small, &memory, 8));
    bounds(sim.copy_within(queue, &memory, &memory, 2));
    bounds(sim.read(queue, &memory, 9, NONE).map(drop));
    bounds(sim.launch(queue, &expand(), 1, &memory, None, &small));
    bounds(sim.launch(queue, &expand(), usize::MAX, &memory, None, &small));
    assert!(sim.violations().is_empty());
}

#[test]
fn a_stream_of_another_device_is_rejected() {
    let (one, two) = (Sim::with_own_clock(config()), Sim::with_own_clock(config()));
    let queue = one.stream().expect("a stream");
    two.stream().expect("a stream");
    let event = two.event(false).expect("an event");

    let error = two.record(&event, queue).expect_err("refused").on("sim");

    assert!(
        error.chain().contains("another device"),
        "{}",
        error.chain()
    );
}

#[test]
fn allocating_beyond_the_memory_is_an_error() {
    let sim = Sim::with_own_clock("sim:memory=1000".parse().expect("a device"));
    let held = sim.memory(600).expect("memory");

    let error = sim.memory(401).expect_err("too much");
    assert_eq!(
        error.to_string(),
        "out of device memory: cannot allocate 401 bytes (400 are free)"
    );
    assert!(sim.memory(usize::MAX).is_err());
    drop(held);
    sim.memory(1000).expect("it was given back");
}

#[test]
fn dropping_the_last_handle_runs_the_remaining_commands_at_once() {
    let sim = Sim::new(config());
    let (one, memory) = stream_and_memory(&sim, 8);
    let two = sim.stream().expect("a stream");
    let event = sim.event(false).expect("an event");
    sim.work(one, Duration::from_secs(3600)).expect("a step");
    sim.record(&event, one).expect("recorded");
    sim.wait(two, &event).expect("a wait");
    let read = sim.read(two, &memory, 8, Duration::from_secs(3600));
    let read = read.expect("a read");
    let start = std::time::Instant::now();

    drop(sim.clone());
    drop(sim);

    assert_eq!(read.bytes().len(), 8, "done before the threads ended");
    assert!(start.elapsed() < Duration::from_secs(600));
}

#[test]
fn a_device_parses_and_prints_the_same_text() {
    let text = "sim:bandwidth=2e9,latency=20000ns,kernel=4e9,jitter=0.3,seed=1,memory=8e9";
    let config: SimConfig = text.parse().expect("a device");

    assert_eq!(config.bandwidth_bytes_per_s, 2e9);
    assert_eq!(config.latency, Duration::from_micros(20));
    assert_eq!(config.kernel_bytes_per_s, 4e9);
    assert_eq!((config.jitter, config.seed), (0.3, 1));
    assert_eq!(config.memory_bytes, 8_000_000_000);
    assert_eq!(config.to_string(), text);
    let default: SimConfig = "sim".parse().expect("a device");
    assert_eq!(default, SimConfig::default());
    assert_eq!(default.to_string(), "sim");
    for latency in ["20us", "0.02ms", "20000ns", "0.00002s"] {
        let config: SimConfig = format!("sim:latency={latency}").parse().expect("a time");
        assert_eq!(config.latency, Duration::from_micros(20), "{latency}");
    }
}

#[test]
fn a_wrong_setting_is_an_error_that_names_its_key() {
    let wrong = [
        ("sim:bandwidth=0", "`bandwidth` takes bytes per second"),
        ("sim:bandwidth=-1", "`bandwidth` takes bytes per second"),
        ("sim:kernel=inf", "`kernel` takes bytes per second"),
        ("sim:latency=20", "`latency` takes a time"),
        ("sim:latency=nanns", "`latency` takes a time"),
        ("sim:latency=-1s", "`latency` takes a time"),
        ("sim:latency=1e300s", "`latency` takes a time"),
        ("sim:jitter=1.5", "`jitter` takes a number from 0 to 1"),
        ("sim:jitter=nan", "`jitter` takes a number from 0 to 1"),
        ("sim:seed=-1", "`seed` takes a whole number"),
        ("sim:memory=0.5", "`memory` takes bytes"),
        ("sim:seed=1,seed=2", "`seed` is given twice"),
        ("sim:speed=1", "`speed` is not a setting; use bandwidth"),
        ("sim:", "`` is not key=value"),
        ("sim:seed", "`seed` is not key=value"),
        ("simulator", "`simulator` is not a simulated device"),
        ("cuda:0", "`cuda:0` is not a simulated device"),
    ];
    for (text, reported) in wrong {
        let error = Sim::parse(text).expect_err(text).to_string();
        assert!(error.contains(reported), "{error}");
        assert!(error.contains(&format!("{text:?}")), "{error}");
    }
}
