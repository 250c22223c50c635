//! Pixels of mosaic tiles, kept for the other mosaics that show them.
//!
//! The pixels of a tile are a function of its record and position. So a sample is the same whether its
//! worker finds a tile here or makes it, and no timing, number of workers or limit of memory changes a
//! batch. The oldest tile is removed first: a tile is used for the positions of one window, which begins
//! with its first use.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use infeed_core::sample::Image;

/// Buffers of removed tiles that wait for the next tile. One removal precedes each new tile.
const SPARE: usize = 2;

/// The image and the masks of a tile, resized to fit the mosaic, in the order of the fields.
pub(super) type TilePixels = Arc<Vec<Image>>;

/// Everything that decides the pixels of a tile, the plan aside.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct TileKey {
    pub(super) record: u64,
    /// Epoch and position, which key the draws before the mosaic and the content of records that
    /// Python draws.
    pub(super) at: (u64, u64),
    /// Layout of the batch.
    pub(super) layout: usize,
}

/// A tile that a worker makes, or has made. A worker that makes a tile holds the lock, so that others
/// wait for its pixels instead of decoding the image again.
#[derive(Debug, Default)]
pub(super) struct TileEntry(Mutex<Option<TilePixels>>);

/// Tiles that the workers of a loader share.
#[derive(Debug, Default)]
pub(crate) struct SharedTiles {
    /// Most tiles to keep; with 0, each tile is made for one sample.
    limit: usize,
    kept: Mutex<KeptTiles>,
}

#[derive(Debug, Default)]
struct KeptTiles {
    entries: HashMap<TileKey, Arc<TileEntry>>,
    oldest_first: VecDeque<TileKey>,
    spare: Vec<Vec<Image>>,
}

impl TileEntry {
    /// Waits until no other worker makes the tile. The content is the tile, if it has been made.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<TilePixels>> {
        // A worker that panicked left no tile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedTiles {
    /// Keeps up to `limit` tiles.
    pub(crate) fn new(limit: usize) -> SharedTiles {
        SharedTiles {
            limit,
            kept: Mutex::default(),
        }
    }

    /// Returns the entry of a record's tile at an epoch and position. A new entry may remove the oldest
    /// one.
    pub(super) fn entry(&self, record: u64, at: (u64, u64), layout: usize) -> Arc<TileEntry> {
        if self.limit == 0 {
            return Arc::default();
        }
        let key = TileKey { record, at, layout };
        let mut kept = self.lock();
        if let Some(entry) = kept.entries.get(&key) {
            return Arc::clone(entry);
        }
        while kept.entries.len() >= self.limit
            && let Some(oldest) = kept.oldest_first.pop_front()
        {
            let removed = kept.entries.remove(&oldest).and_then(Arc::into_inner);
            let tile = removed.and_then(|entry| {
                let tile = entry.0.into_inner();
                tile.unwrap_or_else(PoisonError::into_inner)
            });
            if kept.spare.len() < SPARE {
                kept.spare.extend(tile.and_then(Arc::into_inner));
            }
        }
        let entry = Arc::<TileEntry>::default();
        kept.entries.insert(key, Arc::clone(&entry));
        kept.oldest_first.push_back(key);
        entry
    }

    /// Returns images for a new tile, which may have the memory of a removed one.
    pub(super) fn buffers(&self) -> Vec<Image> {
        self.lock().spare.pop().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, KeptTiles> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> (u64, u64) {
        (1, position)
    }

    /// Fills an entry with an image of this many channels.
    fn fill(tiles: &SharedTiles, entry: &TileEntry, channels: usize) {
        let mut images = tiles.buffers();
        images.resize_with(1, Image::default);
        images[0].channels = channels;
        *entry.lock() = Some(Arc::new(images));
    }

    #[test]
    fn the_oldest_tile_is_removed_first_and_its_memory_is_used_again() {
        let tiles = SharedTiles::new(2);
        for position in 0..3 {
            fill(&tiles, &tiles.entry(7, at(position), 0), 1);
        }

        let is_kept = |position| tiles.entry(7, at(position), 0).lock().is_some();
        assert!(is_kept(1) && is_kept(2));
        assert_eq!(tiles.lock().entries.len(), 2);
        assert!(!is_kept(0), "removed");
        assert!(!is_kept(1), "the new entry removed the oldest one");
        assert_eq!(
            tiles.buffers()[0].channels,
            1,
            "the memory of a removed tile"
        );
    }

    #[test]
    fn a_tile_in_use_stays_whole_when_it_is_removed() {
        let tiles = SharedTiles::new(1);
        fill(&tiles, &tiles.entry(0, at(0), 0), 3);
        let used = tiles.entry(0, at(0), 0).lock().clone().expect("a tile");

        fill(&tiles, &tiles.entry(1, at(1), 0), 1);
        fill(&tiles, &tiles.entry(2, at(2), 0), 1);

        assert_eq!(used[0].channels, 3);
    }

    #[test]
    fn other_positions_records_and_layouts_have_other_tiles() {
        let tiles = SharedTiles::new(9);
        fill(&tiles, &tiles.entry(5, at(0), 0), 1);

        assert!(tiles.entry(5, at(0), 0).lock().is_some());
        assert!(tiles.entry(5, at(1), 0).lock().is_none());
        assert!(tiles.entry(6, at(0), 0).lock().is_none());
        assert!(tiles.entry(5, at(0), 1).lock().is_none());
    }

    #[test]
    fn without_room_each_tile_is_made_for_one_sample() {
        let tiles = SharedTiles::new(0);
        fill(&tiles, &tiles.entry(5, at(0), 0), 1);

        assert!(tiles.entry(5, at(0), 0).lock().is_none());
    }
}
