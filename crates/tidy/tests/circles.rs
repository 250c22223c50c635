//! Files of a crate use each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tidy::imports::{circles, imports};

/// Files in circles that a crate may still have. A smaller number must be written here.
const ALLOWED: &[(&str, usize)] = &[
    ("fake-cuda", 7),
    ("infeed", 44),
    ("infeed-cli", 28),
    ("infeed-codec", 45),
    ("infeed-core", 7),
    ("infeed-device", 12),
    ("infeed-explain", 31),
    ("infeed-feed", 10),
    ("infeed-py", 7),
    ("infeed-raw", 10),
    ("infeed-testkit", 5),
];

#[test]
fn files_of_a_crate_have_no_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a parent folder");
    let allowed: BTreeMap<&str, usize> = ALLOWED.iter().copied().collect();
    let mut problems = String::new();
    let mut arrows = 0;
    for folder in fs::read_dir(crates).expect("a folder of the repository") {
        let folder = folder.expect("readable").path();
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let name = folder.file_name().expect("a name").to_string_lossy();
        let imports = imports(&folder.join("src"));
        arrows += imports.values().map(BTreeSet::len).sum::<usize>();
        let circles = circles(&imports);
        let files = circles.iter().map(BTreeSet::len).sum::<usize>();
        let allowed = allowed.get(&*name).copied().unwrap_or(0);
        if files != allowed {
            problems += &format!("\n{name} has {files} files in circles, {allowed} allowed:\n");
            for circle in circles {
                for file in &circle {
                    let used = imports[file].intersection(&circle);
                    let used: Vec<String> = used.map(|file| file.display().to_string()).collect();
                    problems += &format!("  {} uses {}\n", file.display(), used.join(", "));
                }
                problems += "\n";
            }
        }
    }
    assert!(arrows > 1000, "the test finds the imports: {arrows}");
    assert!(problems.is_empty(), "{problems}");
}
