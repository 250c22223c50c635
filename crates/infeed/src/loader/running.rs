//! A running pipeline: its threads, counters and end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::bad_records::BadRecords;
use super::budget::Shares;
use super::cache::DecodedCache;
use super::fetched_records::BadRecord;
use super::options::Options;
use super::records::RecordJob;
use super::remote::RemoteWorkers;
use super::run_digest::RunDigest;
use super::state::LoaderState;
use super::stats::{self, EpochStarts, Stats};
use super::tuning::Tuning;
use super::window::BatchesInFlight;
use crate::pipeline::Pipeline;
use infeed_core::counters::{Timeline, TimelineSpan};
use infeed_core::error::Error;
use infeed_core::exec::Executor;
use infeed_core::order::partition::Partition;
use infeed_source::Source;

/// A running pipeline. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct Loader {
    /// Dropped before the executor, whose in-flight batches it leases.
    pub(super) remote: Mutex<Option<Box<dyn RemoteWorkers>>>,
    pub(super) executor: Mutex<Option<Arc<Executor<RecordJob>>>>,
    pub(super) progress: Mutex<ConsumerProgress>,
    pub(super) epoch_starts: Mutex<EpochStarts>,
    pub(super) first_batch_ns: AtomicU64,
    /// Time that the consumer waited for the first batch; shorter than `first_batch_ns` if the
    /// first request came after opening.
    pub(super) first_wait_ns: AtomicU64,
    /// Total time that the consumer waited.
    pub(super) waited_ns: AtomicU64,
    /// Number of seeks.
    pub(super) seeks: AtomicU64,
    pub(super) opened: Instant,
    pub(super) closed: AtomicBool,
    pub(super) options: Options,
    pub(super) shares: Shares,
    /// None if the options fix the number of workers.
    pub(super) tuning: Option<Mutex<Tuning>>,
    /// True while placement is tried on the run's own steps.
    pub(super) tuning_waits: AtomicBool,
    pub(super) flight: BatchesInFlight,
    pub(super) readers: usize,
    /// The state before the first step.
    pub(super) begin: LoaderState,
    /// Division of an epoch into batches. A closed loader, which has no executor, needs it for its
    /// state.
    pub(super) partition: Partition,
    /// The description, with the resolved outputs of its functions.
    pub(super) pipeline: Pipeline,
    /// Selection and weights, as lines of the plan.
    pub(super) selection: String,
    /// Number of batches, beyond those in flight, that the consumer may hold before a warning is
    /// logged.
    pub(super) held: usize,
}

#[derive(Debug, Default)]
pub(super) struct ConsumerProgress {
    pub(super) epoch: u64,
    /// Delivered steps of the epoch.
    pub(super) step: u64,
    pub(super) batches: u64,
    pub(super) samples: u64,
    pub(super) unknown_pixels: u64,
    pub(super) bad: BadRecords,
    /// Notices for the user, each reported once.
    pub(super) notices: Vec<String>,
    pub(super) warned_held: bool,
    /// Time of the last delivery, while a timeline is recorded.
    pub(super) delivered: Option<Instant>,
    /// Time of the first request for the batch that is not delivered yet.
    pub(super) requested_at: Option<Instant>,
    pub(super) digests: RunDigest,
    /// The epoch whose records the program chose, with [`Options::epoch_records`].
    pub(super) chosen: Option<u64>,
    /// The error that stopped the run, until a seek.
    pub(super) stopped: Option<Error>,
}

impl ConsumerProgress {
    pub(super) fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.clone());
        error
    }
}

impl Loader {
    /// Whether the number of workers has settled or is fixed by the options.
    pub(super) fn is_tuned(&self) -> bool {
        let tuning = self.tuning.as_ref();
        tuning.is_none_or(|tuning| lock(tuning).is_settled())
    }

    /// Pauses the tuning of workers, or resumes it. Two searches on the same steps would each
    /// attribute the other's effects to itself.
    pub(super) fn let_tuning_wait(&self, waits: bool) {
        self.tuning_waits.store(waits, Ordering::Relaxed);
        if let Some(tuning) = self.tuning.as_ref().filter(|_| !waits) {
            lock(tuning).discard_window(self.flight);
        }
    }

    /// Returns the epoch and its number of delivered steps.
    pub fn place(&self) -> (u64, u64) {
        let progress = self.progress();
        (progress.epoch, progress.step)
    }

    /// Number of seeks.
    pub(super) fn seeks(&self) -> u64 {
        self.seeks.load(Ordering::Relaxed)
    }

    /// Returns the rows of a full batch.
    pub(super) fn most_rows(&self) -> Result<usize, Error> {
        let rows = self.executor()?.job().partition().rows();
        usize::try_from(rows)
            .map_err(|_| Error::config("batch", "it has more rows than fit in memory"))
    }

    /// Returns the steps of an epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn steps(&self) -> Result<u64, Error> {
        Ok(self.executor()?.job().partition().steps())
    }

    /// Returns the description, with resolved functions and their outputs.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the source.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn source(&self) -> Result<Arc<dyn Source>, Error> {
        Ok(Arc::clone(self.executor()?.job().source()))
    }

    /// Describes selection and weights as lines of the plan; empty if each record occurs once per
    /// epoch.
    pub fn selection(&self) -> &str {
        &self.selection
    }

    /// Returns the plan as text.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn plan(&self) -> Result<String, Error> {
        let executor = self.executor()?;
        Ok(format!("{}{}", self.selection, executor.job().plan()))
    }

    /// Returns the bad records in delivered batches that were skipped or substituted, each once, in
    /// the order of their first occurrence.
    pub fn bad_records(&self) -> Vec<BadRecord> {
        self.progress().bad.records().to_vec()
    }

    /// Returns the notices for the user since the last call. Each notice is returned once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.progress().notices)
    }

    /// Returns the error that stopped the run, until a seek.
    pub fn stop_error(&self) -> Option<Error> {
        self.progress().stopped.clone()
    }

    /// Returns the cache of decoded records, to keep its records longer than the loader.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn decoded_cache(&self) -> Result<Option<Arc<DecodedCache>>, Error> {
        Ok(self.executor()?.job().cache())
    }

    /// Returns the counters since the loader was opened. Cheap to call while it runs.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let executor = self.executor()?;
        let progress = self.progress();
        let first_batch = Duration::from_nanos(self.first_batch_ns.load(Ordering::Relaxed));
        let remote = lock(&self.remote)
            .as_ref()
            .map(|remote| (remote.stats(), remote.receiving()));
        let (remote, receiving) = remote.unwrap_or_default();
        Ok(Stats {
            batches: progress.batches,
            samples: progress.samples,
            unknown_pixels: progress.unknown_pixels,
            bad: progress.bad.records().len() as u64,
            held_warned: progress.warned_held,
            first_batch: (!first_batch.is_zero()).then_some(first_batch),
            wait: Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)),
            first_wait: Duration::from_nanos(self.first_wait_ns.load(Ordering::Relaxed)),
            elapsed: self.opened.elapsed(),
            tuned: self.tuning.as_ref().map(|tuning| lock(tuning).state()),
            readers: self.readers,
            remote,
            receiving,
            ..stats::gather(&executor, &self.shares)
        })
    }

    /// Returns the counters of the current and the last epoch of a loader with a cache, whose first
    /// epoch is slower. Without a cache, and in the first epoch, all of them.
    ///
    /// # Errors
    ///
    /// As [`Loader::stats`].
    pub fn recent_stats(&self) -> Result<Stats, Error> {
        let stats = self.stats()?;
        Ok(lock(&self.epoch_starts).recent(stats))
    }

    /// Returns the recorded spans, by start time, for the duration set by [`Options::timeline`].
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn timeline(&self) -> Result<Vec<TimelineSpan>, Error> {
        let executor = self.executor()?;
        Ok(executor
            .job()
            .timeline()
            .map(Timeline::spans)
            .unwrap_or_default())
    }

    /// Returns the number of finished batches that the consumer has not taken.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn ready(&self) -> Result<usize, Error> {
        Ok(self.executor()?.ready())
    }

    /// Ends all threads and waits for them. Batches in the consumer's hands stay valid.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(lock(&self.remote).take());
        let executor = lock(&self.executor).take();
        if let Some(executor) = executor {
            // A call that waits in `next_within` may hold it too, so dropping it is not enough.
            executor.shutdown();
        }
        self.shares.give_back();
        if let Some(tuning) = &self.tuning {
            lock(tuning).leave();
        }
    }

    /// Whether [`Loader::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn executor(&self) -> Result<Arc<Executor<RecordJob>>, Error> {
        lock(&self.executor)
            .as_ref()
            .map(Arc::clone)
            .ok_or(Error::Closed)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, ConsumerProgress> {
        lock(&self.progress)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock, and the lock guards only counters.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
