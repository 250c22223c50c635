//! Tests of `infeed bench`.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{infeed, json, photos, stderr, stdout, streets};

#[test]
fn a_folder_of_photos_is_run_with_a_default_pipeline_that_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);

    let output = infeed(["bench", &photos, "--epochs", "1", "--plan"]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("samples/s"), "the result is first: {text}");
    for part in [
        "RandomResizedCrop",
        "samples/s",
        "first batch",
        "peak memory",
        "12 records",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text:?}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let without = stdout(&infeed(["bench", &photos, "--epochs", "1"]));
    assert!(!without.contains("RandomResizedCrop"), "{without}");
}

#[test]
fn json_has_every_number_and_nothing_else_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 10);

    let output = infeed([
        "bench",
        &photos,
        "--epochs",
        "3",
        "--workers",
        "1",
        "--json",
    ]);

    let numbers = json(&output);
    assert_eq!(numbers["samples"], 30);
    assert_eq!(numbers["batches"], 3);
    assert_eq!(numbers["epochs"], 3);
    assert_eq!(numbers["workers"], 1);
    for key in ["samples_per_s", "first_batch_s", "wait_s", "peak_rss_bytes"] {
        assert!(numbers[key].as_f64().unwrap() >= 0.0, "{key}");
    }
    let stages = numbers["stages"].as_array().unwrap();
    let names: Vec<_> = stages
        .iter()
        .map(|stage| stage["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["read", "decode", "transform", "write"]);
    for key in [
        "samples",
        "wall_s",
        "cpu_s",
        "wait_s",
        "bytes_in",
        "bytes_out",
    ] {
        assert!(stages[1][key].is_number(), "{key}");
    }
    assert!(stages[1]["samples"].as_u64().unwrap() >= 30);
}

#[test]
fn streets_run_with_their_palette_and_no_pixel_is_without_a_class() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 4);

    let output = infeed(["bench", &streets, "--epochs", "2", "--json"]);

    let numbers = json(&output);
    assert_eq!(numbers["samples"], 8);
    assert_eq!(numbers["unknown_pixels"], 0);
}

#[test]
fn a_step_that_takes_longer_than_its_batch_sets_the_pace() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 6);
    let pipeline = dir.path().join("one.toml");
    let text = format!(
        "[source]\nkind = \"folder\"\npath = {photos:?}\n[decode]\n\
         [[transforms]]\nkind = \"CenterCrop\"\nsize = 16\n[batch]\nsize = 1\n"
    );
    fs::write(&pipeline, text).unwrap();

    let path = pipeline.to_str().unwrap();
    let output = infeed(["bench", path, "--epochs", "1", "--step-ms", "50", "--json"]);

    let numbers = json(&output);
    assert_eq!(numbers["batches"], 6);
    let elapsed = numbers["elapsed_s"].as_f64().unwrap();
    assert!(elapsed >= 0.3, "six steps of 50 ms took {elapsed} s");
    assert!(
        numbers["samples_per_s"].as_f64().unwrap() <= 20.0,
        "{numbers}"
    );
}

#[test]
fn a_bad_record_is_named_with_the_fix_and_the_status_is_1() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 6);
    let bad = first_file(Path::new(&photos));
    fs::write(&bad, "no picture").unwrap();

    let output = infeed(["bench", &photos, "--epochs", "1"]);
    let substituted = infeed([
        "bench",
        &photos,
        "--epochs",
        "1",
        "--on-error",
        "substitute",
        "--json",
    ]);

    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(bad.to_str().unwrap()), "{text}");
    assert!(text.contains("--on-error substitute"), "{text}");
    let errors = text.lines().filter(|line| line.starts_with("infeed: "));
    assert_eq!(errors.count(), 1, "{text}");
    let numbers = json(&substituted);
    assert_eq!(numbers["samples"], 6);
    // Listed once, although with so few records it may also be drawn as a substitute.
    let listed = numbers["bad"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{numbers}");
    assert_eq!(listed[0]["record"], bad.to_str().unwrap());
}

fn first_file(dir: &Path) -> std::path::PathBuf {
    let first = |folder: &Path| {
        let mut entries = fs::read_dir(folder).expect("a folder");
        entries.next().expect("not empty").expect("readable").path()
    };
    first(&first(dir))
}

#[test]
fn a_failure_is_one_line_and_a_status() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let typo = dir.path().join("typo.toml");
    fs::write(&typo, "[sauce]\n").unwrap();

    let missing = infeed(["bench", "/does/not/exist"]);
    let empty = infeed(["bench", empty.to_str().unwrap()]);
    let typo = infeed(["bench", typo.to_str().unwrap()]);

    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).contains("/does/not/exist does not exist"),
        "{}",
        stderr(&missing)
    );
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        stderr(&empty).contains("contains no images"),
        "{}",
        stderr(&empty)
    );
    assert_eq!(typo.status.code(), Some(1));
    assert!(stderr(&typo).contains("typo.toml"), "{}", stderr(&typo));
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_run_and_prints_the_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 8);
    let mut child = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(["bench", &photos, "--seconds", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The note about the default pipeline comes before the measurement and marks the start.
    let mut notes = child.stderr.take().unwrap();
    let mut note = String::new();
    let mut byte = [0];
    while !note.ends_with('\n') {
        assert_eq!(notes.read(&mut byte).unwrap(), 1, "it ended early: {note}");
        note.push(char::from(byte[0]));
    }

    let status = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    let mut text = String::new();
    let mut out = child.stdout.take().unwrap();
    out.read_to_string(&mut text).unwrap();

    assert_eq!(child.wait().unwrap().code(), Some(130));
    let measured = text.contains("interrupted; measured so far") && text.contains("samples/s");
    let stopped_before_the_first = text.is_empty();
    assert!(measured || stopped_before_the_first, "{text}");
}

#[test]
fn a_simulated_device_receives_bytes_and_casts_them_to_floats() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 24);
    let run = |placement: &str| {
        let device = ["--device", "sim:bandwidth=1e9,latency=5us", "--placement"];
        let args = ["bench", &photos, "--epochs", "1", "--json"];
        let out = infeed(args.iter().chain(&device).chain(&[placement]));
        assert!(out.status.success(), "{}", stderr(&out));
        json(&out)["device"].clone()
    };

    let (device, host, auto) = (run("device"), run("host"), run("auto"));

    assert_eq!(
        device["name"].as_str().map(|name| name.split(':').next()),
        Some(Some("sim"))
    );
    let bytes =
        |of: &serde_json::Value| of["bytes"].as_f64().unwrap() / of["batches"].as_f64().unwrap();
    assert!(bytes(&host) > 3.9 * bytes(&device), "{host} {device}");
    assert_eq!(host["placement"]["text"], "placement: host, as requested");
    // The loader tries the other placement only after six batches.
    assert_eq!(auto["placement"]["name"], "device");
    assert_eq!(auto["placement"]["settled"], false);
    assert!((bytes(&auto) - bytes(&device)).abs() < 1.0, "{auto}");
}

#[test]
fn each_of_several_devices_receives_a_part_of_the_batch_and_all_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 24);
    let run = |devices: &[&str]| {
        let named = devices.iter().flat_map(|name| ["--device", *name]);
        let args = ["bench", &photos, "--epochs", "1", "--json"];
        // The trials of other placements have batches with other numbers of bytes.
        let placement = ["--placement", "host"];
        let out = infeed(args.into_iter().chain(placement).chain(named));
        assert!(out.status.success(), "{}", stderr(&out));
        json(&out)["device"].clone()
    };

    let (one, two) = (run(&["sim"]), run(&["sim", "sim:latency=5000ns"]));

    assert_eq!(two["name"], "sim, sim:latency=5000ns", "{two}");
    let per_batch = |of: &serde_json::Value, what: &str| {
        of[what].as_f64().unwrap() / of["batches"].as_f64().unwrap()
    };
    let (bytes, copies) = ("bytes", "transfers");
    let same = per_batch(&two, bytes) / per_batch(&one, bytes);
    assert!((same - 1.0).abs() < 0.2, "{two} {one}");
    assert!(per_batch(&two, copies) > 1.5 * per_batch(&one, copies));
}

#[test]
fn a_simulated_device_decodes_the_configured_share() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 24);
    let device = ["--epochs", "1", "--device", "sim:latency=0ns"];
    let run = |decode: &str| {
        let args = ["bench", &photos, "--json", "--decode", decode];
        let out = infeed(args.iter().chain(&device));
        assert!(out.status.success(), "{}", stderr(&out));
        json(&out)["device"].clone()
    };

    let (gpu, mix, cpu) = (run("gpu"), run("0.5"), run("cpu"));

    assert_eq!(gpu["placement"]["name"], "device-resize");
    // Batches of the next epoch may be in flight.
    let a_batch =
        |of: &serde_json::Value| of["jpegs"].as_f64().unwrap() / of["batches"].as_f64().unwrap();
    assert!(gpu["jpegs"].as_u64() >= Some(24), "{gpu}");
    assert!(
        0.0 < a_batch(&mix) && a_batch(&mix) < a_batch(&gpu),
        "{mix}"
    );
    assert_eq!(cpu["jpegs"].as_u64(), Some(0));
    let table = infeed(
        ["bench", &photos, "--plan", "--decode", "gpu"]
            .iter()
            .chain(&device),
    );
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.contains("baseline JPEGs on the device"), "{text}");
    assert!(text.contains("JPEGs per batch, by the device"), "{text}");
    let wrong = infeed(["bench", &photos, "--decode", "2"].iter().chain(&device));
    assert!(
        stderr(&wrong).contains("between 0 and 1"),
        "{}",
        stderr(&wrong)
    );
    let on_host = infeed(["bench", &photos, "--decode", "gpu"]);
    assert!(
        stderr(&on_host).contains("--device"),
        "{}",
        stderr(&on_host)
    );
}

#[test]
fn an_unknown_device_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 4);

    let out = infeed(["bench", &photos, "--device", "gpu"]);

    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("\"cuda\""), "{}", stderr(&out));
}
