//! `infeed pack`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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
fn a_pipeline_file_is_packed_with_a_pipeline_file_beside_it() {
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
fn restart_markers_come_with_or_without_a_width() {
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
fn what_cannot_be_packed_is_one_line_with_the_mend() {
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
        // A run that failed before it wrote anything leaves nothing in the way of this one.
        (run(&["--to", "folder", "--crop", "900x900"]), 1, "Crop"),
        (
            infeed(["pack", &photos, &inside, "--to", "folder"]),
            2,
            "a folder beside it",
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

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_what_the_next_run_takes_up() {
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
    // The first file is the event; there are seconds of work behind it.
    while count(&out, "png") == 0 {
        std::thread::yield_now();
    }

    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let stopped = child.wait_with_output().unwrap();
    let kept = count(&out, "png");
    let again = infeed(args.iter().chain(&["--json"]));

    assert!(killed.success());
    assert_eq!(stopped.status.code(), Some(1));
    let text = stderr(&stopped);
    assert!(
        text.contains("stopped after ") && text.contains(" of 24 records"),
        "{text}"
    );
    let numbers = json(&again);
    assert_eq!(numbers["reused"], kept);
    assert!((1..24).contains(&kept), "{kept}");
    assert_eq!(count(&out, "png"), 24);
}
