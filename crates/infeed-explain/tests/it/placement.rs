//! The recommended placement follows the limit. Simulated devices have rates ten times apart, so
//! that each resource is the limit once.

use std::path::Path;
use std::time::Duration;

use infeed::loader::device::Placement;
use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline};
use infeed_codec::transform::{Filter, Normalize, RandomResizedCrop};
use infeed_device::AnyDevice;
use infeed_explain::{
    Case, Conditions, DeviceOrigin, Explanation, Limit, PlacementRate, PlacementReport,
    PlannedMachine, Split, explain, running_on,
};
use infeed_source::throttle::Throttle;

use crate::data;

/// Rows of a batch.
const ROWS: u64 = 4;

/// Side of the images.
const SIDE: u32 = 24;

/// Bytes of a sample, with its label of 8 bytes.
const BYTES: f64 = 24.0 * 24.0 * 3.0 + 8.0;
const FLOATS: f64 = 4.0 * 24.0 * 24.0 * 3.0 + 8.0;

fn photos(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(SIDE))
        .transform(Normalize::new([0.5; 3], [0.5; 3]))
        .batch(ROWS)
}

/// Short runs, because the tests check the choice and not the exact rates.
fn conditions(device: Option<&str>) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.seconds = 0.1;
    conditions.try_remedies = false;
    conditions.open.workers = Some(2);
    conditions.device = device.map(|name| AnyDevice::open(name).expect("a device"));
    conditions
}

fn explain_pipeline(pipeline: &Pipeline, conditions: Conditions) -> Explanation {
    let case = Case::new("data", pipeline, &[], conditions).expect("a case");
    explain(&case, &|_, _| true).expect("an explanation")
}

fn placement(found: &Explanation) -> &PlacementReport {
    found.placement.as_ref().expect("there is a device")
}

fn candidate(placement: &PlacementReport, split: Split) -> &PlacementRate {
    let mut candidates = placement.candidates.iter();
    let found = candidates.find(|candidate| candidate.split == split);
    found.unwrap_or_else(|| panic!("{split:?} in {placement:?}"))
}

#[test]
fn a_slow_bus_moves_the_cast_to_the_device() {
    let root = data::photos(12);
    let device = conditions(Some("sim:bandwidth=3e5,latency=1us"));

    let found = explain_pipeline(&photos(root.path()), device);

    let placement = placement(&found);
    assert_eq!(placement.chosen, Split::Device, "{placement:?}");
    assert_eq!(placement.runner_up, Some(Split::Host));
    let (bytes, floats) = (
        candidate(placement, Split::Device),
        candidate(placement, Split::Host),
    );
    assert_eq!((bytes.binding, floats.binding), (Limit::Copy, Limit::Copy));
    assert_eq!((bytes.bus_bytes, floats.bus_bytes), (BYTES, FLOATS));
    let expected = 3e5 / BYTES;
    assert!((bytes.rate.mid / expected - 1.0).abs() < 0.05, "{bytes:?}");
    assert_eq!(placement.origin, DeviceOrigin::Simulated);
    let notes = placement.notes.join("\n");
    assert!(notes.contains("the device is simulated"), "{notes}");
    assert_eq!(found.verdict.limit, Limit::Copy, "{:?}", found.resources);
    let stall = found.stall;
    assert!(
        stall.copy > stall.fetch + stall.prep + stall.wire,
        "{stall:?}"
    );
}

#[test]
fn a_device_with_slow_kernels_leaves_the_cast_to_the_host() {
    let root = data::photos(12);
    let device = conditions(Some("sim:bandwidth=1e9,kernel=2e5,latency=1us"));

    let found = explain_pipeline(&photos(root.path()), device);

    let placement = placement(&found);
    assert_eq!(placement.chosen, Split::Host, "{placement:?}");
    assert_eq!(candidate(placement, Split::Device).binding, Limit::Device);
    assert_eq!(candidate(placement, Split::Host).device_s, 0.0);
    // The run used the device, which is the limit now.
    assert_eq!(placement.now, Split::Device);
    assert_eq!(found.verdict.limit, Limit::Device, "{:?}", found.resources);
    let notes = placement.notes.join("\n");
    assert!(notes.contains("now it is \"device\""), "{notes}");
}

#[test]
fn slow_storage_leaves_the_fewest_bytes_on_the_bus() {
    let root = data::photos(12);
    let mut slow = conditions(Some("sim:latency=1us"));
    slow.planned_machine = Some(PlannedMachine {
        name: "a slow disk".to_owned(),
        storage: Some(Throttle {
            bytes_per_s: 50_000.0,
            requests_per_s: 1e9,
            latency: Duration::ZERO,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
    });

    let found = explain_pipeline(&photos(root.path()), slow);

    let placement = placement(&found);
    assert_eq!(placement.chosen, Split::Device, "{placement:?}");
    assert_eq!(candidate(placement, Split::Host).binding, Limit::Storage);
    assert_eq!(candidate(placement, Split::Device).binding, Limit::Storage);
}

#[test]
fn a_long_step_leaves_the_fewest_bytes_on_the_bus() {
    let root = data::photos(12);
    let mut long = conditions(Some("sim:latency=1us"));
    long.step = Some(Duration::from_millis(200));
    long.seconds = 0.5;

    let found = explain_pipeline(&photos(root.path()), long);

    let placement = placement(&found);
    assert_eq!(placement.chosen, Split::Device, "{placement:?}");
    let host = candidate(placement, Split::Host);
    assert_eq!(host.binding, Limit::Step);
    assert!((host.rate.mid - 20.0).abs() < 1e-6, "4 rows in 200 ms");
    assert_eq!(candidate(placement, Split::Device).binding, Limit::Step);
    assert_eq!(found.verdict.limit, Limit::Step, "{:?}", found.resources);
}

#[test]
fn cores_are_the_limit_when_bus_and_device_are_fast() {
    let root = data::photos(12);
    let device = conditions(Some("sim:bandwidth=1e11,kernel=1e12,latency=1us"));

    let found = explain_pipeline(&photos(root.path()), device);

    let placement = placement(&found);
    for split in [Split::Host, Split::Device] {
        assert_eq!(
            candidate(placement, split).binding,
            Limit::Host,
            "{placement:?}"
        );
    }
    assert_eq!(placement.candidates.len(), 3);
}

#[test]
fn crops_for_a_device_resize_count_the_bytes_of_their_padded_rows() {
    let root = data::photos(12);
    // Rows of 4 x 24 x 24 pixels and a header take 4.6 ms each over this bus.
    let device = conditions(Some("sim:bandwidth=1.5e6,kernel=2e7,latency=1us"));

    let found = explain_pipeline(&photos(root.path()), device);

    let placement = placement(&found);
    let crops = candidate(placement, Split::Resize);
    let room = 4.0 * (BYTES - 8.0) + 16.0 + 8.0;
    // Plus the resize weights, which are not negligible for such a small image.
    let bytes = crops.bus_bytes;
    assert!(room < bytes && bytes < 1.5 * room, "{crops:?}");
    assert_eq!(crops.binding, Limit::Copy, "{crops:?}");
    let part = crops.rate.mid / (1.5e6 / room);
    assert!((0.5..1.05).contains(&part), "{crops:?}");
    // The kernel writes floats and reads crops of more than a few pixels.
    let written_s = 4.0 * (BYTES - 8.0) / 2e7;
    assert!(crops.device_s > written_s, "{crops:?}");
    assert_eq!(crops.left, "resize, floats and layout of image");
    assert_eq!(placement.chosen, Split::Device, "{placement:?}");
}

#[test]
fn crops_for_an_absent_device_are_planned_by_their_bytes() {
    let root = data::photos(12);
    let mut planned = conditions(None);
    planned.planned_machine = Some(PlannedMachine {
        name: "a GPU".to_owned(),
        storage: None,
        bus_bytes_per_s: Some(1e12),
        device_bytes_per_s: Some(1e12),
        devices: 1,
    });

    let found = explain_pipeline(&photos(root.path()), planned);

    let placement = placement(&found);
    let crops = candidate(placement, Split::Resize);
    let room = 4.0 * (BYTES - 8.0) + 16.0 + 8.0;
    assert_eq!(crops.bus_bytes, room);
    assert!((crops.bus_s - room / 1e12).abs() < 1e-15);
    // The kernel writes floats and reads between one pixel and the whole room.
    let floats = 4.0 * (BYTES - 8.0);
    let moved = crops.device_s * 1e12;
    assert!(floats < moved && moved <= floats + room, "{moved}");
    let cores = crops.rate_of(Limit::Host).expect("cores").mid;
    assert!(cores > 0.0 && cores.is_finite());
    assert!(found.decoding.is_none(), "no rate of a decoder is known");
}

#[test]
fn bytes_sent_to_a_device_are_accounted_for() {
    let root = data::photos(12);
    let device = conditions(Some("sim:latency=1us"));

    let found = explain_pipeline(&photos(root.path()), device);

    let crossed = found.transfers.expect("it ran on a device");
    assert!(crossed.simulated && crossed.batches > 0);
    assert_eq!(crossed.copies, 2 * crossed.batches, "image and label");
    assert_eq!(crossed.bytes, crossed.batches * 4 * (1728 + 8));
    assert!(
        crossed
            .verdict
            .starts_with("one batch per step to sim:latency=")
            && crossed.verdict.ends_with("nothing else and nothing back"),
        "{crossed:?}"
    );
    assert_eq!(crossed.fields[0].row_bytes, 1728);
    assert_eq!(crossed.fields[0].device_bytes, 6912);
    assert!(crossed.gap_batches > 0 && crossed.timed > 0, "{crossed:?}");
}

#[test]
fn a_plan_for_a_named_machine_shares_its_host_between_devices() {
    let root = data::photos(12);
    let mut planned = conditions(None);
    planned.planned_machine = Some(PlannedMachine {
        name: "four slow GPUs".to_owned(),
        storage: None,
        bus_bytes_per_s: Some(2e5),
        device_bytes_per_s: Some(1e12),
        devices: 4,
    });

    let found = explain_pipeline(&photos(root.path()), planned);

    let placement = placement(&found);
    assert_eq!(
        (placement.origin, placement.devices),
        (DeviceOrigin::Planned, 4)
    );
    assert_eq!(
        (placement.now, placement.chosen),
        (Split::Host, Split::Device)
    );
    let bytes = candidate(placement, Split::Device);
    assert!((bytes.rate.mid - 2e5 / BYTES).abs() < 1e-6, "{bytes:?}");
    // Bytes read and floats written, divided by the memory rate.
    assert!((bytes.device_s - (1728.0 + 6912.0) / 1e12).abs() < 1e-15);
    let notes = placement.notes.join("\n");
    assert!(
        notes.contains("planned from data sheets, not measured"),
        "{notes}"
    );
    assert!(notes.contains("shared by 4 devices"), "{notes}");
    let cores = found.resources.iter();
    let cores = cores.filter(|r| matches!(r.limit, Limit::Decode | Limit::Transform));
    let cores = cores.map(|r| r.rate.mid).next().expect("cores");
    let quarter = candidate(placement, Split::Host).rate_of(Limit::Host);
    assert_eq!(quarter.map(|rate| rate.mid), Some(cores / 4.0));
    assert!(found.transfers.is_none(), "nothing crossed anything");
}

#[test]
fn rows_that_a_device_cannot_expand_have_one_placement() {
    let root = data::photos(12);
    // The device's resize is bilinear.
    let mut cubic = RandomResizedCrop::new(SIDE);
    cubic.interpolation = Filter::Bicubic.into();
    let bytes = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(cubic)
        .batch(ROWS);

    let found = explain_pipeline(&bytes, conditions(Some("sim")));

    let placement = placement(&found);
    assert_eq!((placement.candidates.len(), placement.runner_up), (1, None));
    assert_eq!(placement.chosen, Split::Host, "what crosses is finished");
    let found = explain_pipeline(&bytes, conditions(None));
    assert!(found.placement.is_none() && found.transfers.is_none());
}

#[test]
fn a_running_loader_on_a_device_is_explained_from_its_own_numbers() {
    for is_named in [true, false] {
        let found = bound_by_its_bus(is_named);

        let bus = found.resources.iter().find(|r| r.limit == Limit::Copy);
        let bus = bus.expect("copies are timed").rate.mid;
        let expected = 5e4 / BYTES;
        assert!((bus / expected - 1.0).abs() < 0.1, "{bus} of {expected}");
        // The loop's wait for the bus is not part of its step.
        assert_eq!(found.verdict.limit, Limit::Copy, "{:?}", found.resources);
        let (run, crossed) = (&found.run, found.transfers.as_ref());
        let crossed = crossed.expect("it is on a device");
        // A busy machine decides whether the loop waits in the loader or for its stream.
        let counted = run.first_batch_s + run.wait_s + run.step_s;
        assert!((counted / run.seconds - 1.0).abs() < 1e-3, "{run:?}");
        assert!(crossed.overflow > 0, "the loop keeps all batches");
        let seen = crossed.seen.join("\n");
        assert!(seen.contains("because the loop kept all batches"), "{seen}");
        assert_eq!(seen.contains("by its own clock"), is_named, "{seen}");
        assert_eq!(
            seen.contains("for batches it already held"),
            !is_named,
            "{seen}"
        );
        let waited = if is_named {
            crossed.gap_s
        } else {
            crossed.late_s
        };
        assert!(waited > 0.03, "{crossed:?}");
        assert!(found.placement.is_none(), "nothing was timed by itself");
        let tried = found.tried.expect("it is on a device");
        assert_eq!((tried.choice.as_str(), tried.settled), ("device", true));
        assert!(tried.others.is_empty(), "one candidate: {tried:?}");
    }
}

/// Explains a loop that only waits for its batches. It names its stream when it requests them, or
/// only when it takes them over.
fn bound_by_its_bus(is_named: bool) -> Explanation {
    let root = data::photos(12);
    let pipeline = photos(root.path());
    // 6.9 kB take 139 ms over this bus, longer than a busy machine takes to read and make a batch.
    let device = AnyDevice::open("sim:bandwidth=5e4,latency=1us").expect("a device");
    let stream = infeed_device::Device::stream(&device).expect("a stream");
    let loader = pipeline
        .open_on(device, Placement::Device, 3, &[], &Options::default())
        .expect("opens");
    let early = running_on("data", &pipeline, &loader);
    assert!(early.is_err(), "nothing was counted yet");
    let mut kept = Vec::new();
    for _ in 0..9 {
        let step = loader.next_within(Duration::from_secs(60), is_named.then_some(stream));
        let infeed::loader::device::DeviceStep::Batch(batch) = step.expect("no fault") else {
            continue;
        };
        batch.ready_on(stream).expect("a stream");
        batch.synchronize().expect("it comes");
        kept.push(batch);
    }
    running_on("data", &pipeline, &loader).expect("explained")
}
