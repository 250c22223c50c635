//! A running plan: the iterator, epochs, what was counted, close.

pub mod ahead;
mod budget;
mod certificate;
pub(crate) mod contents;
mod decoders;
pub mod digest;
pub mod digest_file;
mod facts;
mod failed;
pub mod feeders;
mod finish;
mod hosts;
pub mod into;
mod made;
pub(crate) mod named;
pub(crate) mod names;
mod open;
mod options;
mod parcel;
mod placing;
mod prepare;
mod quarantine;
mod records;
mod register;
mod settle;
mod several;
mod state;
mod stats;
mod tuning;
pub mod verify;
mod whole;
mod window;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::counters::{Recorded, Timeline};
use crate::error::Error;
use crate::exec::{Conveyor, Next, Situation};
use crate::pipeline::Pipeline;
use crate::source::Source;

pub use crate::plan::device::DecodeBy;

use budget::Shares;
use certificate::Certificate;
pub(crate) use failed::sample_error;
use feeders::Fed;
use made::Told;
pub use options::{OnError, Options};
pub use parcel::BadRecord;
use quarantine::Quarantine;
use records::Records;
pub use state::State;
pub use stats::Stats;
pub use tuning::Tuned;
use tuning::Tuning;
use window::Flight;

/// A patience that no consumer outlives.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Name of the consumer in a timeline, whatever its thread is called.
const CONSUMER: &str = "consumer";

/// What a call that does not wait for ever got.
#[derive(Debug)]
pub enum Step {
    /// The next batch.
    Batch(Batch),
    /// The epoch is over; the next call begins the next one.
    End,
    /// Nothing yet.
    Timeout,
}

/// A running pipeline. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct Loader {
    /// Dropped before the conveyor, whose trays it has.
    fed: Mutex<Option<Fed>>,
    conveyor: Mutex<Option<Arc<Conveyor<Records>>>>,
    progress: Mutex<Progress>,
    first_batch_ns: AtomicU64,
    /// What the consumer waited until then, which is less if it asked later than it opened.
    first_wait_ns: AtomicU64,
    /// What the consumer waited.
    waited_ns: AtomicU64,
    /// How often it was moved to another place.
    seeks: AtomicU64,
    opened: Instant,
    closed: AtomicBool,
    options: Options,
    shares: Shares,
    /// None where the number of workers was given.
    tuning: Option<Mutex<Tuning>>,
    /// True while something else is tried on the run's steps.
    tuning_waits: AtomicBool,
    flight: Flight,
    readers: usize,
    /// The state before the first step.
    begin: State,
    /// The description, with what its functions return.
    pipeline: Pipeline,
    /// Which records come how often, as lines of the plan.
    selection: String,
    /// Batches beyond those under way that somebody may hold without a word about it.
    held: usize,
}

#[derive(Debug, Default)]
struct Progress {
    epoch: u64,
    /// Steps of the epoch delivered.
    step: u64,
    batches: u64,
    samples: u64,
    unknown_pixels: u64,
    bad: Quarantine,
    /// What the user should be told once.
    notices: Vec<String>,
    told_held: bool,
    /// When the consumer last got a batch, while a timeline is kept.
    delivered: Option<Instant>,
    /// When it first asked for the batch that it does not have yet.
    asked: Option<Instant>,
    certificate: Certificate,
    /// What stopped the run, until it is put elsewhere.
    stopped: Option<Error>,
}

impl Progress {
    fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.clone());
        error
    }
}

impl Loader {
    /// Returns the next batch of the epoch, or None once at its end; the call after that begins the
    /// next epoch. Blocks until the batch is ready. A batch of which [`OnError::Skip`] left out every
    /// record counts as a step and is not returned, so no batch is empty.
    ///
    /// # Errors
    ///
    /// What stopped the run, at its place in the order; the same again until
    /// [`Loader::end_epoch`] or [`Loader::seek`].
    pub fn next_batch(&self) -> Result<Option<Batch>, Error> {
        match self.next_within(FOREVER)? {
            Step::Batch(batch) => Ok(Some(batch)),
            Step::End | Step::Timeout => Ok(None),
        }
    }

    /// As [`Loader::next_batch`], waiting at most `patience`.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_batch`].
    pub fn next_within(&self, patience: Duration) -> Result<Step, Error> {
        let conveyor = self.conveyor()?;
        while !self.ends_epoch(&conveyor)? {
            let asked = self.asked();
            let next = |patience| conveyor.next(patience);
            let Some(made) = self.arrived(self.next_told(&conveyor, asked, patience, next))? else {
                return Ok(Step::Timeout);
            };
            let (batch, told) = made.split();
            self.deliver(&conveyor, asked, told)?;
            if batch.rows() > 0 {
                return Ok(Step::Batch(batch));
            }
        }
        Ok(Step::End)
    }

    /// Whether the epoch is over; the next one begins then. An error if the run was stopped.
    fn ends_epoch(&self, conveyor: &Conveyor<Records>) -> Result<bool, Error> {
        let mut progress = self.progress();
        if let Some(error) = &progress.stopped {
            return Err(error.clone());
        }
        let is_over = progress.step == conveyor.job().partition().steps();
        if is_over {
            progress.step = 0;
            progress.epoch += 1;
        }
        Ok(is_over)
    }

    /// What came, if it came in time.
    fn arrived<T>(&self, next: Next<T, Error>) -> Result<Option<T>, Error> {
        match next {
            Next::Batch(made) => Ok(Some(made)),
            Next::Timeout => Ok(None),
            Next::Fault(error) => Err(self.progress().stop(error)),
            Next::Broken(text) => Err(Error::Panicked { text }),
            Next::Forked => Err(Error::Forked),
        }
    }

    /// When the consumer first asked for the batch that it does not have yet.
    fn asked(&self) -> Instant {
        *self.progress().asked.get_or_insert_with(Instant::now)
    }

    /// Counts a batch as the consumer's from now on.
    fn deliver(
        &self,
        conveyor: &Conveyor<Records>,
        asked: Instant,
        told: Told,
    ) -> Result<(), Error> {
        if self.first_batch_ns.load(Ordering::Relaxed) == 0 {
            let took = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.first_batch_ns.store(took.max(1), Ordering::Relaxed);
            let waited = self.waited_ns.load(Ordering::Relaxed);
            self.first_wait_ns.store(waited, Ordering::Relaxed);
        }
        let mut progress = self.progress();
        progress.asked = None;
        if let Some(timeline) = conveyor.job().timeline() {
            let now = Instant::now();
            let steps = conveyor.job().partition().steps();
            let batch = progress.epoch * steps + progress.step;
            if let Some(delivered) = progress.delivered.replace(now) {
                let previous = batch.checked_sub(1);
                timeline.record_as(CONSUMER, "step", delivered, asked, previous);
            }
            timeline.record_as(CONSUMER, "wait", asked, now, Some(batch));
        }
        for bad in &told.bad {
            if progress.bad.take(bad) {
                tracing::warn!("{}", bad.reason.chain());
            }
            let count = progress.bad.count();
            if let Some(limit) = self.options.max_bad.filter(|&limit| count > limit) {
                // Its batch is not delivered, so neither the state nor the digest counts it.
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
        progress.samples += told.samples as u64;
        let unknown = progress.unknown_pixels.saturating_add(told.unknown_pixels);
        progress.unknown_pixels = unknown;
        let untold = progress.certificate.take(&told);
        progress.notices.extend(untold);
        let held = held(conveyor);
        if held > self.shares.trays + self.held && !progress.told_held {
            progress.told_held = true;
            // Text and encoded images lie in no slab.
            let each = match conveyor.job().batcher().slab_bytes() >> 20 {
                0 => String::new(),
                mebibytes => format!(" ({mebibytes} MiB each)"),
            };
            let text = format!(
                "{held} batches are held; their memory{each} is outside the loader's budget and \
                 cannot be used again until they are dropped"
            );
            tracing::warn!("{text}");
            progress.notices.push(text);
        }
        drop(progress);
        if let Some(tuning) = &self.tuning
            && !self.tuning_waits.load(Ordering::Relaxed)
            && let Some(text) =
                lock(tuning).delivered(conveyor, self.flight, asked, told.rows as u64)
        {
            tracing::info!("{text}");
        }
        Ok(())
    }

    /// What `next` gives within `patience`; says once who waits for whom when that takes long.
    fn next_told<T>(
        &self,
        conveyor: &Conveyor<Records>,
        asked: Instant,
        patience: Duration,
        next: impl Fn(Duration) -> Next<T, Error>,
    ) -> Next<T, Error> {
        let begun = Instant::now();
        let left = self
            .options
            .stall
            .and_then(|stall| stall.checked_sub(asked.elapsed()))
            .filter(|left| *left < patience);
        let mut arrived = next(left.unwrap_or(patience));
        if let (Some(left), Next::Timeout) = (left, &arrived) {
            tracing::warn!("{}", stall_text(asked.elapsed(), conveyor.situation()));
            arrived = next(patience - left);
        }
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        arrived
    }

    /// Leaves out the rest of the epoch that runs, if one does.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] or [`Error::Forked`].
    pub fn end_epoch(&self) -> Result<(), Error> {
        let steps = self.steps()?;
        let (epoch, step, is_stopped) = {
            let mut progress = self.progress();
            if progress.step == steps {
                // All of it was delivered: what is ready belongs to the next epoch already.
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

    /// Goes on at a step of an epoch, in O(1): nothing before it is read. Bad records that were met
    /// stay in the quarantine, and are not counted again.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a step the epoch does not have, [`Error::Closed`], [`Error::Forked`].
    pub fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        let conveyor = self.conveyor()?;
        let steps = conveyor.job().partition().steps();
        let tray = epoch
            .checked_mul(steps)
            .and_then(|first| first.checked_add(step));
        // Tickets are counted on over all epochs, and a little beyond the one that is wanted.
        let countable = epoch < u64::MAX / 2 / conveyor.job().partition().rows_an_epoch().max(1);
        let Some(tray) = tray.filter(|_| step < steps && countable) else {
            let problem = format!("epoch {epoch} has no step {step}; it has {steps}");
            return Err(Error::config("seek", problem));
        };
        if conveyor.is_forked() {
            return Err(Error::Forked);
        }
        let mut progress = self.progress();
        conveyor.reset(tray);
        self.seeks.fetch_add(1, Ordering::Relaxed);
        progress.asked = None;
        progress.stopped = None;
        if let Some(tuning) = &self.tuning {
            lock(tuning).disturbed(self.flight);
        }
        (progress.epoch, progress.step) = (epoch, step);
        progress.certificate.go_to(epoch, step);
        Ok(())
    }

    /// Whether the number of workers is settled, or was given.
    fn is_tuned(&self) -> bool {
        let tuning = self.tuning.as_ref();
        tuning.is_none_or(|tuning| lock(tuning).is_settled())
    }

    /// Leaves the number of workers as it is for now, or no more: two that try something on the same
    /// steps would each take the other's changes for its own.
    fn let_tuning_wait(&self, waits: bool) {
        self.tuning_waits.store(waits, Ordering::Relaxed);
        if let Some(tuning) = self.tuning.as_ref().filter(|_| !waits) {
            lock(tuning).disturbed(self.flight);
        }
    }

    /// Epoch and number of its steps that were delivered.
    pub fn place(&self) -> (u64, u64) {
        let progress = self.progress();
        (progress.epoch, progress.step)
    }

    /// How often it was moved to another place.
    fn seeks(&self) -> u64 {
        self.seeks.load(Ordering::Relaxed)
    }

    /// Rows of a full batch.
    fn most_rows(&self) -> Result<usize, Error> {
        let rows = self.conveyor()?.job().partition().rows();
        usize::try_from(rows).map_err(|_| Error::config("batch", "it has more rows than memory"))
    }

    /// Steps of an epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn steps(&self) -> Result<u64, Error> {
        Ok(self.conveyor()?.job().partition().steps())
    }

    /// The description that it runs, with its functions looked up and what they return.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The source that it reads.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn source(&self) -> Result<Arc<dyn Source>, Error> {
        Ok(Arc::clone(self.conveyor()?.job().source()))
    }

    /// Which records come how often, as lines of the plan; nothing where each comes once.
    pub(crate) fn selection(&self) -> &str {
        &self.selection
    }

    /// The plan, as text.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn plan(&self) -> Result<String, Error> {
        let conveyor = self.conveyor()?;
        Ok(format!("{}{}", self.selection, conveyor.job().plan()))
    }

    /// Bad records that were skipped or substituted in what was delivered, each once, in the order in
    /// which they were met first.
    pub fn quarantine(&self) -> Vec<BadRecord> {
        self.progress().bad.listed().to_vec()
    }

    /// Epoch, position and number of the bad records met before a place, by the run before too.
    fn bad_before(&self, epoch: u64, position: u64) -> Vec<(u64, u64, u64)> {
        self.progress().bad.before(epoch, position)
    }

    /// Counts the bad records of a state instead of those met so far.
    fn take_bad_from(&self, saved: &State) {
        self.progress().bad = Quarantine::from_state(&saved.bad);
    }

    /// What the user should be told, each once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.progress().notices)
    }

    /// What was counted since the loader was opened; free to ask while it runs.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let conveyor = self.conveyor()?;
        let progress = self.progress();
        let first_batch = Duration::from_nanos(self.first_batch_ns.load(Ordering::Relaxed));
        let of_fed = |fed: &Fed| (fed.stats(), fed.receiving());
        let fed = lock(&self.fed).as_ref().map(of_fed);
        let (feeders, receiving) = fed.unwrap_or_default();
        Ok(Stats {
            batches: progress.batches,
            samples: progress.samples,
            unknown_pixels: progress.unknown_pixels,
            bad: progress.bad.listed().len() as u64,
            first_batch: (!first_batch.is_zero()).then_some(first_batch),
            wait: Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)),
            first_wait: Duration::from_nanos(self.first_wait_ns.load(Ordering::Relaxed)),
            elapsed: self.opened.elapsed(),
            tuned: self.tuning.as_ref().map(|tuning| lock(tuning).tuned()),
            readers: self.readers,
            feeders,
            receiving,
            ..stats::gather(&conveyor, &self.shares)
        })
    }

    /// Who did what when, for as long as [`Options::timeline`] said, by start.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn timeline(&self) -> Result<Vec<Recorded>, Error> {
        let conveyor = self.conveyor()?;
        Ok(conveyor
            .job()
            .timeline()
            .map(Timeline::spans)
            .unwrap_or_default())
    }

    /// Batches that are ready and not taken.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn ready(&self) -> Result<usize, Error> {
        Ok(self.conveyor()?.ready())
    }

    /// Ends all threads and waits for them. Batches that are held stay valid.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(lock(&self.fed).take());
        let conveyor = lock(&self.conveyor).take();
        // A call that waits in `next_within` holds the other share and drops it soon.
        drop(conveyor);
        self.shares.give_back();
        if let Some(tuning) = &self.tuning {
            lock(tuning).leave();
        }
    }

    /// Whether [`Loader::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn conveyor(&self) -> Result<Arc<Conveyor<Records>>, Error> {
        lock(&self.conveyor)
            .as_ref()
            .map(Arc::clone)
            .ok_or(Error::Closed)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

/// Who waits for whom, in one line.
fn stall_text(waited: Duration, now: Situation) -> String {
    let Situation {
        workers,
        idle_workers,
        reading,
        parcels,
        away,
    } = now;
    let busy = workers.saturating_sub(idle_workers);
    let whom = if busy > 0 {
        format!(
            "{busy} of {workers} workers are decoding or transforming: the cores limit, or one record takes long"
        )
    } else if reading > 0 {
        format!(
            "all {workers} workers wait for bytes, {reading} reads are under way: the storage limits"
        )
    } else if away > 0 {
        format!("all {workers} workers wait, {away} steps are with feeders: they limit")
    } else {
        format!("all {workers} workers wait, {parcels} records lie ready")
    };
    format!(
        "the consumer has waited {:.1} s for a batch; {whom}",
        waited.as_secs_f64()
    )
}

/// Batches that the consumer holds.
fn held(conveyor: &Conveyor<Records>) -> usize {
    conveyor.job().live().saturating_sub(conveyor.ready())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held; were it so, what it guards is counters.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use crate::sample::{Depth, Image, Size};
    use crate::testing::synthetic::{Subsampling, jpeg};
    use crate::transform::RandomResizedCrop;

    #[test]
    fn bits_and_the_budget_hold_while_workers_become_more_and_fewer() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("cat")).expect("a new folder");
        for n in 0..24_u64 {
            let mut image = Image::default();
            let (height, width) = (40 + n as u32, 48);
            image.reset(Size { height, width }, 3, Depth::U8);
            for (at, byte) in image.data.iter_mut().enumerate() {
                *byte = crate::random::mix(n ^ (at as u64) << 8) as u8;
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
            assert!(stats.parcel_peak_bytes <= loader.shares.parcel_bytes);
            found
        };

        let fixed = run(Some(1), &|_, _| {});
        let changing = run(None, &|loader, step| {
            let conveyor = loader.conveyor().expect("open");
            let most = conveyor.config().workers as u64;
            conveyor.set_workers(1 + (crate::random::mix(step) % most) as usize);
        });

        assert!(fixed == changing);
    }

    /// A folder of eight JPEGs; the codec panics on that of number 5.
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
                bytes.extend_from_slice(crate::decode::PANIC);
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
    fn a_stall_is_told_by_who_waits_for_whom() {
        let told = |idle_workers, reading| {
            let now = Situation {
                workers: 4,
                idle_workers,
                reading,
                parcels: 0,
                away: 0,
            };
            stall_text(Duration::from_secs(12), now)
        };

        assert!(told(4, 3).ends_with("3 reads are under way: the storage limits"));
        assert!(told(1, 3).contains("3 of 4 workers are decoding"));
        assert!(told(4, 0).starts_with("the consumer has waited 12.0 s for a batch"));
    }
}
