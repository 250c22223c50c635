//! Rows of tables and arrays that are in memory or in mapped files.

/// Fields of records in memory or in mapped files.
///
/// A loader that only copies such fields reads runs of records with this trait, without handles for
/// each record. It uses [`Source::read`](super::Source::read) for records that cannot be copied.
pub trait ResidentRows: Sync {
    /// Returns the stored bytes of a field of a record. `None` if the record is damaged, or stored in
    /// another layout.
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]>;

    /// Copies a field of a record to memory of its size. Returns false if only
    /// [`Source::read`](super::Source::read) can return the record, or the reason why it is damaged.
    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        copy_stored(self.stored_bytes(record, field), to)
    }

    /// Whether pages may have to come from storage.
    fn is_mapped(&self) -> bool;
}

/// Copies stored bytes to memory of their size. Returns whether they were copied.
pub(crate) fn copy_stored(stored: Option<&[u8]>, to: &mut [u8]) -> bool {
    let stored = stored.filter(|stored| stored.len() == to.len());
    if let Some(stored) = stored {
        to.copy_from_slice(stored);
    }
    stored.is_some()
}

/// Copies an integer that is stored in a narrower type as int64. Returns whether it was copied.
pub(crate) fn copy_wide(integer: Option<i64>, to: &mut [u8]) -> bool {
    let wide = integer.map(i64::to_le_bytes);
    copy_stored(wide.as_ref().map(|wide| &wide[..]), to)
}
