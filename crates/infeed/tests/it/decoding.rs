//! JPEGs that a device decodes. The simulated device decodes to the host's pixels, so every batch
//! has the host's bits, bad records included.

use std::fs;
use std::path::Path;
use std::time::Duration;

use infeed::loader::DecodeBy;
use infeed::loader::device::{DeviceLoader, PartsStep, Placement};
use infeed::loader::digest::DigestScope;
use infeed::pipeline::{Layout, SourceSpec, Tail};
use infeed::{Error, OnError, Options, Pipeline};
use infeed_codec::transform::{
    CenterCrop, MixUp, Normalize, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip,
    Resize,
};
use infeed_core::sample::DType;
use infeed_device::Upload;
use infeed_device::sim::Sim;
use tempfile::TempDir;

use crate::data::{bits, epoch, open, pairs, photo, photos};
use crate::device::{ODD, device_epoch, fetch_bits};

/// Side of the images after transforms. Rows have room for most files, but not for all.
const SIDE: u32 = 33;

fn by_device(on_error: OnError) -> Options {
    let mut options = Options::default();
    (options.workers, options.on_error) = (Some(2), on_error);
    options.decode = DecodeBy::Gpu;
    options
}

fn open_on_device(
    pipeline: &Pipeline,
    device: &str,
    placement: Placement,
    options: &Options,
) -> Result<(Sim, DeviceLoader<Sim>), Error> {
    let sim = Sim::parse(device)?;
    let loader = pipeline.open_on(sim.clone(), placement, 3, &[], options)?;
    Ok((sim, loader))
}

fn on_device(pipeline: &Pipeline, seed: u64, on_error: OnError) -> (Sim, DeviceLoader<Sim>) {
    let options = by_device(on_error);
    let opened = open_on_device(pipeline, &format!("{ODD}{seed}"), Placement::Auto, &options);
    opened.expect("images that a device resizes")
}

/// JPEGs of every kind, some other images, and photographs.
fn pictures() -> TempDir {
    let root = photos(9);
    let conformance = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance");
    let mut names: Vec<String> = fs::read_dir(conformance)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a name"))
        .filter(|name| name.ends_with(".jpg") || name.starts_with("c2b08"))
        .collect();
    names.sort();
    for name in names {
        let to = root.path().join("cat").join(&name);
        fs::copy(format!("{conformance}/{name}"), to).expect("copies");
    }
    root
}

fn crop_pipeline(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(3)
        .decode()
        .transform(RandomResizedCrop::new(SIDE))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        .batch(4)
}

/// Returns the number of files that the device decoded and the number of all files, in two epochs
/// that equal the host's.
fn count_decoded(pipeline: &Pipeline, seed: u64) -> (u64, usize) {
    let host = open(pipeline, 2);
    let wanted: Vec<_> = (0..2).map(|_| bits(&epoch(&host))).collect();
    let (sim, loader) = on_device(pipeline, seed, OnError::Stop);
    let mut rows = 0;
    for wanted in &wanted {
        let found = device_epoch(&loader);
        assert!(found == *wanted, "{pipeline:?}");
        rows += found
            .iter()
            .map(|(records, _)| records.len())
            .sum::<usize>();
    }
    let routes = loader.ring().routes();
    let decodes = |upload: &Upload| matches!(upload, Upload::Decode(_));
    assert!(routes.iter().any(|route| decodes(&route.upload)));
    assert_eq!(loader.placement().choice, Placement::Resize);
    let stats = loader.ring().stats().expect("a device");
    loader.close();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    (stats.jpegs, rows)
}

#[test]
fn a_device_and_the_host_decode_every_kind_of_file_to_the_same_pixels() {
    let root = pictures();
    let base = || {
        Pipeline::new(SourceSpec::folder(root.path()))
            .shuffle(8)
            .decode()
    };
    for (seed, layout) in [(1, Layout::Hwc), (2, Layout::Chw)] {
        let (files, all) = count_decoded(&crop_pipeline(root.path()).layout(layout), seed);
        // Photographs and the plain JPEGs, in two epochs.
        assert!(30 < files && files < all as u64 - 30, "{files} of {all}");
        let half = crop_pipeline(root.path())
            .layout(layout)
            .dtype(DType::BFloat16);
        count_decoded(&half, seed + 2);
    }
    let whole = base()
        .transform(Resize::new([40, 30]))
        .transform(RandomVerticalFlip::new(0.5))
        .batch(7);
    assert!(count_decoded(&whole, 5).0 > 30);
    // The crop has the final size, so nothing is resized.
    let cut = base()
        .transform(CenterCrop::new(28))
        .transform(Resize::new([28, 28]))
        .batch(3);
    assert!(count_decoded(&cut, 6).0 > 30);
    // The host decodes at a reduced DCT scale, which changes the pixels.
    let mut scaled = base().transform(Resize::new([16, 16])).batch(5);
    if let Some(decode) = &mut scaled.decode {
        decode.dct_scale = true;
    }
    let (files, all) = count_decoded(&scaled, 7);
    assert!(files < all as u64 / 4, "{files} of {all}");
}

#[test]
fn files_that_are_larger_than_a_row_are_decoded_on_the_host() {
    let root = photos(8);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(Resize::new([12, 12]))
        .batch(4);
    let sizes = (0..8).map(|n| photo(root.path(), n).metadata().expect("a file").len());
    assert!(sizes.min() > Some(4 * 12 * 12 * 3 + 16));

    assert_eq!(count_decoded(&pipeline, 3), (0, 16));
}

/// Files without their ends, files that are no images, and files with invalid data between valid
/// markers.
fn write_damaged() -> TempDir {
    let root = photos(40);
    let change = |n: u64, change: &dyn Fn(&mut Vec<u8>)| {
        let path = photo(root.path(), n);
        let mut bytes = fs::read(&path).expect("it is there");
        change(&mut bytes);
        fs::write(&path, bytes).expect("writes");
    };
    change(3, &|bytes| bytes.truncate(bytes.len() / 2));
    change(8, &|bytes| *bytes = b"<html>not found</html>".to_vec());
    for n in [12, 19, 27, 33] {
        change(n, &|bytes| {
            let end = bytes.len() - 2;
            bytes[end / 2..end].fill(0x55);
        });
    }
    for n in [14, 21, 30] {
        change(n, &|bytes| {
            let at = bytes.len() - 200 - n as usize;
            bytes[at] ^= 0x10;
        });
    }
    root
}

#[test]
fn files_that_only_the_decoder_rejects_are_bad_records_as_on_the_host() {
    let root = write_damaged();
    let pipeline = crop_pipeline(root.path());
    for on_error in [OnError::Substitute, OnError::Skip] {
        let mut options = by_device(on_error);
        options.decode = DecodeBy::Cpu;
        let host = pipeline.open(&options).expect("opens");
        let wanted: Vec<_> = (0..2).map(|_| bits(&epoch(&host))).collect();
        let (sim, loader) = on_device(&pipeline, 4, on_error);
        for wanted in &wanted {
            assert!(device_epoch(&loader) == *wanted, "{on_error:?}");
        }
        let bad = |loader: &infeed::Loader| -> Vec<(String, u64, u64)> {
            let all = loader.bad_records();
            all.iter()
                .map(|bad| (bad.reason.to_string(), bad.epoch, bad.position))
                .collect()
        };
        assert!(bad(&host).len() > 4, "{:?}", bad(&host));
        assert_eq!(bad(loader.loader()), bad(&host));
        assert_eq!(loader.loader().digest(), host.digest());
        assert!(loader.ring().stats().expect("a device").jpegs > 20);
        loader.close();
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }

    let host = pipeline.open(&Options::default()).expect("opens");
    let mut before = Vec::new();
    let wanted = loop {
        match host.next_batch() {
            Ok(batch) => before.extend(batch.map(|batch| bits(&[batch]).remove(0))),
            Err(error) => break error.to_string(),
        }
    };
    let (_, loader) = on_device(&pipeline, 5, OnError::Stop);
    let mut received = Vec::new();
    let found = loop {
        match loader.next_batch() {
            Ok(batch) => received.extend(batch.map(|batch| fetch_bits(&batch))),
            Err(error) => break error.to_string(),
        }
    };
    assert!(received == before);
    assert_eq!(found, wanted);
    assert_eq!(loader.next_batch().expect_err("stopped").to_string(), found);
}

#[test]
fn a_run_resumes_from_its_state_and_reports_another_decoder() {
    let root = write_damaged();
    let pipeline = crop_pipeline(root.path());
    let substitute = OnError::Substitute;
    let (_, loader) = on_device(&pipeline, 1, substitute);
    let whole: Vec<_> = (0..2).flat_map(|_| device_epoch(&loader)).collect();
    for killed in [1, 4, 9, 10, 13] {
        let (_, loader) = on_device(&pipeline, killed, substitute);
        let mut taken = 0;
        while taken < killed {
            taken += u64::from(loader.next_batch().expect("none is lost").is_some());
        }
        let state = loader.loader().state();
        assert_eq!(state.decoder.as_deref(), Some("libjpeg-turbo"));
        loader.close();

        let (_, resumed) = on_device(&pipeline, 7, substitute);
        resumed.restore(&state).expect("the same run");
        let rest: Vec<_> = (0..2).flat_map(|_| device_epoch(&resumed)).collect();
        let left = &whole[killed as usize..];
        let rest = &rest[..left.len().min(rest.len())];
        assert!(rest == &left[..rest.len()] && rest.len() > 6, "{killed}");

        let host = open(&pipeline, 1);
        let refused = host.restore(&state).expect_err("other pixels").to_string();
        assert!(refused.contains("decode is cpu, was gpu"), "{refused}");
        let notes = host.restore_anyway(&state).expect("as asked");
        assert!(notes[0].contains("decode is cpu"), "{notes:?}");
        let own = host.state();
        let refused = resumed.restore(&own).expect_err("other pixels").to_string();
        assert!(refused.contains("decode is gpu, was cpu"), "{refused}");

        let mut other = state.clone();
        other.decoder = Some("nvJPEG 12.4, the engine".to_owned());
        resumed
            .restore(&other)
            .expect("restores and reports the other decoder");
        let notices = resumed.loader().take_notices();
        assert!(
            notices[0].contains("changes to libjpeg-turbo, was nvJPEG 12.4"),
            "{notices:?}"
        );
    }
}

#[test]
fn a_device_decodes_its_share_of_the_records() {
    let root = photos(60);
    let pipeline = crop_pipeline(root.path());
    let host = open(&pipeline, 2);
    let wanted: Vec<_> = (0..3).map(|_| bits(&epoch(&host))).collect();
    // Returns the percentage of records that the device decoded, the plan and the state.
    let run = |share: &str| {
        let mut options = by_device(OnError::Stop);
        options.decode = share.parse().expect("a share");
        let device = format!("{ODD}9");
        let (sim, loader) = open_on_device(&pipeline, &device, Placement::Auto, &options)
            .expect("images that a device resizes");
        for wanted in &wanted {
            assert!(device_epoch(&loader) == *wanted, "{share}");
        }
        let (plan, state) = (
            loader.loader().plan().expect("open"),
            loader.loader().state(),
        );
        loader.close();
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
        // The counters cover whole batches, because none is in transfer any more.
        let stats = loader.ring().stats().expect("a device");
        (100 * stats.jpegs / (4 * stats.batches), plan, state)
    };
    let (half, plan, state) = run("0.5");
    assert!((30..=70).contains(&half), "{half} %");
    assert!(plan.contains("of 8 in 16 records on the device"), "{plan}");
    let (most, _, _) = run("0.9");
    assert!(half < most && most < 100, "{half} %, {most} %");
    assert_eq!(run("gpu").0, 100);

    assert_eq!(state.decoder_share, Some(8));
    let (_, other) = on_device(&pipeline, 2, OnError::Stop);
    let refused = other.restore(&state).expect_err("other pixels").to_string();
    assert!(refused.contains("decode is gpu, was 8/16 gpu"), "{refused}");
    assert_eq!("0.01".parse(), Ok(DecodeBy::Mix(1)));
    for wrong in ["0", "1", "-0.5", "nan", "nvjpeg", ""] {
        let error = wrong.parse::<DecodeBy>().expect_err("no share");
        assert!(error.contains("between 0 and 1"), "{error}");
    }
}

#[test]
fn each_of_several_devices_decodes_the_files_of_its_rows() {
    let root = write_damaged();
    let pipeline = crop_pipeline(root.path());
    let mut options = by_device(OnError::Substitute);
    options.decode = DecodeBy::Cpu;
    let host = pipeline.open(&options).expect("opens");
    let wanted = epoch(&host);
    let sims: Vec<Sim> = (5..7)
        .map(|seed| Sim::parse(&format!("{ODD}{seed}")).expect("a device"))
        .collect();
    let options = by_device(OnError::Substitute);
    let loader = pipeline.open_on_all(sims.clone(), Placement::Resize, 2, &[], &options);
    let loader = loader.expect("four rows, two devices");

    for wanted in &wanted {
        let parts = loop {
            let next = loader.next_parts(Duration::from_secs(1), &[]);
            match next.expect("none is lost") {
                PartsStep::Parts(parts) => break parts,
                PartsStep::End => panic!("too early"),
                PartsStep::Timeout => {}
            }
        };
        let image = |part| {
            let (_, bytes): (Vec<u64>, Vec<u8>) = fetch_bits(part);
            bytes[..bytes.len() - 2 * 8].to_vec()
        };
        let found: Vec<u8> = parts.iter().flat_map(image).collect();
        assert!(found == wanted.array("image").expect("an image").bytes());
    }
    for ring in loader.rings() {
        assert!(ring.stats().expect("a device").jpegs > 0);
    }
    loader.close();
    for sim in &sims {
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

#[test]
fn a_pipeline_that_a_device_cannot_decode_for_is_rejected_with_the_reason() {
    let root = photos(6);
    let pipeline = crop_pipeline(root.path());
    let gpu = by_device(OnError::Stop);
    let refused = |pipeline: &Pipeline, device: &str, placement, options: &Options| {
        let opened = open_on_device(pipeline, device, placement, options);
        let error = opened.expect_err("it cannot be");
        error.chain()
    };
    let says = |text: String, words: &str| assert!(text.contains(words), "{words}: {text}");

    says(
        pipeline.open(&gpu).expect_err("no device").to_string(),
        "needs a device, such as device=\"cuda\"",
    );
    for placement in [Placement::Host, Placement::Device] {
        says(
            refused(&pipeline, "sim", placement, &gpu),
            "use placement=\"device-resize\"",
        );
    }
    says(
        refused(&pipeline, "sim:jpeg=none", Placement::Auto, &gpu),
        "remove `jpeg=none`",
    );
    let mut pixels = gpu.clone();
    pixels.digest = DigestScope::Pixels;
    says(
        refused(&pipeline, "sim", Placement::Auto, &pixels),
        "use digest=\"ids\"",
    );

    let auto = |pipeline: &Pipeline| refused(pipeline, "sim", Placement::Auto, &gpu);
    let base = || Pipeline::new(SourceSpec::folder(root.path())).decode();
    let cut = base().transform(CenterCrop::new(20)).batch(2);
    says(auto(&cut), "no uint8 image has a bilinear resize");
    let mut padded = crop_pipeline(root.path());
    padded.batch.tail = Some(Tail::Pad);
    says(auto(&padded), "because tail=\"pad\" adds rows of zeros");
    let mut mixed = crop_pipeline(root.path()).transform(MixUp::new(0.4));
    mixed.batch.drop_last = true;
    says(auto(&mixed), "because MixUp and CutMix");
    let mut gray = base().transform(Resize::new([20, 20])).batch(2);
    if let Some(decode) = &mut gray.decode {
        let mode = infeed_codec::decode::ColorMode::Gray;
        decode.modes.insert("image".to_owned(), mode);
    }
    says(auto(&gray), "no image is a file that is decoded to \"rgb\"");

    // Files of another kind are no reason: their kind is unknown until they are read.
    let root = pairs(5, 40, 50);
    fs::remove_file(root.path().join("class_dict.csv")).expect("it is there");
    let png = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(Resize::new([20, 20]))
        .batch(2);
    assert_eq!(count_decoded(&png, 1), (0, 20));
}

#[test]
fn the_plan_names_the_decoder() {
    let root = photos(6);
    let (_, loader) = on_device(&crop_pipeline(root.path()), 1, OnError::Stop);

    let plan = loader.loader().plan().expect("open");

    assert!(plan.contains("baseline JPEGs on the device"), "{plan}");
}
