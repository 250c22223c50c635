//! A running pipeline: batches, epochs, statistics, close.

pub mod any;
mod assemble;
mod bad_records;
mod batch_functions;
mod budget;
mod cache;
mod cores;
mod costs;
pub(crate) mod decoders;
pub mod device;
pub mod digest;
pub mod digest_file;
mod failed;
mod fetched;
pub(crate) mod function_outputs;
pub mod losses;
mod options;
mod placing;
pub(crate) mod preview;
mod record_needs;
mod records;
mod register;
pub mod remote;
mod reserved;
pub(crate) mod resources;
mod rules;
mod run_digest;
pub(crate) mod schedule;
mod several;
pub(crate) mod start;
mod state;
mod stats;
pub mod targets;
mod tuning;
pub mod verify;
mod whole_groups;
mod window;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::pipeline::Pipeline;
use infeed_core::batch::Batch;
use infeed_core::counters::{Timeline, TimelineSpan};
use infeed_core::error::Error;
use infeed_core::exec::{Executor, ExecutorSnapshot, NextBatch};
use infeed_core::order::partition::Partition;
use infeed_source::Source;

pub use crate::plan::device::DecodeBy;
pub use cache::{
    CacheLimit, CacheOptions, DecodedCache, DecodedCacheStats, DiskCacheOptions, DiskCacheStats,
};

use assemble::BatchFacts;
use bad_records::BadRecords;
use budget::Shares;
pub use failed::sample_error;
pub use fetched::BadRecord;
pub use options::{OnError, Options};
use records::RecordJob;
use remote::RemoteWorkers;
pub use reserved::unreserved_memory_bytes;
use run_digest::RunDigest;
pub use state::LoaderState;
use stats::EpochStarts;
pub use stats::Stats;
use tuning::Tuning;
pub use tuning::TuningState;
use window::BatchesInFlight;

/// Timeout longer than any consumer waits.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Name of the consumer in a timeline, whatever the name of its thread.
const CONSUMER: &str = "consumer";

/// Result of a call with a timeout.
#[derive(Debug)]
pub enum Step {
    /// The next batch.
    Batch(Batch),
    /// The epoch is over; the next call begins the next one.
    End,
    /// No batch was ready in time.
    Timeout,
}

/// A running pipeline. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct Loader {
    /// Dropped before the executor, whose in-flight batches it leases.
    remote: Mutex<Option<Box<dyn RemoteWorkers>>>,
    executor: Mutex<Option<Arc<Executor<RecordJob>>>>,
    progress: Mutex<ConsumerProgress>,
    epoch_starts: Mutex<EpochStarts>,
    first_batch_ns: AtomicU64,
    /// Time that the consumer waited for the first batch; shorter than `first_batch_ns` if the
    /// first request came after opening.
    first_wait_ns: AtomicU64,
    /// Total time that the consumer waited.
    waited_ns: AtomicU64,
    /// Number of seeks.
    seeks: AtomicU64,
    opened: Instant,
    closed: AtomicBool,
    options: Options,
    shares: Shares,
    /// None if the options fix the number of workers.
    tuning: Option<Mutex<Tuning>>,
    /// True while placement is tried on the run's own steps.
    tuning_waits: AtomicBool,
    flight: BatchesInFlight,
    readers: usize,
    /// The state before the first step.
    begin: LoaderState,
    /// Division of an epoch into batches. A closed loader, which has no executor, needs it for its
    /// state.
    partition: Partition,
    /// The description, with the resolved outputs of its functions.
    pipeline: Pipeline,
    /// Selection and weights, as lines of the plan.
    selection: String,
    /// Number of batches, beyond those in flight, that the consumer may hold before a warning is
    /// logged.
    held: usize,
}

#[derive(Debug, Default)]
struct ConsumerProgress {
    epoch: u64,
    /// Delivered steps of the epoch.
    step: u64,
    batches: u64,
    samples: u64,
    unknown_pixels: u64,
    bad: BadRecords,
    /// Notices for the user, each reported once.
    notices: Vec<String>,
    warned_held: bool,
    /// Time of the last delivery, while a timeline is recorded.
    delivered: Option<Instant>,
    /// Time of the first request for the batch that is not delivered yet.
    asked: Option<Instant>,
    digests: RunDigest,
    /// The error that stopped the run, until a seek.
    stopped: Option<Error>,
}

impl ConsumerProgress {
    fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.clone());
        error
    }
}

impl Loader {
    /// Returns the next batch of the epoch, or `None` once at its end; the next call begins the
    /// next epoch. Blocks until the batch is ready. A batch from which [`OnError::Skip`] removed
    /// all records counts as a step and is not returned, so no batch is empty.
    ///
    /// # Errors
    ///
    /// The error that stopped the run, at its position in the order. Later calls return the same
    /// error until [`Loader::end_epoch`] or [`Loader::seek`].
    pub fn next_batch(&self) -> Result<Option<Batch>, Error> {
        match self.next_within(FOREVER)? {
            Step::Batch(batch) => Ok(Some(batch)),
            Step::End | Step::Timeout => Ok(None),
        }
    }

    /// As [`Loader::next_batch`], but waits at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_batch`].
    pub fn next_within(&self, timeout: Duration) -> Result<Step, Error> {
        let executor = self.executor()?;
        while !self.ends_epoch(&executor)? {
            let asked = self.asked();
            let next = |timeout| executor.next(timeout);
            let Some(made) = self.arrived(self.next_and_warn(&executor, asked, timeout, next))?
            else {
                return Ok(Step::Timeout);
            };
            let (batch, facts) = made.split();
            self.deliver(&executor, asked, facts)?;
            if batch.rows() > 0 {
                return Ok(Step::Batch(batch));
            }
        }
        Ok(Step::End)
    }

    /// Whether the epoch is over, in which case the next epoch begins. Fails if the run was
    /// stopped.
    fn ends_epoch(&self, executor: &Executor<RecordJob>) -> Result<bool, Error> {
        let mut progress = self.progress();
        if let Some(error) = &progress.stopped {
            return Err(error.clone());
        }
        let is_over = progress.step == executor.job().partition().steps();
        if is_over {
            progress.step = 0;
            progress.epoch += 1;
            drop(progress);
            // Only a cache makes an epoch unlike the one before.
            if executor.job().cache().is_some() {
                let stats = self.stats()?;
                lock(&self.epoch_starts).add(stats);
            }
        }
        Ok(is_over)
    }

    /// Returns the batch if it arrived in time. An error stops the run.
    fn arrived<T>(&self, next: NextBatch<T, Error>) -> Result<Option<T>, Error> {
        match next {
            NextBatch::Batch(made) => Ok(Some(made)),
            NextBatch::Timeout => Ok(None),
            NextBatch::Fault(error) => Err(self.progress().stop(error)),
            NextBatch::Broken(text) => Err(Error::Panicked { text }),
            NextBatch::Closed => Err(Error::Closed),
            NextBatch::Forked => Err(Error::Forked),
        }
    }

    /// Returns the time of the first request for the batch that is not delivered yet.
    fn asked(&self) -> Instant {
        *self.progress().asked.get_or_insert_with(Instant::now)
    }

    /// Counts a batch as delivered to the consumer.
    fn deliver(
        &self,
        executor: &Executor<RecordJob>,
        asked: Instant,
        facts: BatchFacts,
    ) -> Result<(), Error> {
        if self.first_batch_ns.load(Ordering::Relaxed) == 0 {
            let took = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.first_batch_ns.store(took.max(1), Ordering::Relaxed);
            let waited = self.waited_ns.load(Ordering::Relaxed);
            self.first_wait_ns.store(waited, Ordering::Relaxed);
        }
        let mut progress = self.progress();
        progress.asked = None;
        let batch = progress.epoch * executor.job().partition().steps() + progress.step;
        if let Some(timeline) = executor.job().timeline() {
            let now = Instant::now();
            if let Some(delivered) = progress.delivered.replace(now) {
                let previous = batch.checked_sub(1);
                timeline.record_as(CONSUMER, "step", delivered, asked, previous);
            }
            timeline.record_as(CONSUMER, "wait", asked, now, Some(batch));
        }
        executor.job().losses().log(batch);
        for bad in &facts.bad {
            if progress.bad.take(bad) {
                tracing::warn!("{}", bad.reason.chain());
            }
            let count = progress.bad.count();
            if let Some(limit) = self.options.max_bad.filter(|&limit| count > limit) {
                // This batch is not delivered, so neither state nor digest counts it.
                return Err(progress.stop(Error::TooManyBad {
                    bad: count,
                    limit,
                    record: bad.record.clone(),
                    source: Arc::new(bad.reason.clone()),
                }));
            }
        }
        progress.step += 1;
        progress.batches += 1;
        progress.samples += facts.samples as u64;
        let unknown = progress.unknown_pixels.saturating_add(facts.unknown_pixels);
        progress.unknown_pixels = unknown;
        progress.digests.add(&facts);
        let held = held(executor);
        if held > self.shares.in_flight_batches + self.held && !progress.warned_held {
            progress.warned_held = true;
            // Text and encoded images are not in a slab.
            let each = match executor.job().assembler().batcher().slab_bytes() >> 20 {
                0 => String::new(),
                mebibytes => format!(" ({mebibytes} MiB each)"),
            };
            let text = format!(
                "the consumer holds {held} batches; their memory{each} is outside the loader's \
                 budget and cannot be reused until they are dropped"
            );
            tracing::warn!("{text}");
            progress.notices.push(text);
        }
        drop(progress);
        if let Some(tuning) = &self.tuning
            && !self.tuning_waits.load(Ordering::Relaxed)
            && let Some(text) =
                lock(tuning).delivered(executor, self.flight, asked, facts.rows as u64)
        {
            tracing::info!("{text}");
        }
        Ok(())
    }

    /// Calls `next` with `timeout`. Logs a warning once if the wait exceeds the `stall` option.
    fn next_and_warn<T>(
        &self,
        executor: &Executor<RecordJob>,
        asked: Instant,
        timeout: Duration,
        next: impl Fn(Duration) -> NextBatch<T, Error>,
    ) -> NextBatch<T, Error> {
        let begun = Instant::now();
        let left = self
            .options
            .stall
            .and_then(|stall| stall.checked_sub(asked.elapsed()))
            .filter(|left| *left < timeout);
        let mut arrived = next(left.unwrap_or(timeout));
        if let (Some(left), NextBatch::Timeout) = (left, &arrived) {
            tracing::warn!("{}", stall_text(asked.elapsed(), executor.situation()));
            arrived = next(timeout - left);
        }
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        arrived
    }

    /// Skips the rest of the current epoch, if one has begun.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] or [`Error::Forked`].
    pub fn end_epoch(&self) -> Result<(), Error> {
        let steps = self.steps()?;
        let (epoch, step, is_stopped) = {
            let mut progress = self.progress();
            if progress.step == steps {
                // All steps were delivered, so ready batches already belong to the next epoch.
                (progress.epoch, progress.step) = (progress.epoch + 1, 0);
            }
            (progress.epoch, progress.step, progress.stopped.is_some())
        };
        if step == 0 && !is_stopped {
            Ok(())
        } else {
            self.seek(epoch + 1, 0)
        }
    }

    /// Continues at a step of an epoch, in O(1): no earlier record is read. Bad records that were
    /// met stay in the list and are not counted again.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a step the epoch does not have, [`Error::Closed`], [`Error::Forked`].
    pub fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        let executor = self.executor()?;
        let steps = executor.job().partition().steps();
        let in_flight = epoch
            .checked_mul(steps)
            .and_then(|first| first.checked_add(step));
        // Sequence numbers continue over all epochs; leave room after the requested one.
        let countable = epoch < u64::MAX / 2 / executor.job().partition().rows_per_epoch().max(1);
        let Some(in_flight) = in_flight.filter(|_| step < steps && countable) else {
            let problem = format!("epoch {epoch} has no step {step}; it has {steps}");
            return Err(Error::config("seek", problem));
        };
        if executor.is_forked() {
            return Err(Error::Forked);
        }
        let mut progress = self.progress();
        executor.reset(in_flight);
        self.seeks.fetch_add(1, Ordering::Relaxed);
        progress.asked = None;
        progress.stopped = None;
        if let Some(tuning) = &self.tuning {
            lock(tuning).disturbed(self.flight);
        }
        (progress.epoch, progress.step) = (epoch, step);
        progress.digests.go_to(epoch, step);
        Ok(())
    }

    /// Whether the number of workers has settled or is fixed by the options.
    fn is_tuned(&self) -> bool {
        let tuning = self.tuning.as_ref();
        tuning.is_none_or(|tuning| lock(tuning).is_settled())
    }

    /// Pauses the tuning of workers, or resumes it. Two searches on the same steps would each
    /// attribute the other's effects to itself.
    fn let_tuning_wait(&self, waits: bool) {
        self.tuning_waits.store(waits, Ordering::Relaxed);
        if let Some(tuning) = self.tuning.as_ref().filter(|_| !waits) {
            lock(tuning).disturbed(self.flight);
        }
    }

    /// Returns the epoch and its number of delivered steps.
    pub fn place(&self) -> (u64, u64) {
        let progress = self.progress();
        (progress.epoch, progress.step)
    }

    /// Number of seeks.
    fn seeks(&self) -> u64 {
        self.seeks.load(Ordering::Relaxed)
    }

    /// Returns the rows of a full batch.
    fn most_rows(&self) -> Result<usize, Error> {
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
        self.progress().bad.listed().to_vec()
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

    /// Returns the notices for the user since the last call. Each notice is returned once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.progress().notices)
    }

    /// Returns the error that stopped the run, until a seek.
    pub fn stopped(&self) -> Option<Error> {
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
            bad: progress.bad.listed().len() as u64,
            held_warned: progress.warned_held,
            first_batch: (!first_batch.is_zero()).then_some(first_batch),
            wait: Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)),
            first_wait: Duration::from_nanos(self.first_wait_ns.load(Ordering::Relaxed)),
            elapsed: self.opened.elapsed(),
            tuned: self.tuning.as_ref().map(|tuning| lock(tuning).tuned()),
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

    fn executor(&self) -> Result<Arc<Executor<RecordJob>>, Error> {
        lock(&self.executor)
            .as_ref()
            .map(Arc::clone)
            .ok_or(Error::Closed)
    }

    fn progress(&self) -> MutexGuard<'_, ConsumerProgress> {
        lock(&self.progress)
    }
}

/// Explains a wait in one line: the stage that limits and its numbers.
fn stall_text(waited: Duration, now: ExecutorSnapshot) -> String {
    let ExecutorSnapshot {
        workers,
        idle_workers,
        reading,
        fetched_records,
        away,
    } = now;
    let busy = workers.saturating_sub(idle_workers);
    let whom = if busy > 0 {
        format!(
            "{busy} of {workers} workers are decoding or transforming: the cores are the limit, or \
             one record is slow"
        )
    } else if reading > 0 {
        format!(
            "all {workers} workers wait for bytes, {reading} reads are in flight: the storage is \
             the limit"
        )
    } else if away > 0 {
        format!(
            "all {workers} workers wait, {away} steps are leased to feeders: the feeders are the \
             limit"
        )
    } else {
        format!("all {workers} workers wait, {fetched_records} fetched records are ready")
    };
    format!(
        "the consumer has waited {:.1} s for a batch; {whom}",
        waited.as_secs_f64()
    )
}

/// Number of batches that the consumer holds.
fn held(executor: &Executor<RecordJob>) -> usize {
    executor
        .job()
        .assembler()
        .live()
        .saturating_sub(executor.ready())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock, and the lock guards only counters.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use infeed_codec::transform::RandomResizedCrop;
    use infeed_core::sample::{Depth, Image, Size};
    use infeed_sample::{Subsampling, jpeg};

    #[test]
    fn bits_and_budget_hold_while_the_number_of_workers_changes() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("cat")).expect("a new folder");
        for n in 0..24_u64 {
            let mut image = Image::default();
            let (height, width) = (40 + n as u32, 48);
            image.reset(Size { height, width }, 3, Depth::U8);
            for (at, byte) in image.data.iter_mut().enumerate() {
                *byte = infeed_core::random::mix(n ^ (at as u64) << 8) as u8;
            }
            let bytes = jpeg(&image, 90, Subsampling::Quarter).expect("encodes");
            std::fs::write(root.path().join(format!("cat/{n}.jpg")), bytes).expect("writes");
        }
        let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
            .shuffle(3)
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(4);
        let run = |workers: Option<usize>, change: &dyn Fn(&Loader, u64)| -> Vec<Vec<u8>> {
            let mut options = Options::default();
            (options.workers, options.memory) = (workers, Some(80 << 20));
            let loader = pipeline.open(&options).expect("opens");
            let mut found = Vec::new();
            while found.len() < 120 {
                change(&loader, found.len() as u64);
                if let Some(batch) = loader.next_batch().expect("no bad record") {
                    found.push(batch.array("image").expect("numbers").bytes().to_vec());
                }
            }
            let stats = loader.stats().expect("open");
            assert!(stats.fetched_peak_bytes <= loader.shares.fetched_bytes);
            found
        };

        let fixed = run(Some(1), &|_, _| {});
        let changing = run(None, &|loader, step| {
            let executor = loader.executor().expect("open");
            let most = executor.config().workers as u64;
            executor.set_workers(1 + (infeed_core::random::mix(step) % most) as usize);
        });

        assert!(fixed == changing);
    }

    /// A folder of eight JPEGs. The codec panics on JPEG 5.
    fn with_a_panicking_record() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("cat")).expect("a new folder");
        for n in 0..8 {
            let mut image = Image::default();
            let size = Size {
                height: 24,
                width: 24,
            };
            image.reset(size, 3, Depth::U8);
            let mut bytes = jpeg(&image, 90, Subsampling::Quarter).expect("encodes");
            if n == 5 {
                bytes.extend_from_slice(infeed_codec::decode::PANIC);
            }
            std::fs::write(root.path().join(format!("cat/{n}.jpg")), bytes).expect("writes");
        }
        root
    }

    #[test]
    fn a_panic_of_a_codec_is_a_bad_record_that_names_its_file() {
        let root = with_a_panicking_record();
        let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(4);
        let mut options = Options {
            workers: Some(2),
            ..Options::default()
        };

        let stopped = pipeline.open(&options).expect("opens");
        let error = (0..3)
            .find_map(|_| stopped.next_batch().err())
            .expect("record 5 is bad");
        assert!(matches!(error, Error::Decode { .. }), "{error}");
        assert!(error.to_string().contains("5.jpg"), "{error}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = cause.unwrap_or_default();
        assert!(
            text.starts_with("the JPEG decoder failed internally (injected)"),
            "{text}"
        );

        options.on_error = OnError::Skip;
        let loader = pipeline.open(&options).expect("opens");
        let mut records = Vec::new();
        while let Some(batch) = loader.next_batch().expect("the record is skipped") {
            records.extend(batch.records.clone());
        }
        assert_eq!(records, [0, 1, 2, 3, 4, 6, 7]);
    }

    #[test]
    fn a_stall_names_the_limiting_stage() {
        let text = |idle_workers, reading| {
            let now = ExecutorSnapshot {
                workers: 4,
                idle_workers,
                reading,
                fetched_records: 0,
                away: 0,
            };
            stall_text(Duration::from_secs(12), now)
        };

        assert!(text(4, 3).ends_with("3 reads are in flight: the storage is the limit"));
        assert!(text(1, 3).contains("3 of 4 workers are decoding"));
        assert!(text(4, 0).starts_with("the consumer has waited 12.0 s for a batch"));
    }
}
