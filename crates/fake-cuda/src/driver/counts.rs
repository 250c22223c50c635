//! Counters of calls.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::lock;

/// Counters and misuse of a driver.
#[derive(Default)]
pub(crate) struct DriverCounts {
    /// Calls by function.
    pub(crate) calls: Mutex<BTreeMap<&'static str, u64>>,
    /// Texts of misuse, each once.
    pub(crate) misuse: Mutex<Vec<String>>,
    /// Copies from memory of the host that was not pinned.
    pub(crate) pageable: Mutex<u64>,
    /// Records of events with timing.
    pub(crate) timed: Mutex<u64>,
}

impl DriverCounts {
    /// Counts a call. Returns its number among the calls of its function.
    pub(crate) fn call(&self, function: &'static str) -> u64 {
        let mut calls = lock(&self.calls);
        let count = calls.entry(function).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn misuse(&self, what: String) {
        let mut all = lock(&self.misuse);
        if !all.contains(&what) {
            all.push(what);
        }
    }

    pub(crate) fn count_timed(&self) {
        *lock(&self.timed) += 1;
    }

    pub(crate) fn pageable(&self) {
        *lock(&self.pageable) += 1;
    }
}
