//! What is written down while calls are made.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::lock;

/// All of it.
#[derive(Default)]
pub(crate) struct Seen {
    /// Calls by function.
    pub(crate) calls: Mutex<BTreeMap<&'static str, u64>>,
    /// What was done wrong, each thing once.
    pub(crate) misuse: Mutex<Vec<String>>,
    /// Copies from memory of the host that was not pinned.
    pub(crate) pageable: Mutex<u64>,
    /// Records of events with timing.
    pub(crate) timed: Mutex<u64>,
}

impl Seen {
    /// Counts a call; the how-manieth of its function it is.
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

    pub(crate) fn timed(&self) {
        *lock(&self.timed) += 1;
    }

    pub(crate) fn pageable(&self) {
        *lock(&self.pageable) += 1;
    }
}
