//! Checks a description over a source and divides memory, before any thread runs. The result is an
//! executor's job.

use std::sync::Arc;

use super::assemble::BatchAssembler;
use super::batch_functions::Finisher;
use super::budget::{IN_FLIGHT_BATCHES, Shares, SlabPlan};
use super::digest::DigestScope;
use super::options::{OnError, Options};
use super::records::RecordJob;
use super::state::{self, LoaderState};
use super::tuning::{self, Tuning};
use super::whole_groups::WholeGroups;
use super::window::BatchesInFlight;
use crate::pipeline::{Handle, Pipeline};
use crate::plan::Plan;
use crate::plan::device::{BatchLayouts, DecodeBy, Placement};
use crate::plan::warnings;
use infeed_core::batch::{Batcher, ColumnKind, ColumnSpec, PrepareSlab};
use infeed_core::counters::Timeline;
use infeed_core::error::Error;
use infeed_core::exec::{BatchChoice, Config};
use infeed_core::order::ORDER;
use infeed_core::order::partition::{Partition, Tail};
use infeed_source::Source;

/// Target device of batches.
pub(super) struct TargetDevice {
    /// Whether host or device expands rows.
    pub(super) placement: Placement,
    /// Prepares slabs for the transfer.
    pub(super) ready: PrepareSlab,
    /// Maximum number of batches in transfer to the device.
    pub(super) slots: usize,
    /// Name of the device's JPEG decoder, if it decodes.
    pub(super) decoder: Option<String>,
}

/// Everything that is fixed before a thread runs.
pub(super) struct PreparedRun {
    pub(super) job: RecordJob,
    pub(super) config: Config,
    /// The state before the first step.
    pub(super) begin: LoaderState,
    pub(super) for_device: bool,
    pub(super) shares: Shares,
    pub(super) forms: BatchLayouts,
    pub(super) flight: BatchesInFlight,
    pub(super) tuning: Option<Tuning>,
    /// Number of initially active workers.
    pub(super) working: usize,
    /// Number of in-flight batches for local threads, if remote workers take the others.
    pub(super) own: usize,
    pub(super) readers: usize,
    pub(super) held: usize,
    pub(super) pipeline: Pipeline,
    pub(super) selection: String,
}

/// Checks a description over its source and divides memory. `placement` says whether host or device
/// expands rows. `beside` in-flight batches are added to those of one machine's threads.
pub(super) fn prepare(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &Options,
    target: Option<TargetDevice>,
    placement: Placement,
    beside: usize,
) -> Result<PreparedRun, Error> {
    let settled = pipeline.settled(&*source, handles, options.world_size)?;
    let pipeline = &settled;
    let mut plan = Plan::over(pipeline, &*source)?;
    warnings::log(pipeline, source.fields());
    // A digest of bytes covers expanded rows, which are equal for all placements.
    let by_bytes = options.digest != DigestScope::Ids;
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
        let problem = "\"skip\" makes batches shorter, which drop_last, tail=\"pad\" or \"wrap\" \
                       and several ranks do not allow; use on_error=\"substitute\"";
        return Err(Error::config("on_error", problem));
    }
    let padded = |column: &ColumnSpec| matches!(column.kind, ColumnKind::Padded { .. });
    if partition.leaves_a_rank_empty()
        && let Some(column) = plan.columns().iter().find(|column| padded(column))
    {
        let problem = format!(
            "the last batch of a rank would be only padding, so `{}`, which is padded to the \
             largest row, would have no size; use tail=\"wrap\" or \"drop\"",
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
        .map_err(|_| Error::config("batch", "it has more rows than fit in memory"))?;
    let whole = WholeGroups::of(pipeline, &*source, options.on_error);
    let in_flight_batches = IN_FLIGHT_BATCHES + beside as u64;
    let (shares, most, tuning) = divide_memory(&mut plan, &mut forms, rows, |bytes, own_cells| {
        tuning::divide_memory(
            options,
            SlabPlan {
                bytes,
                in_flight_batches,
            },
            own_cells,
            whole,
        )
    })?;
    let working = tuning.as_ref().map_or(most, Tuning::workers);
    // The consumer has one batch, and for a moment also the next one.
    let slots = target.as_ref().map_or(0, |target| target.slots);
    let held = 2 + slots;
    let (ready, decoder) = match target {
        Some(target) => (Some(target.ready), target.decoder),
        None => (None, None),
    };
    let keep = shares.in_flight_batches + held;
    let batcher = Batcher::of_forms(plan.forms(), rows, keep, ready.as_ref());
    let in_in_flight_batches = shares.in_flight_batches as u64 * partition.rows();
    // Remote workers' in-flight batches are in addition to those of local threads.
    let remote = options.remote.as_ref();
    let remote_workers = remote.map_or(0, |remote| remote.workers());
    let own = shares
        .in_flight_batches
        .saturating_sub(remote_workers)
        .clamp(1, IN_FLIGHT_BATCHES as usize);
    let taking = match remote {
        None => BatchChoice::All,
        Some(_) => BatchChoice::Shared { own: 0 },
    };
    let config = Config {
        workers: most,
        working,
        readers,
        in_flight_batches: shares.in_flight_batches,
        ahead: in_in_flight_batches + (2 * partition.rows()).max(256),
        fetched_bytes: shares.fetched_bytes,
        spare_bytes: shares.spare_bytes,
        taking,
    };
    let sent = slots.saturating_sub(1);
    let flight = BatchesInFlight::new(
        config.in_flight_batches,
        sent,
        config.ahead,
        partition.rows(),
    );
    let seed = pipeline.shuffle.map(|shuffle| shuffle.seed);
    let begin = LoaderState {
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
    let assembler = BatchAssembler::new(batcher, finisher, options.digest);
    plan.start(most)?;
    let job = RecordJob::new(
        source, plan, order, partition, assembler, options, &shares, row_bytes, timeline,
    );
    Ok(PreparedRun {
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

/// Divided memory: the shares, the maximum number of workers, and the tuning of their number.
type MemoryDivision = (Shares, usize, Option<Tuning>);

/// Divides memory between slabs and everything else. `ask` tries a division for slab bytes per
/// batch. The largest batch layout counts, because batches may change their layout. A device that
/// resizes needs larger slabs. If they would cost in-flight batches or workers, that layout is left
/// out, because a trial must not slow the run.
fn divide_memory(
    plan: &mut Plan,
    forms: &mut BatchLayouts,
    rows: usize,
    ask: impl Fn(u64, bool) -> Result<MemoryDivision, Error>,
) -> Result<MemoryDivision, Error> {
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
    // One after the other: a division reserves memory from other loaders until it is dropped.
    let size = |(shares, most, _): MemoryDivision| (shares.in_flight_batches, most);
    let (in_flight_batches, most) = size(ask(smaller, own_cells)?);
    let fits = ask(all, own_cells).map(size);
    if fits.is_ok_and(|fits| fits.0 >= in_flight_batches && fits.1 >= most) {
        return ask(all, own_cells);
    }
    plan.leave_out_resize(
        forms,
        "memory does not suffice for its larger rows with the same number of in-flight batches",
    );
    ask(smaller, own_cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use infeed_codec::transform::{RandomResizedCrop, ToFloat};
    use infeed_core::sample::{DType, Depth, Image, Size};
    use infeed_sample::png;

    /// A pipeline of float16 rows: they have twice the bytes of uint8 rows, and crops have four
    /// times.
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
    fn crop_rows_never_cost_in_flight_batches_or_workers() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let pipeline = halves(root.path());
        let prepared = |memory, workers, placement| {
            let mut options = Options::default();
            (options.memory, options.workers) = (Some(memory), workers);
            let source = pipeline.open_source(&[]).expect("opens");
            prepare(&pipeline, source, &[], &options, None, placement, 0)
        };
        // Slab bytes of expanded rows, which apply if crops are left out.
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
                let (in_flight_batches, most) =
                    (auto.shares.in_flight_batches, auto.config.workers);
                assert!(
                    in_flight_batches >= host.shares.in_flight_batches
                        && most >= host.config.workers
                );
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
                assert!(auto.shares.in_flight_batches as u64 * auto.shares.slab_bytes <= memory);
                outs.push(is_out);
            }
            assert!(
                outs.first() == Some(&true) && outs.last() == Some(&false),
                "{outs:?}"
            );
        }
    }
}
