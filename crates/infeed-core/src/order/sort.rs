//! Sorts the positions of an epoch into batches of similar records.

use std::ops::Range;

use super::lengths::LengthBatches;
use super::similar::BatchGroups;

/// How positions are sorted into batches.
#[derive(Debug)]
pub(super) enum BatchSort {
    /// Batches of records of one group, all of one size.
    Groups(BatchGroups),
    /// Batches with a limited number of tokens.
    Lengths(LengthBatches),
}

impl BatchSort {
    pub(super) fn count(&self) -> usize {
        match self {
            BatchSort::Groups(groups) => groups.count(),
            BatchSort::Lengths(lengths) => lengths.count(),
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        match self {
            BatchSort::Groups(groups) => groups.fingerprint(),
            BatchSort::Lengths(lengths) => lengths.fingerprint(),
        }
    }

    pub(super) fn group(&self, record: u64) -> Option<u32> {
        match self {
            BatchSort::Groups(groups) => groups.group(record),
            BatchSort::Lengths(lengths) => lengths.group(record),
        }
    }

    pub(super) fn batch_of(&self, position: u64, len: u64) -> Range<u64> {
        match self {
            BatchSort::Groups(groups) => groups.batch_of(position, len),
            BatchSort::Lengths(lengths) => lengths.batch_of(position, len),
        }
    }

    pub(super) fn positions(&self, len: u64, record: impl Fn(u64) -> u64) -> Vec<u32> {
        match self {
            BatchSort::Groups(groups) => groups.positions(len, record),
            BatchSort::Lengths(lengths) => lengths.positions(len, record),
        }
    }
}
