//! Explanations of pipelines whose limit is known in advance.

use std::time::Duration;

use infeed::pipeline::{MemoryField, Pipeline, SourceSpec};
use infeed::{Error, OnError, Options};
use infeed_codec::transform::{
    ClassIndex, ColorJitter, Crop, Jitter, Normalize, OneHot, RandomErasing, RandomHorizontalFlip,
    RandomResizedCrop, Resize, ToFloat,
};
use infeed_core::sample::DType;
use infeed_explain::{
    Case, Conditions, Explanation, Limit, PlannedMachine, apply, explain, remedy,
};
use infeed_source::throttle::Throttle;

use crate::data;

/// Short runs, because the tests check which limit is named and not the exact rate.
fn conditions() -> Conditions {
    let mut conditions = Conditions::default();
    conditions.seconds = 0.3;
    conditions.try_remedies = false;
    conditions.open.workers = Some(2);
    conditions
}

/// Shorter runs, with remedies, for tests that check which are tried and what they report.
fn with_remedies() -> Conditions {
    let mut conditions = conditions();
    conditions.seconds = 0.05;
    conditions.try_remedies = true;
    conditions
}

fn explain_pipeline(pipeline: &Pipeline, conditions: Conditions) -> Explanation {
    let case = Case::new("data", pipeline, &[], conditions).expect("a case");
    explain(&case, &|_, _| true).expect("an explanation")
}

fn photos(root: &std::path::Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(24))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(4)
}

fn palette(root: &std::path::Path) -> String {
    root.join("class_dict.csv").display().to_string()
}

/// Storage that is limited only by this number of bytes per second.
fn storage(bytes_per_s: f64) -> PlannedMachine {
    PlannedMachine {
        name: "a slow disk".to_owned(),
        storage: Some(Throttle {
            bytes_per_s,
            requests_per_s: 1e9,
            latency: Duration::ZERO,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
    }
}

fn bus(bytes_per_s: f64) -> PlannedMachine {
    PlannedMachine {
        name: "a slow bus".to_owned(),
        storage: None,
        bus_bytes_per_s: Some(bytes_per_s),
        device_bytes_per_s: Some(1e12),
        devices: 1,
    }
}

#[test]
fn slow_storage_is_named_and_its_rate_is_bytes_over_bytes() {
    let root = data::photos(12);
    let pipeline = photos(root.path());
    let mut conditions = conditions();
    conditions.planned_machine = Some(storage(50_000.0));

    let found = explain_pipeline(&pipeline, conditions);

    assert_eq!(found.verdict.limit, Limit::Storage, "{:?}", found.resources);
    let record = found.subject.bytes as f64 / found.subject.records as f64;
    let expected = 50_000.0 / record;
    assert!(
        (found.verdict.rate / expected - 1.0).abs() < 0.15,
        "{:?}",
        found.verdict
    );
    assert!(
        found.verdict.claim.contains("storage"),
        "{}",
        found.verdict.claim
    );
    let stall = found.stall;
    assert!(
        stall.fetch > stall.prep + stall.wire + stall.copy,
        "{stall:?}"
    );
}

#[test]
fn decoding_limits_a_folder_of_photographs() {
    // Photographs of some milliseconds, next to which the readers cost nothing.
    let root = data::photos_from(8, 480, 640);
    let mut large = Pipeline::new(SourceSpec::folder(root.path())).decode();
    large = large.transform(Resize::new([8, 8])).batch(4);

    let found = explain_pipeline(&large, conditions());

    assert_eq!(found.verdict.limit, Limit::Decode, "{:?}", found.run.stages);
    assert!(
        found.verdict.capacity[0].contains("2 workers /"),
        "{}",
        found.verdict.capacity[0]
    );
}

#[test]
fn a_slow_transform_is_named_if_nothing_is_decoded() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("pixels");
    std::fs::write(&path, vec![90_u8; 16 * 64 * 64 * 3]).expect("writes");
    let field = MemoryField {
        name: "image".to_owned(),
        kind: "image".to_owned(),
        dtype: Some(DType::UInt8),
        shape: vec![64, 64, 3],
        handle: None,
        offsets: None,
        files: false,
        path: Some(path),
        offset: 0,
        records: Some(16),
    };
    let jitter = ColorJitter {
        hue: Jitter::By(0.3),
        ..ColorJitter::default()
    };
    let pipeline = Pipeline::new(SourceSpec::Memory {
        fields: vec![field],
    })
    .transform(jitter)
    .batch(4);

    let found = explain_pipeline(&pipeline, conditions());

    assert_eq!(
        found.verdict.limit,
        Limit::Transform,
        "{:?}",
        found.run.stages
    );
}

#[test]
fn a_step_longer_than_everything_is_the_limit_and_leaves_no_stall() {
    let root = data::photos(12);
    let mut conditions = conditions();
    conditions.step = Some(Duration::from_millis(60));
    conditions.seconds = 0.6;

    let found = explain_pipeline(&photos(root.path()), conditions);

    assert_eq!(found.verdict.limit, Limit::Step, "{:?}", found.resources);
    assert!((found.verdict.rate - 4.0 / 0.06).abs() < 1.0);
    let stall = found.stall;
    let waits = stall.fetch + stall.prep + stall.wire + stall.copy;
    assert!(stall.compute > waits, "{stall:?}");
}

#[test]
fn a_slow_bus_is_named_with_its_arithmetic() {
    let root = data::photos(12);
    let mut conditions = conditions();
    conditions.planned_machine = Some(bus(20_000.0));

    let found = explain_pipeline(&photos(root.path()), conditions);

    // 24 x 24 x 3 bytes per sample.
    assert_eq!(found.verdict.limit, Limit::Copy);
    assert!(
        (found.verdict.rate - 20_000.0 / 1728.0).abs() < 0.1,
        "{:?}",
        found.verdict
    );
}

#[test]
fn a_limiting_bus_predicts_the_gain_of_smaller_batches() {
    let root = data::photos(12);
    let pipeline = photos(root.path()).transform(Normalize::new([0.5; 3], [0.5; 3]));
    let mut conditions = with_remedies();
    conditions.planned_machine = Some(bus(20_000.0));

    let found = explain_pipeline(&pipeline, conditions);

    // float32 compared with uint8, and a label of 8 bytes in both.
    let uint8 = remedy(&found, "uint8").expect("it was tried");
    let expected = (4.0 * 1728.0 + 8.0) / (1728.0 + 8.0);
    assert!((uint8.gain.mid / expected - 1.0).abs() < 0.01, "{uint8:?}");
    assert_eq!(found.remedies[0].id, "uint8");
}

#[test]
fn two_limits_within_five_percent_are_called_a_tie() {
    let root = data::photos(12);
    let mut conditions = conditions();
    let per_s = 20_000.0 / 1736.0;
    conditions.planned_machine = Some(bus(20_000.0));
    // 3 % above the bus rate, with 4 samples per step.
    conditions.step = Some(Duration::from_secs_f64(4.0 / (1.03 * per_s)));

    let found = explain_pipeline(&photos(root.path()), conditions);

    assert!(found.verdict.tie, "{:?}", found.verdict);
    assert_eq!(
        (found.verdict.limit, found.verdict.next_limit),
        (Limit::Copy, Some(Limit::Step))
    );
    assert!(
        found.verdict.claim.contains("together"),
        "{}",
        found.verdict.claim
    );
}

#[test]
fn remedies_are_tried_on_the_users_records_and_masks_are_never_offered_a_lossy_format() {
    let root = data::pairs(8, 48, 64);
    let pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        root.path().join("masks"),
    ))
    .decode()
    .transform(Crop::new(32, 32))
    .transform(ToFloat::of("image"))
    .transform(OneHot::from_palette(palette(root.path())))
    .batch(2);

    let found = explain_pipeline(&pipeline, with_remedies());

    let ids: Vec<&str> = found
        .remedies
        .iter()
        .map(|remedy| remedy.id.as_str())
        .collect();
    for id in [
        "png-up",
        "png-stored",
        "jpeg-95",
        "crop",
        "decoded",
        "shards",
        "unverified",
        "uint8",
    ] {
        assert!(
            ids.contains(&id),
            "{id} is missing of {ids:?}; {:?}",
            found.not_tried
        );
    }
    for remedy in &found.remedies {
        assert!(
            !remedy.command.contains("--mask jpeg"),
            "{}",
            remedy.command
        );
        assert!(remedy.gain.low <= remedy.gain.mid && remedy.gain.mid <= remedy.gain.high);
        assert!(
            remedy.rate.mid.is_finite() && remedy.rate.mid > 0.0,
            "{remedy:?}"
        );
    }
    let by_id = |id: &str| found.remedies.iter().find(|remedy| remedy.id == id);
    let quality = |id: &str| {
        by_id(id)
            .map(|remedy| remedy.quality.clone())
            .unwrap_or_default()
    };
    assert_eq!(quality("crop"), "identical");
    assert!(
        quality("jpeg-95").contains("PSNR"),
        "{}",
        quality("jpeg-95")
    );
}

#[test]
fn a_lossy_remedy_reports_its_loss_with_erased_floats() {
    let root = data::pairs(8, 48, 64);
    let pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        root.path().join("masks"),
    ))
    .decode()
    .transform(Crop::new(32, 32))
    .transform(ToFloat::of("image"))
    .transform(OneHot::from_palette(palette(root.path())))
    .transform(RandomErasing::new(0.5))
    .batch(2);

    let found = explain_pipeline(&pipeline, with_remedies());

    let lossy = found.remedies.iter().find(|remedy| remedy.id == "jpeg-95");
    let quality = &lossy.expect("JPEG is tried").quality;
    assert!(quality.contains("PSNR"), "{quality}");
}

#[test]
fn restart_markers_are_tried_only_for_cropped_jpegs() {
    let root = data::photos(12);
    let street = data::pairs(8, 48, 64);
    let cut = photos(root.path());
    let whole = Pipeline {
        transforms: vec![Resize::new([24, 24]).into()],
        ..cut.clone()
    };
    let pngs = Pipeline {
        source: SourceSpec::folder(street.path().join("images").parent().expect("a root")),
        ..cut.clone()
    };
    for (pipeline, is_tried) in [(cut, true), (whole, false), (pngs, false)] {
        let found = explain_pipeline(&pipeline, with_remedies());

        let tried = found.remedies.iter().find(|r| r.id == "restart-index");
        assert_eq!(tried.is_some(), is_tried, "{:?}", pipeline.transforms);
        if let Some(remedy) = tried {
            assert!(remedy.command.ends_with("--restart-index"));
            assert_eq!(remedy.quality, "identical");
        }
    }
}

#[test]
fn limiting_storage_predicts_the_gain_of_smaller_files() {
    let root = data::pairs(8, 48, 64);
    let pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        root.path().join("masks"),
    ))
    .decode()
    .transform(Crop::new(40, 52))
    .transform(ClassIndex::new(palette(root.path())))
    .batch(2);
    let mut conditions = with_remedies();
    conditions.planned_machine = Some(storage(500_000.0));
    let case = Case::new("data", &pipeline, &[], conditions).expect("a case");
    let found = explain(&case, &|_, _| true).expect("an explanation");

    let crop = remedy(&found, "crop").expect("it was tried");
    let out = root.path().join("cut");
    let applied = apply(&case, &found, crop, &out, &|_, _| true).expect("applied");

    // The arithmetic uses the same storage on both sides, so load on this machine has little
    // effect.
    assert!(crop.gain.mid > 1.3, "{crop:?}");
    assert!(applied.entry.error().abs() < 0.25, "{applied:?}");
    assert!(out.join("infeed-pack.json").exists());
    assert!(root.path().join("images").exists(), "the original stays");
}

#[test]
fn records_that_cannot_be_packed_are_left_out_of_trials_and_reported() {
    let root = data::photos(24);
    for n in [3, 10] {
        let path = data::photo(root.path(), n);
        let good = std::fs::read(&path).expect("a photo");
        std::fs::write(&path, &good[..good.len() / 2]).expect("writes");
    }
    std::fs::write(data::photo(root.path(), 6), b"no image").expect("writes");
    let mut conditions = with_remedies();
    conditions.open.on_error = OnError::Substitute;
    let pipeline = photos(root.path());
    let case = Case::new("data", &pipeline, &[], conditions).expect("a case");

    let found = explain(&case, &|_, _| true).expect("an explanation");

    let tiles = remedy(&found, "restart-index").expect("it was tried");
    assert_eq!(tiles.quality, "identical; leaves out 2 of 23 records tried");
    let out = root.path().with_extension("tiles");
    let applied = apply(&case, &found, tiles, &out, &|_, _| true).expect("applied");
    assert_eq!((applied.bad, applied.entry.left_out), (3, 3));
    std::fs::remove_dir_all(out).expect("it is there");
}

#[test]
fn an_unknown_remedy_is_an_error_that_lists_the_known_ones() {
    let root = data::photos(12);
    let found = explain_pipeline(&photos(root.path()), conditions());

    let error = remedy(&found, "magic").expect_err("there is none");

    assert!(error.to_string().contains("no remedy `magic`"), "{error}");
}

#[test]
fn bad_records_and_empty_folders_give_one_line_that_names_them() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let empty = Case::new("data", &photos(root.path()), &[], conditions());
    assert!(
        empty
            .expect_err("nothing there")
            .to_string()
            .contains("holds no images")
    );

    for name in ["a.jpg", "b.jpg"] {
        std::fs::write(root.path().join(name), b"no image").expect("writes");
    }
    let case = Case::new("data", &photos(root.path()), &[], conditions()).expect("files");
    let error = explain(&case, &|_, _| true).expect_err("all are bad");
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert!(error.chain().contains(".jpg"), "{}", error.chain());
}

#[test]
fn a_running_loader_is_explained_from_its_counters() {
    let root = data::photos(12);
    let pipeline = photos(root.path()).transform(Normalize::new([0.5; 3], [0.5; 3]));
    let mut options = Options::default();
    options.timeline = Some(Duration::from_secs(2));
    let loader = pipeline.open(&options).expect("opens");
    let early = infeed_explain::running("data", &pipeline, &loader);
    assert!(early.is_err(), "nothing was counted yet");
    for _ in 0..9 {
        loader.next_batch().expect("a batch");
        std::thread::sleep(Duration::from_millis(20));
    }

    let found = infeed_explain::running("data", &pipeline, &loader).expect("explained");

    assert_eq!(found.verdict.limit, Limit::Step, "{:?}", found.resources);
    let whats: Vec<&str> = found
        .timeline
        .iter()
        .map(|span| span.what.as_str())
        .collect();
    for what in ["read", "decode", "write", "wait", "step"] {
        assert!(whats.contains(&what), "{what} is missing of the timeline");
    }
}
