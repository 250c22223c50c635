//! Tests of `infeed explain` with the recording of a loop.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use infeed::Options;
use infeed::loader::any::AnyLoader;
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_explain::{Recorder, RecordingOptions};

use crate::{infeed, json, photos, stderr, stdout};

/// Records an epoch over photographs. The name does not reveal the format.
fn record(dir: &Path) -> String {
    let pipeline = Pipeline::new(SourceSpec::folder(photos(dir, 12)))
        .decode()
        .transform(infeed_codec::transform::RandomResizedCrop::new(24))
        .batch(4);
    let loader = pipeline.open(&Options::default()).unwrap();
    let loader = Arc::new(AnyLoader::from(loader));
    let path = dir.join("from-an-issue.txt");
    let options = RecordingOptions {
        paths: false,
        versions: BTreeMap::new(),
    };
    let recorder = Recorder::start(&path, &loader, options).unwrap();
    while loader.loader().next_batch().unwrap().is_some() {}
    drop(recorder);
    path.display().to_string()
}

#[test]
fn a_recording_is_known_by_its_contents_and_its_answer_fits_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path());

    let output = infeed(["explain", &path]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.lines().count() <= 24, "{text}");
    assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
    for part in [
        "limit",
        "  resource ",
        "  waiting ",
        "folder (local)",
        "  more ",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn all_of_a_recording_is_text_json_or_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path());
    let page = dir.path().join("report.html").display().to_string();

    let full = stdout(&infeed(["explain", &path, "--full", "--html", &page]));
    let found = json(&infeed(["explain", &path, "--json"]));

    for part in ["  stage ", "  from ", "  plan\n", "RandomResizedCrop"] {
        assert!(full.contains(part), "{part} is missing in {full}");
    }
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
    assert_eq!(found["format"], "infeed recording");
    let claim = found["explanation"]["verdict"]["claim"].as_str().unwrap();
    assert!(full.starts_with(&claim[..40]), "{full}");
}

#[test]
fn errors_name_the_file_and_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path());

    let output = infeed(["explain", &path, "--apply", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(
        message.contains("from-an-issue.txt: --apply") && message.contains("--full"),
        "{message}"
    );

    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let output = infeed(["explain", &path]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("from-an-issue.txt") && message.contains("complete copy"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
}
