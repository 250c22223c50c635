//! Delivery of batches to the consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::assemble::BatchFacts;
use super::records::RecordJob;
use super::running::{Loader, lock};
use super::stats::held_batches;
use infeed_core::batch::Batch;
use infeed_core::error::Error;
use infeed_core::exec::{Executor, ExecutorSnapshot, NextBatch};

/// Timeout longer than any consumer waits.
pub(super) const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Target of log messages: Python users see the logger `infeed.loader`.
const TARGET: &str = "infeed::loader";

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

impl Loader {
    /// Returns the next batch of the epoch, or `None` once at its end; the next call begins the
    /// next epoch. Blocks until the batch is ready. A batch from which [`OnError::Skip`](super::OnError::Skip) removed
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
            let requested_at = self.requested_at();
            let next = |timeout| executor.next(timeout);
            let Some(made) =
                self.batch_in_time(self.next_and_warn(&executor, requested_at, timeout, next))?
            else {
                return Ok(Step::Timeout);
            };
            let (batch, facts) = made.split();
            self.deliver(&executor, requested_at, facts)?;
            if batch.rows() > 0 {
                return Ok(Step::Batch(batch));
            }
        }
        Ok(Step::End)
    }

    /// Whether the epoch is over, in which case the next epoch begins. Fails if the run was
    /// stopped.
    pub(super) fn ends_epoch(&self, executor: &Executor<RecordJob>) -> Result<bool, Error> {
        let mut progress = self.progress();
        if let Some(error) = &progress.stopped {
            return Err(error.clone());
        }
        if self.options.epoch_records.is_some() && progress.chosen != Some(progress.epoch) {
            let problem = format!("the records of epoch {} are not chosen", progress.epoch);
            return Err(Error::config("begin_epoch", problem));
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
    pub(super) fn batch_in_time<T>(&self, next: NextBatch<T, Error>) -> Result<Option<T>, Error> {
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
    pub(super) fn requested_at(&self) -> Instant {
        *self
            .progress()
            .requested_at
            .get_or_insert_with(Instant::now)
    }

    /// Counts a batch as delivered to the consumer.
    pub(super) fn deliver(
        &self,
        executor: &Executor<RecordJob>,
        requested_at: Instant,
        facts: BatchFacts,
    ) -> Result<(), Error> {
        if self.first_batch_ns.load(Ordering::Relaxed) == 0 {
            let took = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.first_batch_ns.store(took.max(1), Ordering::Relaxed);
            let waited = self.waited_ns.load(Ordering::Relaxed);
            self.first_wait_ns.store(waited, Ordering::Relaxed);
        }
        let mut progress = self.progress();
        progress.requested_at = None;
        let batch = progress.epoch * executor.job().partition().steps() + progress.step;
        if let Some(timeline) = executor.job().timeline() {
            let now = Instant::now();
            if let Some(delivered) = progress.delivered.replace(now) {
                let previous = batch.checked_sub(1);
                timeline.record_as(CONSUMER, "step", delivered, requested_at, previous);
            }
            timeline.record_as(CONSUMER, "wait", requested_at, now, Some(batch));
        }
        executor.job().losses().log(batch);
        for bad in &facts.bad {
            if progress.bad.take(bad) {
                tracing::warn!(target: TARGET, "{}", bad.reason.chain());
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
        let held = held_batches(executor);
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
            tracing::warn!(target: TARGET, "{text}");
            progress.notices.push(text);
        }
        drop(progress);
        if let Some(tuning) = &self.tuning
            && !self.tuning_waits.load(Ordering::Relaxed)
            && let Some(text) =
                lock(tuning).record_delivery(executor, self.flight, requested_at, facts.rows as u64)
        {
            tracing::info!(target: TARGET, "{text}");
        }
        Ok(())
    }

    /// Calls `next` with `timeout`. Logs a warning once if the wait exceeds the `stall` option.
    pub(super) fn next_and_warn<T>(
        &self,
        executor: &Executor<RecordJob>,
        requested_at: Instant,
        timeout: Duration,
        next: impl Fn(Duration) -> NextBatch<T, Error>,
    ) -> NextBatch<T, Error> {
        let begun = Instant::now();
        let left = self
            .options
            .stall
            .and_then(|stall| stall.checked_sub(requested_at.elapsed()))
            .filter(|left| *left < timeout);
        let mut arrived = next(left.unwrap_or(timeout));
        if let (Some(left), NextBatch::Timeout) = (left, &arrived) {
            let text = stall_text(requested_at.elapsed(), executor.situation());
            tracing::warn!(target: TARGET, "{text}");
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

    /// Begins an epoch at a step with chosen records, one for each position of the whole epoch. Draws
    /// of transforms belong to the epoch and the position.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another number of records, a record that the source does not have, or
    /// a loader without [`Options::epoch_records`](super::Options::epoch_records); or as
    /// [`Loader::seek`].
    pub fn begin_epoch(&self, epoch: u64, step: u64, records: Arc<[u64]>) -> Result<(), Error> {
        let executor = self.executor()?;
        let chosen = executor.job().order().choose(epoch, records);
        chosen.map_err(|error| Error::config("begin_epoch", error.to_string()))?;
        // The records of the previous epoch are gone.
        self.progress().chosen = None;
        self.seek(epoch, step)?;
        self.progress().chosen = Some(epoch);
        executor.ask(executor.job().partition().steps() - step);
        Ok(())
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
        if progress.chosen == Some(epoch) {
            executor.ask(steps - step);
        }
        self.seeks.fetch_add(1, Ordering::Relaxed);
        progress.requested_at = None;
        progress.stopped = None;
        if let Some(tuning) = &self.tuning {
            lock(tuning).discard_window(self.flight);
        }
        (progress.epoch, progress.step) = (epoch, step);
        progress.digests.go_to(epoch, step);
        Ok(())
    }
}

/// Explains a wait in one line: the stage that limits and its numbers.
fn stall_text(waited: Duration, now: ExecutorSnapshot) -> String {
    let ExecutorSnapshot {
        workers,
        idle_workers,
        reading,
        fetched_records,
        leased,
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
    } else if leased > 0 {
        format!(
            "all {workers} workers wait, {leased} steps are leased to feeders: the feeders are the \
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

#[cfg(test)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::{OnError, Options};
    use crate::pipeline::{Pipeline, SourceSpec};
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
                leased: 0,
            };
            stall_text(Duration::from_secs(12), now)
        };

        assert!(text(4, 3).ends_with("3 reads are in flight: the storage is the limit"));
        assert!(text(1, 3).contains("3 of 4 workers are decoding"));
        assert!(text(4, 0).starts_with("the consumer has waited 12.0 s for a batch"));
    }
}
