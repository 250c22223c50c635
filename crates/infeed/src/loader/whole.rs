//! What groups of records that can only be read whole ask of the bytes for reading.

use std::cmp::Reverse;
use std::sync::Arc;

use super::OnError;
use crate::error::Error;
use crate::order::mixture::BLOCK;
use crate::order::window::Groups;
use crate::pipeline::Pipeline;
use crate::source::{Read, Source};

/// Groups that are asked what reading them takes: the largest.
const ASKED: usize = 4096;

/// Room for a record that is read by itself while groups are held, so that it never waits for bytes
/// that only it would set free.
const SINGLE_BYTES: u64 = 32 << 20;

/// Bytes that reading takes where groups are read whole; nothing where none are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    /// Held at once at most while a window goes by.
    pub(super) run_bytes: u64,
    /// Of the largest group.
    pub(super) group_bytes: u64,
    /// Whether one may be read for a single record, in the place of a bad one.
    pub(super) substitutes: bool,
}

impl Whole {
    /// What a source's groups ask under a description.
    pub(super) fn of(pipeline: &Pipeline, source: &dyn Source, on_error: OnError) -> Whole {
        Whole {
            substitutes: on_error == OnError::Substitute,
            ..Whole::within(pipeline, source, 0)
        }
    }

    /// What a substitute may take.
    pub(super) fn spare_bytes(self) -> u64 {
        match self.substitutes {
            true => self.group_bytes,
            false => 0,
        }
    }

    /// As [`Whole::of`], where so many records that lie behind each other in the source's own order
    /// are used in any order, as those of a part of a mix are.
    fn within(pipeline: &Pipeline, source: &dyn Source, records: u64) -> Whole {
        if let Some((parts, weights)) = source.mixed() {
            let all: f64 = weights.shares.iter().sum();
            // Each block of positions is shuffled by itself, and so is the part's within it.
            let positions = match records {
                0 => BLOCK,
                _ => (records.div_ceil(BLOCK) + 1).saturating_mul(BLOCK),
            };
            let part = |(part, share): (&Arc<dyn Source>, &f64)| {
                let own = (share / all * positions as f64).ceil() as u64;
                Whole::within(pipeline, &**part, own.max(1))
            };
            let parts: Vec<Whole> = parts.iter().zip(&weights.shares).map(part).collect();
            let alone = parts.iter().any(|part| part.run_bytes == 0);
            let sum = parts
                .iter()
                .fold(0_u64, |sum, part| sum.saturating_add(part.run_bytes));
            return Whole {
                run_bytes: match sum > 0 && alone {
                    true => sum.saturating_add(SINGLE_BYTES),
                    false => sum,
                },
                group_bytes: parts.iter().map(|part| part.group_bytes).max().unwrap_or(0),
                substitutes: false,
            };
        }
        let Some(groups) = source.groups().filter(|groups| groups.whole) else {
            return Whole::default();
        };
        let sizes = Sizes::of(source, &groups);
        let window = match pipeline.window_bytes(&groups) {
            // Two groups never fit a window together.
            Some(bytes) if sizes.two_least > bytes => sizes.largest,
            Some(bytes) => sizes.held(bytes).max(sizes.largest),
            None => sizes.largest,
        };
        let run = match records {
            0 => window,
            // Those of the records, and what else is in the windows at both ends.
            records => sizes
                .of_records(records)
                .saturating_add(window.saturating_mul(2)),
        };
        let alone = sizes.some_alone;
        Whole {
            run_bytes: run
                .min(sizes.all)
                .saturating_add(if alone { SINGLE_BYTES } else { 0 }),
            group_bytes: sizes.largest,
            substitutes: false,
        }
    }
}

/// Whether all reads that are alive at one place of a run fit the budget together: they hold
/// their bytes from the first of their records to the last. What a single record takes may be
/// known only when it is read.
pub(super) fn fits(reads: &[Read], parcel_bytes: u64) -> Result<(), Error> {
    let mut edges: Vec<(usize, i64, u64)> = Vec::new();
    let told = |read: &&Read| read.records.len() > 1 || read.bytes.is_some();
    for read in reads.iter().filter(told) {
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
        if alive > parcel_bytes {
            let problem = format!(
                "{alive} bytes of shards would be held at once, over the {} that memory \
                 leaves for reading; raise memory by at least {}",
                parcel_bytes,
                alive - parcel_bytes
            );
            return Err(Error::config("open", problem));
        }
    }
    Ok(())
}

/// What groups take when they are read, which is more than their bytes where these are packed.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    largest: u64,
    /// Of all together.
    all: u64,
    /// Bytes of all together, as windows count them.
    bytes: u64,
    records: u64,
    /// Bytes of the two smallest.
    two_least: u64,
    /// Whether there are records among them that are read one by one.
    some_alone: bool,
}

impl Sizes {
    fn of(source: &dyn Source, groups: &Groups) -> Sizes {
        let mut order: Vec<usize> = (0..groups.ends.len())
            .filter(|&group| groups.ends[group] > groups.first(group))
            .collect();
        order.sort_unstable_by_key(|&group| Reverse(groups.bytes[group]));
        let total = |of: &[usize]| {
            let bytes = of.iter().map(|&group| groups.bytes[group]);
            bytes.fold(0_u64, u64::saturating_add)
        };
        let asked = &order[..order.len().min(ASKED)];
        let (mut largest, mut held) = (0, 0_u64);
        for &group in asked {
            // The same record more than once, since only reads of several must say what they hold;
            // what one more adds, each of the group does.
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
        Sizes {
            largest,
            all: scaled(bytes, held, total(asked)),
            bytes,
            records: groups.records(),
            two_least: match order[..] {
                [.., a, b] => groups.bytes[a].saturating_add(groups.bytes[b]),
                _ => u64::MAX,
            },
            some_alone: order.last().is_some_and(|&group| groups.bytes[group] == 0),
        }
    }

    /// What groups of so many bytes take.
    fn held(&self, bytes: u64) -> u64 {
        scaled(bytes.min(self.bytes), self.all, self.bytes)
    }

    /// What the groups of so many records take in the mean.
    fn of_records(&self, records: u64) -> u64 {
        scaled(records.min(self.records), self.all, self.records)
    }
}

/// `number * to / from`, rounded up.
fn scaled(number: u64, to: u64, from: u64) -> u64 {
    let product = u128::from(number) * u128::from(to);
    u64::try_from(product.div_ceil(u128::from(from.max(1)))).unwrap_or(u64::MAX)
}
