//! One byte budget, shared out when a loader opens; and what all loaders of a process may have.

use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Share of what the process may use that all loaders without a budget of their own have.
const PROCESS_SHARE: u64 = 2;

/// Batches under way when memory allows: one being filled a worker's tail long, one full, and
/// slack for a consumer whose steps vary.
const TRAYS: u64 = 4;

/// Encoded bytes read ahead when memory allows; hides 100 ms of storage at 2.5 GB/s.
const PARCELS: u64 = 256 << 20;

/// Decode scratch by worker when memory allows: a 12-megapixel photograph and its crop.
const SCRATCH: u64 = 64 << 20;

/// Least that reading ahead and scratch by worker get.
const LEAST: u64 = 4 << 20;

/// Scratch by worker below which a loader that chooses how many workers it has makes do with one
/// a core: what does not fit is asked of a pool, where workers wait for each other.
const ENOUGH: u64 = 16 << 20;

/// Budgets of all open loaders that did not name one.
static RESERVED: Mutex<u64> = Mutex::new(0);

/// How a loader's bytes are shared out.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) total_bytes: u64,
    /// Batches under way.
    pub(super) trays: usize,
    pub(super) slab_bytes: u64,
    /// Encoded bytes read in order.
    pub(super) parcel_bytes: u64,
    /// Encoded bytes of substitutes; also the largest record there may be.
    pub(super) spare_bytes: u64,
    /// Scratch that each worker keeps.
    pub(super) kept_bytes: u64,
    /// Scratch that workers ask for when a sample needs more than they keep.
    pub(super) large_bytes: u64,
    /// Bytes for rows that lie in no slab.
    own_bytes: u64,
    reserved: u64,
}

impl Shares {
    /// Shares out `memory` bytes, or a default: a part of what the cgroup allows, which `processes`
    /// like this one share.
    pub(super) fn new(
        memory: Option<u64>,
        processes: usize,
        slab_bytes: u64,
        workers: usize,
        own_cells: bool,
    ) -> Result<Shares, Error> {
        let workers = workers as u64;
        let least = LEAST * (1 + workers) + if own_cells { LEAST } else { 0 };
        let needed = 2 * slab_bytes + least;
        let wanted = (TRAYS * slab_bytes)
            .saturating_add(PARCELS + SCRATCH * workers)
            .saturating_add(if own_cells { PARCELS } else { 0 });
        let (total, reserved) = match memory {
            Some(bytes) => (bytes, 0),
            None => {
                let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
                let all = infeed_raw::machine::memory_limit_bytes()
                    / PROCESS_SHARE
                    / (processes as u64).max(1);
                let left = all.saturating_sub(*reserved);
                // Half of what is left, so that a validation loader finds room beside the first.
                let total = wanted.min((left / 2).max(needed.min(left)));
                *reserved += total;
                (total, total)
            }
        };
        let shares = Shares::cut(total, slab_bytes, workers, own_cells, needed, reserved);
        if total < needed {
            // `shares` gives the reservation back.
            return Err(Error::Budget {
                needed_bytes: needed,
                budget_bytes: total,
            });
        }
        Ok(shares)
    }

    /// As [`Shares::new`], for a loader that chooses how many workers work, and the most that may:
    /// `most` where memory allows, `cores` where it is short, fewer where it is shorter still. So
    /// whatever is chosen later, the budget holds.
    pub(super) fn for_at_most(
        memory: Option<u64>,
        processes: usize,
        slab_bytes: u64,
        (cores, most): (usize, usize),
        own_cells: bool,
    ) -> Result<(Shares, usize), Error> {
        let shares = |workers| Shares::new(memory, processes, slab_bytes, workers, own_cells);
        if let Ok(found) = shares(most)
            && found.kept_bytes >= ENOUGH
        {
            return Ok((found, most));
        }
        let mut workers = cores.min(most).max(1);
        loop {
            match shares(workers) {
                Ok(found) => return Ok((found, workers)),
                Err(error) if workers == 1 => return Err(error),
                Err(_) => workers -= 1,
            }
        }
    }

    fn cut(
        total: u64,
        slab_bytes: u64,
        workers: u64,
        own_cells: bool,
        needed: u64,
        reserved: u64,
    ) -> Shares {
        let beyond = total.saturating_sub(needed);
        let third = (beyond / 3).checked_div(slab_bytes).unwrap_or(TRAYS);
        let trays = (2 + third).clamp(2, TRAYS);
        let mut left = total.saturating_sub(trays * slab_bytes);
        let own_bytes = if own_cells { left / 2 } else { 0 };
        left -= own_bytes;
        // Unless memory is short, reading gets what hides the storage and scratch the rest.
        let reading = (left / 2).min(PARCELS);
        let scratch = left - reading;
        Shares {
            total_bytes: total,
            trays: trays as usize,
            slab_bytes,
            parcel_bytes: reading * 3 / 4,
            spare_bytes: reading / 4,
            kept_bytes: scratch / 2 / workers,
            large_bytes: scratch / 2,
            own_bytes,
            reserved,
        }
    }

    /// Most bytes that one row outside of slabs may have: rows of all trays, and once more for
    /// the batch they are gathered into.
    pub(super) fn row_bytes(&self, rows: usize) -> u64 {
        self.own_bytes / 2 / (self.trays as u64 * rows.max(1) as u64)
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        *reserved -= self.reserved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_no_more_than_the_budget() {
        for total in [20 << 20, 100 << 20, 1 << 30, 8 << 30] {
            for (slab, workers, own) in [(1 << 20, 2, false), (4 << 20, 1, true), (0, 2, true)] {
                let shares = Shares::new(Some(total), 1, slab, workers, own).expect("enough");
                let sum = shares.trays as u64 * slab
                    + shares.parcel_bytes
                    + shares.spare_bytes
                    + shares.kept_bytes * workers as u64
                    + shares.large_bytes
                    + shares.own_bytes;
                assert!(sum <= total, "{shares:?}");
                assert!(shares.trays >= 2 && shares.kept_bytes > 0 && shares.spare_bytes > 0);
            }
        }
    }

    #[test]
    fn less_than_two_batches_is_an_error_that_says_how_much_is_needed() {
        let error = Shares::new(Some(100 << 20), 1, 60 << 20, 2, false).expect_err("too little");

        let Error::Budget {
            needed_bytes,
            budget_bytes,
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(budget_bytes, 100 << 20);
        assert!(Shares::new(Some(needed_bytes), 1, 60 << 20, 2, false).is_ok());
    }

    #[test]
    fn workers_are_no_more_than_memory_holds_scratch_for() {
        let most = |bytes: u64| {
            let found = Shares::for_at_most(Some(bytes), 1, 1 << 20, (8, 16), false);
            found.map(|(shares, most)| {
                let kept = shares.kept_bytes * most as u64;
                assert!(kept + shares.large_bytes + shares.parcel_bytes <= bytes);
                most
            })
        };

        assert_eq!(most(4 << 30).expect("plenty"), 16);
        assert_eq!(most(64 << 20).expect("enough"), 8);
        assert_eq!(most(20 << 20).expect("little"), 3);
        assert!(most(9 << 20).is_err());
    }

    #[test]
    fn processes_that_share_a_machine_share_its_memory() {
        // Other tests may hold a part of it meanwhile.
        let limit = infeed_raw::machine::memory_limit_bytes();
        let wanted = |processes| {
            let shares = Shares::new(None, processes, limit / 64, 1, false);
            shares.expect("two batches fit").total_bytes
        };

        assert!(wanted(4) <= limit / 2 / 4 / 2);
        assert!(wanted(1) > wanted(4));
    }
}
