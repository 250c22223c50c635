//! Variants of a case's pipeline that trials open and run for a slice of time: over the records of a
//! trial or over all records, with other options, on the host or for a device.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::machine::{on_cores, usable_cores};

use crate::case::{Case, Feeders};
use infeed::loader::device::Placement;
use infeed::loader::{DecodeBy, Loader, OnError, Options, Stats};
use infeed::pipeline::Pipeline;
use infeed::plan::SamplePlan;
use infeed_core::counters::Stage;
use infeed_core::error::Error;
use infeed_source::Source;
use infeed_source::repeated_records::RepeatedRecords;

/// Batches left out at the start of each slice: one for each batch that may be in flight, and two
/// for the consumer. A new loader touches memory for the first time with them. A loader that stayed
/// open made them before its turn.
const WARM_UP_BATCHES: usize = 7;

/// The start ends at the latest after this fraction of a slice: 1/3.
const WARM_UP_SHARE: u32 = 3;

/// Maximum duration of a slice whose batches have no rows, in slice lengths.
const EMPTY: u32 = 20;

/// Length of a trial's source, which repeats the chosen records. Long enough never to end.
const ENDLESS: u64 = 1 << 40;

/// Rows of a trial's batch are the samples of this time, in seconds, so that a slice has enough
/// batches.
const BATCH_S: f64 = 0.03;

/// A pipeline with its source and options.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) pipeline: Pipeline,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) options: Options,
    pub(crate) step: Option<Duration>,
    /// Placement for which rows are made. None: the host finishes the rows.
    pub(crate) row_placement: Option<Placement>,
    /// Maximum number of cores that all threads of the trial use. None: all usable cores.
    pub(crate) cores: Option<usize>,
    /// Whether the source has all records, of which the pipeline selects some. Feeders need that.
    pub(crate) selects: bool,
}

/// Results of one slice.
pub(crate) struct Slice {
    /// Samples per second after the start.
    pub(crate) rate: f64,
    /// Counters of the loader from the first batch on.
    pub(crate) stats: Stats,
}

impl Variant {
    pub(crate) fn open(&self) -> Result<Loader, Error> {
        // The trial already selects and repeats records, and weights do not change the cost of a
        // record.
        let pipeline = match self.selects {
            true => self.pipeline.clone(),
            false => self.pipeline.plain(),
        };
        let options = with_fixed_workers(&self.options);
        let source = Arc::clone(&self.source);
        match self.row_placement {
            Some(placement) => pipeline.open_for_device(source, placement, &options),
            None => pipeline.open_over(source, &options),
        }
    }

    /// Runs one slice of a new loader and returns its rate and counters.
    pub(crate) fn run_slice(&self, length: Duration) -> Result<Slice, Error> {
        self.on_its_cores(|| {
            let loader = self.open()?;
            let rate = self.rate(&loader, length)?;
            let stats = loader.stats()?;
            Ok(Slice { rate, stats })
        })
    }

    /// Runs `work`, and the threads that it starts, on this variant's number of cores.
    pub(super) fn on_its_cores<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.cores {
            Some(cores) => on_cores(cores, work),
            None => work(),
        }
    }

    /// Consumes batches of a loader for one slice. Returns samples per second after the start.
    pub(super) fn rate(&self, loader: &Loader, length: Duration) -> Result<f64, Error> {
        let begun = Instant::now();
        let mut batches = 0;
        let mut rows = 0;
        let mut timed: Option<(Instant, u64)> = None;
        let mut end = begun;
        loop {
            let Some(batch) = loader.next_batch()? else {
                continue;
            };
            batches += 1;
            if timed.is_some() {
                rows += batch.samples() as u64;
                end = Instant::now();
            } else if batches >= WARM_UP_BATCHES || begun.elapsed() > length / WARM_UP_SHARE {
                timed = Some((Instant::now(), self.finished_samples(loader)?.unwrap_or(0)));
            }
            drop(batch);
            // A batch that takes longer than the slice is measured. Batches without rows, whose
            // records were all left out, end the slice after a multiple of its length. The slice
            // ends with a batch, so its mean duration of a batch has no bias (Wald's identity).
            let enough = if rows > 0 { length } else { length * EMPTY };
            if timed.is_some_and(|(timed, _)| timed.elapsed() >= enough) {
                break;
            }
            if let Some(step) = self.step {
                thread::sleep(step);
            }
        }
        let Some((start, before)) = timed else {
            return Ok(0.0);
        };
        let samples = match self.finished_samples(loader)? {
            Some(after) if after > before => {
                end = Instant::now();
                after - before
            }
            _ => rows,
        };
        Ok(samples as f64 / (end - start).as_secs_f64().max(1e-9))
    }

    /// Returns the number of samples that the workers finished. None where delivered batches must be
    /// counted: a step limits the rate, or other machines make samples.
    ///
    /// Workers fill several batches at once and complete them at almost the same time. A slice of a slow
    /// variant has about five batches, so a count of its batches is wrong by up to a fifth.
    fn finished_samples(&self, loader: &Loader) -> Result<Option<u64>, Error> {
        if self.step.is_some() || self.options.remote.is_some() {
            return Ok(None);
        }
        let stats = loader.stats()?;
        let write = stats
            .stages
            .iter()
            .find(|(stage, _)| *stage == Stage::Write);
        Ok(write.map(|(_, write)| write.samples))
    }
}

/// Returns options with a fixed number of workers, because tuning during a trial would disturb it.
pub(crate) fn with_fixed_workers(options: &Options) -> Options {
    let mut fixed = options.clone();
    fixed.workers.get_or_insert_with(usable_cores);
    fixed
}

/// The records that take part.
pub(crate) enum RecordSubset<'a> {
    /// These records, repeated without end, in batches that suit a trial.
    Trial {
        records: &'a [u64],
        samples_per_s: f64,
    },
    /// All records in the pipeline's own order and batches, from the planned storage.
    All,
}

impl Case {
    /// Returns the pipeline as it is.
    pub(crate) fn variant(&self, subset: &RecordSubset<'_>) -> Result<Variant, Error> {
        let source = Arc::clone(&self.own);
        self.variant_over(self.pipeline.clone(), source, None, subset)
    }

    /// Returns a pipeline over a source with the records of this case, or with copies of them.
    pub(crate) fn variant_over(
        &self,
        mut pipeline: Pipeline,
        source: Arc<dyn Source>,
        chosen: Option<&[u64]>,
        subset: &RecordSubset<'_>,
    ) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.decode = self.decode_of(&pipeline, &*source);
        let (source, step): (Arc<dyn Source>, _) = match subset {
            RecordSubset::Trial {
                records,
                samples_per_s,
            } => {
                let rows = (samples_per_s * BATCH_S) as u64;
                pipeline.batch.size = Some(rows.clamp(1, self.rows()));
                pipeline.batch.per_rank = None;
                // A trial is one process, and it does not measure bad records.
                (options.rank, options.world_size) = (0, 1);
                // Records come from memory, and only one remedy has a cache.
                options.cache = None;
                if options.on_error == OnError::Skip {
                    options.on_error = OnError::Substitute;
                }
                let records = chosen.unwrap_or(records).to_vec();
                let chosen = match source.parallel_reads() {
                    Some(_) => RepeatedRecords::in_memory(source, records, ENDLESS)?,
                    None => RepeatedRecords::new(source, records, ENDLESS),
                };
                (Arc::new(chosen), None)
            }
            RecordSubset::All => (self.behind(source), self.conditions.step),
        };
        Ok(Variant {
            pipeline,
            source,
            row_placement: self.row_placement(options.decode),
            options,
            step,
            cores: None,
            selects: false,
        })
    }

    /// Returns the decoder for the files of a pipeline that may differ from this case's. It is the
    /// decoder of this case if the device still has files to decode.
    fn decode_of(&self, pipeline: &Pipeline, source: &dyn Source) -> DecodeBy {
        let wanted = self.conditions.open.decode;
        let layouts = SamplePlan::over(pipeline, source)
            .and_then(|mut plan| plan.for_device_by(wanted, Placement::Resize, false));
        match layouts {
            Ok(_) => wanted,
            // Opening the pipeline reports any other problem.
            Err(_) => DecodeBy::Auto,
        }
    }

    /// Returns the pipeline over all records in its own order, with or without feeders. The
    /// pipeline selects the records itself, because feeders select them the same way.
    pub(crate) fn whole(&self, feeders: Option<&Feeders>) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.remote = feeders.map(|feeders| Arc::new(feeders.clone()) as _);
        Ok(Variant {
            pipeline: self.pipeline.clone(),
            source: self.behind(self.pipeline.source.open(&self.handles)?),
            options,
            step: self.conditions.step,
            row_placement: self.row_placement(self.conditions.open.decode),
            cores: None,
            selects: true,
        })
    }
}
