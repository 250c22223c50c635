//! Memory is bounded: budgets, records that can never fit, and batches that the consumer holds.

use infeed::pipeline::SourceSpec;
use infeed::transform::{CenterCrop, ClassIndex, RandomResizedCrop};
use infeed::{Error, OnError, Options, Pipeline};

use crate::data::{epoch, pairs, photos};

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
