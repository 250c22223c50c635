//! State, resumption and digest of a running loader.

use std::ops::Range;

use super::bad_records::BadRecords;
use super::digest::Digest;
use super::running::Loader;
use super::state::{LoaderState, VERSION};
use infeed_core::error::Error;
use infeed_core::printable::excerpt;

impl Loader {
    /// Returns epoch and step of the next batch. After the last step, it is the first of the next
    /// epoch.
    pub fn next_place(&self) -> (u64, u64) {
        match self.place() {
            (epoch, step) if step == self.partition.steps() => (epoch + 1, 0),
            place => place,
        }
    }

    /// Returns the state of the run.
    pub fn state(&self) -> LoaderState {
        let mut state = self.begin.clone();
        let (epoch, step) = self.next_place();
        (state.epoch, state.position) = (epoch, self.partition.begin(step));
        state.bad = self.bad_before(state.epoch, state.position);
        state.digest = (self.options.world_size == 1).then(|| self.digest());
        state
    }

    /// Resumes a run in O(1): no consumed record is read again. The number of workers or ranks may
    /// differ.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the difference, if the state has another dataset, description,
    /// seed or batch; or as [`Loader::seek`].
    pub fn restore(&self, saved: &LoaderState) -> Result<(), Error> {
        let differences = self.begin.differences(saved);
        if !differences.is_empty() {
            let problem = format!(
                "it belongs to another run ({}); open the pipeline as it was, or load the state \
                 with strict=False",
                differences.join("; ")
            );
            return Err(Error::config("state", problem));
        }
        let step = self.partition.step_at(saved.position);
        if step < self.partition.steps() && self.partition.begin(step) != saved.position {
            let problem = format!("position {} is not the start of a batch", saved.position);
            return Err(Error::config("state", problem));
        }
        self.go_on(saved, step)
    }

    /// Resumes even where [`Loader::restore`] fails: at the same position of this loader's own
    /// order. Returns notes on the consequences; empty if nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a state of another version, or as [`Loader::seek`].
    pub fn restore_anyway(&self, saved: &LoaderState) -> Result<Vec<String>, Error> {
        if saved.version != VERSION {
            let problem = format!("version {} is not known; this is {VERSION}", saved.version);
            return Err(Error::config("state", problem));
        }
        let mut notes = self.begin.differences(saved);
        // Deliver a partly delivered batch again rather than skip its rest.
        let step = self.partition.step_at(saved.position);
        let steps = self.steps()?;
        let mut place = saved.clone();
        let step = match step < steps {
            true => step,
            false => {
                place.epoch += 1;
                0
            }
        };
        if !notes.is_empty() {
            notes.push(format!(
                "resuming at step {step} of epoch {} in the order of this loader: some records of \
                 this epoch may occur twice and others never",
                place.epoch
            ));
        }
        self.go_on(&place, step)?;
        Ok(notes)
    }

    fn go_on(&self, saved: &LoaderState, step: u64) -> Result<(), Error> {
        self.seek(saved.epoch, step)?;
        if let (Some(now), Some(then)) = (&self.begin.decoder, &saved.decoder)
            && now != then
        {
            let text = format!(
                "the JPEG decoder changes to {now}, was {}; pixels are close but not equal",
                excerpt(then)
            );
            tracing::warn!("{text}");
            self.progress().notices.push(text);
        }
        self.take_bad_from(saved);
        self.take_digest_from(saved);
        Ok(())
    }

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

    /// Returns epoch, position and number of bad records before a position, including those of the
    /// run from which this one was restored.
    fn bad_before(&self, epoch: u64, position: u64) -> Vec<(u64, u64, u64)> {
        self.progress().bad.before(epoch, position)
    }

    /// Replaces the bad records by those of a state.
    fn take_bad_from(&self, saved: &LoaderState) {
        self.progress().bad = BadRecords::from_state(&saved.bad);
    }
}
