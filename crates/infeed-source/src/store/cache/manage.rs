//! Lists, removes and verifies the pieces of a cache on a disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::records::DECODED;
use super::{HEAD, OpenPiece, RemovablePiece, checksum, head, pieces_in};
use crate::store::BufferPool;

/// Pieces of one dataset, bucket or server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheGroup {
    /// The folder or file of a dataset whose decoded records these are, or the bucket, server or
    /// dataset of pieces of objects.
    pub name: String,
    /// Whether these are decoded records.
    pub is_decoded: bool,
    /// Number of pieces.
    pub pieces: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Time of the last use, up to a minute early.
    pub used: SystemTime,
}

/// Result of [`verify_cache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedCache {
    /// Pieces that were read.
    pub pieces: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Damaged pieces, which were removed.
    pub damaged: u64,
    /// Pieces that could not be read or removed.
    pub unreadable: u64,
}

/// Lists what a cache on a disk holds, the most bytes first. Damaged pieces are left out. Stops
/// early if `proceed`, which gets the number of pieces done and of all, returns false.
///
/// # Errors
///
/// The folder is no cache, or cannot be read.
pub fn list_cache(
    folder: &Path,
    proceed: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<Vec<CacheGroup>> {
    let mut groups: BTreeMap<(bool, String), CacheGroup> = BTreeMap::new();
    let pieces = pieces_in(folder)?;
    let count = pieces.len() as u64;
    for (at, piece) in pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        let Some((is_decoded, name)) = group_of(&piece) else {
            continue;
        };
        let key = (is_decoded, name.clone());
        let group = groups.entry(key).or_insert(CacheGroup {
            name,
            is_decoded,
            pieces: 0,
            bytes: 0,
            used: piece.used,
        });
        group.pieces += 1;
        group.bytes += piece.bytes;
        group.used = group.used.max(piece.used);
    }
    let mut groups: Vec<CacheGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    Ok(groups)
}

/// Removes the pieces of the groups that `chosen` names, and returns their number and bytes. Loops
/// that use them read or decode the originals. Stops early as [`list_cache`] does.
///
/// # Errors
///
/// The folder is no cache, or a file cannot be removed.
pub fn remove_cached(
    folder: &Path,
    chosen: &dyn Fn(&str) -> bool,
    proceed: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<(u64, u64)> {
    let pieces = pieces_in(folder)?;
    let (count, mut removed, mut bytes) = (pieces.len() as u64, 0, 0);
    for (at, piece) in pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        if group_of(&piece).is_some_and(|(_, name)| chosen(&name)) {
            piece.remove()?;
            removed += 1;
            bytes += piece.bytes;
        }
    }
    recount(folder)?;
    Ok((removed, bytes))
}

/// Reads every piece and removes the damaged ones. Stops early as [`list_cache`] does.
///
/// # Errors
///
/// The folder is no cache, or cannot be listed.
pub fn verify_cache(
    folder: &Path,
    proceed: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<VerifiedCache> {
    let pieces = pieces_in(folder)?;
    let buffers = Arc::default();
    let (count, mut verified) = (pieces.len() as u64, VerifiedCache::default());
    for (at, piece) in pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        verified.pieces += 1;
        verified.bytes += piece.bytes;
        match is_valid(&piece, &buffers) {
            Ok(true) => {}
            Ok(false) => match piece.remove() {
                Ok(()) => verified.damaged += 1,
                Err(_) => verified.unreadable += 1,
            },
            // Another process removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                verified.pieces -= 1;
                verified.bytes -= piece.bytes;
            }
            Err(_) => verified.unreadable += 1,
        }
    }
    recount(folder)?;
    Ok(verified)
}

/// Whether the bytes of a piece have their checksum.
fn is_valid(piece: &RemovablePiece, buffers: &Arc<BufferPool>) -> io::Result<bool> {
    let mut file = File::open(&piece.path)?;
    let size = file.metadata()?.len();
    let Ok((name, length, stated)) = head(&mut file) else {
        return Ok(false);
    };
    let offset = (HEAD + name.len()) as u64;
    let sum = checksum(&name);
    let mut open = OpenPiece {
        file,
        offset,
        length,
        stated,
        sum,
    };
    Ok(size == offset + length && open.checked(buffers).is_ok())
}

/// Counts the bytes of all pieces again.
fn recount(folder: &Path) -> io::Result<()> {
    let mut count = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("bytes"))?;
    count.lock()?;
    let held: u64 = pieces_in(folder)?.iter().map(|piece| piece.bytes).sum();
    count.rewind()?;
    count.write_all(&held.to_le_bytes())
}

/// Returns the group of a piece, from the name in its file. None for a damaged file.
fn group_of(piece: &RemovablePiece) -> Option<(bool, String)> {
    let (name, ..) = head(&mut File::open(&piece.path).ok()?).ok()?;
    let name = String::from_utf8(name).ok()?;
    let decoded = name.strip_prefix(DECODED).and_then(|rest| {
        let (_identity, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
        let (_record, label) = rest.split_once(' ')?;
        Some(label.to_owned())
    });
    Some(match decoded {
        Some(label) => (true, label),
        None => (false, place_of(&name)),
    })
}

/// Bucket, server or dataset of an object, from the name of one of its pieces: an endpoint and a URL,
/// or `hub`, an endpoint and a dataset.
fn place_of(name: &str) -> String {
    let mut words = name.split(' ');
    let (first, second) = (words.next(), words.next().unwrap_or_default());
    match (first, words.next()) {
        (Some("hub"), Some(dataset)) => format!("hf://datasets/{dataset}"),
        _ => match second.split_once("://") {
            Some((scheme, path)) => {
                let host = path.split('/').next().unwrap_or_default();
                format!("{scheme}://{host}")
            }
            None => second.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Cache, PieceName, RecordPieces};
    use super::*;

    fn filled() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 1 << 30).expect("opens");
        for n in 0..4 {
            let name = PieceName::of_object("aws s3://bucket/a b/shard.tar 00ff 12", n);
            cache.keep(&name, &[1; 100]);
        }
        cache.keep(
            &PieceName::of_object("hub https://example.org owner/one train.tar 3 4", 0),
            b"x",
        );
        let pieces = RecordPieces::open(root.path(), 1 << 30, 5, "/data/my photos");
        let pieces = pieces.expect("opens");
        (0..3).for_each(|n| pieces.add(n, &[2; 1000]));
        root
    }

    fn groups(root: &Path) -> Vec<(String, bool, u64)> {
        let found = list_cache(root, &mut |_, _| true).expect("lists");
        let found = found.into_iter();
        found
            .map(|group| (group.name, group.is_decoded, group.pieces))
            .collect()
    }

    fn counted(root: &Path) -> u64 {
        let bytes = fs::read(root.join("bytes")).expect("reads");
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    #[test]
    fn pieces_are_listed_by_dataset_and_bucket() {
        let root = filled();

        let found = groups(root.path());

        let expected = [
            ("/data/my photos", true, 3),
            ("s3://bucket", false, 4),
            ("hf://datasets/owner/one", false, 1),
        ];
        let expected = expected.map(|(name, is_decoded, n)| (name.to_owned(), is_decoded, n));
        assert_eq!(found, expected);
        assert!(list_cache(&root.path().join("none"), &mut |_, _| true).is_err());
    }

    #[test]
    fn removing_one_dataset_leaves_the_others() {
        let root = filled();
        let before = counted(root.path());

        let chosen = |name: &str| name == "/data/my photos";
        let (removed, bytes) =
            remove_cached(root.path(), &chosen, &mut |_, _| true).expect("removes");

        assert_eq!(removed, 3);
        assert!(bytes > 3000);
        assert_eq!(counted(root.path()), before - bytes);
        assert_eq!(groups(root.path()).len(), 2);
    }

    #[test]
    fn verification_removes_damaged_pieces() {
        let root = filled();
        let pieces = pieces_in(root.path()).expect("lists");
        for piece in &pieces[..2] {
            let mut bytes = fs::read(&piece.path).expect("reads");
            *bytes.last_mut().expect("has bytes") ^= 1;
            fs::write(&piece.path, bytes).expect("writes");
        }

        let verified = verify_cache(root.path(), &mut |_, _| true).expect("reads");

        assert_eq!((verified.pieces, verified.damaged), (8, 2));
        let again = verify_cache(root.path(), &mut |_, _| true).expect("reads");
        assert_eq!((again.pieces, again.damaged), (6, 0));
        assert_eq!(counted(root.path()), again.bytes);
    }
}
