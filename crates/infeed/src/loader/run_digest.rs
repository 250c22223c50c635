//! The digest of a run: the sum over all delivered batches.

use super::assemble::BatchFacts;
use super::digest::{Digest, DigestScope};

/// Digests of the delivered batches.
#[derive(Debug, Default)]
pub(super) struct RunDigest {
    pub(super) of: DigestScope,
    /// Digest of all rows, in this run and the runs that it resumes.
    pub(super) whole: Digest,
    /// Digest of the last step.
    pub(super) step: Digest,
    /// Current epoch and the digest of all rows before it, if its first step was delivered.
    begun: Option<(u64, Digest)>,
}

impl RunDigest {
    /// Creates the digest of a run that has delivered nothing.
    pub(super) fn new(of: DigestScope) -> RunDigest {
        RunDigest {
            of,
            whole: Digest::empty(of),
            step: Digest::empty(of),
            begun: None,
        }
    }

    /// Adds a delivered batch.
    pub(super) fn add(&mut self, delivered: &BatchFacts) {
        if delivered.step == 0 {
            self.begun = Some((delivered.epoch, self.whole));
        }
        self.step = delivered.digest;
        self.whole = self.whole.plus(delivered.digest);
    }

    /// Moves to another step. If the current epoch begins again, its batches no longer count.
    pub(super) fn go_to(&mut self, epoch: u64, step: u64) {
        if let Some((begun, before)) = self.begun.take()
            && (epoch, step) == (begun, 0)
        {
            self.whole = before;
        }
    }
}
