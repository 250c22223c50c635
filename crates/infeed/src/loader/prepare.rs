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
use crate::plan::warnings;
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
    warnings::log(pipeline, source.fields());
    // A digest of bytes is one of finished rows, which are the same wherever they are made.
    let by_bytes = options.digest != Digested::Ids;
    let mut forms = plan.for_device_by(options.decode, placement, by_bytes)?;
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
    let whole = Whole::of(pipeline, &*source, options.on_error);
    let trays = TRAYS + beside as u64;
    let (shares, most, tuning) = shared_out(&mut plan, &mut forms, rows, |bytes, own_cells| {
        tuning::shared_out(options, Slabs { bytes, trays }, own_cells, whole)
    })?;
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

/// What came of sharing out memory: the shares, the most workers there may be, and who looks for their
/// number.
type SharedOut = (Shares, usize, Option<Tuning>);

/// Shares out memory among slabs of so many bytes a batch and all else, as `ask` does it. Whatever form
/// batches have later, the largest is counted. One that a device resizes is larger than others, and is left
/// out where it would cost batches under way or workers: what is merely tried takes nothing from a run.
fn shared_out(
    plan: &mut Plan,
    forms: &mut Forms,
    rows: usize,
    ask: impl Fn(u64, bool) -> Result<SharedOut, Error>,
) -> Result<SharedOut, Error> {
    let of = |plan: &Plan, forms: usize| {
        let forms: Vec<_> = plan.forms().into_iter().take(forms).collect();
        Batcher::of_forms(forms, rows, 0, None).slab_bytes()
            + Finisher::new(plan, rows, 0, None).slab_bytes()
    };
    let own_cells = plan.has_own_cells();
    let count = forms.each.len();
    let all = of(plan, count);
    let smaller = matches!(forms.each.last(), Some((Placement::Resize, _)) if count > 1)
        .then(|| of(plan, count - 1))
        .filter(|&smaller| smaller < all);
    let Some(smaller) = smaller else {
        return ask(all, own_cells);
    };
    // One after the other: what is shared out is taken from other loaders until it is dropped.
    let size = |(shares, most, _): SharedOut| (shares.trays, most);
    let (trays, most) = size(ask(smaller, own_cells)?);
    let fits = ask(all, own_cells).map(size);
    if fits.is_ok_and(|fits| fits.0 >= trays && fits.1 >= most) {
        return ask(all, own_cells);
    }
    plan.leave_out_resize(
        forms,
        "memory has no room for its larger rows beside as many batches under way",
    );
    ask(smaller, own_cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use crate::sample::{DType, Depth, Image, Size};
    use crate::testing::synthetic::png;
    use crate::transform::{RandomResizedCrop, ToFloat};

    /// Halves of floats: finished rows are twice as large as bytes, those of crops four times.
    fn halves(root: &std::path::Path) -> Pipeline {
        let (height, width) = (8, 8);
        let mut image = Image::default();
        image.reset(Size { height, width }, 3, Depth::U8);
        let bytes = png(&image).expect("encodes");
        for n in 0..128 {
            std::fs::write(root.join(format!("{n}.png")), &bytes).expect("writes");
        }
        Pipeline::new(SourceSpec::folder(root))
            .decode()
            .transform(RandomResizedCrop::new(128))
            .transform(ToFloat::default())
            .dtype(DType::Float16)
            .batch(64)
    }

    #[test]
    fn rows_of_crops_cost_no_batch_under_way_and_no_worker_under_any_budget() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let pipeline = halves(root.path());
        let prepared = |memory, workers, placement| {
            let mut options = Options::default();
            (options.memory, options.workers) = (Some(memory), workers);
            let source = pipeline.open_source(&[]).expect("opens");
            prepare(&pipeline, source, &[], &options, None, placement, 0)
        };
        // Slabs of finished rows: what they are where crops are left out.
        let slab = 64 * 128 * 128 * 3 * 2;
        for workers in [Some(2), None] {
            let mut outs = Vec::new();
            for memory in (1..24).map(|n| n * slab) {
                let host = prepared(memory, workers, Placement::Host);
                let auto = prepared(memory, workers, Placement::Auto);
                let (Ok(host), Ok(auto)) = (&host, &auto) else {
                    assert_eq!(host.is_ok(), auto.is_ok(), "{memory}");
                    continue;
                };
                let (trays, most) = (auto.shares.trays, auto.config.workers);
                assert!(trays >= host.shares.trays && most >= host.config.workers);
                let is_out = auto.forms.left_out.is_some();
                let forms = auto.job.plan().forms();
                assert_eq!(
                    (forms.len(), auto.forms.each.len()),
                    match is_out {
                        true => (2, 2),
                        false => (3, 3),
                    }
                );
                let bytes = if is_out { slab } else { 2 * slab };
                assert!((bytes..=bytes + 64 * 32).contains(&auto.shares.slab_bytes));
                assert!(auto.shares.trays as u64 * auto.shares.slab_bytes <= memory);
                outs.push(is_out);
            }
            assert!(
                outs.first() == Some(&true) && outs.last() == Some(&false),
                "{outs:?}"
            );
        }
    }
}
