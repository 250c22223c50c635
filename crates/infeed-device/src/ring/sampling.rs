//! Chooses the steps that are timed on the device's clock: all at the beginning, all while batches
//! are late, and few otherwise.
//!
//! An event with timing costs about 4 us, and sometimes milliseconds (nvImageCodec on B200: 0.7 ms
//! on average, 14 ms at most). An event without timing is cheap, and is enough to see that a batch
//! was ready before its consumer asked and so has no gap.

/// Number of timed steps at the beginning, and after a batch that was late.
pub(super) const WATCHED: u64 = 64;

/// Interval of the timed steps otherwise.
pub(super) const EVERY: u64 = 64;

/// Counts batches, and chooses those that are timed.
#[derive(Debug)]
pub(super) struct Sampling {
    sent: u64,
    handed_over: u64,
    /// Steps below this number are timed.
    until: u64,
}

impl Sampling {
    pub(super) fn new() -> Sampling {
        Sampling {
            sent: 0,
            handed_over: 0,
            until: WATCHED,
        }
    }

    /// Returns whether to time the next batch to send. `ahead` is the number of batches ahead of
    /// the consumer; with 0, the consumer waits for this batch.
    pub(super) fn send(&mut self, ahead: usize) -> bool {
        let is_timed = self.is_timed(self.sent, ahead);
        self.sent += 1;
        is_timed
    }

    /// Whether to time the batch that the consumer requests.
    pub(super) fn asks(&self, ahead: usize) -> bool {
        self.is_timed(self.handed_over, ahead)
    }

    pub(super) fn hand_over(&mut self) {
        self.handed_over += 1;
    }

    /// Records that a batch was late by an unknown time, so that the next steps are timed.
    pub(super) fn late(&mut self) {
        self.until = self.until.max(self.sent + WATCHED);
    }

    /// Times every step.
    #[cfg(test)]
    pub(super) fn time_all(&mut self) {
        self.until = u64::MAX;
    }

    fn is_timed(&self, number: u64, ahead: usize) -> bool {
        number < self.until || number.is_multiple_of(EVERY) || ahead == 0
    }
}
