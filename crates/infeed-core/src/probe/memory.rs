//! Measures the copy rate of memory.

use std::fs;
use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Duration of the measurement.
const SPAN: Duration = Duration::from_millis(400);

/// Assumed cache size if the system does not report it.
const CACHE: usize = 32 << 20;

/// Minimum and maximum bytes of a buffer.
const BUFFER: (usize, usize) = (64 << 20, 256 << 20);

/// Measures the rate at which `cores` threads copy memory, in bytes read and written per second,
/// summed over the threads. Returns 0 if no memory may be used. Each thread copies between two
/// buffers of four times the last-level cache, so that caches do not help.
///
/// # Cost
///
/// Half a second, and up to 512 MiB per core, at most a quarter of the memory of the process.
pub fn memory_bandwidth(cores: usize) -> f64 {
    let cores = cores.max(1);
    let allowed = infeed_raw::machine::memory_limit_bytes() / 4 / (2 * cores as u64);
    let wanted = (4 * last_cache_bytes().unwrap_or(CACHE)).clamp(BUFFER.0, BUFFER.1);
    let bytes = usize::try_from(allowed).unwrap_or(wanted).min(wanted);
    if bytes == 0 {
        return 0.0;
    }
    let begin = Barrier::new(cores);
    let rates = Mutex::new(Vec::with_capacity(cores));
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let rate = copy(bytes, &begin);
                let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
                rates.push(rate);
            });
        }
    });
    let rates = rates.into_inner().unwrap_or_else(PoisonError::into_inner);
    rates.iter().sum()
}

/// Copies for [`SPAN`]; returns bytes read and written per second.
fn copy(bytes: usize, begin: &Barrier) -> f64 {
    // The first pass causes the page faults.
    let from = vec![1_u8; bytes];
    let mut to = vec![2_u8; bytes];
    begin.wait();
    let start = Instant::now();
    let mut copied = 0_u64;
    while start.elapsed() < SPAN {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        copied += 2 * bytes as u64;
    }
    copied as f64 / start.elapsed().as_secs_f64()
}

/// Size of the largest cache of the first core, as reported by Linux.
fn last_cache_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.filter_map(|cache| {
        let text = fs::read_to_string(cache.ok()?.path().join("size")).ok()?;
        cache_bytes(&text)
    });
    sizes.max()
}

/// Parses `32768K` or `8M`.
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_parsed_as_linux_writes_them() {
        assert_eq!(cache_bytes("32768K\n"), Some(32 << 20));
        assert_eq!(cache_bytes("8M"), Some(8 << 20));
        assert_eq!(cache_bytes("big"), None);
    }

    #[test]
    fn a_core_copies_faster_than_a_disk_and_slower_than_any_machine() {
        let rate = memory_bandwidth(1);

        assert!((1e8..1e13).contains(&rate), "{rate} bytes/s");
    }
}
