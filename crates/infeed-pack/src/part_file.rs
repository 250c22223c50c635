//! Files under a temporary name, which get their own name when they are complete.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use infeed_core::error::Error;
use infeed_raw::file;

/// Returns the path of a file until it is complete. The leading dot keeps it out of record
/// listings. `tag` distinguishes writers of one file: empty, or a dot and a word.
pub(super) fn part_of(path: &Path, tag: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{tag}.part"))
}

/// Writes a file under its temporary name and renames it. A `durable` file is on the disk before the
/// rename.
///
/// # Errors
///
/// [`Error::Write`].
pub(super) fn write(path: &Path, tag: &str, bytes: &[u8], durable: bool) -> Result<(), Error> {
    let part = part_of(path, tag);
    let write = || -> io::Result<()> {
        let mut file = file::create(&part)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        drop(file);
        fs::rename(&part, path)
    };
    write().map_err(|error| {
        // A partial file would only take space.
        let _ = fs::remove_file(&part);
        Error::write(path, error)
    })
}

/// Makes names durable, if the system supports it.
pub(super) fn sync_folder(folder: &Path) {
    // Not every file system can sync folders. The files themselves are on the disk.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}
