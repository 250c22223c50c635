//! Decoded records of a dataset as pieces of a cache on a disk.
//!
//! A record is one piece. Its identity covers everything that decides its bytes, so a piece never
//! becomes stale: a changed dataset has other pieces, and the old ones are removed once the cache is
//! full. Pieces of the same dataset are never removed to make room for each other: every epoch uses
//! every record once, so the least recently used one is the one that is needed next.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;

use super::files::RemovablePiece;
use super::piece::{LONGEST, OpenPiece, PieceName};
use super::{AddedPiece, Cache};
use crate::store::BufferPool;
use infeed_core::error::Error;
use infeed_core::random::mix;

/// First word of the names of these pieces.
pub(super) const DECODED: &str = "decoded";

/// Records of one dataset, decoded in one way, in a cache on a disk.
#[derive(Debug)]
pub struct RecordPieces {
    cache: Cache,
    identity: u64,
    /// The dataset, for people.
    label: String,
    /// Pieces of others that were used later are not removed.
    opened: SystemTime,
    buffers: Arc<BufferPool>,
    damaged: AtomicU64,
    is_full: AtomicBool,
}

/// A decoded record in the cache, not yet read.
#[derive(Debug)]
pub struct FoundPiece<'a> {
    of: &'a RecordPieces,
    name: PieceName,
    piece: OpenPiece,
}

impl RecordPieces {
    /// Opens a folder, which is created if it is missing, with a limit in bytes for everything in it.
    /// `identity` covers everything that decides the bytes of records; `label` is the name of the
    /// dataset in listings.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    pub fn open(
        folder: &Path,
        limit_bytes: u64,
        identity: u64,
        label: &str,
    ) -> Result<RecordPieces, Error> {
        // Leaves room for the other parts of the name.
        let end = label.floor_char_boundary(LONGEST / 2);
        let cache = Cache::open(folder, limit_bytes)?;
        let is_full = AtomicBool::new(cache.full.load(Ordering::Relaxed));
        Ok(RecordPieces {
            cache,
            identity,
            label: label[..end].to_owned(),
            opened: SystemTime::now(),
            buffers: Arc::default(),
            damaged: AtomicU64::new(0),
            is_full,
        })
    }

    fn name(&self, record: u64) -> PieceName {
        PieceName {
            text: format!("{DECODED} {:016x} {record} {}", self.identity, self.label),
            file: format!("{:016x}{record:016x}", self.identity),
            folder: mix(record),
        }
    }

    /// Whether there is a file for a record.
    pub fn contains(&self, record: u64) -> bool {
        self.cache.is_readable && self.cache.path(&self.name(record)).exists()
    }

    /// Opens the piece of a record. `None` if there is none, or a damaged one, which is removed.
    pub fn find(&self, record: u64) -> Option<FoundPiece<'_>> {
        let name = self.name(record);
        match self.cache.find(&name) {
            Ok(piece) => piece.map(|piece| FoundPiece {
                of: self,
                name,
                piece,
            }),
            Err(problem) => {
                self.damage(&name, &problem);
                None
            }
        }
    }

    fn damage(&self, name: &PieceName, problem: &str) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        self.cache.discard(name, problem);
    }

    /// Adds a record, unless the limit is reached. A failure to write makes the cache full and is
    /// logged.
    pub fn add(&self, record: u64, bytes: &[u8]) {
        if self.is_full() {
            return;
        }
        let own = format!("{:016x}", self.identity);
        let removable = |piece: &RemovablePiece| {
            let file = piece.path.file_name().unwrap_or_default();
            let is_own = file.as_encoded_bytes().starts_with(own.as_bytes());
            !is_own && piece.used < self.opened
        };
        match self
            .cache
            .write(&self.name(record), bytes, Some(&removable))
        {
            Ok(AddedPiece::Added | AddedPiece::NameTaken) => {}
            Ok(AddedPiece::NoRoom) => self.is_full.store(true, Ordering::Relaxed),
            Err(error) => {
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    self.cache.warn(&error);
                }
            }
        }
    }

    /// Whether a record did not fit, or could not be written.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Records whose piece was damaged.
    pub fn damaged_records(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Limit in bytes, of everything in the folder.
    pub fn limit_bytes(&self) -> u64 {
        self.cache.limit_bytes()
    }
}

impl FoundPiece<'_> {
    /// Number of bytes of the record.
    pub fn length(&self) -> u64 {
        self.piece.length
    }

    /// Reads the record. `None` if it is damaged; the piece is then removed.
    pub fn read(self) -> Option<Bytes> {
        match self.piece.read(&self.of.buffers) {
            Ok(bytes) => Some(bytes),
            Err(problem) => {
                self.of.damage(&self.name, &problem);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn open(folder: &Path, limit: u64, identity: u64) -> RecordPieces {
        RecordPieces::open(folder, limit, identity, "photos").expect("opens")
    }

    fn read(pieces: &RecordPieces, record: u64) -> Option<Bytes> {
        let found = pieces.find(record)?;
        assert_eq!(found.length(), 1000);
        found.read()
    }

    #[test]
    fn records_outlive_the_program_that_added_them() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let first = open(root.path(), 1 << 20, 1);
        assert!(!first.contains(7) && read(&first, 7).is_none());
        first.add(7, &[7; 1000]);
        drop(first);

        let second = open(root.path(), 1 << 20, 1);
        assert!(second.contains(7));
        assert_eq!(read(&second, 7).expect("is there"), [7; 1000][..]);
        assert!(!second.contains(8) && !open(root.path(), 1 << 20, 2).contains(7));
    }

    #[test]
    fn a_damaged_record_is_removed_and_counted() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let pieces = open(root.path(), 1 << 20, 1);
        pieces.add(7, &[7; 1000]);
        let path = pieces.cache.path(&pieces.name(7));
        let whole = fs::read(&path).expect("reads");
        let mut count = 0;
        for at in (super::super::files::MAGIC.len()..whole.len()).step_by(5) {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            for bytes in [&changed[..], &whole[..at]] {
                fs::write(&path, bytes).expect("writes");
                assert!(read(&pieces, 7).is_none(), "{at}");
                assert!(!path.exists());
                count += 1;
                assert_eq!(pieces.damaged_records(), count);
            }
        }
    }

    #[test]
    fn a_full_cache_keeps_its_own_records_and_removes_older_ones_of_others() {
        let root = tempfile::tempdir().expect("a temporary folder");
        // Opened long before and after all uses: times of files are coarse.
        let mut old = open(root.path(), 20_000, 1);
        old.opened -= HOUR;
        (0..30).for_each(|n| old.add(n, &[1; 1000]));
        assert!(old.is_full());
        let kept = (0..30).filter(|&n| old.contains(n)).count();
        assert!((15..=19).contains(&kept), "{kept}");
        assert!((0..kept as u64).all(|n| old.contains(n)), "the first ones");

        let mut new = open(root.path(), 20_000, 2);
        new.opened += HOUR;
        (0..30).for_each(|n| new.add(n, &[2; 1000]));
        assert!(new.is_full());
        assert_eq!((0..30).filter(|&n| new.contains(n)).count(), kept);
        assert!((0..30).all(|n| !old.contains(n)));

        // Opened before the others' last use.
        old.is_full.store(false, Ordering::Relaxed);
        old.add(0, &[1; 1000]);
        assert!(old.is_full() && !old.contains(0));
    }
}
