//! What filled rows and finished batches leave: the batch itself, and what its delivery counts.

use super::digest::Digest;
use super::parcel::BadRecord;
use crate::batch::{Batch, RowDone};

/// What a filled ticket leaves.
#[derive(Debug)]
pub(crate) struct Done {
    /// None if the row is left out.
    pub(super) row: Option<RowDone>,
    pub(super) bad: Vec<BadRecord>,
    pub(super) digest: Digest,
    /// Pixels of no class in the masks of its samples.
    pub(super) unknown_pixels: u64,
}

/// A batch and the bad records met in making it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(super) batch: Batch,
    /// Which form it has, where there are several.
    pub(super) form: usize,
    pub(super) bad: Vec<BadRecord>,
    /// Of its rows.
    pub(super) digest: Digest,
    /// Pixels of no class in its rows.
    pub(super) unknown_pixels: u64,
}

/// What its delivery tells the loader of a batch.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) form: usize,
    pub(super) rows: usize,
    /// Rows that hold a record.
    pub(super) samples: usize,
    pub(super) bad: Vec<BadRecord>,
    pub(super) digest: Digest,
    /// Pixels of no class in its rows.
    pub(super) unknown_pixels: u64,
}

impl Made {
    /// The batch, and what is counted once it is delivered.
    pub(super) fn split(self) -> (Batch, Told) {
        let Made {
            batch,
            form,
            bad,
            digest,
            unknown_pixels,
        } = self;
        let told = Told {
            epoch: batch.epoch,
            step: batch.step,
            form,
            rows: batch.rows(),
            samples: batch.samples(),
            bad,
            digest,
            unknown_pixels,
        };
        (batch, told)
    }
}
