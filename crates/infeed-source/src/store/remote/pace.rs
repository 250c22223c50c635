//! Measures requests, so that the slowest are made a second time. A request may hang on one bad
//! server of many, and a batch waits for the last of its records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Recent times per size class.
const KEPT: usize = 64;

/// Minimum number of times in a class before they are used.
const ENOUGH: usize = 16;

/// Wait before a second request while a class has too few times.
const UNKNOWN: Duration = Duration::from_secs(2);

/// A second request is made after this multiple of the 95th percentile.
const FACTOR: u32 = 2;

/// Minimum wait: below it, a second request would rarely be faster.
const MIN_DELAY: Duration = Duration::from_millis(50);

/// One second request per this number of first requests, and a few at the start.
const SHARE: u64 = 20;
const AT_START: u64 = 4;

/// Requests below this size are one class; each further class spans a factor of four.
const SMALL: u64 = 256 << 10;

/// Times of the requests to one bucket, by size class.
#[derive(Debug, Default)]
pub(super) struct RequestTimes {
    classes: Mutex<[ClassTimes; 4]>,
    requests: AtomicU64,
    hedges: AtomicU64,
}

#[derive(Debug, Default)]
struct ClassTimes {
    recent: Vec<Duration>,
    next: usize,
}

impl RequestTimes {
    /// Time to wait for a request of `bytes` bytes before it is made again.
    pub(super) fn hedge_delay(&self, bytes: u64) -> Duration {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = classes[class(bytes)].recent.clone();
        drop(classes);
        if times.len() < ENOUGH {
            return UNKNOWN;
        }
        times.sort_unstable();
        (times[times.len() * 95 / 100] * FACTOR).max(MIN_DELAY)
    }

    /// Records the time of a request, or a lower bound of it.
    pub(super) fn took(&self, bytes: u64, time: Duration) {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let times = &mut classes[class(bytes)];
        if times.recent.len() < KEPT {
            times.recent.push(time);
        } else {
            times.recent[times.next] = time;
        }
        times.next = (times.next + 1) % KEPT;
    }

    /// Counts a first request.
    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a second request is allowed, and counts it if so.
    pub(super) fn may_hedge(&self) -> bool {
        let allowed = self.requests.load(Ordering::Relaxed) / SHARE + AT_START;
        let add = |made: u64| (made < allowed).then_some(made + 1);
        self.hedges
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }
}

fn class(bytes: u64) -> usize {
    match bytes / SMALL {
        0 => 0,
        1..4 => 1,
        4..16 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hedge_delay_is_twice_the_95th_percentile() {
        let pace = RequestTimes::default();
        assert_eq!(pace.hedge_delay(1), UNKNOWN);

        (1..=100).for_each(|n| pace.took(1, Duration::from_millis(n * 10)));

        // The last 64 times: 370 to 1000 ms.
        assert_eq!(pace.hedge_delay(1), Duration::from_millis(2 * 970));
        assert_eq!(pace.hedge_delay(8 << 20), UNKNOWN, "another class");
        (0..64).for_each(|_| pace.took(1, Duration::from_millis(1)));
        assert_eq!(pace.hedge_delay(1), MIN_DELAY);
    }

    #[test]
    fn at_most_one_request_in_twenty_is_hedged() {
        let pace = RequestTimes::default();
        let allowed =
            |pace: &RequestTimes| std::iter::from_fn(|| pace.may_hedge().then_some(())).count();

        assert_eq!(allowed(&pace), 4);
        (0..200).for_each(|_| pace.count_request());
        assert_eq!(allowed(&pace), 10);
        assert_eq!(allowed(&pace), 0);
    }
}
