//! Tests of `infeed explain` and `infeed ledger`.

use std::fs;
use std::path::Path;

use crate::{SECONDS, infeed, json, names_a_limit, photos, stderr, stdout, streets};

/// Runs a short explanation with its own ledger. These tests check the text. The tests of
/// infeed-explain check the numbers.
fn explain(dir: &Path, path: &str, more: &[&str]) -> std::process::Output {
    let ledger = dir.join("ledger.jsonl").display().to_string();
    let mut args = vec!["explain", path, "--seconds", SECONDS, "--ledger", &ledger];
    args.extend(more);
    infeed(args)
}

/// Writes a pipeline file. Small crops and batches, because a trial lasts at least some batches.
fn pipeline(dir: &Path, name: &str, head: &str) -> String {
    let path = dir.join(name).display().to_string();
    let text = format!(
        "version = 1\n{head}\nsize = 24\n\
         [[transforms]]\nkind = \"ToFloat\"\nfield = \"image\"\n[batch]\nsize = 4\n"
    );
    fs::write(&path, text).unwrap();
    path
}

/// A pipeline file over photographs.
fn small_photos(dir: &Path, count: u32) -> String {
    let photos = photos(dir, count);
    let head = format!(
        "[source]\nkind = \"folder\"\npath = \"{photos}\"\n[decode]\n\
         [[transforms]]\nkind = \"RandomResizedCrop\""
    );
    pipeline(dir, "photos.toml", &head)
}

/// A pipeline file over street scenes.
fn small_streets(dir: &Path, count: u32) -> String {
    let streets = streets(dir, count);
    let head = format!(
        "[source]\nkind = \"pairs\"\nimage = \"{streets}/images\"\nmask = \"{streets}/masks\"\n\
         [decode]\nmodes = {{ mask = \"rgb\" }}\n[[transforms]]\nkind = \"RandomCrop\""
    );
    pipeline(dir, "streets.toml", &head)
}

#[test]
fn the_verdict_has_stages_and_remedies() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);

    let output = explain(dir.path(), &photos, &["--full"]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(names_a_limit(&text), "{text}");
    for part in ["capacity", "stage", "decode", "workers"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text:?}");
    assert_fits(&text);
}

/// Checks that lines fit 80 columns, except for commands, which a user copies.
fn assert_fits(text: &str) {
    let is_command = |line: &str| line.contains("infeed pack");
    let wide = |line: &&str| line.chars().count() > 80 && !is_command(line);
    assert_eq!(text.lines().find(wide), None, "{text}");
}

#[test]
fn the_answer_fits_one_screen_and_its_numbers_are_those_to_apply() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);

    let output = explain(dir.path(), &photos, &[]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(names_a_limit(&text), "{text}");
    for part in ["  resource ", "headroom", "  more "] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(text.lines().count() <= 24, "{text}");
    assert_fits(&text);

    // A number is a remedy of this report, even if the next run ranks them differently.
    let last = dir.path().join("last-reports.json");
    let kept = fs::read_to_string(&last).unwrap();
    let reports: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let first = reports.as_object().unwrap().values().next().unwrap();
    let ids = first["remedies"].as_array().unwrap();
    let at = ids.iter().position(|id| id == "unverified").unwrap() + 1;
    let output = explain(dir.path(), &photos, &["--apply", &at.to_string()]);
    let message = stderr(&output);
    assert!(
        message.contains("of the last report is unverified"),
        "{message}"
    );
    let text = stdout(&output);
    assert!(
        text.contains("applied: leave checksums unverified"),
        "{text}"
    );
}

#[test]
fn json_has_the_verdict_stages_and_remedies_with_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let streets = small_streets(dir.path(), 6);

    let found = json(&explain(
        dir.path(),
        &streets,
        &["--json", "--step-ms", "5"],
    ));

    let verdict = &found["verdict"];
    let limits = [
        "storage",
        "decode",
        "transform",
        "python",
        "memory",
        "copy",
        "step",
    ];
    assert!(limits.contains(&verdict["limit"].as_str().unwrap()));
    assert!(limits.contains(&verdict["next_limit"].as_str().unwrap()));
    assert!(verdict["rate"].as_f64().unwrap() > 0.0);
    assert!(verdict["next_rate"].as_f64().unwrap() >= verdict["rate"].as_f64().unwrap());
    assert_eq!(found["stages"].as_array().unwrap().len(), 4);
    let remedies = found["remedies"].as_array().unwrap();
    assert!(remedies.len() >= 5, "{remedies:?}");
    for remedy in remedies {
        let end = |name: &str| remedy["rate"][name].as_f64().unwrap();
        assert!(
            end("low") <= end("mid") && end("mid") <= end("high"),
            "{remedy}"
        );
        for key in ["id", "name", "command", "quality"] {
            assert!(
                !remedy[key].as_str().unwrap().is_empty(),
                "{key} of {remedy}"
            );
        }
        assert!(remedy["disk_bytes"].is_u64());
    }
}

#[test]
fn an_applied_remedy_is_next_to_the_data_and_its_result_in_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = small_streets(dir.path(), 6);
    let streets = dir.path().join("streets").display().to_string();
    let before = files(Path::new(&streets));

    let output = explain(
        dir.path(),
        &pipeline,
        &["--apply", "png-stored", "--on", "1gbe"],
    );

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "applied: PNG without compression",
        "predicted",
        "measured",
        "error",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(
        files(Path::new(&streets)),
        before,
        "the original is as it was"
    );
    let made = format!("{streets}-png-stored");
    let bench = json(&infeed([
        "bench",
        &format!("{made}.toml"),
        "--epochs",
        "1",
        "--json",
    ]));
    assert_eq!(bench["samples"], 6);

    let ledger = dir.path().join("ledger.jsonl").display().to_string();
    let kept = json(&infeed(["ledger", &ledger, "--json"]));
    assert_eq!(kept["entries"][0]["remedy"], "png-stored");
    assert_eq!(kept["accuracy"]["checked"], 1);
    assert!(stdout(&infeed(["ledger", &ledger])).contains("png-stored"));
}

#[test]
fn bad_records_that_an_applied_remedy_skips_are_listed_and_set_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);
    let mut classes = fs::read_dir(dir.path().join("photos"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let class = classes.find(|path| path.is_dir()).unwrap();
    fs::write(class.join("bad.jpg"), b"no image").unwrap();

    let stopped = explain(dir.path(), &photos, &["--no-remedies"]);
    let output = explain(
        dir.path(),
        &photos,
        &["--apply", "shards", "--on-error", "substitute"],
    );

    assert_eq!(stopped.status.code(), Some(1), "{}", stdout(&stopped));
    let text = stderr(&stopped);
    assert!(text.contains("--on-error substitute"), "{text}");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    for text in [stdout(&output), stderr(&output)] {
        assert!(text.contains("1 bad records; "), "{text}");
        assert!(text.contains("infeed-pack-bad.jsonl"), "{text}");
    }
}

#[test]
fn the_fix_for_bad_records_is_not_the_option_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 4);
    for class in fs::read_dir(&photos).unwrap() {
        let class = class.unwrap().path();
        let files = fs::read_dir(class).into_iter().flatten();
        files.for_each(|file| fs::write(file.unwrap().path(), b"no image").unwrap());
    }

    for policy in ["substitute", "skip"] {
        let output = explain(dir.path(), &photos, &["--on-error", policy]);

        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let text = stderr(&output);
        assert!(!text.contains("--on-error"), "{text}");
        assert!(text.contains("list them with `infeed inspect`"), "{text}");
    }
}

#[test]
fn a_cache_is_filled_measured_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);

    let output = explain(dir.path(), &photos, &["--apply", "cache-decoded"]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["applied: decoded records", "open with  cache=\"auto\""] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let streets = small_streets(dir.path(), 6);
    let own = dir.path().join("streets-unverified.toml");
    fs::write(&own, "my own notes").unwrap();

    let output = explain(dir.path(), &streets, &["--apply", "unverified"]);

    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("was not overwritten"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(own).unwrap(), "my own notes");
}

#[test]
fn the_printed_command_of_a_crop_equals_apply() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 4);
    let pipeline = dir.path().join("cut.toml");
    let text = format!(
        "[source]\nkind = \"pairs\"\nimage = \"{streets}/images\"\nmask = \"{streets}/masks\"\n\
         [decode]\nmodes = {{ mask = \"rgb\" }}\n\
         [[transforms]]\nkind = \"Crop\"\nheight = 24\nwidth = 24\nat = \"top_left\"\n"
    );
    fs::write(&pipeline, text).unwrap();
    let pipeline = pipeline.display().to_string();

    let found = json(&explain(
        dir.path(),
        &pipeline,
        &["--json", "--apply", "crop"],
    ));

    let remedies = found["remedies"].as_array().unwrap();
    let crop = remedies.iter().find(|r| r["id"] == "crop").unwrap();
    let out = dir.path().join("out").display().to_string();
    let command = crop["command"].as_str().unwrap().replace("OUT", &out);
    let packed = infeed(command.split(' ').skip(1));
    assert!(packed.status.success(), "{}", stderr(&packed));
    let applied = dir.path().join("cut-crop");
    let bytes = |root: &Path| {
        let mut files = files(&root.join("image"));
        files.extend(self::files(&root.join("mask")));
        let read = |(path, _): (String, u64)| fs::read(path).unwrap();
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(bytes(Path::new(&out)), bytes(&applied));
    assert_eq!(bytes(Path::new(&out)).len(), 8);
}

/// Names and sizes of all files below a folder.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            let length = entry.metadata().unwrap().len();
            found.push((entry.path().display().to_string(), length));
        }
    }
    found.sort();
    found
}

#[test]
fn reports_are_written_to_the_given_paths() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);
    let (html, trace) = (dir.path().join("r.html"), dir.path().join("t.json"));

    let output = explain(
        dir.path(),
        &photos,
        &[
            "--no-remedies",
            "--html",
            &html.display().to_string(),
            "--trace",
            &trace.display().to_string(),
        ],
    );

    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(html).unwrap();
    assert!(page.len() < 2_000_000 && page.contains("</html>"));
    let events: serde_json::Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 10);
}

#[test]
fn invalid_options_are_one_line_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 4);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let typo = dir.path().join("typo.toml");
    fs::write(
        &typo,
        "[source]\nkind = \"folder\"\npath = \"x\"\n[bacth]\nsize = 3\n",
    )
    .unwrap();
    let cases: [(&str, &[&str], &str); 17] = [
        ("nowhere", &[], "does not exist"),
        (&empty.display().to_string(), &[], "no images"),
        (&typo.display().to_string(), &[], "bacth"),
        (&photos, &["--on", "floppy"], "known machines are hdd"),
        (
            &photos,
            &["--apply", "magic"],
            "no remedy `magic`; use a number",
        ),
        (&photos, &["--workers", "0"], "1 to 4096"),
        (&photos, &["--network", "fast"], "such as 10Gbit"),
        (&photos, &["--token-file", "token"], "--feeders"),
        (&photos, &["--cores", "0"], "'--cores <N>': write a number"),
        (&photos, &["--ram", "much"], "write 2GiB, 500MB"),
        (&photos, &["--ram", "0"], "a size above 0"),
        (&photos, &["--storage", "floppy"], "write one of hdd"),
        (
            &photos,
            &["--storage", "550,90000"],
            "such as 550,90000,0.1",
        ),
        (&photos, &["--batch", "0"], "'--batch <N>': write a number"),
        (
            &photos,
            &["--on", "hdd", "--storage", "s3"],
            "use one of the two",
        ),
        (
            &photos,
            &["--network", "1GB", "--apply", "feeders-1"],
            "0 are named",
        ),
        (
            &photos,
            &["--apply", "1", "--apply", "2", "--out", "x"],
            "--out takes one",
        ),
    ];
    for (path, more, fix) in cases {
        let output = explain(dir.path(), path, more);

        assert!(!output.status.success(), "{path} {more:?}");
        assert!(stderr(&output).contains(fix), "{}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn feeders_are_planned_for_a_network_and_printed_as_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);
    let more = ["--no-remedies", "--network", "10Gbit", "--step-ms", "0.001"];

    let output = explain(dir.path(), &photos, &more);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["  feeders ", "receiving", "  parts ", "1.18 GB/s /"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_fits(&text);
}

#[test]
fn one_record_is_explained_and_bad_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 1);
    let output = explain(dir.path(), &photos, &["--no-remedies", "--full"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("this is a default pipeline"), "{text}");

    let bad = dir.path().join("bad");
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join("a.jpg"), "no image").unwrap();
    let output = explain(dir.path(), &bad.display().to_string(), &["--no-remedies"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("a.jpg"), "{}", stderr(&output));
}

#[test]
fn an_empty_ledger_says_how_to_fill_it() {
    let dir = tempfile::tempdir().unwrap();

    let output = infeed(["ledger", &dir.path().join("none").display().to_string()]);

    assert!(stdout(&output).contains("--apply 1"), "{}", stdout(&output));
}

#[test]
fn decoders_are_compared_for_a_device_that_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);
    let with = |decode: &str, more: &[&str]| {
        let mut args = vec!["--no-remedies", "--device", "sim:latency=1us"];
        args.extend(["--decode", decode]);
        args.extend(more);
        explain(dir.path(), &photos, &args)
    };

    let output = with("5/16", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "  decode ",
        "  5/16 (",
        "  gpu",
        "  JPEGs ",
        "device-resize",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_fits(&text);
    let found = json(&with("auto", &["--json"]));
    assert_eq!(found["decoding"]["now"], 0);
    assert_eq!(found["decoding"]["candidates"][0]["share"], 0);
    assert_eq!(found["placement"]["now"], "device");
    let found = json(&with("gpu", &["--json"]));
    assert_eq!(found["decoding"]["now"], 16);
    assert_eq!(found["placement"]["decodes"], true);
}

#[test]
fn decode_needs_a_device_and_a_share_in_sixteenths() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 4);

    let on_host = explain(dir.path(), &photos, &["--decode", "gpu"]);
    assert!(
        stderr(&on_host).contains("--device"),
        "{}",
        stderr(&on_host)
    );
    for wrong in ["0/16", "16/16", "5/8", "17/16", "-1/16"] {
        let decode = format!("--decode={wrong}");
        let output = explain(dir.path(), &photos, &["--device", "sim", &decode]);
        let message = stderr(&output);
        assert!(
            message.contains("sixteenths such as 5/16"),
            "{wrong}: {message}"
        );
    }
}

/// Runs the analysis without remedies and with what-if options. Returns the part about them.
fn explain_what_if(dir: &Path, path: &str, more: &[&str]) -> String {
    let mut args = vec!["--no-remedies"];
    args.extend(more);
    let output = explain(dir, path, &args);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert_fits(&text);
    let at = text.find("  what if: ").expect("the question");
    text[at..].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_storage_of_three_numbers_is_computed_from_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);
    let more = ["--storage", "1,1000000,0", "--io-threads", "4"];

    let text = explain_what_if(dir.path(), &photos, &more);
    let mut args = vec!["--no-remedies", "--json"];
    args.extend(more);
    let found = json(&explain(dir.path(), &photos, &args));

    for part in [
        "what if: storage 1 MB/s, 1000000 requests/s, 0 ms",
        "bandwidth: 1 MB/s /",
        "limited by storage",
        "every read reaches the storage",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let found = &found["what_if"];
    let values = &found["changes"][0]["values"];
    let rate = found["rate"]["mid"].as_f64().unwrap();
    let expected = 1e6 / values["record_bytes"].as_f64().unwrap();
    assert!((rate / expected - 1.0).abs() < 1e-6, "{found}");
    assert_eq!(found["limit"], "storage");
    assert_eq!(found["resources"][0]["limit"], "storage");
}

#[test]
fn several_questions_are_answered_together_with_their_assumptions() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);
    let questions = [
        "--cores",
        "4096",
        "--storage",
        "s3",
        "--ram",
        "1G",
        "--batch",
        "2",
    ];

    let text = explain_what_if(dir.path(), &photos, &questions);

    for part in [
        "what if: 4096 cores, 1.07 GB of memory, storage s3, batches of 2",
        "limited by storage",
        "extrapolated from",
        "executor: 1 /",
        "64 reads in flight",
        "Amazon S3 User Guide",
        "the page cache keeps no objects",
        "as decoded pixels",
        "memory: 2 samples have",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn memory_that_holds_the_data_answers_all_reads() {
    let dir = tempfile::tempdir().unwrap();
    let photos = small_photos(dir.path(), 12);

    let all = explain_what_if(dir.path(), &photos, &["--ram", "1T", "--storage", "hdd"]);
    let few = explain_what_if(dir.path(), &photos, &["--ram", "100", "--storage", "hdd"]);

    assert!(all.contains("it answers 100 % of the reads"), "{all}");
    assert!(!all.contains("limited by storage"), "{all}");
    assert!(few.contains("limited by storage"), "{few}");
}
