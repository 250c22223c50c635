//! Files that are replaced as a whole, so that a reader never sees a part of one.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes `bytes` to a temporary file next to `path`, and renames it to `path`. If the process is
/// killed, `path` has the old or the new contents.
///
/// # Errors
///
/// The operating system's error. The temporary file is removed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Random, since two processes may write at the same time, and a file or link of another program
    // must not have the name.
    let drawn = RandomState::new().build_hasher().finish();
    let part = path.with_extension(format!("{drawn:016x}.part"));
    let mut file = File::create_new(&part)?;
    let written = file.write_all(bytes);
    drop(file);
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_other_file_remains() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("run.json");

        replace(&path, b"first, which is longer").expect("writes");
        replace(&path, b"second").expect("writes");

        assert_eq!(fs::read(&path).expect("is there"), b"second");
        fs::create_dir(folder.path().join("taken")).expect("a folder");
        replace(&folder.path().join("taken"), b"x").expect_err("a folder has this name");
        assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 2);
    }
}
