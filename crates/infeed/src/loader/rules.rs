//! Rules of a batch: what the run that consumes it decides about its records.

use super::digest::DigestScope;
use serde::{Deserialize, Serialize};

/// Rules of a batch: those of the run that consumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRules {
    /// Policy for bad records.
    pub on_error: OnError,
    /// Content of row digests.
    pub digested: DigestScope,
    /// Size limits; a larger record is bad.
    pub limits: RecordLimits,
}

impl BatchRules {
    /// Whether digests cover the bytes of rows.
    pub(super) fn hashes_rows(&self) -> bool {
        self.digested == DigestScope::Pixels
    }
}

/// Maximum needs of a record; a record above them is bad. The limits of the process that consumes
/// the batch apply in every process, because a batch must not depend on the machine that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Bytes of a read in the run's order.
    pub read: u64,
    /// Bytes of a read for a substitute.
    pub again: u64,
    /// Bytes of scratch.
    pub scratch: u64,
    /// Bytes of a row outside slabs.
    pub row: u64,
}

impl RecordLimits {
    /// Only the machine's own limits.
    pub const NONE: RecordLimits = RecordLimits {
        read: u64::MAX,
        again: u64::MAX,
        scratch: u64::MAX,
        row: u64::MAX,
    };
}

/// Policy for a record with bad bytes. A failed *read* always stops the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Returns the error at the record's position in the order.
    #[default]
    Stop,
    /// Another record, a function of seed, epoch and position, takes its place.
    Substitute,
    /// Leaves the record out, so its batch is shorter. Rejected where all batches must be full:
    /// with several ranks, and with every [`Tail`](infeed_core::order::partition::Tail) but `Keep`.
    Skip,
}
