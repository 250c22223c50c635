//! The certificate of a run: digests kept as batches are delivered, and written along if asked.

use std::ops::Range;

use super::digest::{Digest, Digested};
use super::digest_file::{DigestLog, Header};
use super::made::Told;
use super::state::State;
use super::{Loader, Options};
use crate::error::Error;

/// What a loader knows of what it delivered.
#[derive(Debug, Default)]
pub(super) struct Certificate {
    of: Digested,
    /// Of all rows, in this run and in those that it goes on from.
    whole: Digest,
    /// Of the last step.
    step: Digest,
    /// The epoch that runs, and the digest of all before it, if it was delivered from its beginning.
    begun: Option<(u64, Digest)>,
    log: Option<DigestLog>,
}

impl Certificate {
    /// Of a run that has delivered nothing; opens its file if there is one.
    ///
    /// # Errors
    ///
    /// As [`DigestLog::open`].
    pub(super) fn new(options: &Options, begin: &State) -> Result<Certificate, Error> {
        let log = match &options.digest_file {
            Some(path) => Some(DigestLog::open(path, &Header::new(options, begin))?),
            None => None,
        };
        Ok(Certificate {
            of: options.digest,
            whole: Digest::empty(options.digest),
            step: Digest::empty(options.digest),
            begun: None,
            log,
        })
    }

    /// Takes in a batch that is delivered. A file that cannot be written any more ends, and what
    /// the user should be told of that is returned: a training run is worth more than its
    /// certificate.
    pub(super) fn take(&mut self, told: &Told) -> Option<String> {
        let Told {
            epoch,
            step,
            digest,
            ..
        } = *told;
        if step == 0 {
            self.begun = Some((epoch, self.whole));
        }
        self.step = digest;
        self.whole = self.whole.plus(digest);
        let error = self.log.as_mut()?.step(epoch, step, digest).err()?;
        self.log = None;
        let text = format!(
            "no digests are written from step {step} of epoch {epoch} on: {}",
            error.chain()
        );
        tracing::warn!("{text}");
        Some(text)
    }

    /// Goes to another place. An epoch that is begun again, say after a look at a batch, has not
    /// been delivered yet.
    pub(super) fn go_to(&mut self, epoch: u64, step: u64) {
        if let Some((begun, before)) = self.begun.take()
            && (epoch, step) == (begun, 0)
        {
            self.whole = before;
        }
    }
}

impl Loader {
    /// A digest of all that was delivered: by this loader, and before the state that it goes on
    /// from if that state has one. An epoch that is begun again counts once.
    ///
    /// The same for any number of workers; those of ranks add up ([`Digest::plus`]) to that of a
    /// single process. Where a state of a single process is restored on several ranks, rank 0
    /// counts what was delivered before.
    pub fn digest(&self) -> Digest {
        self.progress().certificate.whole
    }

    /// The digest of the last step delivered.
    pub fn step_digest(&self) -> Digest {
        self.progress().certificate.step
    }

    /// Positions of an epoch that this rank's rows of a step fill.
    pub(super) fn positions(&self, epoch: u64, step: u64) -> Result<Range<u64>, Error> {
        let conveyor = self.conveyor()?;
        let partition = conveyor.job().partition();
        let first = partition.spot(partition.ticket(epoch, step)).position;
        Ok(first..first + partition.rows_at(step))
    }

    /// Counts what was delivered before a state, if that is known.
    pub(super) fn take_digest_from(&self, saved: &State) {
        let first = self.options.rank == 0;
        let certificate = &mut self.progress().certificate;
        let empty = Digest::empty(certificate.of);
        certificate.whole = match saved.digest {
            // Adding nothing leaves out bytes that are not hashed from here on.
            Some(digest) if first => digest.plus(empty),
            _ => empty,
        };
    }
}
