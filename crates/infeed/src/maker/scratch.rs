//! Working memory of a worker.

use std::sync::Arc;

use super::shared_tiles::SharedTiles;
use crate::fields::scratch::FieldScratch;
use infeed_core::batch::BatchRow;
use infeed_core::counters::ThreadCounters;
use infeed_core::sample::Image;

/// Working memory of one worker. Buffers keep their capacity between samples.
#[derive(Debug)]
pub struct SampleScratch {
    /// Memory, counters and notes of the fields.
    pub(crate) fields: FieldScratch,
    /// Columns of a sample before the user functions.
    pub(super) row: BatchRow,
    /// Images and masks of a mosaic.
    pub(super) canvases: Vec<Image>,
    /// Tiles of mosaics that all workers share.
    pub(super) tiles: Arc<SharedTiles>,
    /// Buffer in which records are prepared for the cache.
    pub(crate) prepared: Vec<u8>,
}

impl SampleScratch {
    /// Creates empty buffers, and a meter for the calling thread.
    pub fn new(counters: Arc<ThreadCounters>) -> SampleScratch {
        SampleScratch {
            fields: FieldScratch::new(counters),
            row: BatchRow::default(),
            canvases: Vec::new(),
            tiles: Arc::default(),
            prepared: Vec::new(),
        }
    }

    /// Uses the tiles of a loader from now on.
    pub(crate) fn with_tiles(self, tiles: &Arc<SharedTiles>) -> SampleScratch {
        let tiles = Arc::clone(tiles);
        SampleScratch { tiles, ..self }
    }

    /// Releases memory that large samples needed.
    pub(crate) fn shrink(&mut self) {
        self.fields.shrink();
        self.row.cells.clear();
        self.canvases = Vec::new();
        self.prepared = Vec::new();
    }
}

impl Default for SampleScratch {
    fn default() -> SampleScratch {
        SampleScratch::new(Arc::new(ThreadCounters::new(None)))
    }
}
