//! Memory budget in bytes, divided when a loader opens.

use std::sync::{Mutex, PoisonError};

use super::record_needs::RecordNeeds;
use super::reservation::ReservedBytes;
use super::whole_groups::WholeGroups;
use infeed_core::error::{Error, MemoryAdvice, MemoryPurpose};

/// In-flight batches if memory allows: one that workers finish, one that is full, and slack for a
/// consumer with varying step times.
pub(super) const IN_FLIGHT_BATCHES: u64 = 4;

/// Bytes of encoded records read ahead if memory allows: 100 ms of storage at 2.5 GB/s. Groups that
/// can only be read whole may get more.
const READ_AHEAD: u64 = 256 << 20;

/// Windows of whole groups in memory if memory allows: the current one and the next.
const WINDOWS: u64 = 2;

/// Decode scratch per worker if memory allows: a 12-megapixel photograph and its crop.
const SCRATCH: u64 = 64 << 20;

/// Minimum bytes for reading ahead, and for each worker's scratch.
const MIN_BYTES: u64 = 4 << 20;

/// Scratch per worker below which a loader that tunes its workers stays at one per core. A sample
/// that needs more takes memory from a pool, where workers wait for each other.
const ENOUGH: u64 = 16 << 20;

/// A run of reads may use one part in `ROOM` of the bytes for reading, so that the next run is read
/// while this one is used.
pub(super) const ROOM: u64 = 2;

/// One part in `SPARE_PART` of the memory for reading is for substitutes.
const SPARE_PART: u64 = 4;

/// One part in `LARGE_PART` of the scratch is the pool for large samples.
const LARGE_PART: u64 = 2;

/// Memory of a row outside slabs, in multiples of its bytes: the row, and its place in the gathered
/// batch.
const GATHERED: u64 = 2;

/// Size of the largest record that gets memory if there is enough, relative to the largest one whose
/// size is known, unless all sizes are known.
const MARGIN: u64 = 2;

/// Division of a loader's memory budget.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) total_bytes: u64,
    /// In-flight batches.
    pub(super) in_flight_batches: usize,
    pub(super) slab_bytes: u64,
    /// Tiles of mosaics that several samples use.
    pub(super) tile_bytes: u64,
    /// Encoded bytes of records in the run's order.
    pub(super) fetched_bytes: u64,
    /// Encoded bytes of substitutes.
    pub(super) spare_bytes: u64,
    /// Scratch that each worker keeps.
    pub(super) kept_bytes: u64,
    /// Scratch pool for samples that need more than a worker keeps.
    pub(super) large_bytes: u64,
    /// Maximum bytes of one row outside slabs: enough for the rows of all in-flight batches, and for
    /// the batch into which they are gathered.
    pub(super) row_bytes: u64,
    pub(super) advisor: MemoryAdvisor,
    reserved: Mutex<ReservedBytes>,
}

/// Slab bytes of one batch, and the maximum number of in-flight batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlabPlan {
    pub(super) bytes: u64,
    pub(super) in_flight_batches: u64,
}

impl From<u64> for SlabPlan {
    /// Uses `bytes` per batch and the default number of in-flight batches.
    fn from(bytes: u64) -> SlabPlan {
        SlabPlan {
            bytes,
            in_flight_batches: IN_FLIGHT_BATCHES,
        }
    }
}

/// Everything in a pipeline that takes memory, its workers aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryDemand {
    pub(super) slabs: SlabPlan,
    /// Rows of a batch, if their sizes differ, so that they are outside slabs until the batch is
    /// full.
    pub(super) own_rows: Option<u64>,
    pub(super) whole: WholeGroups,
    pub(super) record: RecordNeeds,
    /// Number of records whose encoded bytes must fit at once.
    pub(super) reads: u64,
    /// Bytes of tiles to keep if memory allows.
    pub(super) tile_bytes: u64,
}

/// Bytes of a budget beyond slabs, by purpose.
#[derive(Clone, Copy, Debug)]
struct BudgetParts {
    reading: u64,
    scratch: u64,
    own: u64,
}

impl BudgetParts {
    fn sum(self) -> u64 {
        let sum = self.reading.saturating_add(self.scratch);
        sum.saturating_add(self.own)
    }
}

impl MemoryDemand {
    /// Parts without which no loader opens.
    fn least(&self, workers: u64) -> BudgetParts {
        BudgetParts {
            reading: MIN_BYTES + least_bytes(self.whole),
            scratch: MIN_BYTES * workers,
            own: self.own_rows.map_or(0, |_| MIN_BYTES),
        }
    }

    /// Parts in which every record of known size fits.
    fn sufficient(&self, workers: u64) -> BudgetParts {
        match self.record.sized {
            Some(_) => self.parts_for(self.record, 2, workers),
            None => self.least(workers),
        }
    }

    /// Parts beyond which more memory does not make a loader faster.
    fn useful_parts(&self, workers: u64) -> BudgetParts {
        let record = self.record.with_margin();
        let parts = self.parts_for(record, self.slabs.in_flight_batches, workers);
        BudgetParts {
            reading: parts.reading.max(READ_AHEAD).max(wanted_bytes(self.whole)),
            scratch: parts.scratch.max(SCRATCH * workers),
            own: self.own_rows.map_or(0, |_| parts.own.max(READ_AHEAD)),
        }
    }

    /// Parts in which every record fits that needs no more than `record`, with this number of
    /// in-flight batches.
    fn parts_for(&self, record: RecordNeeds, batches: u64, workers: u64) -> BudgetParts {
        let least = self.least(workers);
        // Three quarters are for reads in the run's order.
        let reads = self.reads.saturating_mul(ROOM).max(SPARE_PART);
        let reading = record.read_bytes.saturating_mul(reads);
        let own = self.own_rows.map_or(0, |rows| {
            let batch = own_batch_bytes(rows, record.row_bytes);
            batch.saturating_mul(batches)
        });
        BudgetParts {
            reading: least
                .reading
                .max(reading.saturating_add(least_bytes(self.whole))),
            scratch: least
                .scratch
                .max(record.scratch_bytes.saturating_mul(LARGE_PART)),
            own: least.own.max(own),
        }
    }

    /// Bytes of a budget with these parts, and the slabs of two batches.
    fn total(&self, parts: BudgetParts) -> u64 {
        parts.sum().saturating_add(2 * self.slabs.bytes)
    }
}

/// Bytes of a batch of rows of this size outside slabs.
fn own_batch_bytes(rows: u64, row_bytes: u64) -> u64 {
    rows.saturating_mul(row_bytes).saturating_mul(GATHERED)
}

impl RecordNeeds {
    /// Bytes of a batch of rows outside slabs, if memory allows.
    pub(super) fn own_batch_bytes(self, rows: u64) -> u64 {
        own_batch_bytes(rows, self.with_margin().row_bytes)
    }

    /// Needs with a margin for records whose sizes are not known.
    fn with_margin(self) -> RecordNeeds {
        let needs = match self.sized {
            Some((sized, all)) if sized < all => self.times(MARGIN),
            _ => self,
        };
        RecordNeeds {
            row_bytes: needs.row_bytes.max(self.assumed_row_bytes),
            ..needs
        }
    }
}

impl Shares {
    /// Divides `memory` bytes. Default: part of the cgroup's limit, shared by `processes` loaders'
    /// processes.
    pub(super) fn new(
        memory: Option<u64>,
        processes: usize,
        demand: MemoryDemand,
        workers: usize,
    ) -> Result<Shares, Error> {
        let workers = workers as u64;
        let least = demand.least(workers);
        let groups = least_bytes(demand.whole);
        let needed = demand.total(least);
        let batches = needed.saturating_sub(groups);
        let reserved = match memory {
            Some(_) => ReservedBytes::default(),
            None => {
                let sufficient = demand.total(demand.sufficient(workers));
                let beyond =
                    (demand.slabs.in_flight_batches - 2).saturating_mul(demand.slabs.bytes);
                let beyond = beyond.saturating_add(demand.tile_bytes);
                let wanted = demand
                    .total(demand.useful_parts(workers))
                    .saturating_add(beyond);
                ReservedBytes::of_what_is_left(processes, |left| {
                    // Half of what is left, so that a validation loader also finds memory.
                    let usual = (left.usual / 2).max(sufficient.min(left.usual));
                    wanted.min(usual.max(sufficient.min(left.most)))
                })
            }
        };
        let total = memory.unwrap_or(reserved.bytes());
        if total < batches {
            return Err(match memory {
                Some(budget_bytes) => Error::Budget {
                    needed_bytes: batches,
                    budget_bytes,
                },
                None => reserved.too_few(batches),
            });
        }
        if total < needed {
            let problem = format!(
                "groups of records that can only be read whole (row groups, packed shards) need {} \
                 bytes at once, the largest {}; memory={total} leaves {} for them; raise memory to \
                 {needed}, use a smaller shuffle window, or write smaller groups",
                groups,
                demand.whole.group_bytes,
                total - batches,
            );
            return Err(Error::config("open", problem));
        }
        Ok(Shares::cut(total, demand, workers, reserved))
    }

    /// As [`Shares::new`], for a loader that tunes its workers. Also returns the maximum number of
    /// workers: `most` if memory allows, `cores` if memory is short, fewer if it is shorter still.
    /// The budget holds for every number up to that maximum.
    pub(super) fn for_at_most(
        memory: Option<u64>,
        processes: usize,
        demand: MemoryDemand,
        (cores, most): (usize, usize),
    ) -> Result<(Shares, usize), Error> {
        let shares = |workers| Shares::new(memory, processes, demand, workers);
        if let Ok(mut found) = shares(most)
            && found.kept_bytes >= ENOUGH
        {
            found.advisor.workers = most as u64;
            return Ok((found, most));
        }
        let mut workers = cores.min(most).max(1);
        loop {
            match shares(workers) {
                Ok(mut found) => {
                    // With more memory, there would be more workers.
                    found.advisor.workers = most as u64;
                    return Ok((found, workers));
                }
                Err(error) if workers == 1 => return Err(error),
                Err(_) => workers -= 1,
            }
        }
    }

    /// Divides a total that suffices.
    fn cut(total: u64, demand: MemoryDemand, workers: u64, reserved: ReservedBytes) -> Shares {
        let MemoryDemand { slabs, whole, .. } = demand;
        let slab_bytes = slabs.bytes;
        let groups = least_bytes(whole);
        let sufficient = demand.sufficient(workers);
        let beyond = total.saturating_sub(demand.total(sufficient));
        let third = (beyond / 3)
            .checked_div(slab_bytes)
            .unwrap_or(slabs.in_flight_batches);
        let mut in_flight_batches = (2 + third).clamp(2, slabs.in_flight_batches);
        // A third of what is not needed, as for batches.
        let tile_bytes = demand.tile_bytes.min(beyond / 3);
        let mut left = total.saturating_sub(in_flight_batches * slab_bytes + tile_bytes);
        let mut row_bytes = 0;
        if let Some(rows) = demand.own_rows {
            let others = sufficient.reading.saturating_add(sufficient.scratch);
            let wanted = demand.useful_parts(workers);
            let share = u128::from(left) * u128::from(wanted.own) / u128::from(wanted.sum().max(1));
            // At most `left`.
            let share = share as u64;
            let most = left.saturating_sub(others);
            let own_bytes = match sufficient.own <= most {
                true => share.clamp(sufficient.own, most),
                false => share,
            };
            left -= own_bytes;
            // Large rows cost in-flight batches, so that they fit.
            let batch_bytes = demand.record.own_batch_bytes(rows);
            let most = own_bytes.checked_div(batch_bytes);
            let most = most.map_or(in_flight_batches, |most| most.clamp(2, in_flight_batches));
            left += (in_flight_batches - most) * slab_bytes;
            in_flight_batches = most;
            row_bytes = own_bytes / GATHERED / (in_flight_batches * rows.max(1));
        }
        // Unless memory is short, reading gets enough to hide storage latency; scratch gets the
        // rest.
        let usual = (left / 2).min(READ_AHEAD);
        let free = left.saturating_sub(groups);
        let spread = (free / 2).max(free.saturating_sub(SCRATCH * workers));
        let more = wanted_bytes(whole) - groups;
        let reading = usual.max(groups + spread.min(more));
        // Records of known size fit, if there is memory for both parts.
        let most = left.saturating_sub(sufficient.scratch).max(groups);
        let reading = match sufficient.reading <= most {
            true => reading.clamp(sufficient.reading, most),
            false => reading,
        };
        let scratch = left.saturating_sub(reading);
        let beyond_runs = reading.saturating_sub(whole.run_bytes.saturating_mul(WINDOWS));
        let spare_bytes = (reading / SPARE_PART)
            .min(beyond_runs)
            .max(whole.spare_bytes());
        let large_bytes = scratch / LARGE_PART;
        Shares {
            total_bytes: total,
            in_flight_batches: in_flight_batches as usize,
            slab_bytes,
            tile_bytes,
            fetched_bytes: reading - spare_bytes,
            spare_bytes,
            kept_bytes: (scratch - large_bytes) / workers,
            large_bytes,
            row_bytes,
            advisor: MemoryAdvisor { demand, workers },
            reserved: Mutex::new(reserved),
        }
    }

    /// Releases the reservation for other loaders, because this loader makes no more batches.
    pub(super) fn give_back(&self) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::take(&mut *reserved));
    }

    /// Returns a warning if the reservations of other loaders exhaust the part of memory that is for
    /// loaders, so that this one took free memory beyond it.
    pub(super) fn warning(&self) -> Option<String> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.warning()
    }

    /// Maximum bytes that a record may need for this purpose.
    fn limit_bytes(&self, purpose: MemoryPurpose) -> u64 {
        match purpose {
            // A substitute must fit, too.
            MemoryPurpose::Reading => {
                let reads = self.advisor.demand.reads.max(1);
                (self.fetched_bytes / reads).min(self.spare_bytes)
            }
            MemoryPurpose::Decoding => self.kept_bytes.max(self.large_bytes),
            MemoryPurpose::Row => self.row_bytes,
            MemoryPurpose::Preview => u64::MAX,
        }
    }
}

/// Computes the budget in which a record fits that exceeded its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAdvisor {
    demand: MemoryDemand,
    /// Most workers that share the memory.
    workers: u64,
}

impl MemoryAdvisor {
    /// Returns the number of records whose sizes were known when the budget was divided, and of all
    /// records.
    pub(super) fn known_sizes(&self) -> Option<(u64, u64)> {
        self.demand.record.sized
    }

    /// Returns the source of the limits, and the smallest budget in which a record fits that needs
    /// this number of bytes.
    pub(super) fn advice(&self, purpose: MemoryPurpose, needed_bytes: u64) -> MemoryAdvice {
        let fits = |total: u64| {
            let shares = Shares::cut(total, self.demand, self.workers, ReservedBytes::default());
            shares.limit_bytes(purpose) >= needed_bytes
        };
        let least = self.demand.total(self.demand.least(self.workers));
        // In units of a mebibyte, which the message has.
        let (mut low, mut high) = (least >> 20, (least >> 20) + 1);
        while !fits(high << 20) {
            (low, high) = (high, high * 2);
            if high > (1 << 40) {
                return MemoryAdvice {
                    sized: self.known_sizes(),
                    memory_bytes: None,
                };
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle << 20) {
                true => high = middle,
                false => low = middle,
            }
        }
        MemoryAdvice {
            sized: self.known_sizes(),
            memory_bytes: Some(high << 20),
        }
    }
}

/// Minimum bytes for reading whole groups.
fn least_bytes(whole: WholeGroups) -> u64 {
    whole.run_bytes.saturating_add(whole.spare_bytes())
}

/// Bytes for reading the next window of whole groups while the current one is in use.
fn wanted_bytes(whole: WholeGroups) -> u64 {
    whole
        .run_bytes
        .saturating_mul(WINDOWS)
        .saturating_add(whole.spare_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(slabs: impl Into<SlabPlan>) -> MemoryDemand {
        MemoryDemand {
            slabs: slabs.into(),
            own_rows: None,
            whole: WholeGroups::default(),
            record: RecordNeeds::default(),
            reads: 1,
            tile_bytes: 64 << 20,
        }
    }

    /// Rows outside slabs, of records of known size.
    fn own_rows(rows: u64, record: RecordNeeds) -> MemoryDemand {
        let slabs = SlabPlan {
            bytes: 0,
            in_flight_batches: 24,
        };
        MemoryDemand {
            own_rows: Some(rows),
            record,
            ..demand(slabs)
        }
    }

    fn photo(row_bytes: u64) -> RecordNeeds {
        RecordNeeds {
            read_bytes: 9 << 20,
            scratch_bytes: 80 << 20,
            row_bytes,
            assumed_row_bytes: 0,
            sized: Some((100, 1000)),
        }
    }

    #[test]
    fn shares_add_up_to_no_more_than_the_budget() {
        let some = WholeGroups {
            run_bytes: 300 << 20,
            group_bytes: 100 << 20,
            substitutes: true,
        };
        let budgets =
            [20, 100, 1 << 10, 8 << 10].map(|total| (total << 20, WholeGroups::default()));
        let budgets = budgets
            .into_iter()
            .chain([(1 << 30, some), (8 << 30, some)]);
        let cases = [
            (1 << 20, 2, None, RecordNeeds::default()),
            (4 << 20, 1, Some(3), RecordNeeds::default()),
            (0, 2, Some(1), photo(36 << 20)),
            (1 << 20, 2, Some(64), photo(1 << 20)),
            (1 << 20, 2, None, photo(0)),
        ];
        for (total, whole) in budgets {
            for (slab, workers, rows, record) in cases {
                let demand = MemoryDemand {
                    own_rows: rows,
                    whole,
                    record,
                    ..demand(slab)
                };
                let shares = Shares::new(Some(total), 1, demand, workers).expect("enough");
                let batches = shares.in_flight_batches as u64;
                let sum = batches * slab
                    + shares.tile_bytes
                    + shares.fetched_bytes
                    + shares.spare_bytes
                    + shares.kept_bytes * workers as u64
                    + shares.large_bytes
                    + shares.row_bytes * rows.unwrap_or(0) * batches * GATHERED;
                assert!(sum <= total, "{shares:?}");
                assert!(
                    shares.in_flight_batches >= 2
                        && shares.kept_bytes > 0
                        && shares.spare_bytes > 0
                );
                assert!(shares.fetched_bytes >= whole.run_bytes, "{shares:?}");
                assert!(shares.spare_bytes >= whole.group_bytes, "{shares:?}");
            }
        }
    }

    #[test]
    fn a_budget_below_two_batches_is_an_error_with_the_needed_bytes() {
        let open = |memory| Shares::new(Some(memory), 1, demand(60 << 20), 2);
        let error = open(100 << 20).expect_err("too little");

        let Error::Budget {
            needed_bytes,
            budget_bytes,
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(budget_bytes, 100 << 20);
        assert!(open(needed_bytes).is_ok());
    }

    #[test]
    fn memory_for_reading_grows_with_groups_up_to_the_budget() {
        let groups = |substitutes| WholeGroups {
            run_bytes: 900 << 20,
            group_bytes: 400 << 20,
            substitutes,
        };
        let open = |memory, groups| {
            let demand = MemoryDemand {
                whole: groups,
                ..demand(0)
            };
            Shares::new(Some(memory), 1, demand, 2)
        };

        let large = open(8 << 30, groups(false)).expect("enough");
        assert!(large.fetched_bytes >= (2 * 900) << 20, "a window ahead");

        for whole in [groups(false), groups(true)] {
            let error = open(500 << 20, whole).expect_err("too little").to_string();
            let (_, behind) = error.split_once("raise memory to ").expect("a fix");
            let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
            let needed: u64 = number.parse().expect("a number");
            let shares = open(needed, whole).expect("the suggested bytes");
            assert!(shares.fetched_bytes >= whole.run_bytes);
            assert!(shares.spare_bytes >= whole.spare_bytes());
            assert!(open(needed - 1, whole).is_err());
        }
    }

    #[test]
    fn scratch_memory_limits_the_number_of_workers() {
        let most = |bytes: u64| {
            let found = Shares::for_at_most(Some(bytes), 1, demand(1 << 20), (8, 16));
            found.map(|(shares, most)| {
                let kept = shares.kept_bytes * most as u64;
                assert!(kept + shares.large_bytes + shares.fetched_bytes <= bytes);
                most
            })
        };

        assert_eq!(most(4 << 30).expect("plenty"), 16);
        assert_eq!(most(64 << 20).expect("enough"), 8);
        assert_eq!(most(20 << 20).expect("little"), 3);
        assert!(most(9 << 20).is_err());
    }

    #[test]
    fn more_than_the_memory_that_is_left_is_an_error_that_names_no_budget() {
        let limit = infeed_raw::machine::memory_limit_bytes();

        let shares = Shares::new(None, 1, demand(limit), 1);

        let error = shares.expect_err("half of the memory is left at most");
        assert!(
            matches!(error, Error::Reserved { left_bytes, .. } if left_bytes <= limit / 2),
            "{error}"
        );
        assert!(!error.to_string().contains("bytes is too small"), "{error}");
    }

    #[test]
    fn records_of_known_size_fit_the_sufficient_budget_and_every_larger_one() {
        let cases = [
            own_rows(1, photo(36 << 20)),
            own_rows(16, photo(12 << 20)),
            own_rows(256, photo(10)),
            MemoryDemand {
                reads: 8,
                ..demand(1 << 20)
            },
            MemoryDemand {
                record: photo(0),
                ..demand(150 << 20)
            },
        ];
        for demand in cases {
            for workers in [1, 2, 64] {
                let least = demand.total(demand.sufficient(workers as u64));
                for total in [least, least + (1 << 20), 2 * least, 20 * least] {
                    let shares = Shares::new(Some(total), 1, demand, workers).expect("enough");
                    for (purpose, bytes) in [
                        (MemoryPurpose::Reading, demand.record.read_bytes),
                        (MemoryPurpose::Decoding, demand.record.scratch_bytes),
                        (MemoryPurpose::Row, demand.record.row_bytes),
                    ] {
                        let limit = shares.limit_bytes(purpose);
                        assert!(limit >= bytes, "{purpose} of {total}: {shares:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_rows_cost_in_flight_batches_and_small_rows_do_not() {
        let batches = |row_bytes| {
            let demand = own_rows(1, photo(row_bytes));
            let shares = Shares::new(Some(2 << 30), 1, demand, 2).expect("enough");
            assert!(shares.row_bytes >= row_bytes);
            shares.in_flight_batches
        };

        assert_eq!(batches(1 << 20), 24);
        assert!((2..24).contains(&batches(36 << 20)));
        assert_eq!(batches(200 << 20), 2);
    }

    #[test]
    fn the_advised_budget_is_the_smallest_that_fits_the_record() {
        for demand in [
            own_rows(1, photo(10)),
            own_rows(64, photo(1 << 20)),
            own_rows(8, RecordNeeds::default()),
        ] {
            let open = |total| Shares::new(Some(total), 1, demand, 2);
            let shares = open(128 << 20).expect("enough");
            for purpose in [
                MemoryPurpose::Reading,
                MemoryPurpose::Decoding,
                MemoryPurpose::Row,
            ] {
                let needed = 2 * shares.limit_bytes(purpose) + 1;

                let advice = shares.advisor.advice(purpose, needed);

                assert_eq!(advice.sized, demand.record.sized);
                let bytes = advice.memory_bytes.expect("there is such a budget");
                let fits = |total| open(total).expect("enough").limit_bytes(purpose) >= needed;
                assert!(fits(bytes) && !fits(bytes - (1 << 20)), "{purpose} {bytes}");
            }
        }
        let shares = Shares::new(Some(1 << 30), 1, own_rows(1, photo(1)), 2).expect("enough");
        let advice = shares.advisor.advice(MemoryPurpose::Row, u64::MAX);
        assert_eq!(advice.memory_bytes, None, "no memory is that large");
    }
}
