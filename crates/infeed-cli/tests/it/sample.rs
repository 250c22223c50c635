//! Tests of `infeed sample`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{infeed, stderr, stdout};

fn files_below(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let below = path.strip_prefix(dir).unwrap().to_owned();
                files.push((below, fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn classification(dir: &Path, seed: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let out = dir.to_str().unwrap();
    let args = [
        "sample",
        "classification",
        out,
        "--count",
        "9",
        "--classes",
        "4",
    ];
    let output = infeed(args.iter().chain(&["--size", "60x40", "--seed", seed]));
    assert!(output.status.success(), "{}", stderr(&output));
    files_below(dir)
}

#[test]
fn the_same_seed_writes_the_same_bytes_and_another_seed_others() {
    let dir = tempfile::tempdir().unwrap();

    let one = classification(&dir.path().join("one"), "7");
    let two = classification(&dir.path().join("two"), "7");
    let other = classification(&dir.path().join("other"), "8");

    assert_eq!(one.len(), 9);
    assert_eq!(one, two);
    assert!(
        one.iter()
            .zip(&other)
            .all(|(a, b)| a.0 == b.0 && a.1 != b.1)
    );
}

#[test]
fn segmentation_writes_pairs_of_equal_name_and_the_class_list() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("streets");

    let args = [
        "sample",
        "segmentation",
        out.to_str().unwrap(),
        "--count",
        "2",
    ];
    let output = infeed(args.iter().chain(&["--size", "96x72", "--classes", "5"]));

    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("wrote 2 samples"),
        "{}",
        stdout(&output)
    );
    let names: Vec<_> = files_below(&out)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    let expected = [
        "class_dict.csv",
        "images/0000.png",
        "images/0001.png",
        "masks/0000.png",
        "masks/0001.png",
    ];
    assert_eq!(names, expected.map(PathBuf::from));
    let classes = fs::read_to_string(out.join("class_dict.csv")).unwrap();
    assert!(
        classes.starts_with("name,r,g,b\nRoad,128,64,128\n"),
        "{classes}"
    );
    assert_eq!(classes.lines().count(), 6);
}

#[test]
fn a_folder_that_is_not_empty_is_rejected_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "dear").unwrap();

    let output = infeed(["sample", "classification", dir.path().to_str().unwrap()]);

    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("is not empty; use a new folder"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(files_below(dir.path()).len(), 1);
}

#[test]
fn an_invalid_size_is_a_usage_error_that_shows_the_syntax() {
    let output = infeed(["sample", "classification", "unused", "--size", "huge"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("500x375"), "{}", stderr(&output));
}
