//! From a description to a running loader: all that is checked and shared out before the first batch.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::budget::{Shares, Slabs, TRAYS};
use super::certificate::Certificate;
use super::digest::Digested;
use super::feeders::Feeders;
use super::finish::Finisher;
use super::options::{OnError, Options};
use super::records::Records;
use super::state::{self, State};
use super::tuning::{self, Tuning};
use super::whole::Whole;
use super::window::Flight;
use super::{Loader, Progress, feeders, settle};
use crate::batch::{Batcher, ColumnKind, ColumnSpec, Ready};
use crate::counters::Timeline;
use crate::error::Error;
use crate::exec::{Config, Conveyor, Taking};
use crate::order::ORDER;
use crate::order::partition::{Partition, Tail};
use crate::pipeline::{Handle, Pipeline};
use crate::plan::Plan;
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

    /// As [`Pipeline::open_over`], with the batches that would be sent to a device which makes rows
    /// larger by itself: for measuring what is left to the host.
    pub(crate) fn open_for_device(
        &self,
        source: Arc<dyn Source>,
        options: &Options,
    ) -> Result<Loader, Error> {
        let aim = Aim {
            placement: Placement::Device,
            ready: Ready(Arc::new(|_| {})),
            slots: 0,
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

/// A device that batches go to.
pub(super) struct Aim {
    /// Who makes rows larger.
    pub(super) placement: Placement,
    /// Readies slabs for the copy.
    pub(super) ready: Ready,
    /// Batches that may be on their way to it.
    pub(super) slots: usize,
}

/// All that is found out before a thread runs.
pub(super) struct Prepared {
    pub(super) job: Records,
    pub(super) config: Config,
    /// The state before the first step.
    pub(super) begin: State,
    pub(super) for_device: bool,
    pub(super) shares: Shares,
    forms: Forms,
    flight: Flight,
    tuning: Option<Tuning>,
    /// Workers that work from the start.
    working: usize,
    /// Trays that own threads may have where feeders have others.
    own: usize,
    readers: usize,
    held: usize,
    pub(super) pipeline: Pipeline,
    selection: String,
}

/// Checks a description over its source and shares out memory. `placement` says who makes rows
/// larger; `beside` batches are under way beside those that threads of one machine have.
pub(super) fn prepare(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &Options,
    aim: Option<Aim>,
    placement: Placement,
    beside: usize,
) -> Result<Prepared, Error> {
    let settled = pipeline.settled(&*source, handles, options.world_size)?;
    let pipeline = &settled;
    let mut plan = Plan::over(pipeline, &*source)?;
    // A digest of bytes is one of finished rows, which are the same wherever they are made.
    let forms = plan.for_device(placement, options.digest != Digested::Ids);
    let for_device = forms.each.iter().any(|(by, _)| *by == Placement::Device);
    let global = match (pipeline.batch.size, pipeline.batch.per_rank) {
        (Some(size), None) => size,
        (None, Some(rows)) => rows.saturating_mul(options.world_size),
        (None, None) => 1,
        (Some(_), Some(_)) => {
            let problem = "give the global size or per_rank, not both";
            return Err(Error::config("batch", problem));
        }
    };
    let tail = pipeline.batch.settled_tail()?;
    pipeline.check_selection()?;
    let order = pipeline.order(&*source, handles)?;
    let selection = pipeline.selection(&*source, &order);
    let partition = Partition::new(order.len(), global, options.rank, options.world_size, tail)
        .map_err(|error| Error::config("batch", error.to_string()))?;
    if options.on_error == OnError::Skip && (tail != Tail::Keep || options.world_size > 1) {
        let problem = "\"skip\" makes batches shorter, which drop_last, tail=\"pad\" or \
                       \"wrap\" and several ranks cannot take; use on_error=\"substitute\"";
        return Err(Error::config("on_error", problem));
    }
    let padded = |column: &ColumnSpec| matches!(column.kind, ColumnKind::Padded { .. });
    if partition.leaves_a_rank_empty()
        && let Some(column) = plan.columns().iter().find(|column| padded(column))
    {
        let problem = format!(
            "the last batch of a rank would be padding alone, and `{}`, whose rows are padded \
             to the largest of their batch, would have no size; use tail=\"wrap\" or \"drop\"",
            column.name
        );
        return Err(Error::config("batch", problem));
    }
    let readers = options.readers.or(source.parallel_reads()).unwrap_or(4);
    if options.workers == Some(0) || readers == 0 {
        return Err(Error::config(
            "open",
            "at least one worker and one I/O thread are needed",
        ));
    }
    let rows = usize::try_from(partition.rows())
        .map_err(|_| Error::config("batch", "it has more rows than memory has bytes"))?;
    // Whatever form batches have later, the largest is counted.
    let slab_bytes = Batcher::of_forms(plan.forms(), rows, 0, None).slab_bytes()
        + Finisher::new(&plan, rows, 0, None).slab_bytes();
    let own_cells = plan.has_own_cells();
    let whole = Whole::of(pipeline, &*source, options.on_error);
    let slabs = Slabs {
        bytes: slab_bytes,
        trays: TRAYS + beside as u64,
    };
    let (shares, most, tuning) = tuning::shared_out(options, slabs, own_cells, whole)?;
    let working = tuning.as_ref().map_or(most, Tuning::workers);
    // The consumer holds one batch, and for a moment the next one too.
    let slots = aim.as_ref().map_or(0, |aim| aim.slots);
    let held = 2 + slots;
    let ready = aim.map(|aim| aim.ready);
    let keep = shares.trays + held;
    let batcher = Batcher::of_forms(plan.forms(), rows, keep, ready.as_ref());
    let in_trays = shares.trays as u64 * partition.rows();
    // Trays that feeders have are beside those that own threads fill.
    let hosts = options.feeders.as_ref().map_or(0, Feeders::count);
    let own = shares.trays.saturating_sub(hosts).clamp(1, TRAYS as usize);
    let taking = match &options.feeders {
        None => Taking::All,
        Some(_) => Taking::Shared { own: 0 },
    };
    let config = Config {
        workers: most,
        working,
        readers,
        trays: shares.trays,
        ahead: in_trays + (2 * partition.rows()).max(256),
        parcel_bytes: shares.parcel_bytes,
        spare_bytes: shares.spare_bytes,
        taking,
    };
    let sent = slots.saturating_sub(1);
    let flight = Flight::new(config.trays, sent, config.ahead, partition.rows());
    let seed = pipeline.shuffle.map(|shuffle| shuffle.seed);
    let begin = State {
        version: state::VERSION,
        order: ORDER.to_owned(),
        seed,
        window: order.window(),
        records: order.len(),
        batch: global,
        drop_last: tail == Tail::Drop,
        tail: matches!(tail, Tail::Pad | Tail::Wrap).then_some(tail),
        epoch: 0,
        position: 0,
        data: state::hex(source.fingerprint()),
        description: state::hex(state::fingerprint(pipeline, order.fingerprint())),
        digest: None,
        python: state::functions(pipeline),
        ranks: pipeline.has_batch_functions().then_some(options.world_size),
        bad: Vec::new(),
    };
    let row_bytes = shares.row_bytes(rows);
    let timeline = options
        .timeline
        .map(|length| Arc::new(Timeline::new(length)));
    let finisher = Finisher::new(&plan, rows, keep, timeline.clone());
    plan.start(most)?;
    let job = Records::new(
        source, plan, order, partition, batcher, finisher, options, &shares, row_bytes, timeline,
    );
    Ok(Prepared {
        job,
        config,
        begin,
        forms,
        flight,
        for_device,
        shares,
        tuning,
        working,
        own,
        readers,
        held,
        pipeline: settled,
        selection,
    })
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
        let placement = match aim.as_ref().map_or(Placement::Host, |aim| aim.placement) {
            // Feeders are told once what rows are to be, and resize by themselves, so that less
            // crosses the network.
            Placement::Auto | Placement::Resize if options.feeders.is_some() => Placement::Device,
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
