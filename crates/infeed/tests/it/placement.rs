//! `placement="auto"` finds the faster placement during the run and changes no bit.
//!
//! One rate of each simulated device is ten times too slow, so that the load of the machine does
//! not matter.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use infeed::loader::device::{DeviceLoader, Placement, PlacementState};
use infeed::loader::digest::DigestScope;
use infeed::pipeline::{SourceSpec, Tail};
use infeed::{Options, Pipeline};
use infeed_codec::transform::{
    CenterCrop, MixUp, Normalize, RandomHorizontalFlip, RandomResizedCrop,
};
use infeed_core::batch::Values;
use infeed_device::sim::Sim;
use infeed_device::{DeviceBatch, Upload};

use crate::data::{bits, epoch, open, photo, photos};

/// Longest time until the choice settles on a busy machine.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A kernel that takes tens of milliseconds per batch, after a bus that takes none.
pub(crate) const SLOW_KERNEL: &str = "sim:bandwidth=1e10,kernel=1.5e6,latency=5us";

/// A bus that takes tens of milliseconds for bytes and a hundred for floats, before a fast kernel.
const SLOW_BUS: &str = "sim:bandwidth=6e5,kernel=1e11,latency=5us";

/// Records and bytes of a batch, in the format of [`bits`].
pub(crate) type Bits = (Vec<u64>, Vec<u8>);

pub(crate) fn floats(root: &std::path::Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(3)
        .decode()
        .transform(RandomResizedCrop::new(32))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        .batch(4)
}

fn on(sim: &Sim, pipeline: &Pipeline, placement: Placement, slots: usize) -> DeviceLoader<Sim> {
    let mut options = Options::default();
    options.workers = Some(2);
    pipeline
        .open_on(sim.clone(), placement, slots, &[], &options)
        .expect("a pipeline that fits its source")
}

fn auto(config: &str, pipeline: &Pipeline) -> (Sim, DeviceLoader<Sim>) {
    let sim = Sim::parse(config).expect("a device");
    let loader = on(&sim, pipeline, Placement::Auto, 3);
    (sim, loader)
}

pub(crate) fn fetch_bits(batch: &DeviceBatch<Sim>) -> Bits {
    let bytes_of = |name: &str| match (batch.host(name), batch.array(name).expect("a device")) {
        (Some(Values::Array(array)), None) => array.bytes().to_vec(),
        (None, Some(array)) => array.to_host().expect("a device"),
        _ => panic!("{name} is no array"),
    };
    let arrays: Vec<Vec<u8>> = batch.names().map(bytes_of).collect();
    (batch.records().to_vec(), arrays.concat())
}

/// The host's epochs, made as far as they are requested.
pub(crate) struct HostEpochs {
    loader: infeed::Loader,
    epochs: Vec<Vec<Bits>>,
}

impl HostEpochs {
    pub(crate) fn of(pipeline: &Pipeline) -> HostEpochs {
        HostEpochs {
            loader: open(pipeline, 1),
            epochs: Vec::new(),
        }
    }

    pub(crate) fn at(&mut self, batch: &DeviceBatch<Sim>) -> &Bits {
        let (at, step) = (batch.epoch() as usize, batch.step() as usize);
        self.up_to(at + 1);
        &self.epochs[at][step]
    }

    fn up_to(&mut self, epochs: usize) {
        while self.epochs.len() < epochs {
            self.epochs.push(bits(&epoch(&self.loader)));
        }
    }
}

/// Runs a step of a training loop: takes the next batch and works on it for a moment.
pub(crate) fn step(loader: &DeviceLoader<Sim>) -> DeviceBatch<Sim> {
    let batch = loop {
        if let Some(batch) = loader.next_batch().expect("no bad record") {
            break batch;
        }
    };
    batch.synchronize().expect("a device");
    thread::sleep(Duration::from_millis(1));
    batch
}

/// Runs until the choice has settled, and some steps more, each with the host's bits. Returns the
/// placements that had turns.
pub(crate) fn settles(
    loader: &DeviceLoader<Sim>,
    wanted: &mut HostEpochs,
) -> (PlacementState, BTreeSet<&'static str>) {
    let begun = Instant::now();
    let mut tried = BTreeSet::new();
    let mut more = 0;
    while more < 12 {
        let placed = loader.placement();
        tried.insert(placed.choice.name());
        more += usize::from(placed.settled);
        let batch = step(loader);
        assert!(fetch_bits(&batch) == *wanted.at(&batch));
        assert!(begun.elapsed() < SETTLE_TIMEOUT, "{}", placed.why);
    }
    (loader.placement(), tried)
}

#[test]
fn a_busy_device_gets_no_extra_work_and_every_batch_has_the_hosts_bits() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let (sim, loader) = auto(SLOW_KERNEL, &pipeline);
    assert!(!loader.placement().settled);
    assert_eq!(loader.placement().choice, Placement::Device);

    let (placed, tried) = settles(&loader, &mut HostEpochs::of(&pipeline));

    assert_eq!(placed.choice, Placement::Host, "{}", placed.why);
    assert_eq!(placed.runner_up(), Some(Placement::Device));
    assert!(placed.others[0].ratio > 2.0, "{}", placed.why);
    assert!(
        placed
            .why
            .contains("; device-resize was not tried because ")
    );
    assert!(placed.why.starts_with("placement: host; steps take "));
    assert_eq!(tried, BTreeSet::from(["device", "host"]));
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_slow_bus_carries_bytes_instead_of_floats() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let (sim, loader) = auto(SLOW_BUS, &pipeline);

    let (placed, tried) = settles(&loader, &mut HostEpochs::of(&pipeline));

    assert_eq!(placed.choice, Placement::Device, "{}", placed.why);
    assert_eq!(placed.runner_up(), Some(Placement::Host));
    assert!(
        placed
            .why
            .contains("; device-resize was not tried because ")
    );
    assert_eq!(tried, BTreeSet::from(["device", "host"]));
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_run_resumes_from_any_step_of_a_trial() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let mut wanted = HostEpochs::of(&pipeline);
    // Random delays, so that a state falls before, between and after the turns.
    let (sim, loader) = auto(&format!("{SLOW_KERNEL},jitter=0.5,seed=4"), &pipeline);
    let begun = Instant::now();
    let mut states = Vec::new();
    while !loader.placement().settled {
        let batch = step(&loader);
        assert!(fetch_bits(&batch) == *wanted.at(&batch));
        // The last step may have settled the choice.
        let is_turn = (batch.epoch() * 6 + batch.step()).is_multiple_of(5);
        if is_turn && !loader.placement().settled {
            states.push(loader.loader().state());
        }
        assert!(begun.elapsed() < SETTLE_TIMEOUT);
    }
    assert!(states.len() > 3, "{} states", states.len());

    let hosts = on(&sim, &pipeline, Placement::Host, 2);
    for state in &states {
        loader.restore(state).expect("the same run");
        hosts.restore(state).expect("the same run");
        let place = loader.loader().place();
        assert_eq!(hosts.loader().place(), place);
        for _ in 0..3 {
            let (own, host) = (step(&loader), step(&hosts));
            assert_eq!((own.epoch(), own.step()), (host.epoch(), host.step()));
            assert!(fetch_bits(&own) == fetch_bits(&host));
            assert!(fetch_bits(&own) == *wanted.at(&own));
        }
    }
    assert_eq!(loader.loader().digest(), hosts.loader().digest());
    drop((loader, hosts));
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn seeking_during_a_trial_changes_no_batch_and_the_trial_ends() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let mut wanted = HostEpochs::of(&pipeline);
    let (_, loader) = auto(SLOW_KERNEL, &pipeline);

    for n in 0..12_u64 {
        loader.seek(n % 3, n % 6).expect("a step");
        for _ in 0..n {
            let batch = step(&loader);
            assert!(fetch_bits(&batch) == *wanted.at(&batch));
        }
        loader.end_epoch().expect("open");
    }

    let (placed, _) = settles(&loader, &mut wanted);
    assert_eq!(placed.choice, Placement::Host, "{}", placed.why);
}

#[test]
fn held_batches_stay_unchanged_during_a_trial() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let mut wanted = HostEpochs::of(&pipeline);
    let (sim, loader) = auto(SLOW_KERNEL, &pipeline);
    let begun = Instant::now();
    let mut kept = Vec::new();

    while !loader.placement().settled {
        kept.push(step(&loader));
        if kept.len() > 9 {
            kept.drain(..5);
        }
        assert!(begun.elapsed() < SETTLE_TIMEOUT);
        for batch in &kept {
            assert!(fetch_bits(batch) == *wanted.at(batch));
        }
    }

    drop((kept, loader));
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn an_error_during_a_trial_is_raised_at_its_position_and_the_trial_continues() {
    let root = photos(200);
    let pipeline = floats(root.path());
    let mut wanted = HostEpochs::of(&pipeline);
    // By then the host has its first turn, in batches of which some are in flight.
    let bad_step = 30;
    wanted.up_to(20);
    let record = wanted.epochs[0][bad_step].0[1];
    // The records of the even numbers come first, then those of the odd numbers.
    let path = photo(root.path(), 2 * (record % 100) + record / 100);
    let whole = std::fs::read(&path).expect("a photo");
    std::fs::write(&path, b"no picture").expect("writes");
    let (sim, loader) = auto(SLOW_KERNEL, &pipeline);

    let mut received = 0;
    let error = loop {
        match loader.next_batch() {
            Ok(batch) => {
                let batch = batch.expect("the epoch does not end");
                batch.synchronize().expect("a device");
                assert!(fetch_bits(&batch) == *wanted.at(&batch));
                received += 1;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(received, bad_step);
    assert!(error.is_bad_record(), "{error}");
    assert!(!loader.placement().settled);
    let again = loader.next_batch().expect_err("stopped");
    assert_eq!(again.to_string(), error.to_string());

    std::fs::write(&path, whole).expect("writes");
    loader.end_epoch().expect("open");
    let (placed, _) = settles(&loader, &mut wanted);
    assert_eq!(placed.choice, Placement::Host, "{}", placed.why);
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_single_possible_placement_is_used_and_reported() {
    let root = photos(14);
    let plan_line = |pipeline: &Pipeline, placement, digest| {
        let mut options = Options::default();
        (options.workers, options.digest) = (Some(1), digest);
        let sim = Sim::parse("sim").expect("a device");
        let loader = pipeline.open_on(sim, placement, 2, &[], &options);
        let loader = loader.expect("opens");
        assert_eq!(loader.ring().layouts().len(), 1);
        let placed = loader.placement();
        assert!(placed.settled && placed.runner_up().is_none());
        let expands = |upload: &Upload| matches!(upload, Upload::Expand(_));
        let device = loader.ring().routes().iter().any(|r| expands(&r.upload));
        assert_eq!(device, placed.choice == Placement::Device);
        placed.why
    };
    let ids = DigestScope::Ids;
    let plain = floats(root.path());
    assert_eq!(
        plan_line(&plain, Placement::Device, ids),
        "placement: device, as requested"
    );
    assert_eq!(
        plan_line(&plain, Placement::Host, ids),
        "placement: host, as requested"
    );
    let pixels = plan_line(&plain, Placement::Auto, DigestScope::Pixels);
    assert!(
        pixels.ends_with("digest=\"pixels\" needs expanded rows"),
        "{pixels}"
    );

    let mut mixed = plain.clone().transform(MixUp::new(0.4));
    mixed.batch.drop_last = true;
    assert!(plan_line(&mixed, Placement::Auto, ids).starts_with("placement: host, because MixUp"));
    let mut padded = plain;
    padded.batch.tail = Some(Tail::Pad);
    assert!(plan_line(&padded, Placement::Auto, ids).starts_with("placement: host, because tail="));
    let bytes = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(CenterCrop::new(8))
        .batch(4);
    let nothing = plan_line(&bytes, Placement::Auto, ids);
    assert!(
        nothing.starts_with("placement: host, because no column"),
        "{nothing}"
    );
}

#[test]
fn workers_are_tuned_after_the_placement() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let sim = Sim::parse(SLOW_KERNEL).expect("a device");
    let loader = pipeline
        .open_on(sim, Placement::Auto, 3, &[], &Options::default())
        .expect("opens");
    let begun = Instant::now();
    let settled = || {
        let tuned = loader.loader().stats().expect("open").tuned;
        (
            loader.placement().settled,
            tuned.is_some_and(|tuned| tuned.settled),
        )
    };

    let mut seen = Vec::new();
    while settled() != (true, true) {
        step(&loader);
        seen.push(settled());
        assert!(
            begun.elapsed() < SETTLE_TIMEOUT,
            "{}",
            loader.placement().why
        );
    }

    assert!(!seen.contains(&(false, true)), "both were tried at once");
    assert!(seen.contains(&(true, false)));
}

#[test]
fn the_plan_reports_that_placements_are_tried() {
    let root = photos(12);
    let pipeline = floats(root.path());
    let sim = Sim::parse("sim").expect("a device");
    let plan = |placement| {
        let loader = on(&sim, &pipeline, placement, 2);
        loader.loader().plan().expect("open")
    };

    let tried = "or         the host does this, or the device also resizes it; the loader measures \
                 which is best";
    assert!(plan(Placement::Auto).contains(tried));
    assert!(plan(Placement::Auto).contains("after the transfer"));
    assert!(!plan(Placement::Device).contains("the loader measures"));
    assert!(!plan(Placement::Host).contains("after the transfer"));
}
