//! One shard that is being written: where it ends, its records and its final name.

use std::io;

use super::entry::{Entry, shard_name};
use super::location::OutputLocation;
use super::shard_layout::{CountedFile, Extensions, PackedRecord, ShardLayout, ShardWriter};
use infeed_core::error::Error;

/// Limits of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardLimits {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// Fill level of a shard. Only this type decides where shards end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FillLevel {
    records: u64,
    bytes: u64,
}

impl FillLevel {
    /// Returns whether one more record fits. The first record always fits.
    pub(super) fn has_room(&self, limits: ShardLimits, weight: u64) -> bool {
        self.records == 0
            || (self.records < limits.records && self.bytes.saturating_add(weight) <= limits.bytes)
    }

    pub(super) fn add(&mut self, weight: u64) {
        self.records += 1;
        self.bytes = self.bytes.saturating_add(weight);
    }
}

/// The current shard.
pub(super) struct OpenShard {
    pub(super) shard: Box<dyn ShardWriter>,
    pub(super) filling: FillLevel,
    bytes_in: u64,
}

impl OpenShard {
    /// Begins a shard in a file without its final name.
    pub(super) fn begin(
        layout: &dyn ShardLayout,
        location: &OutputLocation,
        number: usize,
        tag: &str,
    ) -> Result<OpenShard, Error> {
        let name = shard_name(number, layout.extension());
        let begin = || layout.begin(CountedFile::new(location.begin(&name, tag)?));
        Ok(OpenShard {
            shard: begin().map_err(|error| location.not_made(&name, error))?,
            filling: FillLevel::default(),
            bytes_in: 0,
        })
    }

    pub(super) fn add(&mut self, made: PackedRecord, weight: u64) -> io::Result<()> {
        self.filling.add(weight);
        self.bytes_in += made.bytes_in;
        self.shard.add(made)
    }

    /// Returns its journal entry. Values that only the finished file has are added later.
    pub(super) fn entry(
        &self,
        number: usize,
        layout: &dyn ShardLayout,
        end: u64,
        bad: u64,
    ) -> Entry {
        Entry {
            file: shard_name(number, layout.extension()),
            end,
            records: self.filling.records,
            bytes: 0,
            bytes_in: self.bytes_in,
            bad,
            listed_bytes: 0,
            extensions: Extensions::new(),
        }
    }
}

/// Writes the rest of a shard, its index and its name, in that order. `tag` is that of
/// [`OpenShard::begin`].
pub(super) fn put(
    location: &OutputLocation,
    number: usize,
    shard: Box<dyn ShardWriter>,
    mut entry: Entry,
    tag: &str,
) -> Result<Entry, Error> {
    let not_made = |error| location.not_made(&entry.file, error);
    let finished = shard.finish().map_err(not_made)?;
    let file = finished.out.into_file().map_err(not_made)?;
    if let Some(index) = finished.index {
        location.write_new(&shard_name(number, "idx"), tag, &index.into())?;
    }
    entry.bytes = location.finish(&entry.file, tag, &file)?;
    entry.extensions = finished.extensions;
    Ok(entry)
}
