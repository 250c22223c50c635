//! Tests of `infeed pack`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::{infeed, json, photos, stderr, stdout, streets};

fn count(dir: &Path, extension: &str) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        found += match path.is_dir() {
            true => count(&path, extension),
            false => usize::from(path.extension().is_some_and(|e| e == extension)),
        };
    }
    found
}

#[test]
fn photos_are_resized_by_class_and_the_next_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);
    let out = dir.path().join("small");

    let path = out.to_str().unwrap();
    let output = infeed([
        "pack",
        &photos,
        path,
        "--to",
        "folder",
        "--short-side",
        "24",
    ]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("packed 12 records to "), "{text}");
    assert!(
        text.contains(" before, ") && text.contains(" now ("),
        "{text}"
    );
    assert_eq!(stderr(&output), "");
    assert_eq!(count(&out, "jpg"), 12);
    let next: Vec<&str> = text.lines().last().unwrap().split(' ').skip(2).collect();
    let bench = infeed(next.into_iter().chain(["--epochs", "1", "--json"]));
    assert_eq!(json(&bench)["samples"], 12);
}

#[test]
fn a_pipeline_file_is_packed_and_one_for_the_pack_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 3);
    let pipeline = dir.path().join("train.toml");
    let text = format!(
        "[source]\nkind = \"pairs\"\nimage = \"{streets}/images\"\nmask = \"{streets}/masks\"\n\
         [decode]\n[[transforms]]\nkind = \"Crop\"\nheight = 64\nwidth = 80\n\
         [[transforms]]\nkind = \"OneHot\"\npalette = \"{streets}/class_dict.csv\"\n\
         [batch]\nsize = 3\n"
    );
    fs::write(&pipeline, text).unwrap();
    let out = dir.path().join("arrays");

    let (from, to) = (pipeline.to_str().unwrap(), out.to_str().unwrap());
    let output = infeed([
        "pack", from, to, "--to", "arrays", "--crop", "80x64", "--json",
    ]);

    let numbers = json(&output);
    assert_eq!(numbers["records"], 3);
    assert_eq!(numbers["bytes_out"], 2 * (128 + 3 * 64 * 80 * 3));
    assert_eq!(numbers["source"]["fields"][1]["name"], "mask");
    let packed = out.join("pipeline.toml");
    assert_eq!(numbers["pipeline"], packed.to_str().unwrap());
    let bench = infeed(["bench", packed.to_str().unwrap(), "--epochs", "1", "--json"]);
    let bench = json(&bench);
    assert_eq!(
        (&bench["samples"], &bench["unknown_pixels"]),
        (&3.into(), &0.into())
    );
}

#[test]
fn restart_markers_have_the_given_or_the_default_width() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 4);
    for (flag, width) in [("--restart-index", 4), ("--restart-index=2", 2)] {
        let out = dir.path().join(flag);

        let output = infeed([
            "pack",
            &photos,
            out.to_str().unwrap(),
            "--to",
            "folder",
            flag,
        ]);

        assert!(output.status.success(), "{}", stderr(&output));
        let manifest = fs::read_to_string(out.join("infeed-pack.json")).unwrap();
        assert!(
            manifest.contains(&format!("\"restart\": {width}")),
            "{manifest}"
        );
        assert_eq!(count(&out, "jpg"), 4);
    }
    let out = dir.path().join("png");
    let output = infeed([
        "pack",
        &photos,
        out.to_str().unwrap(),
        "--to",
        "folder",
        "--image",
        "png-fast",
        "--restart-index",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("encode as keep or jpeg:QUALITY"));
}

#[test]
fn a_source_that_cannot_be_packed_is_one_line_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 6);
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let run = |more: &[&str]| infeed(["pack", &photos, out].iter().chain(more));
    let inside = format!("{photos}/packed");

    for (output, status, part) in [
        (run(&["--to", "folder", "--mask", "jpeg:90"]), 2, "use png"),
        (
            run(&["--to", "folder", "--image", "gif"]),
            2,
            "jpeg:QUALITY",
        ),
        (run(&["--to", "arrays"]), 1, "--center-crop"),
        // A run that failed before it wrote anything does not block this one.
        (run(&["--to", "folder", "--crop", "900x900"]), 1, "Crop"),
        (
            infeed(["pack", &photos, &inside, "--to", "folder"]),
            2,
            "a folder next to it",
        ),
        (
            infeed(["pack", "/does/not/exist", out, "--to", "folder"]),
            2,
            "does not exist",
        ),
    ] {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(part), "{part} is missing in {text}");
        assert_eq!(stdout(&output), "");
    }
    assert!(!Path::new(out).exists());
}

/// Returns the files below a folder with their bytes.
#[cfg(unix)]
fn contents(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[cfg(unix)]
#[test]
fn a_killed_and_resumed_run_writes_the_bytes_of_an_uninterrupted_one() {
    let dir = tempfile::tempdir().unwrap();
    let photos = crate::sample(
        dir.path(),
        &["classification", "photos"],
        120,
        &["--classes", "3", "--size", "160x120"],
    );
    // Every tenth file is bad.
    let mut files: Vec<_> = contents(Path::new(&photos));
    files.retain(|(path, _)| path.extension().is_some_and(|e| e == "jpg"));
    for (path, bytes) in files.iter().step_by(10) {
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
    let (mut killed, mut taken_up) = (0, 0);
    for (nth, format_name) in [
        "webdataset",
        "tfrecord",
        "arrow",
        "parquet",
        "npz",
        "folder",
        "arrays",
    ]
    .into_iter()
    .enumerate()
    {
        let more: &[&str] = match format_name {
            "npz" | "arrays" => &["--fit", "96x96", "--rows", "4"],
            "folder" => &["--image", "png"],
            _ => &["--shard-size", "20KB", "--shuffle", "5"],
        };
        let at = |name: &str| dir.path().join(name).join("packed");
        fs::create_dir(dir.path().join(format!("{format_name}-once"))).unwrap();
        fs::create_dir(dir.path().join(format_name)).unwrap();
        let (once, often) = (at(&format!("{format_name}-once")), at(format_name));
        let args = |out: &Path| -> Vec<String> {
            let base = ["pack", &photos, out.to_str().unwrap(), "--to", format_name];
            base.iter().chain(more).map(|&arg| arg.to_owned()).collect()
        };
        let begun = Instant::now();
        let whole = infeed(args(&once));
        let whole_us = begun.elapsed().as_micros() as u64;
        assert_eq!(whole.status.code(), Some(3), "{}", stderr(&whole));
        let is_shards = !matches!(format_name, "folder" | "arrays");
        // Returns the number of journal lines.
        let noted = || {
            let journal = fs::read_to_string(often.join("infeed-pack.journal"));
            journal.map_or(0, |text| text.matches('\n').count())
        };
        let is_done = || often.join("infeed-pack.json").exists();
        // Kills at pseudo-random moments of one run's duration, then as soon as the journal grows.
        // A run that finished before the signal starts again.
        for round in 0..24_u64 {
            if is_done() {
                fs::remove_dir_all(&often).unwrap();
            }
            let mut child = Command::new(env!("CARGO_BIN_EXE_infeed"))
                .args(args(&often))
                .args(["--workers", "1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let wait_us = (round * 7919 + nth as u64 * 104_729) * 7 % whole_us;
            let (begun, before) = (Instant::now(), noted());
            let waits = |child: &mut Child| match is_shards && round >= 5 {
                false => begun.elapsed().as_micros() < u128::from(wait_us),
                true => noted() <= before && child.try_wait().unwrap().is_none(),
            };
            while waits(&mut child) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            killed += u64::from(child.wait().unwrap().code().is_none());
            if round >= 5 && (!is_shards || noted() > 0 && !is_done()) {
                break;
            }
        }
        let is_begun = noted() > 0 && !is_done();
        let last = infeed(args(&often).into_iter().chain(["--json".to_owned()]));
        assert_eq!(
            last.status.code(),
            Some(3),
            "{format_name}: {}",
            stderr(&last)
        );
        let numbers: serde_json::Value = serde_json::from_slice(&last.stdout).unwrap();
        if is_shards && is_begun {
            assert!(
                numbers["reused"].as_u64() > Some(0),
                "{format_name}: {numbers}"
            );
            taken_up += 1;
        }
        let named = |root: &Path| -> Vec<(std::path::PathBuf, Vec<u8>)> {
            let name = |path: &Path| path.strip_prefix(root).unwrap().to_owned();
            let all = contents(root).into_iter();
            all.map(|(path, bytes)| (name(&path), bytes)).collect()
        };
        let names = |of: &[(std::path::PathBuf, Vec<u8>)]| -> Vec<_> {
            of.iter().map(|(name, _)| name.clone()).collect()
        };
        let (one, other) = (named(&once), named(&often));
        assert_eq!(names(&one), names(&other), "{format_name}");
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        assert!(
            differs.is_none(),
            "{format_name}: {:?}",
            differs.map(|(one, _)| &one.0)
        );
        let bad = one
            .iter()
            .find(|(name, _)| name.ends_with("infeed-pack-bad.jsonl"));
        let lines = bad.unwrap().1.split(|&byte| byte == b'\n').count() - 1;
        assert_eq!(lines, 12, "{format_name}");
    }
    assert!(killed >= 20, "only {killed} runs were killed");
    assert!(
        taken_up >= 3,
        "only {taken_up} forms had a journal to go on from"
    );
}

#[cfg(unix)]
#[test]
fn a_write_error_is_reported_and_finished_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 40);
    let out = dir.path().join("out");
    let pack = format!(
        "{} pack {photos} {} --to webdataset --shard-size",
        env!("CARGO_BIN_EXE_infeed"),
        out.display()
    );
    // With files of at most 16 KiB, the first shards fit, and one with a large photo does not.
    let run = |limit: &str| {
        let command = format!("trap '' XFSZ; {limit} exec {pack} 12KB");
        Command::new("sh").args(["-c", &command]).output().unwrap()
    };
    let mut all = contents(Path::new(&photos));
    all.retain(|(path, _)| path.extension().is_some_and(|e| e == "jpg"));
    let last = all.pop().unwrap();
    // A JPEG may have any bytes after its end.
    let mut bytes = last.1.clone();
    bytes.resize(40_000, 0);
    fs::write(&last.0, &bytes).unwrap();

    let refused = run("ulimit -f 32;");

    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let text = stderr(&refused);
    assert!(
        text.contains("cannot write ") && text.contains("the same command resumes"),
        "{text}"
    );
    let kept: Vec<_> = contents(&out)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "tar"))
        .collect();
    assert!(!kept.is_empty(), "the shards before it are there");
    assert!(!out.join("infeed-pack.json").exists(), "it is not complete");
    let bench = infeed(["bench", out.to_str().unwrap()]);
    assert!(
        stderr(&bench).contains("not finished"),
        "{}",
        stderr(&bench)
    );
    let again = run("");
    assert!(again.status.success(), "{}", stderr(&again));
    for (path, bytes) in kept {
        assert_eq!(fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

#[cfg(unix)]
#[test]
fn the_next_run_resumes_after_an_interrupt() {
    let dir = tempfile::tempdir().unwrap();
    let photos = crate::sample(
        dir.path(),
        &["classification", "photos"],
        24,
        &["--classes", "3", "--size", "640x480"],
    );
    let out = dir.path().join("out");
    let args = ["pack", &photos, out.to_str().unwrap(), "--to", "folder"];
    let args: Vec<&str> = args
        .into_iter()
        .chain(["--image", "png:paeth:high"])
        .collect();
    let child = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(args.iter().chain(&["--workers", "1"]))
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The first file is the signal to stop. Seconds of work remain.
    while count(&out, "png") == 0 {
        std::thread::yield_now();
    }

    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let stopped = child.wait_with_output().unwrap();
    let kept = count(&out, "png");
    let again = infeed(args.iter().chain(&["--json"]));

    assert!(killed.success());
    assert_eq!(stopped.status.code(), Some(130));
    let text = stderr(&stopped);
    assert!(
        text.contains("interrupted: ")
            && text.contains("stopped after ")
            && text.contains(" of 24 records"),
        "{text}"
    );
    let numbers = json(&again);
    assert_eq!(numbers["reused"], kept);
    assert!((1..24).contains(&kept), "{kept}");
    assert_eq!(count(&out, "png"), 24);
}
