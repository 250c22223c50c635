//! Removal of files that infeed wrote.
//!
//! A link in a folder may lead to files of another program, so links are not followed.

use std::fs;
use std::io;
use std::path::Path;

/// Whether no folder between `root` and `path` is a link. The root may be one.
pub fn is_inside(root: &Path, path: &Path) -> bool {
    let folders = path.ancestors().skip(1);
    let mut folders = folders.take_while(|folder| *folder != root);
    folders.all(|folder| fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()))
}

/// Removes a regular file below `root`. Leaves links, and files behind links.
///
/// # Errors
///
/// The operating system's error; none for a file that does not exist.
pub fn remove_inside(root: &Path, path: &Path) -> io::Result<()> {
    let removed = fs::symlink_metadata(path).and_then(|found| {
        let is_own = found.is_file() && is_inside(root, path);
        if is_own {
            fs::remove_file(path)
        } else {
            Ok(())
        }
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_behind_a_link_stays() {
        let (folder, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (folder, other) = (folder.expect("a folder"), other.expect("a folder"));
        let file = other.path().join("cat/1.png");
        fs::create_dir(other.path().join("cat")).expect("a folder");
        fs::write(&file, "precious").expect("writes");
        let root = folder.path().join("root");
        symlink(other.path(), &root).expect("links");
        symlink(other.path().join("cat"), other.path().join("link")).expect("links");
        symlink(&file, other.path().join("2.png")).expect("links");

        for name in ["link/1.png", "2.png", "cat", "none.png", "none/1.png"] {
            remove_inside(&root, &root.join(name)).expect("leaves it");
        }
        let content = infeed_raw::file::read(&file, 100).expect("is there");
        assert_eq!(content, b"precious");
        assert!(fs::symlink_metadata(root.join("2.png")).is_ok());
        remove_inside(&root, &root.join("cat/1.png")).expect("removes");
        assert!(!file.exists());
    }
}
