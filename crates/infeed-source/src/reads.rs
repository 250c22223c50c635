//! Reads that sources plan.

use std::collections::HashMap;

use bytes::Bytes;

use infeed_core::order::window::Groups;
use infeed_core::random::DrawKey;

/// One read that a source planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Records that the read returns, with their positions in the run.
    pub records: Vec<(usize, u64)>,
    /// Bytes that the read holds until the last of its records is used. A read of several records
    /// must know them beforehand, so that the engine can keep the sum of all reads within the
    /// budget.
    pub bytes: Option<u64>,
    /// Number that the source gives to what it reads, such as the number of a shard.
    pub key: u64,
    /// Key of the random draws of each record, in the order of `records`. A loader sets the keys if
    /// records come from [Python](crate::Source::python); otherwise the list is empty.
    pub draws: Vec<DrawKey>,
}

/// Separates the random draws of records from all others.
const RECORD: u64 = 0x7079_0003;

/// Returns the key of the random draws of the record at a position.
pub fn draw_key(seed: u64, epoch: u64, position: u64) -> DrawKey {
    DrawKey::new(RECORD, seed, epoch, position, 0)
}

/// Bytes of a record's handles while it waits for a worker, and of each field. Where records are
/// small and read together, handles are most of the memory of a read.
const RECORD_BYTES: u64 = 752;
const FIELD_BYTES: u64 = size_of::<Bytes>() as u64;

/// Bytes of the handles of `records` records.
pub fn handle_bytes(records: u64, fields: usize) -> u64 {
    records.saturating_mul(RECORD_BYTES + FIELD_BYTES * fields as u64)
}

/// Plans one read for each record of a run.
pub fn single_reads(run: &[u64]) -> Vec<Read> {
    let single = |(position, &record)| Read {
        records: vec![(position, record)],
        bytes: None,
        key: 0,
        draws: Vec::new(),
    };
    run.iter().enumerate().map(single).collect()
}

/// Plans one read for every group that has records in a run, in the order of their first records.
/// The key of a read is the number of its group.
pub(crate) fn group_reads(run: &[u64], groups: &Groups) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    let mut of: HashMap<usize, usize> = HashMap::new();
    for (position, &record) in run.iter().enumerate() {
        let group = groups.of(record);
        let at = *of.entry(group).or_insert_with(|| {
            reads.push(Read {
                records: Vec::new(),
                bytes: Some(groups.bytes[group]),
                key: group as u64,
                draws: Vec::new(),
            });
            reads.len() - 1
        });
        reads[at].records.push((position, record));
    }
    reads
}
