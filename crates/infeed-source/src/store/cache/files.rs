//! Files of a cache: which ones infeed wrote, and their removal.
//!
//! The folder of a cache may hold other files too, and a link in it may lead anywhere. Only a
//! regular file with the name and the first bytes of a piece is removed or replaced, and no link
//! below the folder is followed. The folder itself may be a link.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use infeed_core::own_files::is_inside;
use infeed_core::printable::printable;
use infeed_raw::file;

/// First bytes of the file of a piece.
pub(super) const MAGIC: [u8; 8] = *b"INFEEDC1";

/// Folder of the pieces, in folders that are named by two hexadecimal digits.
pub(super) const PIECES: &str = "pieces";

/// Folder of the pieces that are being written.
pub(super) const PARTIAL: &str = "under-way";

/// File with the total number of bytes.
const COUNT: &str = "bytes";

/// Bytes of [`COUNT`].
const COUNT_BYTES: u64 = 8;

/// Hexadecimal digits in the names of folders, pieces and pieces that are being written.
const FOLDER_DIGITS: usize = 2;
const PIECE_DIGITS: usize = 32;
const PARTIAL_DIGITS: usize = 16;

/// Maximum number of other files that are named.
const NAMED: usize = 10;

/// File of a piece, in the order in which pieces are removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemovablePiece {
    pub(super) used: SystemTime,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
}

/// Files and folders in the folder of a cache that infeed did not write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherFiles {
    /// Their number. A folder counts once.
    pub count: u64,
    /// The first paths below the folder of the cache, up to ten.
    pub names: Vec<PathBuf>,
}

impl OtherFiles {
    pub(super) fn add(&mut self, root: &Path, path: &Path) {
        self.count += 1;
        if self.names.len() < NAMED {
            self.names
                .push(path.strip_prefix(root).unwrap_or(path).into());
        }
    }
}

impl fmt::Display for OtherFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("1 file that infeed did not write stays: ")?,
            count => write!(f, "{count} files that infeed did not write stay: ")?,
        }
        for (nth, name) in self.names.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{}", printable(&name.to_string_lossy()))?;
        }
        match self.count > self.names.len() as u64 {
            true => f.write_str(", …"),
            false => Ok(()),
        }
    }
}

/// Files in the folder of a cache.
#[derive(Debug, Default)]
pub(super) struct CacheFiles {
    /// Files with the name of a piece.
    pub(super) pieces: Vec<RemovablePiece>,
    pub(super) others: OtherFiles,
}

/// Lists the files in the folder of a cache.
pub(super) fn list(root: &Path) -> io::Result<CacheFiles> {
    let mut found = CacheFiles::default();
    let pieces = root.join(PIECES);
    check_folder(&pieces)?;
    for folder in fs::read_dir(&pieces)? {
        let folder = folder?;
        if !(folder.file_type()?.is_dir() && is_hex(&folder.file_name(), FOLDER_DIGITS)) {
            found.others.add(root, &folder.path());
            continue;
        }
        for piece in fs::read_dir(folder.path())? {
            let piece = piece?;
            // Another process may have removed the file meanwhile.
            let Ok(data) = piece.metadata() else { continue };
            if !(data.is_file() && is_hex(&piece.file_name(), PIECE_DIGITS)) {
                found.others.add(root, &piece.path());
                continue;
            }
            found.pieces.push(RemovablePiece {
                used: data.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: data.len(),
                path: piece.path(),
            });
        }
    }
    Ok(found)
}

/// Lists the files of a cache for a command: names the other files next to the pieces too.
pub(super) fn list_all(root: &Path) -> io::Result<CacheFiles> {
    let mut found = list(root)?;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let is_known = match name.to_str() {
            Some(PIECES | PARTIAL) => kind.is_dir(),
            Some(COUNT) => is_count(&entry.path())?,
            _ => false,
        };
        if !is_known {
            found.others.add(root, &entry.path());
        }
    }
    if let Ok(entries) = folder_entries(&root.join(PARTIAL)) {
        for entry in entries.flatten() {
            let is_named = is_hex(&entry.file_name(), PARTIAL_DIGITS);
            if !is_named || matches!(open(root, &entry.path()), Ok(None)) {
                found.others.add(root, &entry.path());
            }
        }
    }
    Ok(found)
}

/// Lists the pieces that are being written, or that a crash left.
pub(super) fn partial_files(root: &Path) -> io::Result<impl Iterator<Item = fs::DirEntry>> {
    let entries = folder_entries(&root.join(PARTIAL))?.flatten();
    Ok(entries.filter(|entry| is_hex(&entry.file_name(), PARTIAL_DIGITS)))
}

fn folder_entries(path: &Path) -> io::Result<fs::ReadDir> {
    check_folder(path)?;
    fs::read_dir(path)
}

/// Opens the file with the total number of bytes, which is created if it is missing.
pub(super) fn open_count(root: &Path) -> io::Result<File> {
    let path = root.join(COUNT);
    if !is_count(&path)? {
        let problem = format!("infeed did not write {}; move it", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    file::open_own(path, options)
}

/// Whether a path is the file with the total number of bytes, or there is none.
fn is_count(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
        // A crash may leave it empty.
        Ok(found) => Ok(found.is_file() && [0, COUNT_BYTES].contains(&found.len())),
    }
}

/// Returns an error unless a folder of the cache is a folder and no link to one.
pub(super) fn check_folder(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() {
        return Ok(());
    }
    let problem = match found.is_symlink() {
        true => {
            "is a link, which a cache does not follow; remove it, or name the folder that it \
                 points to as the cache"
        }
        false => "is not a folder; remove it, or use another folder",
    };
    let problem = format!("{} {problem}", path.display());
    Err(io::Error::new(io::ErrorKind::NotADirectory, problem))
}

/// Opens a file that begins like a piece. Returns its length, too. `None` for any other: for a link, and for a special file,
/// which could wait for ever.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] without a file, and other errors of the disk.
pub(super) fn open(root: &Path, path: &Path) -> io::Result<Option<(File, u64)>> {
    if !fs::symlink_metadata(path)?.is_file() || !is_inside(root, path) {
        return Ok(None);
    }
    let (mut file, length) = file::open(path)?;
    let mut first = Vec::with_capacity(MAGIC.len());
    (&mut file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut first)?;
    // A power failure may leave a file without its last bytes.
    Ok(MAGIC.starts_with(&first).then_some((file, length)))
}

/// Removes the file of a piece, and leaves any other file. Returns whether there is no file now.
pub(super) fn remove(root: &Path, path: &Path) -> io::Result<bool> {
    let removed = open(root, path).and_then(|piece| match piece {
        Some(_) => fs::remove_file(path).map(|()| true),
        None => Ok(false),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        removed => removed,
    }
}

/// Whether a name has this number of hexadecimal digits, as infeed writes them.
fn is_hex(name: &OsStr, digits: usize) -> bool {
    let name = name.as_encoded_bytes();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == digits && name.iter().all(is_digit)
}
