//! Tests of `infeed verify`.

use std::fs;
use std::path::Path;

use crate::{infeed, json, photos, stderr, stdout};

/// A pipeline over photographs, in batches of 4.
fn pipeline(dir: &Path, count: u32, seed: u32) -> String {
    let photos = match dir.join("photos").exists() {
        true => dir.join("photos").to_str().unwrap().to_owned(),
        false => photos(dir, count),
    };
    let path = dir.join(format!("seed{seed}.toml"));
    let text = format!(
        "[source]\nkind = \"folder\"\npath = {photos:?}\n[shuffle]\nseed = {seed}\n[decode]\n\
         [[transforms]]\nkind = \"RandomResizedCrop\"\nsize = 16\n[batch]\nsize = 4\n\
         tail = \"wrap\"\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_replay_is_compared_with_a_written_file() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = pipeline(dir.path(), 10, 1);
    let file = dir.path().join("run.jsonl").to_str().unwrap().to_owned();

    let written = infeed([
        "verify", &pipeline, "--steps", "5", "--write", &file, "--pixels",
    ]);
    let same = infeed(["verify", &pipeline, "--against", &file, "--workers", "1"]);
    let numbers = json(&infeed(["verify", &pipeline, "--against", &file, "--json"]));

    assert!(written.status.success(), "{}", stderr(&written));
    assert!(stdout(&written).contains(&format!("wrote {file}")));
    assert!(same.status.success(), "{}", stderr(&same));
    assert!(
        stdout(&same).starts_with("equal to the record: 5 steps from step 0 of epoch 0, digest "),
        "{}",
        stdout(&same)
    );
    assert_eq!(numbers["same"], true);
    assert_eq!(
        (&numbers["steps"], &numbers["wanted"]),
        (&5.into(), &5.into())
    );
    assert_eq!(numbers["digest"].as_str().unwrap().len(), 33);
    // A header and five short lines.
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 6);
    assert!(text.lines().skip(1).all(|line| line.len() < 130), "{text}");
}

#[test]
fn a_step_that_differs_is_named_and_the_status_is_1() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = pipeline(dir.path(), 10, 1);
    let file = dir.path().join("run.jsonl").to_str().unwrap().to_owned();
    infeed(["verify", &pipeline, "--write", &file]);
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // The first rows of the second and the third step change places.
    let [two, three] = [2, 3].map(|line| lines[line]["ids"][0].clone());
    lines[2]["ids"][0] = three.clone();
    lines[3]["ids"][0] = two.clone();
    let changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(&file, changed.join("\n") + "\n").unwrap();

    let printed = infeed(["verify", &pipeline, "--against", &file]);
    let counted = infeed(["verify", &pipeline, "--against", &file, "--json"]);

    assert_eq!(printed.status.code(), Some(1));
    assert_eq!(stdout(&printed), "");
    let text = stderr(&printed);
    assert!(
        text.starts_with(
            "infeed: step 1 of epoch 0 (positions 4 to 7) differs: position 4 has another record. \
             Sample "
        ),
        "{text}"
    );
    for part in [
        format!(
            "(record {}) is expected there. Sample ",
            three.as_str().unwrap()
        ),
        format!(
            "(record {}) is there; it is expected in step 2 of epoch 0, row 0",
            two.as_str().unwrap()
        ),
    ] {
        assert!(text.contains(&part), "{text}");
    }
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(counted.status.code(), Some(1));
    let numbers: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!(
        (&numbers["same"], &numbers["steps"]),
        (&false.into(), &1.into())
    );
    assert_eq!(numbers["difference"]["step"], 1);
    let row = &numbers["difference"]["row"];
    assert_eq!(row["position"], 4);
    assert_eq!(row["keys"], serde_json::json!([two, three]));
    assert_eq!(
        row["records"][1]["index"].to_string(),
        three.as_str().unwrap()
    );
    assert_eq!(
        numbers["difference"]["records"].as_array().unwrap().len(),
        4
    );
}

#[test]
fn without_a_file_two_replays_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = pipeline(dir.path(), 10, 1);

    let output = infeed(["verify", &pipeline]);

    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).starts_with("equal in both replays: 3 steps from step 0 of epoch 0"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_file_of_another_run_is_an_error_that_names_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (pipeline(dir.path(), 10, 1), pipeline(dir.path(), 10, 2));
    let file = dir.path().join("run.jsonl").to_str().unwrap().to_owned();
    infeed(["verify", &one, "--write", &file]);

    let output = infeed(["verify", &other, "--against", &file]);

    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("another run (seed is 2, was 1"), "{text}");
}
