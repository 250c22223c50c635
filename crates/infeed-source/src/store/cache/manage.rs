//! Lists, removes and verifies the pieces of a cache on a disk.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::files::{self, OtherFiles, RemovablePiece};
use super::piece::{OpenPiece, head};
use super::records::DECODED;
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

/// Result of [`remove_cached`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemovedPieces {
    /// Pieces that were removed.
    pub pieces: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Files that infeed did not write, which stay.
    pub others: OtherFiles,
}

/// Result of [`verify_cache`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Files that infeed did not write, which stay.
    pub others: OtherFiles,
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
    let pieces = files::list(folder)?.pieces;
    let count = pieces.len() as u64;
    for (at, piece) in pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        let Some((is_decoded, name)) = group_of(folder, &piece) else {
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

/// Removes the pieces of the groups that `chosen` names. Loops that use them read or decode the
/// originals. Stops early as [`list_cache`] does.
///
/// # Errors
///
/// The folder is no cache, or a file cannot be removed.
pub fn remove_cached(
    folder: &Path,
    chosen: &dyn Fn(&str) -> bool,
    proceed: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<RemovedPieces> {
    let found = files::list_all(folder)?;
    let count = found.pieces.len() as u64;
    let mut removed = RemovedPieces {
        others: found.others,
        ..RemovedPieces::default()
    };
    for (at, piece) in found.pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        if matches!(files::open(folder, &piece.path), Ok(None)) {
            removed.others.add(folder, &piece.path);
            continue;
        }
        let is_chosen = group_of(folder, &piece).is_some_and(|(_, name)| chosen(&name));
        if is_chosen && files::remove(folder, &piece.path)? {
            removed.pieces += 1;
            removed.bytes += piece.bytes;
        }
    }
    recount(folder)?;
    Ok(removed)
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
    let found = files::list_all(folder)?;
    let buffers = Arc::default();
    let count = found.pieces.len() as u64;
    let mut verified = VerifiedCache {
        others: found.others,
        ..VerifiedCache::default()
    };
    for (at, piece) in found.pieces.into_iter().enumerate() {
        if !proceed(at as u64, count) {
            break;
        }
        let is_valid = match is_valid(folder, &piece, &buffers) {
            Ok(Some(is_valid)) => is_valid,
            Ok(None) => {
                verified.others.add(folder, &piece.path);
                continue;
            }
            // Another process removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                verified.unreadable += 1;
                true
            }
        };
        verified.pieces += 1;
        verified.bytes += piece.bytes;
        if !is_valid {
            match files::remove(folder, &piece.path) {
                Ok(true) => verified.damaged += 1,
                Ok(false) | Err(_) => verified.unreadable += 1,
            }
        }
    }
    recount(folder)?;
    Ok(verified)
}

/// Whether the bytes of a piece have their checksum. `None` for a file that is no piece.
fn is_valid(
    root: &Path,
    piece: &RemovablePiece,
    buffers: &Arc<BufferPool>,
) -> io::Result<Option<bool>> {
    let Some((file, size)) = files::open(root, &piece.path)? else {
        return Ok(None);
    };
    let opened = OpenPiece::new(file, size);
    let checked = opened.and_then(|(_, mut piece)| piece.read_checked(buffers));
    Ok(Some(checked.is_ok()))
}

/// Counts the bytes of all pieces again.
fn recount(folder: &Path) -> io::Result<()> {
    let mut count = files::open_count(folder)?;
    count.lock()?;
    let pieces = files::list(folder)?.pieces;
    let held: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    count.rewind()?;
    count.write_all(&held.to_le_bytes())
}

/// Returns the group of a piece, from the name in its file. None for a damaged file.
fn group_of(root: &Path, piece: &RemovablePiece) -> Option<(bool, String)> {
    let (name, ..) = head(&mut files::open(root, &piece.path).ok()??.0).ok()?;
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
    use std::path::PathBuf;

    use super::super::piece::PieceName;
    use super::super::{Cache, RecordPieces};
    use super::*;

    fn fill_cache() -> tempfile::TempDir {
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

    fn read_count(root: &Path) -> u64 {
        let bytes = fs::read(root.join("bytes")).expect("reads");
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    #[test]
    fn pieces_are_listed_by_dataset_and_bucket() {
        let root = fill_cache();

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
        let root = fill_cache();
        let before = read_count(root.path());

        let chosen = |name: &str| name == "/data/my photos";
        let removed = remove_cached(root.path(), &chosen, &mut |_, _| true).expect("removes");

        assert_eq!(removed.pieces, 3);
        assert!(removed.bytes > 3000);
        assert_eq!(read_count(root.path()), before - removed.bytes);
        assert_eq!(groups(root.path()).len(), 2);
    }

    #[test]
    fn verification_removes_damaged_pieces() {
        let root = fill_cache();
        let pieces = files::list(root.path()).expect("lists").pieces;
        for piece in &pieces[..2] {
            let mut bytes = fs::read(&piece.path).expect("reads");
            *bytes.last_mut().expect("has bytes") ^= 1;
            fs::write(&piece.path, bytes).expect("writes");
        }

        let verified = verify_cache(root.path(), &mut |_, _| true).expect("reads");

        assert_eq!((verified.pieces, verified.damaged), (8, 2));
        let again = verify_cache(root.path(), &mut |_, _| true).expect("reads");
        assert_eq!((again.pieces, again.damaged), (6, 0));
        assert_eq!(read_count(root.path()), again.bytes);
    }

    /// Text of files that infeed did not write.
    const TEXT: &str = "precious, and longer than the head of a piece";

    /// Adds what infeed did not write, and returns the paths of the files that must stay.
    #[cfg(unix)]
    fn with_other_files(root: &Path, victim: &Path) -> Vec<PathBuf> {
        use std::os::unix::fs::symlink;
        let pieces = root.join("pieces");
        let own = fs::read_dir(&pieces).expect("lists").next();
        let own = own.expect("one").expect("one").path();
        let hash = "0123456789abcdef0123456789abcdef";
        for folder in ["zz", "ab"] {
            fs::create_dir(victim.join(folder)).expect("a folder");
            fs::write(victim.join(folder).join(hash), TEXT).expect("writes");
        }
        // Files that look like damaged pieces, behind links.
        let text = victim.join("piece");
        fs::write(&text, [&files::MAGIC[..], TEXT.as_bytes()].concat()).expect("writes");
        fs::copy(&text, victim.join("ab/fedcba9876543210fedcba9876543210")).expect("copies");
        let _ = fs::remove_dir_all(pieces.join("ab"));
        symlink(victim.join("ab"), pieces.join("ab")).expect("links");
        symlink(victim.join("zz"), pieces.join("zz")).expect("links");
        symlink(&text, own.join(hash)).expect("links");
        let mut files = vec![
            root.join("readme.txt"),
            pieces.join("notes.txt"),
            own.join("notes.txt"),
            own.join("0123456789ABCDEF0123456789ABCDEF"),
            own.join("00000000000000000000000000000000"),
            root.join("under-way/notes.txt"),
            root.join("under-way/0123456789abcdef"),
        ];
        for file in &files {
            fs::write(file, TEXT).expect("writes");
        }
        fs::create_dir(pieces.join("mine")).expect("a folder");
        files.extend([
            pieces.join("mine"),
            own.join(hash),
            text,
            victim.join("zz").join(hash),
            victim.join("ab").join(hash),
            victim.join("ab/fedcba9876543210fedcba9876543210"),
        ]);
        for file in &files {
            if let Ok(file) = fs::File::options().write(true).open(file) {
                // Longer ago than a process could need for a piece.
                file.set_modified(SystemTime::UNIX_EPOCH).expect("sets");
            }
        }
        files
    }

    #[cfg(unix)]
    #[test]
    fn files_that_infeed_did_not_write_stay() {
        for act in ["verify", "rm", "small limit", "read"] {
            let (root, victim) = (fill_cache(), tempfile::tempdir().expect("a folder"));
            let files = with_other_files(root.path(), victim.path());
            let others = match act {
                "verify" => {
                    let found = verify_cache(root.path(), &mut |_, _| true).expect("reads");
                    assert_eq!(found.damaged, 0, "{found:?}");
                    Some(found.others)
                }
                "rm" => {
                    let found = remove_cached(root.path(), &|_| true, &mut |_, _| true);
                    Some(found.expect("removes").others)
                }
                _ => {
                    let limit = if act == "read" { 1 << 30 } else { 5000 };
                    let cache = Cache::open(root.path(), limit).expect("opens");
                    let buffers = Arc::default();
                    for n in 0..600 {
                        let name = PieceName::of_object("other s3://bucket/x 0 1", n);
                        cache.keep(&name, &[3; 1000]);
                        cache.piece(&name, 1000, &buffers);
                    }
                    None
                }
            };

            for file in &files {
                let is_there = fs::symlink_metadata(file).is_ok();
                assert!(is_there, "{act}: {} is gone", file.display());
            }
            assert_eq!(
                fs::read_dir(victim.path().join("ab"))
                    .expect("lists")
                    .count(),
                2
            );
            if let Some(others) = others {
                assert_eq!(others.count, 11, "{act}: {others}");
                assert!(
                    others.to_string().contains("did not write stay: "),
                    "{others}"
                );
                assert!(others.names.contains(&"pieces/ab".into()), "{others}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_of_a_cache_that_is_a_link_is_not_used() {
        for name in ["pieces", "under-way"] {
            let (root, victim) = (fill_cache(), tempfile::tempdir().expect("a folder"));
            let moved = victim.path().join(name);
            fs::rename(root.path().join(name), &moved).expect("moves");
            let other = moved.join("0123456789abcdef");
            fs::write(&other, TEXT).expect("writes");
            std::os::unix::fs::symlink(&moved, root.path().join(name)).expect("links");
            let before = fs::read_dir(&moved).expect("lists").count();

            let cache = Cache::open(root.path(), 2000).expect("opens");
            let piece = PieceName::of_object("other s3://bucket/x 0 1", 0);
            cache.keep(&piece, &[3; 1000]);
            assert!(cache.piece(&piece, 1000, &Arc::default()).is_none());
            let verified = verify_cache(root.path(), &mut |_, _| true);
            let removed = remove_cached(root.path(), &|_| true, &mut |_, _| true);

            assert_eq!(fs::read_dir(&moved).expect("lists").count(), before);
            if name == "pieces" {
                let error = verified.expect_err("a link").to_string();
                assert!(error.contains("pieces is a link"), "{error}");
                removed.expect_err("a link");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_count_of_bytes_is_not_written_to_another_file() {
        let (root, victim) = (fill_cache(), tempfile::tempdir().expect("a folder"));
        let file = victim.path().join("file");
        fs::write(&file, TEXT).expect("writes");
        fs::remove_file(root.path().join("bytes")).expect("removes");
        std::os::unix::fs::symlink(&file, root.path().join("bytes")).expect("links");

        let cache = Cache::open(root.path(), 1 << 30).expect("opens");
        cache.keep(
            &PieceName::of_object("other s3://bucket/x 0 1", 0),
            &[3; 1000],
        );
        let error = verify_cache(root.path(), &mut |_, _| true).expect_err("a link");

        assert!(error.to_string().contains("did not write"), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("reads"), TEXT);
    }
}
