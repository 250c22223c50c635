//! Explanations of JPEGs that a device could decode. The rates of the simulated devices determine
//! the best share of the records.

use std::fs;
use std::path::Path;

use infeed::loader::DecodeBy;
use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline};
use infeed_codec::transform::{CenterCrop, Normalize, RandomResizedCrop};
use infeed_device::AnyDevice;
use infeed_explain::{
    Case, Conditions, DecodingRate, DecodingReport, DeviceOrigin, Explanation, Limit, Split,
    explain,
};
use infeed_sample::{Subsampling, jpeg};
use tempfile::TempDir;

use crate::data;

/// Side of large images in pixels.
const LARGE: u32 = 512;

/// Side of the output in pixels. Rows have room for 49 kB, enough for all files.
const SIDE: u32 = 64;

fn crop_pipeline(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(SIDE))
        .transform(Normalize::new([0.5; 3], [0.5; 3]))
        .batch(8)
}

fn conditions(device: &str, decode: DecodeBy) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.seconds = 0.2;
    conditions.try_remedies = false;
    conditions.open = Options::default();
    conditions.open.workers = Some(1);
    conditions.open.decode = decode;
    conditions.device = Some(AnyDevice::open(device).expect("a device"));
    conditions
}

fn explain_pipeline(pipeline: &Pipeline, conditions: Conditions) -> Explanation {
    let case = Case::new("data", pipeline, &[], conditions).expect("a case");
    explain(&case, &|_, _| true).expect("an explanation")
}

fn decoding(found: &Explanation) -> &DecodingReport {
    found.decoding.as_ref().expect("it has a decoder")
}

fn of(decoding: &DecodingReport, share: u8) -> &DecodingRate {
    let mut candidates = decoding.candidates.iter();
    let found = candidates.find(|candidate| candidate.share == share);
    found.unwrap_or_else(|| panic!("{share} in {decoding:?}"))
}

/// Pictures that take several milliseconds of a core each.
fn large(count: u64) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(root.path().join("all")).expect("a new folder");
    for n in 0..count {
        let picture = data::picture(n, LARGE, LARGE);
        let bytes = jpeg(&picture, 5, Subsampling::Quarter).expect("encodes");
        fs::write(root.path().join(format!("all/{n:03}.jpg")), bytes).expect("writes");
    }
    root
}

#[test]
fn a_decoder_that_is_slower_than_the_cores_is_not_recommended() {
    let root = data::photos(40);
    // About 4 000 pixels each: 25 files per second.
    let found = explain_pipeline(
        &crop_pipeline(root.path()),
        conditions("sim:jpeg=1e5,latency=1us", DecodeBy::Auto),
    );

    let decoding = decoding(&found);
    assert_eq!((decoding.share, decoding.now), (0, 0), "{decoding:?}");
    assert_eq!(decoding.origin, DeviceOrigin::Simulated);
    assert!((decoding.taken - 1.0).abs() < 1e-9, "all are baseline");
    let gpu = of(decoding, 16);
    assert_eq!(gpu.placement.binding, Limit::Decoder);
    assert!(
        15.0 < gpu.placement.rate.mid && gpu.placement.rate.mid < 40.0,
        "{gpu:?}"
    );
    let placement = found.placement.as_ref().expect("a device");
    assert_eq!(placement.now, Split::Device);
    assert!(!placement.decodes);
    let best = placement
        .candidates
        .iter()
        .find(|candidate| candidate.split == placement.chosen);
    let cpu = of(decoding, 0);
    assert_eq!(
        Some(cpu.placement.rate),
        best.map(|candidate| candidate.rate)
    );
    let notes = decoding.notes.join("\n");
    assert!(notes.contains("is as fast as any share"), "{notes}");
}

#[test]
fn a_decode_share_reaches_its_predicted_rate() {
    let root = data::photos(200);
    // A quarter of the records on a decoder of about 25 files per second allows about 100 records
    // per second, whatever the cores do.
    let mut mix = conditions("sim:jpeg=1e5,latency=1us", DecodeBy::Mix(4));
    mix.seconds = 0.5;

    let found = explain_pipeline(&crop_pipeline(root.path()), mix);

    let decoding = decoding(&found);
    assert_eq!(decoding.now, 4);
    let now = of(decoding, 4);
    assert_eq!(now.placement.binding, Limit::Decoder);
    let (ran, predicted) = (found.run.samples_per_s, now.placement.rate.mid);
    let ratio = ran / predicted;
    assert!((0.5..2.0).contains(&ratio), "{ran} of {predicted}");
    assert_eq!(found.verdict.limit, Limit::Decoder, "{:?}", found.resources);
    let placement = found.placement.as_ref().expect("a device");
    assert!(placement.decodes && placement.now == Split::Resize);
    // The run used none of the placements with the host's pixels; all three are reported.
    assert_eq!(placement.candidates.len(), 3, "{placement:?}");
    let crossed = found.transfers.as_ref().expect("it ran on a device");
    assert!(crossed.jpegs > 0 && crossed.fields[0].files);
    let seen = crossed.seen.join("\n");
    assert!(seen.contains("on the bus and in the decoder"), "{seen}");
    assert!(seen.contains("were decoded on the device"), "{seen}");
    let notes = decoding.notes.join("\n");
    assert!(notes.contains("now it is decode=4/16"), "{notes}");
}

#[test]
fn the_recommended_share_is_as_fast_as_any() {
    let root = large(48);
    // A core and the decoder each take about 1 ms per file. Which is faster depends on the machine,
    // whose cores also simulate the decoder.
    let device = "sim:jpeg=2.5e8,latency=1us";

    let found = explain_pipeline(
        &crop_pipeline(root.path()),
        conditions(device, DecodeBy::Auto),
    );

    let output = decoding(&found);
    assert!(output.share <= 16, "{output:?}");
    let rate = |share| of(output, share).placement.rate.mid;
    let most = rate(0).max(rate(16));
    assert!(1.03 * rate(output.share) > 0.999 * most, "{output:?}");
    if let Some(balance) = output.balance {
        assert!((0.0..=1.0).contains(&balance), "{output:?}");
    }
    assert_eq!(output.share > 0, output.gain.mid > 1.0, "{output:?}");
}

#[test]
fn shares_are_not_tried_without_files_to_decode() {
    let root = data::photos(12);
    let cut = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(CenterCrop::new(SIDE))
        .transform(Normalize::new([0.5; 3], [0.5; 3]))
        .batch(4);

    let found = explain_pipeline(&cut, conditions("sim:latency=1us", DecodeBy::Auto));

    assert!(found.decoding.is_none());
    let placement = found.placement.expect("a device");
    let splits: Vec<Split> = placement
        .candidates
        .iter()
        .map(|candidate| candidate.split)
        .collect();
    assert_eq!(splits, [Split::Host, Split::Device], "nothing is resized");
}

#[test]
fn a_device_without_a_decoder_is_reported() {
    let root = data::photos(12);
    let pipeline = crop_pipeline(root.path());

    let found = explain_pipeline(&pipeline, conditions("sim:jpeg=none", DecodeBy::Auto));

    assert!(found.decoding.is_none());
    let notes = found.notes.join("\n");
    assert!(notes.contains("the host decodes all JPEGs"), "{notes}");
    assert!(notes.contains("has no decoder"), "{notes}");
}

#[test]
fn files_for_a_decoder_and_feeders_are_not_explained_together() {
    let root = data::photos(12);
    let mut both = conditions("sim", DecodeBy::Gpu);
    both.feeders = Some(infeed_feed::Feeders::new(["127.0.0.1:9"]));
    let case = Case::new("data", &crop_pipeline(root.path()), &[], both).expect("a case");

    let error = explain(&case, &|_, _| true).expect_err("one of the two");

    assert!(error.to_string().contains("decode"), "{error}");
}
