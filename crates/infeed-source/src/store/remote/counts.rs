//! Requests of this process, to all buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::RequestCounts;

static REQUESTS: AtomicU64 = AtomicU64::new(0);
pub(super) static RETRIES: AtomicU64 = AtomicU64::new(0);
pub(super) static HEDGES: AtomicU64 = AtomicU64::new(0);
pub(super) static HEDGES_WON: AtomicU64 = AtomicU64::new(0);
pub(super) static BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the requests of this process so far, to all buckets.
pub fn requests() -> RequestCounts {
    RequestCounts {
        requests: REQUESTS.load(Ordering::Relaxed),
        retries: RETRIES.load(Ordering::Relaxed),
        hedges: HEDGES.load(Ordering::Relaxed),
        hedges_won: HEDGES_WON.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
    }
}

/// Counts a request, also one that follows another to the target of a redirect.
pub(super) fn count_request() {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
}
