//! Which steps are timed on the device's clock: all at the beginning, all while batches come late, and few
//! otherwise.
//!
//! Recording an event with timing costs about 4 us and sometimes milliseconds (nvImageCodec on B200: 0.7 ms
//! on average, 14 ms at most), one without timing does not. A batch that was ready before its consumer
//! asked has no gap, which an event without timing shows too.

/// Steps that are timed at the beginning, and after a batch that was not ready in time.
pub(super) const WATCHED: u64 = 64;

/// One of this many steps is timed otherwise.
pub(super) const EVERY: u64 = 64;

/// Counts of batches, from which follows which of them are timed.
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

    /// Returns whether to time the batch that is sent next, with `ahead` batches ahead of the consumer.
    /// With none ahead, the consumer waits for this batch, or will.
    pub(super) fn send(&mut self, ahead: usize) -> bool {
        let is_timed = self.is_timed(self.sent, ahead);
        self.sent += 1;
        is_timed
    }

    /// Whether the batch that the consumer asks for is timed.
    pub(super) fn asks(&self, ahead: usize) -> bool {
        self.is_timed(self.handed_over, ahead)
    }

    pub(super) fn hand_over(&mut self) {
        self.handed_over += 1;
    }

    /// A batch was not ready in time, and it is not known by how much: the next ones are timed.
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
