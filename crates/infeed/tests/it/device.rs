//! A device delivers the bits of the host, for every placement and timing.

use std::time::Duration;

use infeed::loader::device::{DeviceLoader, PartsStep, Placement};
use infeed::loader::targets::{FilledTargets, IntoStep};
use infeed::pipeline::{Layout, SourceSpec, Tail};
use infeed::{Error, OnError, Options, Pipeline};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{
    CenterCrop, ClassIndex, Filter, MixUp, Normalize, OneHot, RandomCrop, RandomErasing,
    RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, ToFloat,
};
use infeed_core::batch::{Batch, Values};
use infeed_core::counters::Stage;
use infeed_core::sample::DType;
use infeed_device::sim::Sim;
use infeed_device::{Device, DeviceBatch, Route, Upload};

use crate::data::{bits, epoch, open, pairs, photo, photos};

/// A device whose commands take between 0 and 2 times their usual duration, so that their order
/// varies.
pub(crate) const ODD: &str = "sim:bandwidth=2e8,latency=30us,kernel=4e8,jitter=1,seed=";

fn on_device(pipeline: &Pipeline, placement: Placement, seed: u64) -> (Sim, DeviceLoader<Sim>) {
    let sim = Sim::parse(&format!("{ODD}{seed}")).expect("a device");
    let mut options = Options::default();
    options.workers = Some(2);
    let loader = pipeline
        .open_on(sim.clone(), placement, 3, &[], &options)
        .expect("a pipeline that fits its source");
    (sim, loader)
}

/// Returns records and bytes, column after column, in the format of [`bits`].
pub(crate) fn fetch_bits(batch: &DeviceBatch<Sim>) -> (Vec<u64>, Vec<u8>) {
    let names: Vec<&str> = batch.names().collect();
    let bytes = names.into_iter().flat_map(|name| {
        match (batch.host(name), batch.array(name).expect("a device")) {
            (Some(Values::Array(array)), None) => array.bytes().to_vec(),
            (None, Some(array)) => array.to_host().expect("a device"),
            _ => panic!("{name} is no array"),
        }
    });
    (batch.records().to_vec(), bytes.collect())
}

pub(crate) fn device_epoch(loader: &DeviceLoader<Sim>) -> Vec<(Vec<u64>, Vec<u8>)> {
    let batch = || loader.next_batch().expect("no bad record");
    std::iter::from_fn(batch).map(|b| fetch_bits(&b)).collect()
}

/// Checks that two epochs equal the host's; returns the number of columns that the device expands.
fn equals_host(pipeline: &Pipeline) -> usize {
    let host = open(pipeline, 2);
    let wanted: Vec<_> = (0..2).map(|_| bits(&epoch(&host))).collect();
    let mut expanded = 0;
    let placements = [
        (Placement::Host, 1),
        (Placement::Auto, 2),
        (Placement::Device, 3),
    ];
    for (placement, seed) in placements {
        let (sim, loader) = on_device(pipeline, placement, seed);
        for wanted in &wanted {
            assert!(device_epoch(&loader) == *wanted, "{placement:?}");
        }
        let routes = loader.ring().routes();
        let kernels = routes
            .iter()
            .filter(|route| matches!(route.upload, Upload::Expand(_)));
        expanded = kernels.count();
        assert!(expanded == 0 || placement != Placement::Host);
        assert_eq!(
            loader.ring().layouts().len() > 1,
            expanded > 0 && placement == Placement::Auto
        );
        loader.close();
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
    expanded
}

fn normalize() -> Normalize {
    Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
}

pub(crate) fn floats(root: &std::path::Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(3)
        .decode()
        .transform(RandomResizedCrop::new(21))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(normalize())
        .batch(4)
}

#[test]
fn floats_cast_on_a_device_equal_the_hosts() {
    let root = photos(23);
    for layout in [Layout::Hwc, Layout::Chw] {
        for dtype in [DType::Float32, DType::Float16, DType::BFloat16] {
            let pipeline = floats(root.path()).layout(layout).dtype(dtype);
            assert_eq!(equals_host(&pipeline), 1, "{dtype:?} {layout:?}");
        }
    }
}

#[test]
fn masks_expanded_on_a_device_equal_the_hosts() {
    let root = pairs(9, 37, 53);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let base = || {
        let (images, masks) = (root.path().join("images"), root.path().join("masks"));
        Pipeline::new(SourceSpec::pairs(images, masks))
            .shuffle(1)
            .decode()
            .transform(RandomCrop::new(20))
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(RandomVerticalFlip::new(0.5))
            .batch(3)
    };
    for layout in [Layout::Hwc, Layout::Chw] {
        let one_hot = base().transform(OneHot::from_palette(&csv)).layout(layout);
        assert_eq!(equals_host(&one_hot), 1);
        let both = one_hot.transform(ToFloat::of("image"));
        assert_eq!(equals_host(&both), 2);
    }
    let mut gray = base().transform(OneHot::from_indices(60).ignoring_unknown());
    if let Some(decode) = &mut gray.decode {
        decode.modes.insert("mask".to_owned(), ColorMode::Gray);
    }
    assert_eq!(equals_host(&gray), 1);
    // The colors' gray values are 0, 33, 76 and 93: some have no class and are counted like on the
    // host.
    let host = open(&gray, 2);
    epoch(&host);
    let (_, loader) = on_device(&gray, Placement::Device, 3);
    device_epoch(&loader);
    let counted = loader.loader().stats().expect("open").unknown_pixels;
    assert!(counted > 0);
    assert_eq!(counted, host.stats().expect("open").unknown_pixels);
}

/// Checks that two epochs on a device that resizes equal the host's. Returns the number of images
/// that the host resized, and the number of all images.
fn resized_on_the_host(pipeline: &Pipeline, seed: u64) -> (u64, u64) {
    let host = open(pipeline, 2);
    let wanted: Vec<_> = (0..2).map(|_| bits(&epoch(&host))).collect();
    let (sim, loader) = on_device(pipeline, Placement::Resize, seed);
    for wanted in &wanted {
        assert!(device_epoch(&loader) == *wanted, "{pipeline:?}");
    }
    let routes = loader.ring().routes();
    let resizes = |route: &Route| matches!(route.upload, Upload::Resize(_));
    assert_eq!(routes.iter().filter(|route| resizes(route)).count(), 1);
    let stats = loader.loader().stats().expect("open");
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    let samples = |wanted| {
        let stages = stats.stages.iter();
        let of = stages.filter(|(stage, _)| *stage == wanted);
        of.map(|(_, stats)| stats.samples).sum()
    };
    (samples(Stage::Transform), samples(Stage::Write))
}

#[test]
fn crops_resized_on_a_device_equal_the_hosts() {
    let root = photos(23);
    let base = || {
        Pipeline::new(SourceSpec::folder(root.path()))
            .shuffle(3)
            .decode()
    };
    let mut seed = 0;
    let mut check = |pipeline: &Pipeline| {
        seed += 1;
        resized_on_the_host(pipeline, seed)
    };
    for layout in [Layout::Hwc, Layout::Chw] {
        // Some crops are too large for their rows.
        let (resized, all) = check(&floats(root.path()).layout(layout));
        assert!(0 < resized && resized < all, "{resized} of {all}");
        let half = floats(root.path()).layout(layout).dtype(DType::BFloat16);
        check(&half);
        // Larger than most crops.
        let bytes = base()
            .transform(RandomResizedCrop::new([61, 50]))
            .transform(RandomVerticalFlip::new(0.5))
            .layout(layout)
            .batch(5);
        assert_eq!(check(&bytes).0, 0);
    }
    // A crop before the resize, or none.
    let cut = base()
        .transform(CenterCrop::new(36))
        .transform(Resize::new([20, 31]))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(4);
    assert_eq!(check(&cut).0, 0);
    let mut gray = base().transform(Resize::new([40, 52])).batch(4);
    if let Some(decode) = &mut gray.decode {
        decode.modes.insert("image".to_owned(), ColorMode::Gray);
    }
    assert_eq!(check(&gray).0, 0);
}

#[test]
fn images_beside_masks_are_resized_on_a_device_where_masks_are_not() {
    let root = pairs(9, 37, 53);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let (images, masks) = (root.path().join("images"), root.path().join("masks"));
    let pipeline = Pipeline::new(SourceSpec::pairs(images, masks))
        .shuffle(1)
        .decode()
        .transform(RandomResizedCrop::new(20))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(ToFloat::of("image"))
        .transform(OneHot::from_palette(&csv))
        .batch(3);

    let (resized, _) = resized_on_the_host(&pipeline, 7);

    assert!(resized >= 18, "every mask");
}

#[test]
fn the_host_resizes_what_a_device_cannot() {
    let root = photos(5);
    let base = || Pipeline::new(SourceSpec::folder(root.path())).decode();
    let mut bicubic = RandomResizedCrop::new(20);
    bicubic.interpolation = Filter::Bicubic.into();
    let pipelines = [
        base().transform(bicubic),
        base()
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(RandomResizedCrop::new(20)),
        base()
            .transform(Resize::new([30, 30]))
            .transform(RandomCrop::new(20)),
        base()
            .transform(RandomResizedCrop::new(20))
            .transform(normalize())
            .transform(RandomErasing::new(1.0)),
    ];
    for pipeline in pipelines {
        let pipeline = pipeline.batch(2);
        let host = open(&pipeline, 2);
        let wanted = bits(&epoch(&host));
        let (_, loader) = on_device(&pipeline, Placement::Resize, 1);
        assert!(device_epoch(&loader) == wanted, "{pipeline:?}");
        let resizes = |route: &Route| matches!(route.upload, Upload::Resize(_));
        assert!(!loader.ring().routes().iter().any(resizes), "{pipeline:?}");
    }
}

#[test]
fn class_indices_widened_on_a_device_equal_the_hosts() {
    let root = pairs(9, 37, 53);
    let all = root.path().join("class_dict.csv");
    // The last class is missing, so some pixels are unknown.
    let text = std::fs::read_to_string(&all).expect("a palette");
    let (known, _) = text.trim_end().rsplit_once('\n').expect("classes");
    let some = root.path().join("some.csv");
    std::fs::write(&some, known).expect("a palette");
    for (palette, unknown, has_unknown) in [(&all, 255, false), (&some, -100, true)] {
        for (dtype, expanded) in [(DType::Int64, 1), (DType::UInt8, 0)] {
            let mut numbers = ClassIndex::new(palette.display().to_string());
            numbers.dtype = dtype;
            numbers.ignore_index = Some(if expanded == 1 { unknown } else { 7 });
            let (images, masks) = (root.path().join("images"), root.path().join("masks"));
            let pipeline = Pipeline::new(SourceSpec::pairs(images, masks))
                .shuffle(1)
                .decode()
                .transform(RandomCrop::new(20))
                .transform(RandomHorizontalFlip::new(0.5))
                .transform(numbers)
                .batch(3);
            assert_eq!(equals_host(&pipeline), expanded, "{dtype:?}");
            let (_, loader) = on_device(&pipeline, Placement::Device, 3);
            device_epoch(&loader);
            let counted = loader.loader().stats().expect("open").unknown_pixels;
            assert_eq!(counted > 0, has_unknown, "{counted}");
        }
    }
}

#[test]
fn batches_for_functions_are_finished_on_the_host() {
    let root = photos(14);
    let mut mixed = floats(root.path()).transform(MixUp::new(0.4));
    mixed.batch.drop_last = true;
    assert_eq!(equals_host(&mixed), 0);
    let erased = floats(root.path()).transform(RandomErasing::new(0.9));
    assert_eq!(equals_host(&erased), 0);
    let mut padded = floats(root.path());
    padded.batch.tail = Some(Tail::Pad);
    assert_eq!(equals_host(&padded), 0);
}

#[test]
fn host_and_device_runs_resume_from_each_others_states() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let host = open(&pipeline, 2);
    let whole: Vec<_> = (0..3).flat_map(|_| bits(&epoch(&host))).collect();
    let steps = host.steps().expect("open") as usize;
    for killed in [1, steps - 1, steps, steps + 3, 2 * steps] {
        let (sim, loader) = on_device(&pipeline, Placement::Device, killed as u64);
        let mut taken = Vec::new();
        while taken.len() < killed {
            match loader.next_batch().expect("no bad record") {
                Some(batch) => taken.push(fetch_bits(&batch)),
                None => continue,
            }
        }
        assert!(taken == whole[..killed]);
        let state = loader.loader().state();
        loader.close();

        let (_, resumed) = on_device(&pipeline, Placement::Host, 9);
        // Batches that were sent ahead from the first step are dropped.
        while resumed.ring().stats().expect("a device").batches < 2 {
            std::thread::yield_now();
        }
        resumed.restore(&state).expect("the same run");
        let rest = (whole.len() - killed).div_ceil(steps);
        let rest: Vec<_> = (0..rest).flat_map(|_| device_epoch(&resumed)).collect();
        assert!(rest == whole[killed..], "killed after {killed}");
        let on_host = open(&pipeline, 1);
        on_host.restore(&state).expect("the same run");
        let next: Vec<Batch> = epoch(&on_host);
        assert!(bits(&next)[..] == whole[killed..][..next.len()]);
        assert!(sim.violations().is_empty());
    }
}

#[test]
fn a_loop_that_keeps_batches_can_end_early_and_seek() {
    let root = photos(23);
    let pipeline = floats(root.path());
    let wanted = bits(&epoch(&open(&pipeline, 1)));
    let (sim, loader) = on_device(&pipeline, Placement::Device, 4);
    let kept: Vec<_> = (0..2)
        .map(|_| loader.next_batch().expect("open").expect("a batch"))
        .collect();
    // The third slot has the batch sent ahead. The sender waits for a fourth slot, or soon will.
    while loader.ring().stats().expect("a device").ahead == 0 {
        std::thread::yield_now();
    }

    loader.end_epoch().expect("open");
    loader.seek(0, 1).expect("a step");

    let next = loader.next_batch().expect("open").expect("a batch");
    assert!(fetch_bits(&next) == wanted[1]);
    let seen: Vec<_> = kept.iter().map(fetch_bits).collect();
    assert!(seen == wanted[..2]);
    drop((kept, next));
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_bad_record_stops_a_run_at_its_position_until_the_next_seek() {
    let root = photos(23);
    std::fs::write(photo(root.path(), 11), b"no picture").expect("writes");
    let pipeline = floats(root.path());
    let host = open(&pipeline, 1);
    let mut before = 0;
    let wanted = loop {
        match host.next_batch() {
            Ok(_) => before += 1,
            Err(error) => break error.to_string(),
        }
    };
    let (_, loader) = on_device(&pipeline, Placement::Device, 5);
    let mut received = 0;
    let found = loop {
        match loader.next_batch() {
            Ok(_) => received += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!((received, &found), (before, &wanted));
    assert_eq!(loader.next_batch().expect_err("stopped").to_string(), found);
    loader.end_epoch().expect("open");
    assert!(matches!(loader.next_batch(), Ok(Some(batch)) if batch.epoch() == 1));

    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    let sim = Sim::parse("sim").expect("a device");
    let loader = pipeline
        .open_on(sim, Placement::Device, 2, &[], &options)
        .expect("opens");
    let samples: usize = device_epoch(&loader).iter().map(|(r, _)| r.len()).sum();
    assert_eq!(samples, 23);
    assert_eq!(loader.loader().bad_records().len(), 1);
}

#[test]
fn a_closed_loader_is_an_error_and_its_batches_stay_valid() {
    let root = photos(12);
    let pipeline = floats(root.path());
    let wanted = bits(&epoch(&open(&pipeline, 1)));
    let (_, loader) = on_device(&pipeline, Placement::Device, 7);
    let first = loader.next_batch().expect("open").expect("a batch");

    loader.close();

    assert!(matches!(loader.next_batch(), Err(Error::Closed)));
    assert!(fetch_bits(&first) == wanted[0]);
}

#[test]
fn a_device_without_enough_memory_reports_the_bytes_needed() {
    let root = photos(12);
    let sim = Sim::parse("sim:memory=10000").expect("a device");
    let pipeline = floats(root.path());

    let opened = pipeline.open_on(sim, Placement::Device, 3, &[], &Options::default());
    let error = opened
        .and_then(|loader| loader.next_batch().map(drop))
        .expect_err("no room");

    let text = error.chain();
    assert!(text.contains("cannot allocate 21168 bytes"), "{text}");
    assert!(
        text.contains("3 slots need 79476 bytes. Use a smaller batch"),
        "{text}"
    );
}

#[test]
fn the_name_of_a_simulated_device_sets_its_rates() {
    let sim = Sim::parse("sim:bandwidth=2e9").expect("a device");

    assert!(sim.name().starts_with("sim"), "{}", sim.name());
}

#[test]
fn several_devices_receive_the_rows_of_one_in_order_and_share_its_state() {
    let root = photos(23);
    let mut pipeline = floats(root.path());
    pipeline.batch.drop_last = true;
    let wanted: Vec<_> = {
        let host = open(&pipeline, 2);
        bits(&epoch(&host))
    };
    let sims: Vec<Sim> = (5..7)
        .map(|seed| Sim::parse(&format!("{ODD}{seed}")).expect("a device"))
        .collect();
    let open_on = || {
        let options = Options::default();
        let devices = sims.clone();
        let loader = pipeline.open_on_all(devices, Placement::Device, 2, &[], &options);
        loader.expect("four rows, two devices")
    };
    let next = |loader: &DeviceLoader<Sim>| loop {
        match loader
            .next_parts(Duration::from_secs(1), &[])
            .expect("no bad record")
        {
            PartsStep::Parts(parts) => return Some(parts),
            PartsStep::End => return None,
            PartsStep::Timeout => {}
        }
    };
    let loader = open_on();
    let mut records = Vec::new();
    let mut state = None;
    while let Some(parts) = next(&loader) {
        let rows: Vec<usize> = parts.iter().map(DeviceBatch::rows).collect();
        assert_eq!(rows, [2, 2]);
        let both: Vec<u64> = parts
            .iter()
            .flat_map(|part| part.records().to_vec())
            .collect();
        records.push(both);
        if records.len() == 2 {
            state = Some(loader.loader().state());
        }
    }
    let of_one: Vec<_> = wanted.iter().map(|(records, _)| records.clone()).collect();
    assert_eq!(records, of_one);
    assert_eq!(loader.rings().len(), 2);
    let error = loader.next_batch().expect_err("two at once");
    assert!(error.to_string().contains("2 devices"), "{error}");
    loader.close();

    let resumed = open_on();
    resumed
        .restore(&state.expect("two steps"))
        .expect("the same run");
    let parts = next(&resumed).expect("the third step");
    let image = |part: &DeviceBatch<Sim>| {
        let image = part.array("image").expect("a device").expect("an image");
        image.to_host().expect("a device")
    };
    let bytes: Vec<u8> = parts.iter().flat_map(image).collect();
    assert!(wanted[2].1.starts_with(&bytes), "the rows of one device");
    drop(parts);

    // The same rows in the consumer's memory, on each device.
    let (dtype, shape) = resumed.place_of("image").expect("of one size");
    assert_eq!((dtype, shape[0]), (DType::Float32, 2), "rows of a part");
    let len = shape.iter().product::<usize>() * dtype.bytes();
    let queues = sims.iter().map(|sim| sim.stream().expect("a stream"));
    let queues: Vec<_> = queues.collect();
    let places = sims.iter().map(|sim| sim.memory(len).expect("memory"));
    let places: Vec<_> = places.collect();
    let targets: Vec<_> = places.iter().map(|place| [("image", place)]).collect();
    let each: Vec<_> = queues
        .iter()
        .zip(&targets)
        .map(|(q, t)| (*q, &t[..]))
        .collect();
    let timeout = Duration::from_secs(60);
    let error = resumed.next_into(timeout, queues[0], &targets[0]);
    let error = error.expect_err("one of two").to_string();
    assert!(
        error.contains("2 devices need one set of targets each"),
        "{error}"
    );
    let filled = resumed.next_into_each(timeout, &each).expect("no fault");
    let place = FilledTargets {
        epoch: 0,
        step: 3,
        samples: 4,
    };
    assert_eq!(filled, IntoStep::Filled(place));
    let reads = sims.iter().zip(&queues).zip(&places);
    let bytes: Vec<u8> = reads
        .flat_map(|((sim, queue), place)| {
            let read = sim.read(*queue, place, len, Duration::ZERO);
            read.expect("a read").bytes()
        })
        .collect();
    assert!(wanted[3].1.starts_with(&bytes), "the rows of one device");
    resumed.close();
    for sim in &sims {
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}
