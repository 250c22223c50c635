//! How long requests take, so that the slowest are made a second time: a request may hang on one
//! bad server of many, and a batch waits for the last of its records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Recent times that are kept of each class.
const KEPT: usize = 64;

/// Times without which nothing is known of a class.
const ENOUGH: usize = 16;

/// What is waited where nothing is known.
const UNKNOWN: Duration = Duration::from_secs(2);

/// How many times what 95 of 100 take a request may take before it is made again.
const FACTOR: u32 = 2;

/// What is waited at least: below, a second request would rarely come sooner.
const FLOOR: Duration = Duration::from_millis(50);

/// One second request is allowed for so many first ones, and some at the start.
const SHARE: u64 = 20;
const AT_START: u64 = 4;

/// Requests below so many bytes are alike; each further class holds four times as many.
const SMALL: u64 = 256 << 10;

/// Times of requests to one bucket, by their size.
#[derive(Debug, Default)]
pub(super) struct Pace {
    classes: Mutex<[Times; 4]>,
    requests: AtomicU64,
    hedges: AtomicU64,
}

#[derive(Debug, Default)]
struct Times {
    recent: Vec<Duration>,
    next: usize,
}

impl Pace {
    /// How long to wait for a request of so many bytes before it is made again.
    pub(super) fn patience(&self, bytes: u64) -> Duration {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = classes[class(bytes)].recent.clone();
        drop(classes);
        if times.len() < ENOUGH {
            return UNKNOWN;
        }
        times.sort_unstable();
        (times[times.len() * 95 / 100] * FACTOR).max(FLOOR)
    }

    /// Notes what a request took, or that it took more than that.
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

    /// Notes a first request.
    pub(super) fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a second one may be made, which is noted then.
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
    fn patience_is_twice_what_95_of_100_take() {
        let pace = Pace::default();
        assert_eq!(pace.patience(1), UNKNOWN);

        (1..=100).for_each(|n| pace.took(1, Duration::from_millis(n * 10)));

        // The last 64: 370 to 1000 ms.
        assert_eq!(pace.patience(1), Duration::from_millis(2 * 970));
        assert_eq!(pace.patience(8 << 20), UNKNOWN, "another class");
        (0..64).for_each(|_| pace.took(1, Duration::from_millis(1)));
        assert_eq!(pace.patience(1), FLOOR);
    }

    #[test]
    fn second_requests_are_at_most_one_in_twenty() {
        let pace = Pace::default();
        let allowed = |pace: &Pace| std::iter::from_fn(|| pace.may_hedge().then_some(())).count();

        assert_eq!(allowed(&pace), 4);
        (0..200).for_each(|_| pace.asked());
        assert_eq!(allowed(&pace), 10);
        assert_eq!(allowed(&pace), 0);
    }
}
