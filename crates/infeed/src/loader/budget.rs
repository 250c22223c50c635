//! One byte budget, shared out when a loader opens; and what all loaders that use up the same memory
//! may have, of this process and of the user's others.

use std::sync::{Mutex, PoisonError};

use super::register::{Entry, Register};
use super::whole::Whole;
use crate::error::Error;

/// Share of what the process may use that all loaders without a budget of their own have.
const PROCESS_SHARE: u64 = 2;

/// Batches under way when memory allows: one being filled a worker's tail long, one full, and
/// slack for a consumer whose steps vary.
pub(super) const TRAYS: u64 = 4;

/// Encoded bytes read ahead when memory allows; hides 100 ms of storage at 2.5 GB/s. Groups that can
/// only be read whole may need more, and get it.
const PARCELS: u64 = 256 << 20;

/// Windows of such groups read ahead when memory allows: one in use, one for after it.
const WINDOWS: u64 = 2;

/// Decode scratch by worker when memory allows: a 12-megapixel photograph and its crop.
const SCRATCH: u64 = 64 << 20;

/// Least that reading ahead and scratch by worker get.
const LEAST: u64 = 4 << 20;

/// Scratch by worker below which a loader that chooses how many workers it has makes do with one
/// a core: what does not fit is asked of a pool, where workers wait for each other.
const ENOUGH: u64 = 16 << 20;

/// Budgets of all open loaders of a process that did not name one, and which process that is: what a
/// fork finds here is its parent's.
static RESERVED: Mutex<(u32, u64)> = Mutex::new((0, 0));

/// How a loader's bytes are shared out.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) total_bytes: u64,
    /// Batches under way.
    pub(super) trays: usize,
    pub(super) slab_bytes: u64,
    /// Encoded bytes read in order.
    pub(super) parcel_bytes: u64,
    /// Encoded bytes of substitutes.
    pub(super) spare_bytes: u64,
    /// Scratch that each worker keeps.
    pub(super) kept_bytes: u64,
    /// Scratch that workers ask for when a sample needs more than they keep.
    pub(super) large_bytes: u64,
    /// Bytes for rows that lie in no slab.
    own_bytes: u64,
    reserved: Mutex<Reserved>,
}

/// The slabs of a batch, and how many batches may be under way when memory allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slabs {
    pub(super) bytes: u64,
    pub(super) trays: u64,
}

impl From<u64> for Slabs {
    /// So many bytes, and as many batches as suit threads of one machine.
    fn from(bytes: u64) -> Slabs {
        Slabs {
            bytes,
            trays: TRAYS,
        }
    }
}

impl Shares {
    /// Shares out `memory` bytes, or a default: a part of what the cgroup allows, which `processes`
    /// like this one share.
    pub(super) fn new(
        memory: Option<u64>,
        processes: usize,
        slabs: impl Into<Slabs>,
        workers: usize,
        own_cells: bool,
        whole: Whole,
    ) -> Result<Shares, Error> {
        let slabs = slabs.into();
        let slab_bytes = slabs.bytes;
        let workers = workers as u64;
        let least = LEAST * (1 + workers) + if own_cells { LEAST } else { 0 };
        let batches = 2 * slab_bytes + least;
        let needed = batches.saturating_add(least_bytes(whole));
        let wanted = (slabs.trays.saturating_mul(slab_bytes))
            .saturating_add(PARCELS.max(wanted_bytes(whole)))
            .saturating_add(SCRATCH * workers)
            .saturating_add(if own_cells { PARCELS } else { 0 });
        let (total, reserved) = match memory {
            Some(bytes) => (bytes, Reserved::default()),
            None => {
                let reserved = Reserved::of_what_is_left(processes, |left| {
                    // Half of it, so that a validation loader finds room beside the first.
                    wanted.min((left / 2).max(needed.min(left)))
                });
                (reserved.bytes, reserved)
            }
        };
        if total < batches {
            return Err(Error::Budget {
                needed_bytes: batches,
                budget_bytes: total,
            });
        }
        if total < needed {
            let problem = format!(
                "groups of records that can only be read whole (row groups, packed shards) hold {} \
                 bytes at once, {} the largest; memory={total} leaves {} for them; raise memory to \
                 {needed}, shuffle in smaller windows, or write smaller groups",
                least_bytes(whole),
                whole.group_bytes,
                total - batches,
            );
            return Err(Error::config("open", problem));
        }
        Ok(Shares::cut(
            total, slabs, workers, own_cells, whole, reserved,
        ))
    }

    /// As [`Shares::new`], for a loader that chooses how many workers work, and the most that may:
    /// `most` where memory allows, `cores` where it is short, fewer where it is shorter still. So
    /// whatever is chosen later, the budget holds.
    pub(super) fn for_at_most(
        memory: Option<u64>,
        processes: usize,
        slabs: impl Into<Slabs>,
        (cores, most): (usize, usize),
        own_cells: bool,
        whole: Whole,
    ) -> Result<(Shares, usize), Error> {
        let slabs = slabs.into();
        let shares = |workers| Shares::new(memory, processes, slabs, workers, own_cells, whole);
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

    /// Shares out what is enough.
    fn cut(
        total: u64,
        slabs: Slabs,
        workers: u64,
        own_cells: bool,
        whole: Whole,
        reserved: Reserved,
    ) -> Shares {
        let slab_bytes = slabs.bytes;
        let groups = least_bytes(whole);
        let least = LEAST * (1 + workers) + if own_cells { LEAST } else { 0 };
        let beyond = total.saturating_sub(2 * slab_bytes + least + groups);
        let third = (beyond / 3).checked_div(slab_bytes).unwrap_or(slabs.trays);
        let trays = (2 + third).clamp(2, slabs.trays);
        // Beside batches and what groups need in any case.
        let mut left = total.saturating_sub(trays * slab_bytes + groups);
        let own_bytes = if own_cells { left / 2 } else { 0 };
        left -= own_bytes;
        // Unless memory is short, reading gets what hides the storage and scratch the rest.
        let usual = ((groups + left) / 2).min(PARCELS);
        let spread = (left / 2).max(left.saturating_sub(SCRATCH * workers));
        let more = wanted_bytes(whole) - groups;
        let reading = usual.max(groups + spread.min(more));
        let scratch = groups + left - reading;
        let beside = reading.saturating_sub(whole.run_bytes.saturating_mul(WINDOWS));
        let spare_bytes = (reading / 4).min(beside).max(whole.spare_bytes());
        Shares {
            total_bytes: total,
            trays: trays as usize,
            slab_bytes,
            parcel_bytes: reading - spare_bytes,
            spare_bytes,
            kept_bytes: scratch / 2 / workers,
            large_bytes: scratch / 2,
            own_bytes,
            reserved: Mutex::new(reserved),
        }
    }

    /// Leaves its bytes to other loaders: nothing is made any more.
    pub(super) fn give_back(&self) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::take(&mut *reserved));
    }

    /// Most bytes that one row outside of slabs may have: rows of all trays, and once more for
    /// the batch they are gathered into.
    pub(super) fn row_bytes(&self, rows: usize) -> u64 {
        self.own_bytes / 2 / (self.trays as u64 * rows.max(1) as u64)
    }
}

/// Bytes for reading without which whole groups cannot be read.
fn least_bytes(whole: Whole) -> u64 {
    whole.run_bytes.saturating_add(whole.spare_bytes())
}

/// Bytes for reading with which the next window of whole groups is read while one is used.
fn wanted_bytes(whole: Whole) -> u64 {
    whole
        .run_bytes
        .saturating_mul(WINDOWS)
        .saturating_add(whole.spare_bytes())
}

/// Bytes of a loader that did not name a budget; given back when dropped.
#[derive(Debug, Default)]
struct Reserved {
    bytes: u64,
    process: u32,
    /// What the user's other processes know of it.
    _entry: Option<Entry>,
}

impl Reserved {
    /// Reserves what is asked for of what is left to this loader: of the part of memory that is this
    /// process's, one of `processes`, and of what the others that are seen have not reserved.
    fn of_what_is_left(processes: usize, ask: impl FnOnce(u64) -> u64) -> Reserved {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let register = Register::of("memory");
        if reserved.0 != process {
            // Where there is a register the parent's bytes are counted there.
            let left = if register.is_some() { 0 } else { reserved.1 };
            *reserved = (process, left);
        }
        let reserved = &mut reserved.1;
        // Until it is entered nobody else looks, so that two never take the same bytes.
        let _turn = register.as_ref().and_then(Register::turn);
        let domain = infeed_raw::machine::memory_domain();
        let others = register.as_ref().map_or(0, |all| elsewhere(all, &domain));
        let all = infeed_raw::machine::memory_limit_bytes() / PROCESS_SHARE;
        let own = (all / (processes as u64).max(1)).saturating_sub(*reserved);
        let beside = all.saturating_sub(reserved.saturating_add(others));
        let bytes = ask(own.min(beside));
        *reserved += bytes;
        let entry = register.and_then(|all| all.enter(&format!("{bytes} {domain}")));
        Reserved {
            bytes,
            process,
            _entry: entry,
        }
    }
}

/// Bytes that other processes have reserved of the same memory.
fn elsewhere(register: &Register, domain: &str) -> u64 {
    let bytes = |text: &String| -> Option<u64> {
        let (bytes, of) = text.split_once(' ')?;
        bytes.parse().ok().filter(|_| of == domain)
    };
    let entries = register.other_processes();
    entries
        .iter()
        .filter_map(bytes)
        .fold(0, u64::saturating_add)
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.0 == self.process {
            reserved.1 -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_no_more_than_the_budget() {
        let some = Whole {
            run_bytes: 300 << 20,
            group_bytes: 100 << 20,
            substitutes: true,
        };
        let asked = [20, 100, 1 << 10, 8 << 10].map(|total| (total << 20, Whole::default()));
        let asked = asked.into_iter().chain([(1 << 30, some), (8 << 30, some)]);
        for (total, whole) in asked {
            for (slab, workers, own) in [(1 << 20, 2, false), (4 << 20, 1, true), (0, 2, true)] {
                let shares = Shares::new(Some(total), 1, slab, workers, own, whole);
                let shares = shares.expect("enough");
                let sum = shares.trays as u64 * slab
                    + shares.parcel_bytes
                    + shares.spare_bytes
                    + shares.kept_bytes * workers as u64
                    + shares.large_bytes
                    + shares.own_bytes;
                assert!(sum <= total, "{shares:?}");
                assert!(shares.trays >= 2 && shares.kept_bytes > 0 && shares.spare_bytes > 0);
                assert!(shares.parcel_bytes >= whole.run_bytes, "{shares:?}");
                assert!(shares.spare_bytes >= whole.group_bytes, "{shares:?}");
            }
        }
    }

    #[test]
    fn less_than_two_batches_is_an_error_that_says_how_much_is_needed() {
        let open = |memory| Shares::new(Some(memory), 1, 60 << 20, 2, false, Whole::default());
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
    fn reading_grows_with_groups_as_far_as_memory_goes_and_says_what_they_need() {
        let whole = |substitutes| Whole {
            run_bytes: 900 << 20,
            group_bytes: 400 << 20,
            substitutes,
        };
        let open = |memory, whole| Shares::new(Some(memory), 1, 0, 2, false, whole);

        let large = open(8 << 30, whole(false)).expect("enough");
        assert!(large.parcel_bytes >= (2 * 900) << 20, "a window ahead");

        for whole in [whole(false), whole(true)] {
            let error = open(500 << 20, whole).expect_err("too little").to_string();
            let (_, behind) = error.split_once("raise memory to ").expect("a mend");
            let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
            let needed: u64 = number.parse().expect("a number");
            let shares = open(needed, whole).expect("what it said");
            assert!(shares.parcel_bytes >= whole.run_bytes);
            assert!(shares.spare_bytes >= whole.spare_bytes());
            assert!(open(needed - 1, whole).is_err());
        }
    }

    #[test]
    fn workers_are_no_more_than_memory_holds_scratch_for() {
        let most = |bytes: u64| {
            let none = Whole::default();
            let found = Shares::for_at_most(Some(bytes), 1, 1 << 20, (8, 16), false, none);
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
    fn what_others_reserved_counts_where_it_is_of_the_same_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // As other processes would have entered it.
        let mut held = Vec::new();
        let texts = [
            "700 here",
            "20 here",
            "5000 there",
            "some here",
            "",
            "-4 here",
        ];
        for (n, text) in texts.into_iter().enumerate() {
            let path = folder.path().join(format!("0-{n}"));
            std::fs::write(&path, text).expect("writes");
            let file = std::fs::File::open(&path).expect("it is there");
            file.try_lock().expect("nobody holds it");
            held.push(file);
        }

        let register = Register::at(folder.path());

        assert_eq!(elsewhere(&register, "here"), 720);
        assert_eq!(elsewhere(&register, "there"), 5000);
        drop(held.pop());
        drop(held.remove(0));
        assert_eq!(elsewhere(&register, "here"), 20, "its process is gone");
    }

    #[test]
    fn processes_that_share_a_machine_share_its_memory() {
        // Other tests may hold a part of it meanwhile.
        let limit = infeed_raw::machine::memory_limit_bytes();
        let wanted = |processes| {
            let shares = Shares::new(None, processes, limit / 64, 1, false, Whole::default());
            shares.expect("two batches fit").total_bytes
        };

        assert!(wanted(4) <= limit / 2 / 4 / 2);
        assert!(wanted(1) > wanted(4));
    }
}
