//! Opens a loader from a description.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::options::Options;
use super::prepare::{PreparedRun, TargetDevice, prepare};
use super::remote::{RemoteBatches, RunDescription};
use super::run_digest::RunDigest;
use super::{ConsumerProgress, Loader, decoders, function_outputs, tuning};
use crate::pipeline::{Handle, Pipeline};
use crate::plan::device::{BatchLayouts, Placement};
use crate::plan::preview::PreviewStage;
use crate::plan::sample::{Position, SampleScratch};
use infeed_core::batch::PrepareSlab;
use infeed_core::error::Error;
use infeed_core::exec::Executor;
use infeed_core::sample::{Record, RecordId};
use infeed_source::{Source, read_one};

impl Pipeline {
    /// Opens the source, checks the description, and starts to prepare the first batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], [`Error::Open`] or [`Error::Budget`]; no thread runs then.
    pub fn open(&self, options: &Options) -> Result<Loader, Error> {
        self.open_with(&[], options)
    }

    /// As [`Pipeline::open`], with the handles that the description refers to.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_with(&self, handles: &[Handle], options: &Options) -> Result<Loader, Error> {
        Loader::open(self, self.open_source(handles)?, handles, options)
    }

    /// As [`Pipeline::open`], over the caller's source instead of the description's. The
    /// description's selection applies to it.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_over(&self, source: Arc<dyn Source>, options: &Options) -> Result<Loader, Error> {
        Loader::open(self, self.select(source)?, &[], options)
    }

    /// As [`Pipeline::open_over`], with batches in the layout for a device with `placement`. Serves
    /// to measure the host's work without a device.
    pub fn open_for_device(
        &self,
        source: Arc<dyn Source>,
        placement: Placement,
        options: &Options,
    ) -> Result<Loader, Error> {
        let target = TargetDevice {
            placement,
            ready: PrepareSlab(Arc::new(|_| {})),
            slots: 0,
            decoder: None,
        };
        let source = self.select(source)?;
        Loader::open_for(self, source, &[], options, Some(target)).map(|(loader, _)| loader)
    }

    /// Returns one sample after each stage. Runs on the calling thread.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`], or the error of the record.
    pub fn preview(
        &self,
        handles: &[Handle],
        position: u64,
        epoch: u64,
    ) -> Result<(RecordId, Vec<PreviewStage>), Error> {
        let (plan, source) = self.planned(handles)?;
        let order = self.order(&*source, handles)?;
        if position >= order.len() {
            let problem = format!("position {position} is not below {} records", order.len());
            return Err(Error::config("preview", problem));
        }
        let index = order.epoch(epoch).get(position);
        let id = source.id(index, None);
        let record = read_one(&*source, index)?;
        let at = Position { epoch, position };
        plan.start(1)?;
        let stages = |index: u64, record: &Record, at: Position| {
            plan.preview(record, at, &mut SampleScratch::new())
                .map_err(|failure| super::failed::sample_error(&*source, index, failure))
        };
        let mut own = stages(index, &record, at)?;
        if let Some(mixing) = plan.mixing(at, || order.near(epoch, position)) {
            let partner = order.epoch(epoch).get(mixing.partner);
            let at = Position {
                epoch,
                position: mixing.partner,
            };
            let other = stages(partner, &read_one(&*source, partner)?, at)?;
            plan.preview_mix(&mixing, &source.id(partner, None), &mut own, other)
                .map_err(|failure| super::failed::sample_error(&*source, partner, failure))?;
        }
        let own = function_outputs::through_functions(&plan, at, own)
            .map_err(|failure| super::failed::sample_error(&*source, index, failure))?;
        Ok((id, own))
    }
}

impl Loader {
    pub(super) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
    ) -> Result<Loader, Error> {
        Loader::open_for(pipeline, source, handles, options, None).map(|(loader, _)| loader)
    }

    /// Also returns the layouts in which batches reach the target device.
    pub(super) fn open_for(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
        target: Option<TargetDevice>,
    ) -> Result<(Loader, BatchLayouts), Error> {
        let mut options = options.clone();
        if options.remote.is_some() && options.workers.is_none() {
            // Tuning would attribute the remote workers' batches to local workers.
            options.workers = Some(tuning::cores(options.world_size));
        }
        decoders::check(&options, target.as_ref().map(|target| target.placement))?;
        let placement = match target
            .as_ref()
            .map_or(Placement::Host, |target| target.placement)
        {
            // Remote workers learn the row layout only once. They resize on their own cores, so that
            // they send fewer bytes.
            Placement::Auto | Placement::Resize if options.remote.is_some() => Placement::Device,
            Placement::Auto if options.decode.is_by_device() => Placement::Resize,
            placement => placement,
        };
        let remote = options.remote.clone();
        let beside = remote
            .as_ref()
            .map_or(0, |remote| remote.in_flight_batches());
        let prepared = prepare(
            pipeline, source, handles, &options, target, placement, beside,
        )?;
        let run = remote.map(|remote| (remote, RunDescription::new(&prepared, &options)));
        let PreparedRun {
            job,
            config,
            begin,
            forms,
            flight,
            shares,
            tuning,
            working,
            own,
            readers,
            held,
            pipeline,
            selection,
            ..
        } = prepared;
        let (global, partition) = (begin.batch, *job.partition());
        let digests = RunDigest::new(options.digest);
        let executor = Executor::start(job, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        let remote = run
            .map(|(remote, run)| remote.start(&run, RemoteBatches::new(executor.leases(), own)))
            .transpose()?;
        let ranks = options.world_size;
        let mut notices = Vec::new();
        if ranks > 1 {
            let text = format!("global batch {global} = {ranks} x {}", partition.rows());
            tracing::info!(target: "infeed::loader", "{text}");
            notices.push(text);
        }
        tracing::info!(
            target: "infeed::loader",
            "opened: {} records, {} steps per epoch, {working} workers, {} in-flight batches, {} \
             MiB",
            executor.job().source().len(),
            executor.job().partition().steps(),
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
            first_batch_ns: AtomicU64::new(0),
            first_wait_ns: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            seeks: AtomicU64::new(0),
            opened: Instant::now(),
            closed: AtomicBool::new(false),
            options,
            shares,
            tuning: tuning.map(Mutex::new),
            tuning_waits: AtomicBool::new(false),
            flight,
            readers,
            begin,
            pipeline,
            selection,
            held,
        };
        Ok((loader, forms))
    }
}
