//! What was seen: calls, what is still there, and what no driver would have let pass.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::json;

use super::card::Card;
use super::lock;
use super::world::World;

/// What is written down while calls are made.
#[derive(Default)]
pub(crate) struct Seen {
    /// Calls by function.
    calls: Mutex<BTreeMap<&'static str, u64>>,
    /// What was done wrong, each thing once.
    misuse: Mutex<Vec<String>>,
    /// Copies from memory of the host that was not pinned.
    pageable: Mutex<u64>,
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

    pub(crate) fn pageable(&self) {
        *lock(&self.pageable) += 1;
    }
}

/// All of it as JSON: `calls` by function, `live` things by kind, `misuse` in words, the number of
/// `pageable` copies.
pub(crate) fn report(world: &World) -> String {
    let seen = &world.seen;
    let mut misuse = lock(&seen.misuse).clone();
    misuse.extend(world.cards.iter().filter_map(Card::why_lost));
    let report = json!({
        "calls": *lock(&seen.calls),
        "live": world.live(),
        "misuse": misuse,
        "pageable": *lock(&seen.pageable),
    });
    report.to_string()
}
