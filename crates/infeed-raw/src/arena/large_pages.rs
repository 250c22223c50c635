//! Large pages for an arena, as far as they cost less than they save.
//!
//! Small pages cost 0.3 ms of processor time per MiB, when they are written and first read. A large
//! page costs a fifth of that if the system has one free. If the system must move other pages to make
//! one, it costs several times as much. So an arena measures what large pages cost. After an
//! attempt that failed or took too long, it uses small pages for some time, four times as long each
//! time, and half as long after an attempt that was worth it.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::data::{DataMap, LARGE_PAGE};
use crate::machine::thread_cpu_time;

/// Most bytes that are taken at once. Each attempt interrupts all cores; one that must move other
/// pages takes 2 ms per MiB.
const MOST: u64 = 8 << 20;

/// Share of the used bytes that is taken at once, so that a small arena takes little in advance.
const SHARE: u64 = 4;

/// Processor time in nanoseconds per MiB up to which large pages are worth it: two thirds of what
/// small pages cost.
const WORTH_NS: u64 = 200_000;

/// Bytes for which small pages are used after the first attempt that was not worth it.
const FIRST_PAUSE: u64 = 32 << 20;

/// Attempts of this process.
#[derive(Debug, Default)]
pub(super) struct LargePages {
    /// Offset before which no attempt is made.
    not_before: AtomicU64,
    /// Length of the last pause in bytes, halved by good attempts; 0 while all are worth it.
    pause: AtomicU64,
}

impl LargePages {
    /// Returns the range of the file to take next, if entries that end at `end` have reached the end
    /// of the last one, `taken`. The data begins at `begin` and the file ends at `limit`.
    pub(super) fn next(&self, begin: u64, end: u64, taken: u64, limit: u64) -> Option<Range<u64>> {
        let taken = taken.max(begin).checked_next_multiple_of(LARGE_PAGE)?;
        if end <= taken || end < self.not_before.load(Ordering::Relaxed) {
            return None;
        }
        // Entries written with small pages stay there.
        let start = taken.max(end / LARGE_PAGE * LARGE_PAGE);
        let most = match self.pause.load(Ordering::Relaxed) {
            0 => (end.saturating_sub(begin) / SHARE).clamp(LARGE_PAGE, MOST),
            _ => LARGE_PAGE,
        };
        let range = start..start.checked_add(most / LARGE_PAGE * LARGE_PAGE)?;
        let range = range.start..range.end.min(limit / LARGE_PAGE * LARGE_PAGE);
        (range.start < range.end).then_some(range)
    }

    /// Takes large pages for a range, and notes whether that was worth it.
    pub(super) fn take(&self, data: &DataMap, file: &File, range: Range<u64>) {
        let begun = thread_cpu_time();
        let taken = data.collapse(file, range.clone());
        let spent = thread_cpu_time().saturating_sub(begun);
        self.note(taken.is_ok(), spent, range);
    }

    fn note(&self, is_taken: bool, spent: Duration, range: Range<u64>) {
        let mib = (range.end - range.start) >> 20;
        if is_taken && spent.as_nanos() as u64 <= WORTH_NS * mib {
            let shorter = self.pause.load(Ordering::Relaxed) / 2;
            let shorter = if shorter < FIRST_PAUSE { 0 } else { shorter };
            self.pause.store(shorter, Ordering::Relaxed);
            return;
        }
        let pause = match self.pause.load(Ordering::Relaxed) {
            0 => FIRST_PAUSE,
            last => last.saturating_mul(4),
        };
        self.pause.store(pause, Ordering::Relaxed);
        let until = range.end.saturating_add(pause);
        self.not_before.store(until, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn large_pages_are_taken_ahead_of_the_entries_and_within_the_file() {
        let pages = LargePages::default();
        let limit = 1000 * MIB + 5;

        assert_eq!(pages.next(MIB, MIB + 1, 0, limit), None, "not yet");
        let first = pages.next(MIB, 2 * MIB + 1, 0, limit);
        assert_eq!(first, Some(2 * MIB..4 * MIB));
        assert_eq!(pages.next(MIB, 3 * MIB, 4 * MIB, limit), None, "are taken");
        let later = pages.next(MIB, 21 * MIB, 20 * MIB, limit);
        assert_eq!(later, Some(20 * MIB..24 * MIB), "a share");
        let later = pages.next(MIB, 900 * MIB, 898 * MIB, limit);
        assert_eq!(later, Some(900 * MIB..908 * MIB), "at most");
        let last = pages.next(MIB, 999 * MIB, 998 * MIB, limit);
        assert_eq!(last, Some(998 * MIB..1000 * MIB));
        assert_eq!(pages.next(MIB, limit, 1000 * MIB, limit), None);
        assert_eq!(pages.next(MIB, 2 * MIB + 5, 0, 3 * MIB), None, "no room");
    }

    #[test]
    fn attempts_that_are_not_worth_it_become_rare() {
        let pages = LargePages::default();
        let limit = 1 << 40;
        let (mut taken, mut attempts, mut end) = (0, 0, MIB);
        while end < 64 << 30 {
            end += MIB;
            if let Some(range) = pages.next(MIB, end, taken, limit) {
                taken = range.end;
                attempts += 1;
                pages.note(true, Duration::from_millis(10), range);
            }
        }
        assert!((5..9).contains(&attempts), "{attempts}");

        pages.not_before.store(0, Ordering::Relaxed);
        let range = pages.next(MIB, end + MIB, taken, limit).expect("a try");
        assert_eq!(range.end - range.start, LARGE_PAGE, "a small one");
        pages.note(true, Duration::from_micros(100), range.clone());
        let mut taken = range.end;
        let sizes: Vec<u64> = std::iter::from_fn(|| {
            let range = pages.next(MIB, taken + 1, taken, limit)?;
            taken = range.end;
            pages.note(true, Duration::from_micros(100), range.clone());
            Some(range.end - range.start)
        })
        .take(20)
        .collect();
        assert_eq!((sizes[0], sizes[19]), (LARGE_PAGE, MOST), "{sizes:?}");
    }
}
