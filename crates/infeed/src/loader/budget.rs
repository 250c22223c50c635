//! Memory budget in bytes, divided when a loader opens, and the total of all loaders that share the
//! same memory, in this process and the user's other processes.

use std::sync::{Mutex, PoisonError};

use super::register::{ProcessRegister, RegisterEntry};
use super::whole_groups::WholeGroups;
use infeed_core::error::Error;

/// Loaders without their own budget share this fraction of the process's memory limit: one half.
const PROCESS_SHARE: u64 = 2;

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

/// Process id, and bytes reserved by its open loaders without their own budget. After a fork, the
/// id is the parent's.
static RESERVED: Mutex<(u32, u64)> = Mutex::new((0, 0));

/// Division of a loader's memory budget.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) total_bytes: u64,
    /// In-flight batches.
    pub(super) in_flight_batches: usize,
    pub(super) slab_bytes: u64,
    /// Encoded bytes of records in the run's order.
    pub(super) fetched_bytes: u64,
    /// Encoded bytes of substitutes.
    pub(super) spare_bytes: u64,
    /// Scratch that each worker keeps.
    pub(super) kept_bytes: u64,
    /// Scratch pool for samples that need more than a worker keeps.
    pub(super) large_bytes: u64,
    /// Bytes for rows outside slabs.
    own_bytes: u64,
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

impl Shares {
    /// Divides `memory` bytes. Default: part of the cgroup's limit, shared by `processes` loaders'
    /// processes.
    pub(super) fn new(
        memory: Option<u64>,
        processes: usize,
        slabs: impl Into<SlabPlan>,
        workers: usize,
        own_cells: bool,
        whole: WholeGroups,
    ) -> Result<Shares, Error> {
        let slabs = slabs.into();
        let slab_bytes = slabs.bytes;
        let workers = workers as u64;
        let least = MIN_BYTES * (1 + workers) + if own_cells { MIN_BYTES } else { 0 };
        let batches = 2 * slab_bytes + least;
        let needed = batches.saturating_add(least_bytes(whole));
        let wanted = (slabs.in_flight_batches.saturating_mul(slab_bytes))
            .saturating_add(READ_AHEAD.max(wanted_bytes(whole)))
            .saturating_add(SCRATCH * workers)
            .saturating_add(if own_cells { READ_AHEAD } else { 0 });
        let (total, reserved) = match memory {
            Some(bytes) => (bytes, ReservedBytes::default()),
            None => {
                let reserved = ReservedBytes::of_what_is_left(processes, |left| {
                    // Half of what is left, so that a validation loader also finds memory.
                    wanted.min((left / 2).max(needed.min(left)))
                });
                (reserved.bytes, reserved)
            }
        };
        if total < batches {
            return Err(match memory {
                Some(budget_bytes) => Error::Budget {
                    needed_bytes: batches,
                    budget_bytes,
                },
                None => Error::Reserved {
                    needed_bytes: batches,
                    left_bytes: total,
                },
            });
        }
        if total < needed {
            let problem = format!(
                "groups of records that can only be read whole (row groups, packed shards) need {} \
                 bytes at once, the largest {}; memory={total} leaves {} for them; raise memory to \
                 {needed}, use a smaller shuffle window, or write smaller groups",
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

    /// As [`Shares::new`], for a loader that tunes its workers. Also returns the maximum number of
    /// workers: `most` if memory allows, `cores` if memory is short, fewer if it is shorter still.
    /// The budget holds for every number up to that maximum.
    pub(super) fn for_at_most(
        memory: Option<u64>,
        processes: usize,
        slabs: impl Into<SlabPlan>,
        (cores, most): (usize, usize),
        own_cells: bool,
        whole: WholeGroups,
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

    /// Divides a total that suffices.
    fn cut(
        total: u64,
        slabs: SlabPlan,
        workers: u64,
        own_cells: bool,
        whole: WholeGroups,
        reserved: ReservedBytes,
    ) -> Shares {
        let slab_bytes = slabs.bytes;
        let groups = least_bytes(whole);
        let least = MIN_BYTES * (1 + workers) + if own_cells { MIN_BYTES } else { 0 };
        let beyond = total.saturating_sub(2 * slab_bytes + least + groups);
        let third = (beyond / 3)
            .checked_div(slab_bytes)
            .unwrap_or(slabs.in_flight_batches);
        let in_flight_batches = (2 + third).clamp(2, slabs.in_flight_batches);
        // Remainder after batches and the minimum for whole groups.
        let mut left = total.saturating_sub(in_flight_batches * slab_bytes + groups);
        let own_bytes = if own_cells { left / 2 } else { 0 };
        left -= own_bytes;
        // Unless memory is short, reading gets enough to hide storage latency; scratch gets the
        // rest.
        let usual = ((groups + left) / 2).min(READ_AHEAD);
        let spread = (left / 2).max(left.saturating_sub(SCRATCH * workers));
        let more = wanted_bytes(whole) - groups;
        let reading = usual.max(groups + spread.min(more));
        let scratch = groups + left - reading;
        let beyond_runs = reading.saturating_sub(whole.run_bytes.saturating_mul(WINDOWS));
        let spare_bytes = (reading / 4).min(beyond_runs).max(whole.spare_bytes());
        Shares {
            total_bytes: total,
            in_flight_batches: in_flight_batches as usize,
            slab_bytes,
            fetched_bytes: reading - spare_bytes,
            spare_bytes,
            kept_bytes: scratch / 2 / workers,
            large_bytes: scratch / 2,
            own_bytes,
            reserved: Mutex::new(reserved),
        }
    }

    /// Releases the reservation for other loaders, because this loader makes no more batches.
    pub(super) fn give_back(&self) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::take(&mut *reserved));
    }

    /// Maximum bytes of one row outside slabs: enough for the rows of all in-flight batches, and
    /// for the batch into which they are gathered.
    pub(super) fn row_bytes(&self, rows: usize) -> u64 {
        self.own_bytes / 2 / (self.in_flight_batches as u64 * rows.max(1) as u64)
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

/// Reservation of a loader without its own budget; released on drop.
#[derive(Debug, Default)]
struct ReservedBytes {
    bytes: u64,
    process: u32,
    /// Entry that the user's other processes read.
    _entry: Option<RegisterEntry>,
}

impl ReservedBytes {
    /// Reserves what `ask` returns for the bytes that are left: this process's part of memory (one
    /// of `processes`), less the reservations of all visible loaders.
    fn of_what_is_left(processes: usize, ask: impl FnOnce(u64) -> u64) -> ReservedBytes {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let register = ProcessRegister::of("memory");
        if reserved.0 != process {
            // The register, if there is one, counts the parent's bytes.
            let left = if register.is_some() { 0 } else { reserved.1 };
            *reserved = (process, left);
        }
        let reserved = &mut reserved.1;
        // Lock the register until the entry is written, so that two processes never take the same
        // bytes.
        let _turn = register.as_ref().and_then(ProcessRegister::turn);
        let domain = infeed_raw::machine::memory_domain();
        let others = register.as_ref().map_or(0, |all| elsewhere(all, &domain));
        let all = infeed_raw::machine::memory_limit_bytes() / PROCESS_SHARE;
        let own = (all / (processes as u64).max(1)).saturating_sub(*reserved);
        let unreserved = all.saturating_sub(reserved.saturating_add(others));
        let bytes = ask(own.min(unreserved));
        *reserved += bytes;
        let entry = register.and_then(|all| all.enter(&format!("{bytes} {domain}")));
        ReservedBytes {
            bytes,
            process,
            _entry: entry,
        }
    }
}

/// Returns the bytes that no loader has reserved: half of the memory limit, less the reservations of
/// all loaders without their own budget, in this process and the user's other processes.
///
/// # Cost
///
/// A few system calls per open loader.
pub fn unreserved_memory_bytes() -> u64 {
    let mut unreserved = 0;
    ReservedBytes::of_what_is_left(1, |left| {
        unreserved = left;
        0
    });
    unreserved
}

/// Returns the bytes of the same memory that other processes have reserved.
fn elsewhere(register: &ProcessRegister, domain: &str) -> u64 {
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

impl Drop for ReservedBytes {
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
        let some = WholeGroups {
            run_bytes: 300 << 20,
            group_bytes: 100 << 20,
            substitutes: true,
        };
        let asked = [20, 100, 1 << 10, 8 << 10].map(|total| (total << 20, WholeGroups::default()));
        let asked = asked.into_iter().chain([(1 << 30, some), (8 << 30, some)]);
        for (total, whole) in asked {
            for (slab, workers, own) in [(1 << 20, 2, false), (4 << 20, 1, true), (0, 2, true)] {
                let shares = Shares::new(Some(total), 1, slab, workers, own, whole);
                let shares = shares.expect("enough");
                let sum = shares.in_flight_batches as u64 * slab
                    + shares.fetched_bytes
                    + shares.spare_bytes
                    + shares.kept_bytes * workers as u64
                    + shares.large_bytes
                    + shares.own_bytes;
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
        let open =
            |memory| Shares::new(Some(memory), 1, 60 << 20, 2, false, WholeGroups::default());
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
        let whole = |substitutes| WholeGroups {
            run_bytes: 900 << 20,
            group_bytes: 400 << 20,
            substitutes,
        };
        let open = |memory, whole| Shares::new(Some(memory), 1, 0, 2, false, whole);

        let large = open(8 << 30, whole(false)).expect("enough");
        assert!(large.fetched_bytes >= (2 * 900) << 20, "a window ahead");

        for whole in [whole(false), whole(true)] {
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
            let none = WholeGroups::default();
            let found = Shares::for_at_most(Some(bytes), 1, 1 << 20, (8, 16), false, none);
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
    fn reservations_of_other_processes_count_in_the_same_memory_domain() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Entries as other processes write them.
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
            let file = std::fs::File::open(&path).expect("the file exists");
            file.try_lock().expect("no process holds the lock");
            held.push(file);
        }

        let register = ProcessRegister::at(folder.path());

        assert_eq!(elsewhere(&register, "here"), 720);
        assert_eq!(elsewhere(&register, "there"), 5000);
        drop(held.pop());
        drop(held.remove(0));
        assert_eq!(elsewhere(&register, "here"), 20, "its process is gone");
    }

    #[test]
    fn more_than_the_memory_that_is_left_is_an_error_that_names_no_budget() {
        let limit = infeed_raw::machine::memory_limit_bytes();

        let shares = Shares::new(None, 1, limit, 1, false, WholeGroups::default());

        let error = shares.expect_err("half of the memory is left at most");
        assert!(
            matches!(error, Error::Reserved { left_bytes, .. } if left_bytes <= limit / 2),
            "{error}"
        );
        assert!(!error.to_string().contains("memory="), "{error}");
    }

    #[test]
    fn the_reservation_of_an_open_loader_is_not_unreserved() {
        let limit = infeed_raw::machine::memory_limit_bytes();
        let shares = Shares::new(None, 1, 1 << 20, 1, false, WholeGroups::default());
        let shares = shares.expect("two batches fit");

        // Other tests may hold part of the memory, too.
        assert!(unreserved_memory_bytes() <= limit / PROCESS_SHARE - shares.total_bytes);
    }

    #[test]
    fn processes_that_share_a_machine_share_its_memory() {
        // Other tests may hold part of the memory.
        let limit = infeed_raw::machine::memory_limit_bytes();
        let wanted = |processes| {
            let shares = Shares::new(
                None,
                processes,
                limit / 64,
                1,
                false,
                WholeGroups::default(),
            );
            shares.expect("two batches fit").total_bytes
        };

        assert!(wanted(4) <= limit / 2 / 4 / 2);
        assert!(wanted(1) > wanted(4));
    }
}
