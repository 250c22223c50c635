//! The trait of a format of shards, for all that differs between formats.

use std::fmt::Debug;
use std::io;

use bytes::Bytes;

use super::index::IndexedShard;
use super::notes::MemberNotes;
use crate::left_out::LeftOut;
use crate::store::Blob;
use infeed_core::error::Cause;
use infeed_core::sample::{Field, FieldKind};

/// A format of shards; one file of the folder `formats` each.
pub(crate) trait ShardFormat: Send + Sync + Debug {
    /// Fields of every record, in order.
    fn fields(&self) -> &[Field];

    /// Class names by label, if the dataset has them.
    fn classes(&self) -> Option<&[String]> {
        None
    }

    /// Indexes a shard.
    ///
    /// # Errors
    ///
    /// The storage's error, or [`io::ErrorKind::InvalidData`] with offset and reason for bytes that
    /// are not a shard of this format.
    fn index(&self, number: usize, shard: &dyn Blob) -> io::Result<IndexedShard>;

    /// Checks the members of a shard, which may have been counted for other fields.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if members of these classes cannot be read as these fields.
    fn check(&self, _notes: &MemberNotes) -> io::Result<()> {
        Ok(())
    }

    /// Tag under which indexes are cached, so that a shard is indexed once. None if indexing is too
    /// cheap to cache.
    fn kept_as(&self) -> Option<&'static str> {
        None
    }

    /// Parses the text index next to the shard. None unless its lines account for every record byte
    /// of the shard and a few reads agree with it.
    fn text_index(&self, _text: &str, _shard: &dyn Blob) -> Option<IndexedShard> {
        None
    }

    /// Unpacks shard `number`, which can only be read whole, from its stored bytes to `length`
    /// bytes, the length in its index.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it does not unpack to `length` bytes, or does not match
    /// the dataset's hashes.
    fn unpack(&self, _number: usize, _stored: Bytes, _length: u64) -> io::Result<Bytes> {
        Err(io::Error::other("it is not packed"))
    }

    /// Locates the records in the content of a shard whose index is [`ShardIndex::Sealed`](super::index::ShardIndex::Sealed).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it does not hold `records` records.
    fn starts(&self, _content: &Bytes, _records: u64) -> io::Result<Vec<u64>> {
        Err(io::Error::other("it is not sealed"))
    }

    /// Memory of parsed values that are not slices of the record.
    fn extra_bytes(&self) -> ExtraBytes {
        ExtraBytes::default()
    }

    /// Whether all fields are known without reading a record.
    fn is_settled(&self) -> bool {
        true
    }

    /// Determines the remaining fields from the bytes of the first few records, which are empty if
    /// the format [is settled](ShardFormat::is_settled), and checks all fields against the members
    /// of the shards with these names. Called once, before any [`parse`](ShardFormat::parse).
    ///
    /// # Errors
    ///
    /// The reason why the records do not determine the fields.
    fn settle(
        &mut self,
        _records: &[Bytes],
        _shards: &[(&str, &MemberNotes)],
    ) -> Result<(), Cause> {
        Ok(())
    }

    /// Returns the parts of the shards that no record contains. `first` is the shard with the first
    /// record; `shards` has names and members of all shards.
    fn left_out(&self, _first: &str, _shards: &[(&str, &MemberNotes)]) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Parses the fields of a record.
    ///
    /// # Errors
    ///
    /// The problem with the bytes.
    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause>;
}

/// Upper bound of the memory for values that are not slices of their record: numbers in another
/// encoding, such as varints or decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtraBytes {
    /// Bytes per record.
    pub(super) by_record: u64,
    /// Bytes per byte of a record.
    pub(super) by_byte: u64,
}

impl ExtraBytes {
    /// Bound for fields whose encoded numbers take at least `shortest` bytes.
    pub(crate) fn of<'a>(fields: impl Iterator<Item = &'a Field>, shortest: u64) -> ExtraBytes {
        let mut grown = ExtraBytes::default();
        for field in fields {
            match &field.kind {
                FieldKind::Ragged { dtype } => {
                    let by_byte = (dtype.bytes() as u64).div_ceil(shortest);
                    grown.by_byte = grown.by_byte.max(by_byte);
                    // The last number has no separator.
                    grown.by_record += dtype.bytes() as u64;
                }
                kind @ FieldKind::Tensor { .. } => {
                    grown.by_record += kind.record_bytes().unwrap_or(0) as u64;
                }
                _ => {}
            }
        }
        grown
    }
}
