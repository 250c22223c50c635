//! From a description to a running loader.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::certificate::Certificate;
use super::hosts::Feeders;
use super::options::Options;
use super::prepare::{Aim, Prepared, prepare};
use super::{Loader, Progress, decoders, feeders, settle, tuning};
use crate::batch::Ready;
use crate::error::Error;
use crate::exec::Conveyor;
use crate::pipeline::{Handle, Pipeline};
use crate::plan::device::{Forms, Placement};
use crate::plan::preview::PreviewStage;
use crate::plan::sample::{Bench, Position};
use crate::sample::{Record, RecordId};
use crate::source::{Source, read_one};

impl Pipeline {
    /// Opens the source, checks the description, and starts to prepare the first batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], [`Error::Open`] or [`Error::Budget`]; nothing runs then.
    pub fn open(&self, options: &Options) -> Result<Loader, Error> {
        self.open_with(&[], options)
    }

    /// As [`Pipeline::open`], with what a source in memory refers to.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_with(&self, handles: &[Handle], options: &Options) -> Result<Loader, Error> {
        Loader::open(self, self.open_source(handles)?, handles, options)
    }

    /// As [`Pipeline::open`], over a source of one's own, of which records are selected as the
    /// description says; its own source is not opened.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_over(&self, source: Arc<dyn Source>, options: &Options) -> Result<Loader, Error> {
        Loader::open(self, self.select(source)?, &[], options)
    }

    /// As [`Pipeline::open_over`], with the batches that would be sent to a device to which so much is
    /// left: for measuring what the host does then.
    pub(crate) fn open_for_device(
        &self,
        source: Arc<dyn Source>,
        placement: Placement,
        options: &Options,
    ) -> Result<Loader, Error> {
        let aim = Aim {
            placement,
            ready: Ready(Arc::new(|_| {})),
            slots: 0,
            decoder: None,
        };
        let source = self.select(source)?;
        Loader::open_for(self, source, &[], options, Some(aim)).map(|(loader, _)| loader)
    }

    /// One sample after each stage, made on the calling thread.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`]; or what is wrong with the record.
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
            plan.preview(record, at, &mut Bench::new())
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
        let own = settle::through_functions(&plan, at, own)
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

    /// Also gives the forms in which batches reach the device that is aimed at.
    pub(super) fn open_for(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
        aim: Option<Aim>,
    ) -> Result<(Loader, Forms), Error> {
        let mut options = options.clone();
        if options.feeders.is_some() && options.workers.is_none() {
            // What feeders bring would be taken for what the own threads make.
            options.workers = Some(tuning::cores(options.world_size));
        }
        decoders::check(&options, aim.as_ref().map(|aim| aim.placement))?;
        let placement = match aim.as_ref().map_or(Placement::Host, |aim| aim.placement) {
            // Feeders are told once what rows are to be, and resize by themselves, so that less
            // crosses the network.
            Placement::Auto | Placement::Resize if options.feeders.is_some() => Placement::Device,
            Placement::Auto if options.decode.is_by_device() => Placement::Resize,
            placement => placement,
        };
        let hosts = options.feeders.as_ref().map_or(0, Feeders::count);
        let beside = hosts * feeders::DEPTH;
        let prepared = prepare(pipeline, source, handles, &options, aim, placement, beside)?;
        let called = feeders::Call::new(&options, &prepared)?;
        let Prepared {
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
        let certificate = Certificate::new(&options, &begin)?;
        let conveyor = Conveyor::start(job, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        let fed = called.map(|call| call.start(conveyor.lender(), own));
        let fed = fed.transpose()?;
        let ranks = options.world_size;
        let mut notices = Vec::new();
        if ranks > 1 {
            let text = format!("global batch {global} = {ranks} x {}", partition.rows());
            tracing::info!(target: "infeed::loader", "{text}");
            notices.push(text);
        }
        tracing::info!(
            target: "infeed::loader",
            "opened: {} records, {} steps an epoch, {working} workers, {} batches under way, \
             {} MiB",
            conveyor.job().source().len(),
            conveyor.job().partition().steps(),
            shares.trays,
            shares.total_bytes >> 20,
        );
        let loader = Loader {
            fed: Mutex::new(fed),
            conveyor: Mutex::new(Some(Arc::new(conveyor))),
            progress: Mutex::new(Progress {
                notices,
                certificate,
                ..Progress::default()
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
