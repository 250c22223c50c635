//! What tells apart sources that lie in memory: they are named by a number, which says nothing of
//! their values.

use crate::error::Error;
use crate::pipeline::Handle;
use crate::random::{hash, hash_bytes};
use crate::source::{Source, read_one};

/// Records that are looked at: the first, the last, and others at equal distances.
const LOOKED_AT: u64 = 16;

/// A checksum of some records; None where a description needs nothing in memory.
///
/// # Errors
///
/// [`Error::Read`] if a record cannot be read. One that is damaged counts as such.
pub(super) fn checksum(source: &dyn Source, handles: &[Handle]) -> Result<Option<String>, Error> {
    if handles.is_empty() || source.is_empty() {
        return Ok(None);
    }
    let last = source.len() - 1;
    let steps = LOOKED_AT.min(source.len()) - 1;
    let mut sums = Vec::new();
    for step in 0..=steps {
        // In 128 bits, since no number of records may overflow it.
        let record = u128::from(last) * u128::from(step) / u128::from(steps.max(1));
        match read_one(source, record as u64) {
            Ok(record) => sums.extend(record.fields.iter().map(|bytes| hash_bytes(bytes))),
            Err(error) if error.is_bad_record() => sums.push(0),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(format!("{:016x}", hash(&sums))))
}
