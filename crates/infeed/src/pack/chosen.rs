//! The records to pack, and how many of them a thread takes at a time.

use crate::error::Error;

/// Records a thread claims at a time, where the source leaves a choice.
pub(super) const CLAIM: u64 = 8;

/// Bytes that the reads of one claim may hold.
pub(super) const ROOM_BYTES: u64 = 64 << 20;

/// The records to pack, ascending.
#[derive(Debug)]
pub(super) struct Chosen {
    /// None: all.
    some: Option<Vec<u64>>,
    /// Records of the source.
    all: u64,
}

impl Chosen {
    pub(super) fn new(records: Option<&[u64]>, all: u64) -> Result<Chosen, Error> {
        let Some(records) = records else {
            return Ok(Chosen { some: None, all });
        };
        let mut records = records.to_vec();
        records.sort_unstable();
        records.dedup();
        match records.last() {
            None => Err(Error::config("records", "there are none to pack")),
            Some(&last) if last >= all => {
                let problem = format!("there is no record {last}; the source has {all}");
                Err(Error::config("records", problem))
            }
            Some(_) => Ok(Chosen {
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

    /// Their numbers; None if they are all there are.
    pub(super) fn some(&self) -> Option<&[u64]> {
        self.some.as_deref()
    }

    /// The record at a place.
    pub(super) fn at(&self, place: usize) -> u64 {
        self.some.as_ref().map_or(place as u64, |some| some[place])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len() as usize).map(|place| self.at(place))
    }
}
