//! The rules of the house that a machine can check: who may use whom, how long files grow.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules of `infeed`, lowest rung first. A module may use modules on lower rungs and itself,
/// never a neighbour on its own rung.
const LADDER: &[&[&str]] = &[
    &["counters", "panics", "printable", "random", "stop"],
    &["sample"],
    &["error", "probe"],
    &["order", "store", "decode", "transform", "exec"],
    &["source", "batch"],
    &["function", "device"],
    &["pipeline"],
    &["plan"],
    &["wire"],
    &["loader"],
    &["pack", "testing", "feed"],
    &["explain"],
    &["report"],
];

/// Lines of code a file may have, its tests not counted.
const WALL: usize = 800;

fn rung(module: &str) -> Option<usize> {
    LADDER.iter().position(|rung| rung.contains(&module))
}

/// Source files below a folder with their code up to the tests.
fn rust_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of this crate") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            files.push((path, code.to_owned()));
        }
    }
    files
}

/// The module of the crate root that a file belongs to.
fn module(src: &Path, file: &Path) -> String {
    let first = file
        .strip_prefix(src)
        .expect("below src")
        .iter()
        .next()
        .expect("a name");
    Path::new(first)
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

#[test]
fn modules_only_use_lower_rungs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut arrows = 0;
    for (path, text) in rust_files(&src) {
        let own = module(&src, &path);
        if own == "lib" || path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let from = rung(&own).unwrap_or_else(|| panic!("{own} stands on no rung of the ladder"));
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for used in code.flat_map(|line| line.split("crate::").skip(1)) {
            let used = used
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or("");
            let Some(to) = rung(used) else { continue };
            arrows += 1;
            assert!(
                used == own || to < from,
                "{}: `{own}` (rung {from}) uses `{used}` (rung {to})",
                path.display()
            );
        }
    }
    assert!(arrows > 50, "the test sees the imports");
}

#[test]
fn no_file_grows_over_the_wall() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of crates");
    for name in ["infeed-raw", "infeed", "infeed-cli", "infeed-py"] {
        for (path, text) in rust_files(&crates.join(name).join("src")) {
            let lines = text.lines().count();
            assert!(lines <= WALL, "{} has {lines} lines", path.display());
        }
    }
}

#[test]
fn every_module_has_a_head() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of crates");
    for name in ["infeed-raw", "infeed", "infeed-cli", "infeed-py"] {
        for (path, text) in rust_files(&crates.join(name).join("src")) {
            assert!(text.starts_with("//!"), "{} has no head", path.display());
        }
    }
}

#[test]
fn unsafe_code_stays_in_its_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of crates");
    for name in ["infeed", "infeed-cli", "infeed-py"] {
        for (path, text) in rust_files(&crates.join(name).join("src")) {
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                let word = |word: &str| word == "unsafe";
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                assert!(!words.into_iter().any(word), "{}: {line}", path.display());
            }
        }
    }
}
