//! Memory that loaders without their own budget reserve, in this process and the user's other
//! processes.

use std::sync::{Mutex, PoisonError};

use super::register::{ProcessRegister, RegisterEntry};
use infeed_core::error::{Error, LoaderReservations};
use infeed_raw::machine;

/// Loaders without their own budget share this fraction of the process's memory limit: one half.
const PROCESS_SHARE: u64 = 2;

/// Part of the memory limit that all of them may reserve, so that a loader opens although others
/// reserved that half: three quarters. Loaders rarely use all of their reservations.
const MOST: (u64, u64) = (3, 4);

/// A loader takes at most this fraction of the free memory: one half.
const FREE_SHARE: u64 = 2;

/// Process id, and bytes reserved by its open loaders without their own budget. After a fork, the
/// id is the parent's.
static RESERVED: Mutex<(u32, u64)> = Mutex::new((0, 0));

/// Reservation of a loader without its own budget; released on drop.
#[derive(Debug, Default)]
pub(super) struct ReservedBytes {
    bytes: u64,
    process: u32,
    /// Memory that was left before the reservation.
    left: MemoryLeft,
    /// Entry that the user's other processes read.
    _entry: Option<RegisterEntry>,
}

/// Memory that a loader without its own budget may reserve.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryLeft {
    /// Bytes of the half that is for all loaders.
    pub(super) usual: u64,
    /// Bytes for a loader that does not run with less.
    pub(super) most: u64,
    free_bytes: u64,
    reserved: LoaderReservations,
}

impl ReservedBytes {
    /// Reserves what `ask` returns for the memory that is left: this process's part of memory (one
    /// of `processes`), less the reservations of all visible loaders.
    pub(super) fn of_what_is_left(
        processes: usize,
        ask: impl FnOnce(&MemoryLeft) -> u64,
    ) -> ReservedBytes {
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
        let domain = machine::memory_domain();
        let others = register
            .as_ref()
            .map_or_else(LoaderReservations::default, |all| elsewhere(all, &domain));
        let left = MemoryLeft::new(
            machine::memory_limit_bytes(),
            machine::available_memory_bytes(),
            processes,
            LoaderReservations {
                own_bytes: *reserved,
                ..others
            },
        );
        let bytes = ask(&left);
        *reserved += bytes;
        let entry = register.and_then(|all| all.enter(&format!("{bytes} {process} {domain}")));
        ReservedBytes {
            bytes,
            process,
            left,
            _entry: entry,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the error of a loader that needs more.
    pub(super) fn too_few(&self, needed_bytes: u64) -> Error {
        Error::Reserved {
            needed_bytes,
            left_bytes: self.bytes,
            free_bytes: self.left.free_bytes,
            reserved: self.left.reserved.clone(),
        }
    }

    /// Returns a warning if the reservation exceeds the half that is for all loaders.
    pub(super) fn warning(&self) -> Option<String> {
        let MemoryLeft {
            usual,
            free_bytes,
            reserved,
            ..
        } = &self.left;
        (self.bytes > *usual).then(|| {
            format!(
                "loaders without memory= share half of the memory, and {}MiB of it are left: \
                 {reserved}; this loader takes {}MiB of {}MiB of free memory and reads less ahead; \
                 set memory= for each loader to divide the memory",
                usual >> 20,
                self.bytes >> 20,
                free_bytes >> 20,
            )
        })
    }
}

impl MemoryLeft {
    /// Computes what is left of a memory limit of which `free_bytes` are not in use.
    fn new(
        limit_bytes: u64,
        free_bytes: u64,
        processes: usize,
        reserved: LoaderReservations,
    ) -> MemoryLeft {
        let all = limit_bytes / PROCESS_SHARE;
        let own = (all / (processes as u64).max(1)).saturating_sub(reserved.own_bytes);
        let taken = reserved.own_bytes.saturating_add(reserved.other_bytes);
        let free = free_bytes / FREE_SHARE;
        let usual = own.min(all.saturating_sub(taken)).min(free);
        let most = (limit_bytes / MOST.1 * MOST.0)
            .saturating_sub(taken)
            .min(free);
        MemoryLeft {
            usual,
            most: most.max(usual),
            free_bytes,
            reserved,
        }
    }
}

/// Returns the bytes that a loader can reserve without delaying others: half of the memory limit,
/// less the reservations of all loaders without their own budget, in this process and the user's
/// other processes; at most half of the free memory.
///
/// # Cost
///
/// A few system calls per open loader.
pub fn unreserved_memory_bytes() -> u64 {
    let mut unreserved = 0;
    ReservedBytes::of_what_is_left(1, |left| {
        unreserved = left.usual;
        0
    });
    unreserved
}

/// Returns the reservations of other processes in the same memory.
fn elsewhere(register: &ProcessRegister, domain: &str) -> LoaderReservations {
    let mut reserved = LoaderReservations::default();
    for text in register.other_processes() {
        let mut parts = text.splitn(3, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (Some(bytes), Some(process)) = (number(), number()) else {
            continue;
        };
        let process = u32::try_from(process).unwrap_or_default();
        if parts.next() == Some(domain) && bytes > 0 {
            reserved.other_bytes = reserved.other_bytes.saturating_add(bytes);
            reserved.processes.push(process);
        }
    }
    reserved.processes.sort_unstable();
    reserved.processes.dedup();
    reserved
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
    fn reservations_of_other_processes_count_in_the_same_memory_domain() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Entries as other processes write them.
        let mut held = Vec::new();
        let texts = [
            "700 7 here",
            "20 5 here",
            "5000 5 there",
            "some 5 here",
            "30 here",
            "",
            "-4 5 here",
        ];
        for (n, text) in texts.into_iter().enumerate() {
            let path = folder.path().join(format!("0-a-{n}"));
            std::fs::write(&path, text).expect("writes");
            let file = std::fs::File::open(&path).expect("the file exists");
            file.try_lock().expect("no process holds the lock");
            held.push(file);
        }

        let register = ProcessRegister::at(folder.path());

        let here = || elsewhere(&register, "here");
        assert_eq!((here().other_bytes, here().processes), (720, vec![5, 7]));
        assert_eq!(elsewhere(&register, "there").other_bytes, 5000);
        drop(held.pop());
        drop(held.remove(0));
        assert_eq!(here().other_bytes, 20, "its process is gone");
    }

    #[test]
    fn the_reservation_of_an_open_loader_is_not_unreserved() {
        let limit = infeed_raw::machine::memory_limit_bytes();
        let reserved = ReservedBytes::of_what_is_left(1, |left| left.usual / 8);

        // Other tests may hold part of the memory, too.
        assert!(unreserved_memory_bytes() <= limit / PROCESS_SHARE - reserved.bytes());
    }

    fn of_other_processes(bytes: u64) -> LoaderReservations {
        LoaderReservations {
            own_bytes: 0,
            other_bytes: bytes,
            processes: vec![7, 9],
        }
    }

    #[test]
    fn processes_that_share_a_machine_share_its_memory() {
        let left = |processes, own_bytes| {
            let reserved = LoaderReservations {
                own_bytes,
                ..LoaderReservations::default()
            };
            MemoryLeft::new(800, 800, processes, reserved).usual
        };

        assert_eq!((left(1, 0), left(4, 0), left(4, 70)), (400, 100, 30));
    }

    #[test]
    fn a_loader_opens_although_others_reserved_the_half_for_all_loaders() {
        let left = |free, taken| {
            let left = MemoryLeft::new(800, free, 1, of_other_processes(taken));
            (left.usual, left.most)
        };

        assert_eq!(left(800, 100), (300, 400));
        assert_eq!(left(800, 400), (0, 200));
        assert_eq!(left(800, 600), (0, 0), "three quarters are reserved");
        assert_eq!(left(100, 0), (50, 50), "other programs use the memory");
    }

    #[test]
    fn the_warning_and_the_error_name_the_processes_that_reserved_memory() {
        let of = |bytes| ReservedBytes {
            bytes,
            left: MemoryLeft::new(8 << 30, 6 << 30, 1, of_other_processes(4 << 30)),
            process: u32::MAX,
            _entry: None,
        };

        let warning = of(100 << 20).warning().expect("nothing is left");
        let error = of(0).too_few(7 << 20).to_string();

        let processes = "loaders of processes 7, 9 reserve 4096MiB";
        assert!(warning.contains(processes), "{warning}");
        assert!(warning.contains("takes 100MiB of 6144MiB"), "{warning}");
        assert!(error.contains(processes), "{error}");
        assert!(
            error.contains("half of the free memory (3072MiB)"),
            "{error}"
        );
        assert_eq!(of(0).warning(), None);
    }
}
