//! What is checked and shared out before a thread runs: from a description over a source to the job of
//! a conveyor.

use std::sync::Arc;

use super::budget::{Shares, Slabs, TRAYS};
use super::digest::Digested;
use super::finish::Finisher;
use super::hosts::Feeders;
use super::options::{OnError, Options};
use super::records::Records;
use super::state::{self, State};
use super::tuning::{self, Tuning};
use super::whole::Whole;
use super::window::Flight;
use crate::batch::{Batcher, ColumnKind, ColumnSpec, Ready};
use crate::counters::Timeline;
use crate::error::Error;
use crate::exec::{Config, Taking};
use crate::order::ORDER;
use crate::order::partition::{Partition, Tail};
use crate::pipeline::{Handle, Pipeline};
use crate::plan::Plan;
use crate::plan::device::{DecodeBy, Forms, Placement};
use crate::source::Source;

/// A device that batches go to.
pub(super) struct Aim {
    /// Who makes rows larger.
    pub(super) placement: Placement,
    /// Readies slabs for the copy.
    pub(super) ready: Ready,
    /// Batches that may be on their way to it.
    pub(super) slots: usize,
    /// What decodes JPEGs there, if it does.
    pub(super) decoder: Option<String>,
}

/// All that is found out before a thread runs.
pub(super) struct Prepared {
    pub(super) job: Records,
    pub(super) config: Config,
    /// The state before the first step.
    pub(super) begin: State,
    pub(super) for_device: bool,
    pub(super) shares: Shares,
    pub(super) forms: Forms,
    pub(super) flight: Flight,
    pub(super) tuning: Option<Tuning>,
    /// Workers that work from the start.
    pub(super) working: usize,
    /// Trays that own threads may have where feeders have others.
    pub(super) own: usize,
    pub(super) readers: usize,
    pub(super) held: usize,
    pub(super) pipeline: Pipeline,
    pub(super) selection: String,
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
    let by_bytes = options.digest != Digested::Ids;
    let forms = plan.for_device_by(options.decode, placement, by_bytes)?;
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
    let (ready, decoder) = match aim {
        Some(aim) => (Some(aim.ready), aim.decoder),
        None => (None, None),
    };
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
        decoder,
        decoder_share: match options.decode {
            DecodeBy::Mix(1..) => Some(options.decode.share()),
            _ => None,
        },
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
