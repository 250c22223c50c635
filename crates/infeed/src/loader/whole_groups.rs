//! Memory for reading groups of records that can only be read whole.

use std::cmp::Reverse;
use std::sync::Arc;

use super::OnError;
use crate::pipeline::Pipeline;
use infeed_core::error::Error;
use infeed_core::order::mixture::BLOCK;
use infeed_core::order::window::Groups;
use infeed_source::{Read, Source};

/// Number of groups, the largest, whose read size is requested from the source.
const MAX_REQUESTED_GROUPS: usize = 4096;

/// Memory for a record that is read alone while groups are held, so that it never waits for bytes
/// that only its own row can release.
const SINGLE_BYTES: u64 = 32 << 20;

/// Memory for whole groups, in bytes; 0 if no group is read whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WholeGroups {
    /// Maximum held at once while a window is consumed.
    pub(super) run_bytes: u64,
    /// Bytes of the largest group.
    pub(super) group_bytes: u64,
    /// Whether a group may be read for a substitute.
    pub(super) substitutes: bool,
}

impl WholeGroups {
    /// Computes the need of a source's groups under a description.
    pub(super) fn of(pipeline: &Pipeline, source: &dyn Source, on_error: OnError) -> WholeGroups {
        WholeGroups {
            substitutes: on_error == OnError::Substitute,
            ..WholeGroups::within(pipeline, source, 0)
        }
    }

    /// Bytes for substitutes.
    pub(super) fn spare_bytes(self) -> u64 {
        match self.substitutes {
            true => self.group_bytes,
            false => 0,
        }
    }

    /// As [`WholeGroups::of`], if `records` consecutive records in the source's own order are used
    /// in any order, like those of a mix's part.
    fn within(pipeline: &Pipeline, source: &dyn Source, records: u64) -> WholeGroups {
        if let Some((parts, weights)) = source.weighted_parts() {
            let all: f64 = weights.shares.iter().sum();
            // Each block of positions, and the part's share of it, is shuffled by itself.
            let positions = match records {
                0 => BLOCK,
                _ => (records.div_ceil(BLOCK) + 1).saturating_mul(BLOCK),
            };
            let part = |(part, share): (&Arc<dyn Source>, &f64)| {
                let own = (share / all * positions as f64).ceil() as u64;
                WholeGroups::within(pipeline, &**part, own.max(1))
            };
            let parts: Vec<WholeGroups> = parts.iter().zip(&weights.shares).map(part).collect();
            let alone = parts.iter().any(|part| part.run_bytes == 0);
            let sum = parts
                .iter()
                .fold(0_u64, |sum, part| sum.saturating_add(part.run_bytes));
            return WholeGroups {
                run_bytes: match sum > 0 && alone {
                    true => sum.saturating_add(SINGLE_BYTES),
                    false => sum,
                },
                group_bytes: parts.iter().map(|part| part.group_bytes).max().unwrap_or(0),
                substitutes: false,
            };
        }
        let Some(groups) = source.groups().filter(|groups| groups.whole) else {
            return WholeGroups::default();
        };
        let sizes = GroupSizes::of(source, &groups);
        let window = match pipeline
            .shuffle
            .and_then(|shuffle| shuffle.window_bytes(&groups))
        {
            // Two groups never fit into a window together.
            Some(bytes) if sizes.two_least > bytes => sizes.largest,
            Some(bytes) => sizes.held_bytes(bytes).max(sizes.largest),
            None => sizes.largest,
        };
        let run = match records {
            0 => window,
            // The records' groups, and the rest of the windows at both ends.
            records => sizes
                .of_records(records)
                .saturating_add(window.saturating_mul(2)),
        };
        let alone = sizes.some_alone;
        WholeGroups {
            run_bytes: run
                .min(sizes.all)
                .saturating_add(if alone { SINGLE_BYTES } else { 0 }),
            group_bytes: sizes.largest,
            substitutes: false,
        }
    }
}

/// Checks that all concurrent reads of a run fit the budget together. A read holds its bytes from
/// the first of its records to the last. The size of a single record may be unknown until it is
/// read.
pub(super) fn fits(reads: &[Read], fetched_bytes: u64) -> Result<(), Error> {
    let mut edges: Vec<(usize, i64, u64)> = Vec::new();
    let reports_bytes = |read: &&Read| read.records.len() > 1 || read.bytes.is_some();
    for read in reads.iter().filter(reports_bytes) {
        let places = read.records.iter().map(|(place, _)| *place);
        let (Some(first), Some(last)) = (places.clone().min(), places.max()) else {
            continue;
        };
        let bytes = read.bytes.unwrap_or(u64::MAX);
        edges.push((first, 1, bytes));
        edges.push((last + 1, -1, bytes));
    }
    edges.sort_unstable_by_key(|&(place, sign, _)| (place, sign));
    let mut alive: u64 = 0;
    for (_, sign, bytes) in edges {
        alive = if sign > 0 {
            alive.saturating_add(bytes)
        } else {
            alive.saturating_sub(bytes)
        };
        if alive > fetched_bytes {
            let problem = format!(
                "{alive} bytes of shards must be in memory at once, but the memory limit leaves {} \
                 for reading; raise memory by at least {}",
                fetched_bytes,
                alive - fetched_bytes
            );
            return Err(Error::config("open", problem));
        }
    }
    Ok(())
}

/// Bytes of groups after reading, which exceed the stored bytes if groups are compressed.
#[derive(Debug, PartialEq, Eq)]
struct GroupSizes {
    largest: u64,
    /// Sum over all groups.
    all: u64,
    /// Sum over all groups as windows count it.
    bytes: u64,
    records: u64,
    /// Sum of the two smallest groups.
    two_least: u64,
    /// Whether some records are read one by one.
    some_alone: bool,
}

impl GroupSizes {
    fn of(source: &dyn Source, groups: &Groups) -> GroupSizes {
        let mut order: Vec<usize> = (0..groups.ends.len())
            .filter(|&group| groups.ends[group] > groups.first(group))
            .collect();
        order.sort_unstable_by_key(|&group| Reverse(groups.bytes[group]));
        let total = |of: &[usize]| {
            let bytes = of.iter().map(|&group| groups.bytes[group]);
            bytes.fold(0_u64, u64::saturating_add)
        };
        let requested = &order[..order.len().min(MAX_REQUESTED_GROUPS)];
        let (mut largest, mut held) = (0, 0_u64);
        for &group in requested {
            // Plan the same record several times: only reads of several records must report their
            // bytes. The difference of three and two is the cost of each further record.
            let taken = |times: usize| {
                let reads = source.plan(&vec![groups.first(group); times], u64::MAX);
                reads.iter().filter_map(|read| read.bytes).max()
            };
            let (two, three) = (taken(2).unwrap_or(0), taken(3).unwrap_or(0));
            let more = groups.ends[group] - groups.first(group);
            let own = two.saturating_add(three.saturating_sub(two).saturating_mul(more));
            largest = own.max(largest);
            held = held.saturating_add(own);
        }
        let bytes = total(&order);
        GroupSizes {
            largest,
            all: scale(bytes, held, total(requested)),
            bytes,
            records: groups.records(),
            two_least: match order[..] {
                [.., a, b] => groups.bytes[a].saturating_add(groups.bytes[b]),
                _ => u64::MAX,
            },
            some_alone: order.last().is_some_and(|&group| groups.bytes[group] == 0),
        }
    }

    /// Estimates the bytes of groups with `bytes` stored bytes.
    fn held_bytes(&self, bytes: u64) -> u64 {
        scale(bytes.min(self.bytes), self.all, self.bytes)
    }

    /// Estimates the mean bytes of the groups of `records` records.
    fn of_records(&self, records: u64) -> u64 {
        scale(records.min(self.records), self.all, self.records)
    }
}

/// `number * to / from`, rounded up.
fn scale(number: u64, to: u64, from: u64) -> u64 {
    let product = u128::from(number) * u128::from(to);
    u64::try_from(product.div_ceil(u128::from(from.max(1)))).unwrap_or(u64::MAX)
}
