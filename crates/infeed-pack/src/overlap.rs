//! The paths of the original and of the output, which must not overlap.

use std::fs;
use std::path::{Component, Path, PathBuf};

use infeed::pipeline::SourceSpec;
use infeed_core::error::Error;
use infeed_source::store;

/// Rejects an output in, over, or around the original.
pub(super) fn check_overlap(source: &SourceSpec, out: &Path) -> Result<(), Error> {
    let mut originals = Vec::new();
    source.clone().map_paths(|path| {
        originals.push(path.to_owned());
        path.to_owned()
    });
    let target = absolute(out);
    for path in originals {
        let original = absolute(&path);
        let how = if original == target {
            "is"
        } else if target.starts_with(&original) {
            "is inside"
        } else if original.starts_with(&target) {
            "contains"
        } else {
            continue;
        };
        let problem = format!(
            "{} {how} the original {}; use a folder next to it",
            out.display(),
            path.display()
        );
        return Err(Error::config("out", problem));
    }
    Ok(())
}

/// Returns the absolute path without links, also for a path that does not exist yet.
pub(super) fn absolute(path: &Path) -> PathBuf {
    if store::is_url(path) {
        return path.to_owned();
    }
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for known in whole.ancestors() {
        if let Ok(real) = fs::canonicalize(known) {
            let rest = whole.strip_prefix(known).unwrap_or(Path::new(""));
            // Without a link in the rest, `..` can be resolved by name.
            let mut path = real;
            for part in rest.components() {
                match part {
                    Component::ParentDir => {
                        path.pop();
                    }
                    part => path.push(part),
                }
            }
            return path;
        }
    }
    whole
}
