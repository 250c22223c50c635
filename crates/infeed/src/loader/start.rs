//! Starts a planned run: creates the executor's job and its limits, then the threads and the loader.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::assemble::BatchAssembler;
use super::batch_functions::Finisher;
use super::budget::{IN_FLIGHT_BATCHES, Shares};
use super::cache::DecodedCache;
use super::losses::LossLog;
use super::options::Options;
use super::records::RecordJob;
use super::remote::{RemoteBatches, RunDescription};
use super::resources::Resources;
use super::rules::{BatchRules, RecordLimits};
use super::run_digest::RunDigest;
use super::running::{ConsumerProgress, Loader};
use super::state::{self, LoaderState};
use super::tuning::Tuning;
use super::window::BatchesInFlight;
use crate::pipeline::Pipeline;
use crate::plan::SamplePlan;
use crate::plan::device::{BatchLayouts, DecodeBy, Placement};
use infeed_core::batch::{Batcher, PrepareSlab};
use infeed_core::counters::Timeline;
use infeed_core::error::Error;
use infeed_core::exec::{BatchChoice, Config, Executor};
use infeed_core::order::Order;
use infeed_core::order::partition::Partition;
use infeed_source::Source;

/// Target device of batches.
pub(crate) struct TargetDevice {
    /// Whether host or device expands rows.
    pub(crate) placement: Placement,
    /// Prepares slabs for the transfer.
    pub(crate) ready: PrepareSlab,
    /// Maximum number of batches in transfer to the device.
    pub(crate) slots: usize,
    /// Name of the device's JPEG decoder, if it decodes.
    pub(crate) decoder: Option<String>,
}

/// Results of planning a run.
pub(crate) struct PlannedRun {
    /// The description, with the resolved outputs of its functions.
    pub(crate) pipeline: Pipeline,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) plan: SamplePlan,
    pub(crate) layouts: BatchLayouts,
    pub(crate) order: Order,
    /// Rows of the global batch.
    pub(crate) partition: Partition,
    pub(crate) resources: Resources,
    pub(crate) target: Option<TargetDevice>,
}

/// Everything that is fixed before a thread runs.
pub(crate) struct PreparedRun {
    pub(super) job: RecordJob,
    pub(super) config: Config,
    /// The state before the first step.
    pub(super) begin: LoaderState,
    pub(super) for_device: bool,
    pub(super) shares: Shares,
    layouts: BatchLayouts,
    flight: BatchesInFlight,
    tuning: Option<Tuning>,
    /// Number of in-flight batches for local threads, if remote workers take the others.
    own: usize,
    held: usize,
    pub(super) pipeline: Pipeline,
    selection: String,
}

/// Number of sequence numbers, each of `run` rows, that reads may be ahead of the front batch: those
/// of the in-flight batches, and two batches or 256 rows more.
fn sequences_ahead(in_flight_batches: usize, batch: u64, run: u64) -> u64 {
    let batch = batch.div_ceil(run);
    in_flight_batches as u64 * batch + (2 * batch).max(256_u64.div_ceil(run))
}

impl PreparedRun {
    /// Creates the job of a planned run, and starts the processes of its functions.
    ///
    /// # Errors
    ///
    /// The error of a function that cannot be started.
    pub(crate) fn new(planned: PlannedRun, options: &Options) -> Result<PreparedRun, Error> {
        let PlannedRun {
            pipeline,
            source,
            plan,
            layouts,
            order,
            partition,
            resources,
            target,
        } = planned;
        let Resources {
            rows,
            shares,
            workers,
            readers,
            tuning,
        } = resources;
        // The consumer has one batch, and for a moment also the next one.
        let slots = target.as_ref().map_or(0, |target| target.slots);
        let held = 2 + slots;
        let (ready, decoder) = match target {
            Some(target) => (Some(target.ready), target.decoder),
            None => (None, None),
        };
        let keep = shares.in_flight_batches + held;
        let batcher = Batcher::with_layouts(plan.layouts(), rows, keep, ready.as_ref());
        // Remote workers' in-flight batches are in addition to those of local threads.
        let remote = options.remote.as_ref();
        let remote_workers = remote.map_or(0, |remote| remote.workers());
        let own = shares
            .in_flight_batches
            .saturating_sub(remote_workers)
            .clamp(1, IN_FLIGHT_BATCHES as usize);
        let config = Config {
            workers,
            working: tuning.as_ref().map_or(workers, Tuning::workers),
            readers,
            in_flight_batches: shares.in_flight_batches,
            ahead: sequences_ahead(shares.in_flight_batches, partition.rows(), 1),
            fetched_bytes: shares.fetched_bytes,
            spare_bytes: shares.spare_bytes,
            taking: match (remote, options.epoch_records) {
                (None, None) => BatchChoice::All,
                // The records of the next epoch are unknown before it begins.
                (None, Some(_)) => BatchChoice::Requested,
                (Some(_), _) => BatchChoice::Shared { own: 0 },
            },
        };
        let flight = BatchesInFlight::new(
            config.in_flight_batches,
            slots.saturating_sub(1),
            config.ahead,
            partition.rows(),
        );
        let ranks = options.world_size;
        let begin = LoaderState {
            decoder,
            decoder_share: match options.decode {
                DecodeBy::Mix(1..) => Some(options.decode.share()),
                _ => None,
            },
            ..LoaderState::begin(&pipeline, &*source, (&order, &partition), ranks)
        };
        let selection = pipeline.selection(&*source, &order);
        let for_device = layouts.each.iter().any(|(by, _)| *by == Placement::Device);
        let timeline = options
            .timeline
            .map(|length| Arc::new(Timeline::new(length)));
        let finisher = Finisher::new(&plan, rows, keep, timeline.clone());
        let assembler = BatchAssembler::new(batcher, finisher, options.digest);
        plan.start(workers)?;
        let cache = match &options.cache {
            Some(cache) => DecodedCache::open(&plan, (&pipeline.source, &*source), cache)?,
            None => None,
        };
        let losses = LossLog::watching(&pipeline, &*source);
        let rules = BatchRules {
            on_error: options.on_error,
            digested: options.digest,
            limits: RecordLimits::NONE,
        };
        let job = RecordJob::new(
            source, plan, order, partition, assembler, rules, &shares, timeline,
        );
        let job = job.with_cache(cache).with_losses(losses);
        Ok(PreparedRun {
            job,
            config,
            begin,
            for_device,
            shares,
            layouts,
            flight,
            tuning,
            own,
            held,
            pipeline,
            selection,
        })
    }

    /// Copies runs of rows together, where that is possible.
    pub(super) fn in_runs(self) -> PreparedRun {
        let Some(rows) = self.job.run_rows() else {
            return self;
        };
        let mut config = self.config;
        let batch = self.job.partition().rows();
        config.ahead = sequences_ahead(config.in_flight_batches, batch, rows as u64);
        PreparedRun {
            job: self.job.in_runs(rows),
            config,
            ..self
        }
    }

    /// Describes the run for remote workers.
    pub(super) fn describe(&self, options: &Options) -> RunDescription {
        let PreparedRun {
            job,
            begin,
            pipeline,
            ..
        } = self;
        let rows = pipeline.without_batch_functions();
        let fingerprint = state::fingerprint(&rows, job.order().fingerprint());
        RunDescription {
            begin: begin.clone(),
            fingerprint: state::hex(fingerprint),
            rows,
            columns: job.plan().columns().to_vec(),
            source: Arc::clone(job.source()),
            partition: job.partition().clone(),
            rank: options.rank,
            world_size: options.world_size,
            for_device: self.for_device,
            rules: BatchRules {
                on_error: options.on_error,
                digested: options.digest,
                limits: job.limits(self.shares.spare_bytes),
            },
        }
    }
}

impl Loader {
    /// Starts the threads of a run. Also returns the layouts in which batches reach the target
    /// device.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`], or an error of remote workers that cannot make equal rows.
    pub(crate) fn start(
        run: PreparedRun,
        options: Options,
    ) -> Result<(Loader, BatchLayouts), Error> {
        let remote = options
            .remote
            .clone()
            .map(|remote| (remote, run.describe(&options)));
        // Feeders send single rows.
        let run = match remote {
            Some(_) => run,
            None => run.in_runs(),
        };
        let PreparedRun {
            job,
            config,
            begin,
            layouts,
            flight,
            shares,
            tuning,
            own,
            held,
            pipeline,
            selection,
            ..
        } = run;
        let partition = job.partition().clone();
        let digests = RunDigest::new(options.digest);
        let executor = Executor::start(job, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        let remote = remote
            .map(|(remote, run)| remote.start(&run, RemoteBatches::new(executor.leases(), own)))
            .transpose()?;
        let ranks = options.world_size;
        let mut notices = Vec::new();
        if ranks > 1 {
            let most = match partition.has_equal_batches() {
                true => "",
                false => "up to ",
            };
            let (global, rows) = (partition.global(), partition.rows());
            let text = format!("global batch {most}{global} = {ranks} x {most}{rows}");
            tracing::info!(target: "infeed::loader", "{text}");
            notices.push(text);
        }
        let sized = match shares.advisor.known_sizes() {
            Some((sized, all)) => format!(" for the sizes of {sized} of {all} records"),
            None => String::new(),
        };
        tracing::info!(
            target: "infeed::loader",
            "opened: {} records, {} steps per epoch, {} workers, {} in-flight batches, {} MiB{sized}",
            executor.job().source().len(),
            executor.job().partition().steps(),
            config.working,
            shares.in_flight_batches,
            shares.total_bytes >> 20,
        );
        let loader = Loader {
            remote: Mutex::new(remote),
            executor: Mutex::new(Some(Arc::new(executor))),
            progress: Mutex::new(ConsumerProgress {
                notices,
                digests,
                ..ConsumerProgress::default()
            }),
            epoch_starts: Mutex::default(),
            first_batch_ns: AtomicU64::new(0),
            first_wait_ns: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            seeks: AtomicU64::new(0),
            partition,
            opened: Instant::now(),
            closed: AtomicBool::new(false),
            options,
            shares,
            tuning: tuning.map(Mutex::new),
            tuning_waits: AtomicBool::new(false),
            flight,
            readers: config.readers,
            begin,
            pipeline,
            selection,
            held,
        };
        Ok((loader, layouts))
    }
}
