//! Memory is bounded: budgets, records that can never fit, and batches that the consumer holds.

use std::fs;
use std::path::Path;

use infeed::pipeline::SourceSpec;
use infeed::{Error, OnError, Options, Pipeline};
use infeed_codec::transform::{CenterCrop, ClassIndex, RandomResizedCrop, ToFloat};
use infeed_core::sample::{Depth, Image, Size};
use infeed_sample::{Subsampling, jpeg};

use crate::data::{epoch, pairs, photo, photos};

#[test]
fn a_budget_below_two_batches_is_rejected_when_the_pipeline_opens() {
    let root = photos(8);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(RandomResizedCrop::new(224))
        .batch(8);
    let mut options = Options::default();
    options.memory = Some(1 << 20);

    let error = pipeline.open(&options).expect_err("too little");

    let Error::Budget { needed_bytes, .. } = error else {
        panic!("{error}")
    };
    options.memory = Some(needed_bytes);
    assert_eq!(epoch(&pipeline.open(&options).expect("enough")).len(), 1);
}

#[test]
fn a_record_over_the_budget_is_bad_and_one_within_it_waits() {
    let root = pairs(4, 1500, 1500);
    let pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        root.path().join("masks"),
    ))
    .decode()
    .transform(CenterCrop::new(16))
    .transform(ClassIndex::new(
        root.path().join("class_dict.csv").display().to_string(),
    ))
    .batch(2);
    let mut options = Options::default();
    options.workers = Some(2);
    options.on_error = OnError::Stop;

    // Noise of 1500x1500 is about 6 MB per file; reading gets less than 5 of these 13 MB.
    options.memory = Some(13 << 20);
    let error = pipeline
        .open(&options)
        .expect("opens")
        .next_batch()
        .expect_err("too large");
    assert!(matches!(error, Error::RecordTooLarge { .. }), "{error}");
    assert!(error.is_bad_record());

    options.memory = Some(64 << 20);
    let loader = pipeline.open(&options).expect("opens");
    assert_eq!(epoch(&loader).len(), 2);
    let stats = loader.stats().expect("open");
    assert!(stats.fetched_peak_bytes <= stats.budget_bytes);
}

#[test]
fn held_batches_stay_valid_and_are_reported_once() {
    let root = photos(80);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(2);
    let mut options = Options::default();
    options.workers = Some(2);
    let loader = pipeline.open(&options).expect("opens");

    let held = epoch(&loader);
    let notices = loader.take_notices();

    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("holds"));
    let again = epoch(&pipeline.open(&options).expect("opens"));
    assert!(crate::data::bits(&held) == crate::data::bits(&again));
    assert_eq!(loader.stats().expect("open").held, 40);
}

#[test]
fn two_loaders_of_one_process_leave_room_for_each_other() {
    let root = photos(8);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(2);

    let train = pipeline.open(&Options::default()).expect("opens");
    let validate = pipeline
        .open(&Options::default())
        .expect("opens next to it");

    for _ in 0..3 {
        assert_eq!(epoch(&train).len(), 4);
        assert_eq!(epoch(&validate).len(), 4);
    }
}

/// Writes a photograph of 12 megapixels.
fn write_large_photo(path: &Path) {
    let mut image = Image::default();
    let (height, width) = (3000, 4000);
    image.reset(Size { height, width }, 3, Depth::U8);
    let bytes = jpeg(&image, 90, Subsampling::Quarter).expect("encodes");
    fs::write(path, bytes).expect("writes");
}

#[test]
fn a_large_photo_among_small_ones_needs_no_option() {
    let root = photos(8);
    write_large_photo(&root.path().join("cat/large.jpg"));
    let folder = || Pipeline::new(SourceSpec::folder(root.path())).decode();
    let pipelines = [
        folder().batch(1).pad(),
        folder().transform(CenterCrop::new(16)).batch(4),
        folder().transform(ToFloat::default()).batch(3).pad(),
    ];
    for pipeline in pipelines {
        for workers in [1, 2] {
            let mut options = Options::default();
            options.workers = Some(workers);

            let loader = pipeline.open(&options).expect("opens");

            let samples: usize = epoch(&loader).iter().map(infeed::Batch::rows).sum();
            assert_eq!(samples, 9);
        }
    }
}

#[test]
fn a_record_that_became_too_large_proposes_the_budget_in_which_it_fits() {
    let root = photos(4);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
    let pipeline = pipeline.batch(1).pad();
    let mut options = Options::default();
    options.workers = Some(2);
    options.on_error = OnError::Stop;
    let loader = pipeline.open(&options).expect("opens");
    assert_eq!(epoch(&loader).len(), 4);
    // The loader reads ahead, and must not find a part of the file.
    let large = root.path().join("large");
    write_large_photo(&large);
    fs::rename(&large, photo(root.path(), 2)).expect("replaces");

    // Batches of the next epochs may be ready.
    let error = loop {
        if let Err(error) = loader.next_batch() {
            break error;
        }
    };

    let text = error.to_string();
    assert!(
        text.contains("the sizes of all 4 records; set memory="),
        "{text}"
    );
    let Error::RecordTooLarge { advice, .. } = error else {
        panic!("{text}")
    };
    options.memory = advice.memory_bytes;
    let loader = pipeline.open(&options).expect("opens");
    assert_eq!(epoch(&loader).len(), 4);
}
