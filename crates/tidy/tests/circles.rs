//! Files of a crate use each other in one direction only.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidy::imports::{circles, imports};

#[test]
fn files_of_a_crate_have_no_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a parent folder");
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
        for circle in circles(&imports) {
            problems += &format!("\n{} files of {name} form a circle:\n", circle.len());
            for file in &circle {
                let used = imports[file].intersection(&circle);
                let used: Vec<String> = used.map(|file| file.display().to_string()).collect();
                problems += &format!("  {} uses {}\n", file.display(), used.join(", "));
            }
        }
    }
    assert!(arrows > 1000, "the test finds the imports: {arrows}");
    assert!(problems.is_empty(), "{problems}");
}
