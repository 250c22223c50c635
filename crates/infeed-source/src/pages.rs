//! Pages of mapped files: read by I/O threads, so that no worker waits for a page fault.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a memory page. Where pages are larger, some are touched more than once.
const PAGE: usize = 4096;

/// Time to touch a page above which pages come from storage: storage of over 4 GB/s is as fast as
/// page faults.
const PAGE_FROM_STORAGE: Duration = Duration::from_micros(1);

/// Number of records to request after one came from storage. Some of them are in memory by chance.
const REQUESTED: u32 = 64;

/// Number of records whose pages are requested before they are touched: at the start, and after a
/// record came from storage. Requests cost processor time, which is lost if pages are in memory.
static REQUESTS: AtomicU32 = AtomicU32::new(REQUESTED);

/// Touches the pages of the records of a read, part by part, and decides when to request pages of
/// later parts from storage. Dropping it ends the read.
pub(crate) struct PageToucher {
    records: u32,
    parts: u32,
    /// Parts whose pages came from storage.
    slow: u32,
    requests: u32,
}

impl PageToucher {
    /// Begins a read of `records` records, which are touched in `parts` parts.
    pub(crate) fn new(records: usize, parts: usize) -> PageToucher {
        PageToucher {
            records: u32::try_from(records).unwrap_or(u32::MAX),
            parts: u32::try_from(parts).unwrap_or(u32::MAX),
            slow: 0,
            requests: REQUESTS.load(Ordering::Relaxed),
        }
    }

    /// Whether the pages of all records should be requested before the first part is touched.
    pub(crate) fn requests_first(&self) -> bool {
        self.requests > 0
    }

    /// Touches a part with `touch`, which returns the number of touched pages. Returns whether the
    /// pages of later parts should be requested now.
    pub(crate) fn touch(&mut self, touch: impl FnOnce() -> usize) -> bool {
        let begun = Instant::now();
        let pages = u32::try_from(touch()).unwrap_or(u32::MAX);
        if begun.elapsed() <= PAGE_FROM_STORAGE.saturating_mul(pages) {
            return false;
        }
        // Another program may interrupt the touching of one part. After requests, most parts are
        // there when they are touched, so one that was not is enough.
        let enough = self.parts.min(2);
        self.slow += 1;
        let requests_now = self.requests == 0 && self.slow == enough;
        if self.requests > 0 || self.slow >= enough {
            self.requests = REQUESTED.saturating_add(self.records);
        }
        requests_now
    }
}

impl Drop for PageToucher {
    fn drop(&mut self) {
        if self.requests > 0 {
            let left = self.requests.saturating_sub(self.records);
            REQUESTS.store(left, Ordering::Relaxed);
        }
    }
}

/// Reads one byte of every page. Returns the number of pages.
pub(crate) fn touch_pages(bytes: &[u8]) -> usize {
    let sum = bytes
        .iter()
        .step_by(PAGE)
        .fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
    black_box(sum);
    bytes.len().div_ceil(PAGE)
}

/// Numbers of the first and the last page of some bytes.
pub(crate) fn pages_of(bytes: &[u8]) -> (usize, usize) {
    let start = bytes.as_ptr() as usize;
    let last = start + bytes.len().saturating_sub(1);
    (start / PAGE, last / PAGE)
}
