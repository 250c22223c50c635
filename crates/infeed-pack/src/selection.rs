//! The records to pack, and the number that a thread claims at a time.

use infeed_core::error::Error;

/// Records that a thread claims at a time, unless the source requires a whole group.
pub(super) const CLAIM: u64 = 8;

/// Maximum bytes that the reads of one claim may hold.
pub(super) const ROOM_BYTES: u64 = 64 << 20;

/// The records to pack, in ascending order.
#[derive(Debug)]
pub(super) struct RecordSelection {
    /// Record numbers. None: all records.
    some: Option<Vec<u64>>,
    /// Records of the source.
    all: u64,
}

impl RecordSelection {
    pub(super) fn new(records: Option<&[u64]>, all: u64) -> Result<RecordSelection, Error> {
        let Some(records) = records else {
            return Ok(RecordSelection { some: None, all });
        };
        let mut records = records.to_vec();
        records.sort_unstable();
        records.dedup();
        match records.last() {
            None => Err(Error::config("records", "there are no records to pack")),
            Some(&last) if last >= all => {
                let problem = format!("there is no record {last}; the source has {all}");
                Err(Error::config("records", problem))
            }
            Some(_) => Ok(RecordSelection {
                some: Some(records),
                all,
            }),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.some
            .as_ref()
            .map_or(self.all, |some| some.len() as u64)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.some.is_none()
    }

    /// Records of the source.
    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// Returns the record numbers. None if all records are packed.
    pub(super) fn some(&self) -> Option<&[u64]> {
        self.some.as_deref()
    }

    /// Returns the record at a position.
    pub(super) fn at(&self, position: usize) -> u64 {
        self.some
            .as_ref()
            .map_or(position as u64, |some| some[position])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len() as usize).map(|position| self.at(position))
    }
}
