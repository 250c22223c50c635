//! Caches indexes in the user's cache folder, so that a shard is indexed once.
//!
//! One file per shard, with a hash of the shard's name as file name. It contains the name and state
//! of the shard and ends in a checksum. An invalid file is written again.

use std::fs;
use std::io;
use std::path::PathBuf;

use crc_fast::crc32_iscsi;

use super::index::{IndexedShard, ShardIndex};
use crate::store::Blob;
use infeed_core::probe::Probe;
use infeed_core::random::mix;
use infeed_core::replace::replace;
use infeed_raw::file;

/// Smaller shards are indexed faster than a cached index is found.
const FROM_BYTES: u64 = 1 << 20;

/// First bytes of a file; the number changes with the layout.
const MAGIC: &[u8] = b"infeed index 2\n";

/// Cache file of the index of a shard.
#[derive(Debug)]
pub(super) struct IndexCacheFile {
    path: PathBuf,
    /// Format, name and state of the shard.
    owner: String,
}

impl IndexCacheFile {
    /// None for small shards, and if there is no cache folder.
    pub(super) fn of(tag: &str, blob: &dyn Blob) -> Option<IndexCacheFile> {
        if blob.len() < FROM_BYTES {
            return None;
        }
        IndexCacheFile::below(Probe::path()?.with_file_name("indexes"), tag, blob)
    }

    fn below(folder: PathBuf, tag: &str, blob: &dyn Blob) -> Option<IndexCacheFile> {
        // A relative path means another file in another working directory.
        let name = match blob.path() {
            Some(path) => fs::canonicalize(path).ok()?.display().to_string(),
            None => blob.name().to_owned(),
        };
        let hash = format!("{tag}\0{name}")
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        Some(IndexCacheFile {
            path: folder.join(format!("{hash:016x}")),
            owner: format!("{tag}\0{name}\0{}", blob.stamp()),
        })
    }

    /// Returns the cached index if it is valid and belongs to the current state of the shard.
    pub(super) fn load(&self) -> Option<IndexedShard> {
        let file = file::read(&self.path, u64::MAX).ok()?;
        let (body, sum) = file.split_last_chunk::<4>()?;
        if crc32_iscsi(body) != u32::from_le_bytes(*sum) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (owner, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if owner != self.owner.as_bytes() {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (notes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let notes = serde_json::from_slice(notes).ok()?;
        let (&kind, starts) = rest.split_first()?;
        let (starts, []) = starts.as_chunks::<8>() else {
            return None;
        };
        let starts = starts.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let index = match kind {
            0 => ShardIndex::Plain(starts.collect()),
            1 => ShardIndex::Packed(starts.collect()),
            _ => return None,
        };
        Some(IndexedShard { index, notes })
    }

    /// Stores an index. A cache that cannot be written is ignored.
    pub(super) fn save(&self, shard: &IndexedShard) {
        let (kind, starts) = match &shard.index {
            ShardIndex::Plain(starts) => (0, starts),
            ShardIndex::Packed(starts) => (1, starts),
            ShardIndex::Sealed { .. } => return,
        };
        let Ok(notes) = serde_json::to_vec(&shard.notes) else {
            return;
        };
        let mut file = MAGIC.to_vec();
        file.extend((self.owner.len() as u32).to_le_bytes());
        file.extend(self.owner.as_bytes());
        file.extend((notes.len() as u32).to_le_bytes());
        file.extend(notes);
        file.push(kind);
        file.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
        file.extend(crc32_iscsi(&file).to_le_bytes());
        if let Err(error) = self.write(&file) {
            tracing::debug!("{}: the index is not cached: {error}", self.path.display());
        }
    }

    /// Creates the folder and replaces the file as a whole.
    fn write(&self, file: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        replace(&self.path, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::notes::{MemberClass, MemberNotes};
    use crate::store::LocalFile;

    #[test]
    fn an_index_is_found_again_only_for_the_same_state_of_the_same_shard() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let shard = root.path().join("a.tar");
        fs::write(&shard, "12345").expect("writes");
        let place = |tag: &str| {
            let blob = LocalFile::new(&shard).expect("it is there");
            IndexCacheFile::below(root.path().join("cache"), tag, &blob).expect("a place")
        };
        let first = place("tar");
        assert_eq!(first.load(), None);

        let mut notes = MemberNotes::default();
        notes.add(MemberClass::Hidden, ".a");
        notes.add_file("jpg", "b.jpg");
        for (index, notes) in [
            (ShardIndex::Plain(vec![0, 512, 1024]), notes.clone()),
            (ShardIndex::Packed(vec![7, u64::MAX]), notes),
            (ShardIndex::Plain(Vec::new()), MemberNotes::default()),
        ] {
            let shard = IndexedShard { index, notes };
            first.save(&shard);
            assert_eq!(place("tar").load(), Some(shard));
        }
        assert_eq!(place("tfrecord").load(), None, "that is another format");
        fs::write(&shard, "123456").expect("writes");
        assert_eq!(place("tar").load(), None, "the shard was changed");
    }

    #[test]
    fn a_cached_index_with_any_byte_changed_or_cut_is_ignored() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let shard = root.path().join("a.tar");
        fs::write(&shard, "12345").expect("writes");
        let blob = LocalFile::new(&shard).expect("it is there");
        let place =
            IndexCacheFile::below(root.path().join("cache"), "tar", &blob).expect("a place");
        place.save(&ShardIndex::Plain(vec![0, 512]).into());
        let whole = fs::read(&place.path).expect("it was kept");

        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&place.path, flipped).expect("writes");
            assert_eq!(place.load(), None, "byte {at}");
            fs::write(&place.path, &whole[..at]).expect("writes");
            assert_eq!(place.load(), None, "cut at {at}");
        }
    }
}
