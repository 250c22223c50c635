//! A checksum that distinguishes sources in memory. Their name is a number, which does not identify
//! their values.

use infeed::pipeline::Handle;
use infeed_core::error::Error;
use infeed_core::random::{hash, hash_bytes};
use infeed_source::{Source, read_one};

/// Number of records to read: the first, the last, and others at equal distances.
const CHECKED_RECORDS: u64 = 16;

/// Returns a checksum of some records. None if the description uses nothing in memory.
///
/// # Errors
///
/// [`Error::Read`] if a record cannot be read. A damaged record has a fixed checksum.
pub(super) fn checksum(source: &dyn Source, handles: &[Handle]) -> Result<Option<String>, Error> {
    if handles.is_empty() || source.is_empty() {
        return Ok(None);
    }
    let last = source.len() - 1;
    let steps = CHECKED_RECORDS.min(source.len()) - 1;
    let mut sums = Vec::new();
    for step in 0..=steps {
        // In 128 bits, so that no number of records can overflow it.
        let record = u128::from(last) * u128::from(step) / u128::from(steps.max(1));
        match read_one(source, record as u64) {
            Ok(record) => sums.extend(record.fields.iter().map(|bytes| hash_bytes(bytes))),
            Err(error) if error.is_bad_record() => sums.push(0),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(format!("{:016x}", hash(&sums))))
}
