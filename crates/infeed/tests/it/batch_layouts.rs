//! `placement="auto"` with three placements to try: the host does all the work, the device expands
//! rows, or the device resizes too. The bits of a batch do not depend on the placement.
//!
//! The speed of the host is unknown, so each test measures it first. It then sets the bus so slow
//! that expanded rows take many times as long, and the other placements a fraction of that.

use std::collections::BTreeSet;
use std::time::Instant;

use infeed::loader::device::{DeviceLoader, PartsStep, Placement, PlacementState};
use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline};
use infeed_codec::transform::{OneHot, RandomHorizontalFlip, RandomResizedCrop, Resize, ToFloat};
use infeed_core::batch::ColumnKind;
use infeed_core::sample::{DType, Depth, Image, Size};
use infeed_device::DeviceBatch;
use infeed_device::sim::Sim;
use infeed_sample::png;
use tempfile::TempDir;

use crate::data::{bits, epoch, open, photos, picture};
use crate::placement::{
    Bits, HostEpochs, SETTLE_TIMEOUT, SLOW_KERNEL, fetch_bits, floats, settles,
};

const CLASSES: u32 = 30;
const ALL: [&str; 3] = ["device", "device-resize", "host"];

/// Writes images and index masks with twice the side length of the output.
fn write_indexed(count: u64) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for folder in ["images", "masks"] {
        std::fs::create_dir(root.path().join(folder)).expect("a new folder");
    }
    let size = Size {
        height: 96,
        width: 96,
    };
    for n in 0..count {
        let image = png(&picture(n, size.height, size.width)).expect("encodes");
        std::fs::write(root.path().join(format!("images/{n:03}.png")), image).expect("writes");
        let mut mask = Image::default();
        mask.reset(size, 1, Depth::U8);
        for (at, class) in mask.data.iter_mut().enumerate() {
            *class = ((at / 5 + n as usize) % CLASSES as usize) as u8;
        }
        let mask = png(&mask).expect("encodes");
        std::fs::write(root.path().join(format!("masks/{n:03}.png")), mask).expect("writes");
    }
    root
}

/// Expanded rows are far larger than byte rows, and a resize precedes them. All epochs are equal,
/// so that comparing batches is cheap.
fn large_masks(root: &TempDir) -> Pipeline {
    let (images, masks) = (root.path().join("images"), root.path().join("masks"));
    Pipeline::new(SourceSpec::pairs(images, masks))
        .decode()
        .transform(Resize::new([48, 48]))
        .transform(RandomHorizontalFlip::new(1.0))
        .transform(ToFloat::of("image"))
        .transform(OneHot::from_indices(CLASSES))
        .batch(8)
}

/// Configures a device whose bus is slow only for expanded rows; also returns the host's batches.
fn slow_for_finished_rows(pipeline: &Pipeline) -> (String, Vec<Bits>) {
    let host = open(pipeline, 1);
    let wanted = bits(&epoch(&host));
    // Take the shortest of several epochs: other load can only make the host slower.
    let time = |_| {
        let begun = Instant::now();
        let batches = epoch(&host).len();
        begun.elapsed().as_secs_f64() / batches as f64
    };
    let batch_s = (0..12).map(time).fold(f64::INFINITY, f64::min);
    // The host's cores simulate the kernels, so the kernels take some of these times too.
    let bandwidth = wanted[0].1.len() as f64 / (20.0 * batch_s);
    let config = format!("sim:bandwidth={bandwidth:e},kernel=1e11,latency=5us");
    (config, wanted)
}

fn auto(sims: &[Sim], pipeline: &Pipeline) -> DeviceLoader<Sim> {
    let mut options = Options::default();
    options.workers = Some(1);
    pipeline
        .open_on_all(sims.to_vec(), Placement::Auto, 3, &[], &options)
        .expect("a pipeline that fits its source")
}

fn sim(config: &str) -> Sim {
    Sim::parse(config).expect("a device")
}

/// Returns the next batch of each device and waits for its transfer.
fn parts(loader: &DeviceLoader<Sim>) -> Vec<DeviceBatch<Sim>> {
    let streams: Vec<_> = loader.rings().iter().map(|_| None).collect();
    let parts = loop {
        match loader
            .next_parts(SETTLE_TIMEOUT, &streams)
            .expect("no bad record")
        {
            PartsStep::Parts(parts) => break parts,
            PartsStep::End => {}
            PartsStep::Timeout => panic!("{}", loader.placement().why),
        }
    };
    for part in &parts {
        part.synchronize().expect("a device");
    }
    parts
}

/// Joins records and bytes of a batch that is split over devices, column by column.
fn join_parts(parts: &[DeviceBatch<Sim>]) -> Bits {
    let records = parts.iter().flat_map(|part| part.records().to_vec());
    let names: Vec<&str> = parts[0].names().collect();
    let arrays = names.into_iter().flat_map(|name| {
        parts.iter().map(move |part| {
            let array = part.array(name).expect("a device").expect("on it");
            array.to_host().expect("a device")
        })
    });
    (records.collect(), arrays.collect::<Vec<_>>().concat())
}

/// Runs until the choice has settled, and some steps more; compares a part of them with the host's.
/// Returns the layouts that had turns, and calls `each` after every step.
fn turns(
    loader: &DeviceLoader<Sim>,
    wanted: &[Bits],
    mut each: impl FnMut(&PlacementState),
) -> (PlacementState, BTreeSet<&'static str>) {
    let begun = Instant::now();
    let (mut tried, mut more) = (BTreeSet::new(), 0);
    for n in 0_u64.. {
        let batch = parts(loader);
        if n.is_multiple_of(5) {
            assert!(join_parts(&batch) == wanted[batch[0].step() as usize]);
        }
        drop(batch);
        let placed = loader.placement();
        tried.insert(placed.choice.name());
        each(&placed);
        assert!(begun.elapsed() < SETTLE_TIMEOUT, "{}", placed.why);
        more += u32::from(placed.settled);
        if more == 40 {
            break;
        }
    }
    (loader.placement(), tried)
}

fn is_in_order(sims: &[Sim]) {
    for sim in sims {
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

/// Checks that the text names the tried and untried placements, with reasons. The better one
/// depends on the machine, whose cores simulate both host and device.
fn check_reported(placed: &PlacementState, tried: &BTreeSet<&'static str>) {
    assert!(tried.contains("device") && placed.settled, "{}", placed.why);
    for name in ALL {
        let untried = placed.why.contains(&format!("{name} was not tried"));
        let left_out = placed.why.contains(&format!("{name} is left out"));
        assert_ne!(tried.contains(name), untried && !left_out, "{}", placed.why);
        assert!(placed.why.contains(name), "{}", placed.why);
    }
    let names = placed.others.iter().map(|tried| tried.placement.name());
    for name in names {
        assert!(tried.contains(name), "{name}: {}", placed.why);
    }
}

#[test]
fn every_trial_order_gives_the_hosts_bits_and_the_tried_layouts_are_reported() {
    let root = write_indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&config)];
    let loader = auto(&sims, &pipeline);
    assert_eq!(loader.ring().layouts().len(), 3);
    assert_eq!(loader.placement().choice, Placement::Device);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    check_reported(&placed, &tried);
    // Routes describe the current layout field by field.
    let image = &loader.routes()[0];
    let is_crop = matches!(&image.host.kind, ColumnKind::Fixed { shape, .. } if shape.len() == 1);
    assert_eq!(is_crop, placed.choice == Placement::Resize);
    loader.close();
    is_in_order(&sims);
}

#[test]
fn a_run_that_ends_during_a_trial_turn_resumes_from_its_state() {
    end_and_resume(2);
}

#[test]
#[ignore = "long"]
fn a_run_that_ends_during_any_trial_turn_resumes_from_its_state() {
    end_and_resume(6);
}

/// Ends a run in a turn of each placement and in `turns_of_auto` turns of `auto`, and resumes it.
fn end_and_resume(turns_of_auto: usize) {
    let root = write_indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&format!("{config},jitter=0.5,seed=4"))];
    let mut states = Vec::new();
    // The state in each placement's turn.
    for placement in [Placement::Host, Placement::Device, Placement::Resize] {
        let mut options = Options::default();
        options.workers = Some(1);
        let loader = pipeline.open_on_all(sims.to_vec(), placement, 3, &[], &options);
        let loader = loader.expect("a pipeline that fits its source");
        for _ in 0..2 {
            drop(parts(&loader));
        }
        states.push(loader.loader().state());
    }
    let loader = auto(&sims, &pipeline);
    turns(&loader, &wanted, |placed| {
        if !placed.settled && states.len() < 3 + turns_of_auto {
            states.push(loader.loader().state());
        }
    });
    drop(loader);

    for state in &states {
        let loader = auto(&sims, &pipeline);
        loader.restore(state).expect("the same run");
        let hosts = open(&pipeline, 1);
        hosts.restore(state).expect("the same run");
        assert_eq!(loader.loader().place(), hosts.place());
        for _ in 0..5 {
            let batch = parts(&loader);
            assert!(join_parts(&batch) == wanted[batch[0].step() as usize]);
            while hosts.next_batch().expect("no bad record").is_none() {}
        }
        assert_eq!(loader.loader().place(), hosts.place());
        assert_eq!(loader.loader().digest(), hosts.digest());
    }
    is_in_order(&sims);
}

#[test]
fn several_devices_switch_layout_together() {
    let root = write_indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [1, 2].map(|seed| sim(&format!("{config},jitter=0.2,seed={seed}")));
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    check_reported(&placed, &tried);
    drop(loader);
    is_in_order(&sims);
}

#[test]
fn a_device_without_memory_for_crops_skips_that_layout_and_reports_it() {
    let root = write_indexed(24);
    let pipeline = large_masks(&root);
    // The device has memory for its batches as bytes, but not for crops.
    let rows = 8 * 48 * 48;
    let slots = 3 * rows * (12 + 4 * u64::from(CLASSES) + 3 + 1);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&format!("{config},memory={}", slots + 2 * rows))];
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    check_reported(&placed, &tried);
    assert_ne!(placed.choice, Placement::Resize, "{}", placed.why);
    if tried.contains("device-resize") {
        let end =
            "; device-resize is left out because the device has no memory for its larger rows";
        assert!(placed.why.ends_with(end), "{}", placed.why);
    }
    loader.close();
    is_in_order(&sims);
}

/// A pipeline of float16 rows, in which rows of crops are larger than all others.
fn halves(root: &TempDir) -> Pipeline {
    let mut pipeline = floats(root.path());
    pipeline.transforms[0] = RandomResizedCrop::new(96).into();
    pipeline.dtype(DType::Float16).batch(32)
}

#[test]
fn a_small_budget_only_leaves_out_the_larger_rows() {
    let root = photos(64);
    let pipeline = halves(&root);
    let open = |memory: u64, placement| {
        let mut options = Options::default();
        (options.workers, options.memory) = (Some(1), Some(memory));
        pipeline.open_on(sim("sim"), placement, 2, &[], &options)
    };
    let row = 96 * 96 * 3;
    let (halves, crops) = (32 * 2 * row, 32 * 4 * row);
    // In addition to two batches, reading and a worker have 4 MiB each.
    let least = 8 << 20;
    let left_out = "; device-resize is left out because memory does not suffice for its larger \
                    rows";

    let small = open(2 * halves + least + (1 << 20), Placement::Auto).expect("it fits the two");
    let why = small.placement().why;
    assert!(why.contains(left_out), "{why}");
    assert_eq!(small.ring().layouts().len(), 2);
    assert!(open(2 * halves + least + (1 << 20), Placement::Resize).is_err());
    let batch = small.next_batch().expect("no bad record").expect("a batch");
    assert!(fetch_bits(&batch) == *HostEpochs::of(&pipeline).at(&batch));

    let large = open(64 * crops, Placement::Auto).expect("plenty");
    assert!(!large.placement().why.contains("left out"));
    assert_eq!(large.ring().layouts().len(), 3);
}

#[test]
fn images_that_stay_bytes_are_resized_on_the_device_or_on_the_host() {
    let root = photos(32);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .shuffle(3)
        .decode()
        .transform(RandomResizedCrop::new(32))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(16);
    let sims = [sim("sim:bandwidth=1e11,kernel=1e11,latency=1us")];
    let loader = auto(&sims, &pipeline);
    assert_eq!(loader.placement().choice, Placement::Host);
    let plan = loader.loader().plan().expect("open");
    let tried = "or         the device resizes it; the loader measures which is better";
    assert!(plan.contains(tried), "{plan}");

    // The resize is tried only if the loop waits, which depends on the machine.
    let (_, tried) = settles(&loader, &mut HostEpochs::of(&pipeline));

    assert!(
        tried.is_subset(&BTreeSet::from(["device-resize", "host"])),
        "{tried:?}"
    );
    loader.close();
    for placement in [Placement::Resize, Placement::Host] {
        let options = Options::default();
        let loader = pipeline.open_on_all(sims.to_vec(), placement, 3, &[], &options);
        let loader = loader.expect("a pipeline that fits its source");
        let (placed, _) = settles(&loader, &mut HostEpochs::of(&pipeline));
        assert_eq!(placed.choice, placement);
        loader.close();
    }
    is_in_order(&sims);
}

#[test]
fn a_busy_device_does_not_get_the_resize() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let sims = [sim(SLOW_KERNEL)];
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = settles(&loader, &mut HostEpochs::of(&pipeline));

    assert_eq!(tried, BTreeSet::from(["device", "host"]));
    assert_eq!(placed.choice, Placement::Host, "{}", placed.why);
    loader.close();
    is_in_order(&sims);
}

#[test]
fn memory_of_a_discarded_layout_is_freed() {
    let root = write_indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&config), sim("sim")];
    let loader = auto(&sims[..1], &pipeline);
    let (placed, _) = turns(&loader, &wanted, |_| {});

    let alone = pipeline.open_on(sims[1].clone(), placed.choice, 3, &[], &Options::default());
    let alone = alone.expect("opens");
    for _ in 0..12 {
        parts(&alone);
    }
    // The number of slots depends on timing; the size of each slot does not.
    let slots = [&loader, &alone].map(|loader| loader.ring().stats().expect("open").slots as u64);
    let used = [0, 1].map(|at| sims[at].used_bytes());
    assert_eq!(used[0] * slots[1], used[1] * slots[0], "{slots:?} {used:?}");
}
