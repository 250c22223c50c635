//! Tests of `infeed probe`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::{json, stderr, stdout};

/// Runs `infeed probe` with its cache in a folder of the test.
fn probe(cache: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_infeed"))
        .arg("probe")
        .args(args)
        .env("XDG_CACHE_HOME", cache)
        .output()
        .unwrap()
}

#[test]
fn a_folder_is_measured_once_and_then_cached() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    for n in 0..20 {
        fs::write(data.join(format!("{n}.bin")), vec![n; 5000]).unwrap();
    }
    let path = data.to_str().unwrap();

    let first = json(&probe(dir.path(), &[path, "--json"]));
    let kept = dir.path().join("infeed/probe.json");
    let written = fs::read_to_string(&kept).unwrap();
    let second = json(&probe(dir.path(), &[path, "--json"]));

    assert_eq!(first, second, "nothing was measured again");
    assert_eq!(fs::read_to_string(&kept).unwrap(), written);
    assert_eq!(first["kept"], kept.to_str().unwrap());
    assert_eq!(first["storage"]["files"], 20);
    assert_eq!(first["storage"]["warm"][2]["readers"], 16);
    assert!(first["memory"]["all_cores_bytes_per_s"].as_f64().unwrap() > 1e8);
    assert!(first["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(first["device"].is_null());
}

#[test]
fn the_table_fits_a_screen_and_reports_that_there_is_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("a"), "bytes").unwrap();

    let output = probe(dir.path(), &[data.to_str().unwrap()]);

    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.lines().count() <= 24, "{text}");
    for part in [
        "usable cores",
        "no device found",
        "warm",
        "readers",
        "cached in",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text:?}");
}

#[test]
fn a_profile_of_another_machine_is_shown_with_its_source() {
    let dir = tempfile::tempdir().unwrap();

    let known = probe(dir.path(), &["--on", "gtx1080x4"]);
    let unknown = probe(dir.path(), &["--on", "abacus"]);
    let list = json(&probe(dir.path(), &["--list", "--json"]));

    let text = stdout(&known);
    assert!(text.contains("7.88 GB/s to each of 4 devices"), "{text}");
    assert!(text.contains("PCIe 3.0"), "{text}");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains("sata-ssd"),
        "{}",
        stderr(&unknown)
    );
    assert_eq!(list["profiles"].as_array().unwrap().len(), 10);
}

#[test]
fn a_folder_that_is_missing_or_empty_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();

    for path in [dir.path().join("none"), empty] {
        let output = probe(dir.path(), &[path.to_str().unwrap()]);

        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
