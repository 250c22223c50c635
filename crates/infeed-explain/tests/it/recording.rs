//! Recordings of loops: contents, limits, damaged files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use infeed::loader::any::{AnyLoader, AnyStep};
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed::{Error, OnError, Options};
use infeed_codec::transform::RandomResizedCrop;
use infeed_core::random::hash;
use infeed_explain::{
    DurationSummary, LoopTotals, ProcessorLoad, Recorder, Recording, RecordingOptions,
    WatchRecorder, WatchedLoop, report, running,
};

use crate::data;
use crate::report::device::on_device;

fn photos(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(24))
        .batch(4)
}

fn open(pipeline: &Pipeline, options: &Options) -> Arc<AnyLoader> {
    Arc::new(AnyLoader::from(pipeline.open(options).expect("opens")))
}

/// Consumes epochs of a loader with a step of this length.
fn consume(loader: &AnyLoader, epochs: usize, step: Duration) {
    for _ in 0..epochs {
        let next = || loader.next_within(Duration::from_secs(60), &[]);
        while !matches!(next().expect("a batch"), AnyStep::End) {
            std::thread::sleep(step);
        }
    }
}

fn options(paths: bool) -> RecordingOptions {
    RecordingOptions {
        paths,
        versions: BTreeMap::from([("python".to_owned(), "3.11.4".to_owned())]),
    }
}

fn read(path: &Path) -> Recording {
    Recording::open(path).expect("reads").expect("a recording")
}

/// A folder with a class, a bad file and a recording of two epochs over it.
fn record_run(paths: bool) -> (tempfile::TempDir, String) {
    let root = data::photos(12);
    let class = root.path().join("secret-class");
    fs::create_dir(&class).expect("a folder");
    fs::write(class.join("hidden-name.jpg"), b"\xff\xd8\xff not a JPEG").expect("writes");
    let mut pipeline = photos(root.path());
    pipeline.filter =
        vec![serde_json::from_str(r#"{"not_name": ["private-*"]}"#).expect("a filter")];
    let mut settings = Options::default();
    settings.on_error = OnError::Substitute;
    let loader = open(&pipeline, &settings);
    let out = tempfile::tempdir().expect("a temporary folder");
    let path = out.path().join("run.json");

    let recorder = Recorder::start(&path, &loader, options(paths)).expect("starts");
    consume(&loader, 2, Duration::ZERO);
    drop(recorder);

    let text = fs::read_to_string(&path).expect("is there");
    assert_eq!(fs::read_dir(out.path()).expect("lists").count(), 1);
    (root, text)
}

#[test]
fn a_recording_has_the_loop_and_no_path_or_name_of_the_dataset() {
    let (root, text) = record_run(false);

    let folder = root.path().file_name().expect("a name").to_string_lossy();
    for name in [
        &*folder,
        "secret-class",
        "hidden-name",
        "private",
        ".jpg",
        "/tmp",
    ] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let recording = Recording::from_json(text.as_bytes()).expect("reads");
    assert!(recording.closed && !recording.with_paths);
    let kinds = recording.events.kinds().iter();
    let kinds: Vec<(&str, u64)> = kinds.map(|e| (e.kind.as_str(), e.count)).collect();
    assert!(kinds.contains(&("epochs ended", 2)), "{kinds:?}");
    assert!(
        kinds
            .iter()
            .any(|(kind, count)| kind.starts_with("bad records (") && *count == 1)
    );
    let plan = &recording.explanation.expect("an explanation").plan;
    assert!(
        plan.contains("  filter\n") && plan.contains("RandomResizedCrop"),
        "{plan}"
    );
}

#[test]
fn paths_and_examples_are_recorded_if_the_user_allows_them() {
    let (root, text) = record_run(true);

    for part in [
        &*root.path().to_string_lossy(),
        "hidden-name.jpg",
        "private-*",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let recording = Recording::from_json(text.as_bytes()).expect("reads");
    let page = report::recording(&recording, 80, false, true);
    for part in ["hidden-name.jpg", "[source]", "examples"] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

#[test]
fn the_verdict_of_the_file_is_that_of_the_loader() {
    let root = data::photos(12);
    let pipeline = photos(root.path());
    let loader = open(&pipeline, &Options::default());
    let out = tempfile::tempdir().expect("a temporary folder");
    let path = out.path().join("run.json");
    let recorder = Recorder::start(&path, &loader, options(false)).expect("starts");
    // The time after the last batch counts as step, so a short step might not limit both times.
    consume(&loader, 3, Duration::from_millis(20));

    drop(recorder);
    let live = running("loader", &pipeline, loader.loader()).expect("explained");

    let recording = read(&path);
    let found = recording.verdict().expect("a verdict");
    assert_eq!(found.limit, live.verdict.limit);
    // Its share of waiting is a little lower for the loader, whose time went on.
    let before_share = |claim: &str| claim.split(':').next().map(str::to_owned);
    assert_eq!(
        before_share(&found.claim),
        before_share(&live.verdict.claim)
    );
    let explanation = recording.explanation.as_ref().expect("an explanation");
    assert_eq!(explanation.run.batches, live.run.batches);
    assert_eq!(explanation.run.samples, 36);
    let page = report::recording(&recording, 80, false, false);
    assert!(page.starts_with(&found.claim[..40]), "{page}");
}

#[test]
fn a_recording_begins_before_the_first_batch_and_survives_a_closed_loader() {
    let root = data::photos(12);
    let loader = open(&photos(root.path()), &Options::default());
    let out = tempfile::tempdir().expect("a temporary folder");
    let path = out.path().join("run.json");

    let recorder = Recorder::start(&path, &loader, options(false)).expect("starts");
    let first = read(&path);
    assert!(!first.closed && first.verdict().is_none());
    let page = report::recording(&first, 80, false, false);
    assert!(page.starts_with("no verdict"), "{page}");

    loader.close();
    drop(recorder);
    assert!(read(&path).closed);
    let error = Recorder::start(&path, &loader, options(false)).expect_err("it is closed");
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_at_once() {
    let root = data::photos(4);
    let loader = open(&photos(root.path()), &Options::default());

    let path = root.path().join("no-folder/run.json");
    let error = Recorder::start(&path, &loader, options(false)).expect_err("no folder");
    assert!(error.chain().contains("no-folder"), "{}", error.chain());
    WatchRecorder::start(&path, "Loader".to_owned(), options(false)).expect_err("no folder");
}

fn summary(mean_s: f64) -> DurationSummary {
    DurationSummary {
        count: 100,
        total_s: 100.0 * mean_s,
        mean_s,
        p50_s: mean_s,
        p99_s: mean_s,
        middle_s: mean_s,
        error_s: 0.0,
    }
}

/// A loop that waits for a third of its time.
fn watched_loop() -> WatchedLoop {
    WatchedLoop {
        batches: 101,
        samples: Some(404.0),
        epochs: 2,
        first_batch_s: Some(0.3),
        seam_s: 0.0,
        wait: summary(0.005),
        step: summary(0.010),
        alone: None,
        lock: None,
        processor: ProcessorLoad {
            usable: 4.0,
            own: 0.6,
            loop_waiting: 0.0,
            loop_stepping: 0.9,
            threads: 0.0,
            python: 0.0,
            children: 1.4,
            machine: 2.0,
            sampled: true,
        },
        throughput: None,
        calls: None,
        asynchronous: false,
        loop_s: 1.5,
        waiting: 1.0 / 3.0,
        per_batch: 4.0,
        unit: "samples/s".to_owned(),
        rate: 266.7,
        step_s: 0.010,
        step_rate: 400.0,
        slowdown: 0.0,
        interference: 0.0,
    }
}

fn watch_recording() -> Vec<u8> {
    let out = tempfile::tempdir().expect("a temporary folder");
    let path = out.path().join("run.json");
    let mut recorder =
        WatchRecorder::start(&path, "torch.DataLoader".to_owned(), options(false)).expect("starts");
    for batches in 0..=100 {
        recorder.add(LoopTotals {
            batches,
            samples: 4 * batches,
            epochs: batches / 50,
            ..LoopTotals::default()
        });
    }
    recorder.add_error("RuntimeError");
    recorder.write(Some(watched_loop()), true).expect("writes");
    fs::read(&path).expect("is there")
}

#[test]
fn a_watched_loop_has_the_same_verdict_in_the_file() {
    let recording = Recording::from_json(&watch_recording()).expect("reads");

    let live = infeed_explain::loop_verdict(&watched_loop());
    let found = recording.verdict().expect("a verdict");
    assert_eq!((found.limit, &found.claim), (live.limit, &live.claim));
    assert_eq!(
        (&found.evidence, &found.capacity),
        (&live.evidence, &live.capacity)
    );
    let kinds = recording.events.kinds().iter();
    let kinds: Vec<(&str, u64)> = kinds.map(|e| (e.kind.as_str(), e.count)).collect();
    assert_eq!(
        kinds,
        [
            ("epochs ended", 2),
            ("errors of the loader (RuntimeError)", 1)
        ]
    );
}

/// Checks that a page fits a terminal of 80 columns.
fn assert_fits(page: &str) {
    let wide = |line: &&str| line.chars().count() > 80;
    assert_eq!(page.lines().find(wide), None, "{page}");
}

#[test]
fn the_answer_fits_one_screen() {
    let (_root, text) = record_run(false);

    for bytes in [text.into_bytes(), watch_recording()] {
        let recording = Recording::from_json(&bytes).expect("reads");
        let page = report::recording(&recording, 80, false, false);
        assert!(page.lines().count() <= 24, "{page}");
        assert_fits(&page);
        for part in [
            "  run ",
            "  waiting ",
            "  events ",
            "  machine ",
            "python 3.11.4",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert_fits(&report::recording(&recording, 80, false, true));
        assert!(bytes.len() < 64 * 1024, "it must fit a comment of an issue");
    }
}

#[test]
fn a_damaged_foreign_or_newer_file_is_an_error_with_a_fix() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let path = out.path().join("run.json");
    let bytes = watch_recording();
    let text = String::from_utf8(bytes.clone()).expect("JSON");

    for foreign in ["", "{}", "[1]", "version = 1\n", "{\"format\": \"other\"}"] {
        fs::write(&path, foreign).expect("writes");
        assert!(
            Recording::open(&path).expect("no error").is_none(),
            "{foreign}"
        );
    }
    assert!(Recording::open(out.path()).expect("no error").is_none());
    let newer = text.replace("\"version\":1", "\"version\":2");
    let no_time = text.replacen("\"seconds\":", "\"seconds\":-", 1);
    for (wrong, part) in [
        (&text[..text.len() / 2], "get a complete copy"),
        (&newer, "version 2"),
        (&no_time, "duration"),
        (
            &format!("{text}{}", " ".repeat(300 * 1024)),
            "more than 262144 bytes",
        ),
    ] {
        fs::write(&path, wrong).expect("writes");
        let error = Recording::open(&path).expect_err(part).chain();
        assert!(
            error.contains("run.json") && error.contains(part),
            "{error}"
        );
    }
}

#[test]
fn hostile_files_give_errors_or_pages() {
    let (_root, text) = record_run(true);
    let mut with_device = Recording::from_json(text.as_bytes()).expect("reads");
    with_device.explanation = Some(Box::new(on_device()));
    let with_device = report::recording_json(&with_device).into_bytes();
    let numbers = [
        "1e308",
        "-1e308",
        "18446744073709551615",
        "-1",
        "null",
        "[]",
        "\"\\u001b[2J\"",
    ];
    let mut read = 0;

    for bytes in [text.into_bytes(), with_device, watch_recording()] {
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b':').collect();
        for case in 0..600_u64 {
            let mut hostile = bytes.clone();
            for change in 0..1 + hash(&[case, 0]) % 3 {
                let draw = hash(&[case, change, 1]);
                let at = places[draw as usize % places.len()] + 1;
                let Some(end) = (at..hostile.len()).find(|&at| b",}]".contains(&hostile[at]))
                else {
                    continue;
                };
                let number = numbers[hash(&[case, change, 2]) as usize % numbers.len()];
                let byte = hash(&[case, change, 3]);
                match draw >> 60 {
                    0 => hostile[at] = byte as u8,
                    _ if at < end => drop(hostile.splice(at..end, number.bytes())),
                    _ => {}
                }
            }
            let Ok(recording) = Recording::from_json(&hostile) else {
                continue;
            };
            read += 1;
            for full in [false, true] {
                let page = report::recording(&recording, 80, false, full);
                assert!(!page.contains('\u{1b}'), "{page:?}");
            }
            report::recording_json(&recording);
            recording
                .explanation
                .iter()
                .for_each(|e| drop(report::html(e)));
        }
    }
    assert!(read > 100, "{read} changed files are still recordings");
}
