//! The digest of a run: the sum over all delivered batches.

use std::ops::Range;

use super::Loader;
use super::assemble::BatchFacts;
use super::digest::{Digest, DigestScope};
use super::state::LoaderState;
use infeed_core::error::Error;

/// Digests of the delivered batches.
#[derive(Debug, Default)]
pub(super) struct RunDigest {
    of: DigestScope,
    /// Digest of all rows, in this run and the runs that it resumes.
    whole: Digest,
    /// Digest of the last step.
    step: Digest,
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

impl Loader {
    /// Returns the digest of all delivered rows: by this loader, and by the runs before the state
    /// that it resumed from, if that state has their digest. An epoch that begins again counts
    /// once.
    ///
    /// It does not depend on the number of workers. The digests of the ranks of a run add up
    /// ([`Digest::plus`]) to that of a single process. If several ranks resume a state of a single
    /// process, rank 0 counts the rows before it.
    pub fn digest(&self) -> Digest {
        self.progress().digests.whole
    }

    /// Returns the digest of the last delivered step.
    pub fn step_digest(&self) -> Digest {
        self.progress().digests.step
    }

    /// Returns the positions of an epoch that this rank's rows of a step fill.
    pub(super) fn positions(&self, epoch: u64, step: u64) -> Result<Range<u64>, Error> {
        let executor = self.executor()?;
        let partition = executor.job().partition();
        let first = partition
            .row_position(partition.sequence(epoch, step))
            .position;
        Ok(first..first + partition.rows_at(step))
    }

    /// Counts the rows delivered before a state, if the state has their digest.
    pub(super) fn take_digest_from(&self, saved: &LoaderState) {
        let first = self.options.rank == 0;
        let digests = &mut self.progress().digests;
        let empty = Digest::empty(digests.of);
        digests.whole = match saved.digest {
            // The sum covers bytes only if both digests do.
            Some(digest) if first => digest.plus(empty),
            _ => empty,
        };
    }
}
