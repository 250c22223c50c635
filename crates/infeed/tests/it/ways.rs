//! `placement="auto"` with three ways to choose from: the host does it all, the device makes rows larger, or
//! it resizes them, too. No bit tells which had a turn.
//!
//! How fast the host is nobody knows here, so it is asked first, and the bus made so slow that finished rows
//! take it many times as long, and all else a fraction of that.

use std::collections::BTreeSet;
use std::time::Instant;

use infeed::batch::ColumnKind;
use infeed::device::DeviceBatch;
use infeed::device::sim::Sim;
use infeed::loader::ahead::{DeviceLoader, PartsStep, Placed, Placement};
use infeed::pipeline::SourceSpec;
use infeed::sample::{DType, Depth, Image, Size};
use infeed::testing::synthetic::png;
use infeed::transform::{OneHot, RandomHorizontalFlip, RandomResizedCrop, Resize, ToFloat};
use infeed::{Options, Pipeline};
use tempfile::TempDir;

use crate::data::{bits, epoch, open, photos, picture};
use crate::placing::{Bits, PATIENCE, SLOW_KERNEL, Wanted, fetched, floats, settles};

const CLASSES: u32 = 30;
const ALL: [&str; 3] = ["device", "device-resize", "host"];

/// Pictures and masks of indices, of twice the size on a side that they come to.
fn indexed(count: u64) -> TempDir {
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

/// Rows that are far larger finished than as bytes, with a resize before that. All epochs are the same, so
/// that whoever holds one batch against another does not keep the loop busy.
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

/// A device with a bus that is a hindrance to finished rows alone, and what the host's batches are.
fn slow_for_finished_rows(pipeline: &Pipeline) -> (String, Vec<Bits>) {
    let host = open(pipeline, 1);
    let wanted = bits(&epoch(&host));
    // The shortest of some epochs, so that what else the machine does makes the host slower and never faster.
    let time = |_| {
        let begun = Instant::now();
        let batches = epoch(&host).len();
        begun.elapsed().as_secs_f64() / batches as f64
    };
    let batch_s = (0..12).map(time).fold(f64::INFINITY, f64::min);
    // Kernels are simulated by the host's cores, and take some of these times, too.
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

/// The next batch of each device, once it is there.
fn parts(loader: &DeviceLoader<Sim>) -> Vec<DeviceBatch<Sim>> {
    let streams: Vec<_> = loader.rings().iter().map(|_| None).collect();
    let parts = loop {
        match loader
            .next_parts(PATIENCE, &streams)
            .expect("no bad record")
        {
            PartsStep::Parts(parts) => break parts,
            PartsStep::End => {}
            PartsStep::Timeout => panic!("{}", loader.placed().why),
        }
    };
    for part in &parts {
        part.synchronize().expect("a device");
    }
    parts
}

/// Records and bytes of a batch of which each device has a part, column by column.
fn joined(parts: &[DeviceBatch<Sim>]) -> Bits {
    let records = parts.iter().flat_map(|part| part.records().to_vec());
    let names: Vec<&str> = parts[0].names().collect();
    let bytes = names.into_iter().flat_map(|name| {
        let of = |part: &DeviceBatch<Sim>| {
            let array = part.array(name).expect("a device").expect("on it");
            array.to_host().expect("a device")
        };
        parts.iter().flat_map(of).collect::<Vec<u8>>()
    });
    (records.collect(), bytes.collect())
}

/// Steps until it has settled, and some more; a part of them is held against the host's. Says what had
/// turns, and calls `each` after every step.
fn turns(
    loader: &DeviceLoader<Sim>,
    wanted: &[Bits],
    mut each: impl FnMut(&Placed),
) -> (Placed, BTreeSet<&'static str>) {
    let begun = Instant::now();
    let (mut tried, mut more) = (BTreeSet::new(), 0);
    for n in 0_u64.. {
        let batch = parts(loader);
        if n.is_multiple_of(5) {
            assert!(joined(&batch) == wanted[batch[0].step() as usize]);
        }
        drop(batch);
        let placed = loader.placed();
        tried.insert(placed.choice.name());
        each(&placed);
        assert!(begun.elapsed() < PATIENCE, "{}", placed.why);
        more += u32::from(placed.settled);
        if more == 40 {
            break;
        }
    }
    (loader.placed(), tried)
}

fn is_in_order(sims: &[Sim]) {
    for sim in sims {
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

/// Who had turns and who had none, and why, as the text tells it: which of them is better depends on the
/// machine, whose cores are host and device in one.
fn is_told(placed: &Placed, tried: &BTreeSet<&'static str>) {
    assert!(tried.contains("device") && placed.settled, "{}", placed.why);
    for name in ALL {
        let untried = placed.why.contains(&format!("{name} was not tried"));
        let left_out = placed.why.contains(&format!("{name} is left out"));
        assert_ne!(tried.contains(name), untried && !left_out, "{}", placed.why);
        assert!(placed.why.contains(name), "{}", placed.why);
    }
    let told = placed.others.iter().map(|tried| tried.placement.name());
    for name in told {
        assert!(tried.contains(name), "{name}: {}", placed.why);
    }
}

#[test]
fn the_bits_are_the_hosts_whoever_has_turns_and_who_had_is_told() {
    let root = indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&config)];
    let loader = auto(&sims, &pipeline);
    assert_eq!(loader.ring().forms().len(), 3);
    assert_eq!(loader.placed().choice, Placement::Device);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    is_told(&placed, &tried);
    // What is sent now is told field by field.
    let image = &loader.routes()[0];
    let is_crop = matches!(&image.host.kind, ColumnKind::Fixed { shape, .. } if shape.len() == 1);
    assert_eq!(is_crop, placed.choice == Placement::Resize);
    loader.close();
    is_in_order(&sims);
}

#[test]
fn a_run_that_ends_in_any_ones_turn_goes_on_from_its_state() {
    let root = indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&format!("{config},jitter=0.5,seed=4"))];
    let mut states = Vec::new();
    // As it is in the turn of each of them.
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
        if !placed.settled && states.len() < 9 {
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
            assert!(joined(&batch) == wanted[batch[0].step() as usize]);
            while hosts.next_batch().expect("no bad record").is_none() {}
        }
        assert_eq!(loader.loader().place(), hosts.place());
        assert_eq!(loader.loader().digest(), hosts.digest());
    }
    is_in_order(&sims);
}

#[test]
fn several_devices_change_together() {
    let root = indexed(24);
    let pipeline = large_masks(&root);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [1, 2].map(|seed| sim(&format!("{config},jitter=0.2,seed={seed}")));
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    is_told(&placed, &tried);
    drop(loader);
    is_in_order(&sims);
}

#[test]
fn a_device_that_has_no_memory_for_crops_goes_without_and_says_so() {
    let root = indexed(24);
    let pipeline = large_masks(&root);
    // Slots take what batches are on the device, and bytes behind them; crops do not fit.
    let rows = 8 * 48 * 48;
    let slots = 3 * rows * (12 + 4 * u64::from(CLASSES) + 3 + 1);
    let (config, wanted) = slow_for_finished_rows(&pipeline);
    let sims = [sim(&format!("{config},memory={}", slots + 2 * rows))];
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = turns(&loader, &wanted, |_| {});

    is_told(&placed, &tried);
    assert_ne!(placed.choice, Placement::Resize, "{}", placed.why);
    if tried.contains("device-resize") {
        let end =
            "; device-resize is left out, since the device gave no memory for its larger rows";
        assert!(placed.why.ends_with(end), "{}", placed.why);
    }
    loader.close();
    is_in_order(&sims);
}

/// Halves of floats, so that rows of crops are larger than all others.
fn halves(root: &TempDir) -> Pipeline {
    let mut pipeline = floats(root.path());
    pipeline.transforms[0] = RandomResizedCrop::new(96).into();
    pipeline.dtype(DType::Float16).batch(32)
}

#[test]
fn a_small_budget_leaves_out_the_larger_rows_and_changes_nothing_else() {
    let root = photos(64);
    let pipeline = halves(&root);
    let open = |memory: u64, placement| {
        let mut options = Options::default();
        (options.workers, options.memory) = (Some(1), Some(memory));
        pipeline.open_on(sim("sim"), placement, 2, &[], &options)
    };
    let row = 96 * 96 * 3;
    let (halves, crops) = (32 * 2 * row, 32 * 4 * row);
    // Beside two batches, reading and a worker have 4 MiB each.
    let least = 8 << 20;
    let left_out = "; device-resize is left out, since memory has no room for its larger rows";

    let small = open(2 * halves + least + (1 << 20), Placement::Auto).expect("it fits the two");
    let why = small.placed().why;
    assert!(why.contains(left_out), "{why}");
    assert_eq!(small.ring().forms().len(), 2);
    assert!(open(2 * halves + least + (1 << 20), Placement::Resize).is_err());
    let batch = small.next_batch().expect("no bad record").expect("a batch");
    assert!(fetched(&batch) == *Wanted::of(&pipeline).at(&batch));

    let large = open(64 * crops, Placement::Auto).expect("plenty");
    assert!(!large.placed().why.contains("left out"));
    assert_eq!(large.ring().forms().len(), 3);
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
    assert_eq!(loader.placed().choice, Placement::Host);
    let plan = loader.loader().plan().expect("open");
    let tried = "or         the device resizes that; steps show which is better";
    assert!(plan.contains(tried), "{plan}");

    let (placed, tried) = settles(&loader, &mut Wanted::of(&pipeline));

    assert_eq!(tried, BTreeSet::from(["device-resize", "host"]));
    assert_ne!(placed.choice, Placement::Device);
    loader.close();
    is_in_order(&sims);
}

#[test]
fn a_device_that_is_busy_is_not_given_the_resize_either() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let sims = [sim(SLOW_KERNEL)];
    let loader = auto(&sims, &pipeline);

    let (placed, tried) = settles(&loader, &mut Wanted::of(&pipeline));

    assert_eq!(tried, BTreeSet::from(["device", "host"]));
    assert_eq!(placed.choice, Placement::Host, "{}", placed.why);
    loader.close();
    is_in_order(&sims);
}

#[test]
fn what_was_made_room_for_goes_once_it_is_not_kept() {
    let root = indexed(24);
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
    // How many slots are made is a matter of timing; what each of them has is not.
    let slots = [&loader, &alone].map(|loader| loader.ring().stats().expect("open").slots as u64);
    let used = [0, 1].map(|at| sims[at].used_bytes());
    assert_eq!(used[0] * slots[1], used[1] * slots[0], "{slots:?} {used:?}");
}
