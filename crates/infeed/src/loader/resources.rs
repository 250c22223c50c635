//! Memory and threads of a run, divided before any thread runs.

use super::batch_functions::Finisher;
use super::budget::{IN_FLIGHT_BATCHES, MemoryDemand, ROOM, Shares, SlabPlan};
use super::cores::{SharedCores, cores_for, ranks_here};
use super::options::Options;
use super::record_needs::RecordNeeds;
use super::tuning::Tuning;
use super::whole_groups::WholeGroups;
use crate::pipeline::Pipeline;
use crate::plan::SamplePlan;
use crate::plan::device::{BatchLayouts, Placement};
use infeed_core::batch::Batcher;
use infeed_core::error::Error;
use infeed_core::order::partition::Partition;
use infeed_source::Source;

/// Worker threads per usable core, most of them parked. Workers that wait (for pages of a mapped
/// file, or a function's process) can be more than cores.
const PER_CORE: usize = 2;

/// In-flight rows per worker. In a simulation of 16 workers where every hundredth sample takes 50
/// times as long as the others, 48 rows keep workers busy for at least 97 % of the time.
const ROWS_PER_WORKER: usize = 48;

/// Most in-flight batches of one machine's threads, and most bytes of them, unless
/// [`IN_FLIGHT_BATCHES`] have more.
const MOST_IN_FLIGHT: u64 = 24;
const MOST_BYTES: u64 = 512 << 20;

/// Memory and threads of a run.
pub(crate) struct Resources {
    /// Rows of a full batch.
    pub(super) rows: usize,
    pub(super) shares: Shares,
    /// Number of worker threads.
    pub(super) workers: usize,
    /// Number of concurrent reads.
    pub(super) readers: usize,
    /// None if the options fix the number of workers.
    pub(super) tuning: Option<Tuning>,
}

/// Divides memory and threads. A layout of batches for which memory is short is left out.
/// `remote_batches` in-flight batches are added to those of one machine's threads.
///
/// # Errors
///
/// [`Error::Budget`], [`Error::Reserved`] or [`Error::Config`].
pub(crate) fn divide(
    pipeline: &Pipeline,
    source: &dyn Source,
    plan: &mut SamplePlan,
    layouts: &mut BatchLayouts,
    partition: &Partition,
    options: &Options,
    remote_batches: usize,
) -> Result<Resources, Error> {
    let readers = options.readers.or(source.parallel_reads()).unwrap_or(4);
    if options.workers == Some(0) || readers == 0 {
        return Err(Error::config(
            "open",
            "at least one worker and one I/O thread are needed",
        ));
    }
    let rows = usize::try_from(partition.rows())
        .map_err(|_| Error::config("batch", "it has more rows than fit in memory"))?;
    let whole = WholeGroups::of(pipeline, source, options.on_error);
    let workers = options
        .workers
        .unwrap_or_else(|| cores_for(options.world_size));
    let record = RecordNeeds::of(pipeline, plan, source, readers);
    let own_rows = plan.has_own_cells().then_some(rows as u64);
    let own_bytes = own_rows.map_or(0, |rows| record.own_batch_bytes(rows));
    let reads = match plan.records_per_row() {
        1 => 1,
        records => records * ROOM,
    };
    let tile_bytes = plan.wanted_tile_bytes(source.len());
    let (shares, workers, tuning) = divide_memory(plan, layouts, rows, |bytes| {
        let in_flight_batches = in_flight_batches(rows, workers, bytes.saturating_add(own_bytes));
        let demand = MemoryDemand {
            slabs: SlabPlan {
                bytes,
                in_flight_batches: in_flight_batches + remote_batches as u64,
            },
            own_rows,
            whole,
            record,
            reads,
            tile_bytes,
        };
        divide_rest(options, demand)
    })?;
    if let Some(text) = shares.warning() {
        tracing::warn!(target: "infeed::loader", "{text}");
    }
    Ok(Resources {
        rows,
        shares,
        workers,
        readers,
        tuning,
    })
}

/// In-flight batches of one machine's threads, if memory allows. Small batches and many workers need
/// more, so that a slow sample does not leave workers without rows.
fn in_flight_batches(rows: usize, workers: usize, batch_bytes: u64) -> u64 {
    let wanted = (ROWS_PER_WORKER * workers).div_ceil(rows.max(1)) as u64;
    let most = MOST_IN_FLIGHT.min(MOST_BYTES / batch_bytes.max(1));
    wanted.min(most).max(IN_FLIGHT_BATCHES)
}

/// Divided memory: the shares, the maximum number of workers, and the tuning of their number.
type MemoryDivision = (Shares, usize, Option<Tuning>);

/// Divides memory between slabs and everything else. `ask` tries a division for slab bytes per
/// batch. The largest batch layout counts, because batches may change their layout. A device that
/// resizes needs larger slabs. If they would cost in-flight batches or workers, that layout is left
/// out, because a trial must not slow the run.
fn divide_memory(
    plan: &mut SamplePlan,
    layouts: &mut BatchLayouts,
    rows: usize,
    ask: impl Fn(u64) -> Result<MemoryDivision, Error>,
) -> Result<MemoryDivision, Error> {
    let of = |plan: &SamplePlan, count: usize| {
        let layouts: Vec<_> = plan.layouts().into_iter().take(count).collect();
        Batcher::with_layouts(layouts, rows, 0, None).slab_bytes()
            + Finisher::new(plan, rows, 0, None).slab_bytes()
    };
    let count = layouts.each.len();
    let all = of(plan, count);
    let smaller = matches!(layouts.each.last(), Some((Placement::Resize, _)) if count > 1)
        .then(|| of(plan, count - 1))
        .filter(|&smaller| smaller < all);
    let Some(smaller) = smaller else {
        return ask(all);
    };
    // One after the other: a division reserves memory from other loaders until it is dropped.
    let size = |(shares, most, _): MemoryDivision| (shares.in_flight_batches, most);
    let (in_flight_batches, most) = size(ask(smaller)?);
    let fits = ask(all).map(size);
    if fits.is_ok_and(|fits| fits.0 >= in_flight_batches && fits.1 >= most) {
        return ask(all);
    }
    plan.leave_out_resize(
        layouts,
        "memory does not suffice for its larger rows with the same number of in-flight batches",
    );
    ask(smaller)
}

/// Divides the memory that slabs leave, with the number of workers of the options, or up to
/// [`PER_CORE`] workers per core.
fn divide_rest(options: &Options, demand: MemoryDemand) -> Result<MemoryDivision, Error> {
    let (memory, processes) = (options.memory, ranks_here(options.world_size));
    if let Some(workers) = options.workers {
        let shares = Shares::new(memory, processes, demand, workers)?;
        return Ok((shares, workers, None));
    }
    let cores = SharedCores::join(options.world_size);
    let now = cores.now();
    let counts = (now, PER_CORE * now);
    let (shares, most) = Shares::for_at_most(memory, processes, demand, counts)?;
    Ok((shares, most, Some(Tuning::new(cores, now, most))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use infeed_codec::transform::{RandomResizedCrop, ToFloat};
    use infeed_core::order::partition::Tail;
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
        let source = pipeline.open_source(&[]).expect("opens");
        let partition = Partition::new(128, 64, 0, 1, Tail::Keep).expect("one rank");
        let divided = |memory, workers, placement| {
            let mut options = Options::default();
            (options.memory, options.workers) = (Some(memory), workers);
            let mut plan = SamplePlan::over(&pipeline, &*source)?;
            let mut layouts = plan.for_device(placement, false);
            let (plan_ref, layouts_ref) = (&mut plan, &mut layouts);
            let resources = divide(
                &pipeline,
                &*source,
                plan_ref,
                layouts_ref,
                &partition,
                &options,
                0,
            )?;
            Ok::<_, Error>((resources, plan, layouts))
        };
        // Slab bytes of expanded rows, which apply if crops are left out.
        let slab = 64 * 128 * 128 * 3 * 2;
        for workers in [Some(2), None] {
            let mut outs = Vec::new();
            for memory in (1..24).map(|n| n * slab) {
                let host = divided(memory, workers, Placement::Host);
                let auto = divided(memory, workers, Placement::Auto);
                let (Ok((host, ..)), Ok((auto, plan, layouts))) = (&host, &auto) else {
                    assert_eq!(host.is_ok(), auto.is_ok(), "{memory}");
                    continue;
                };
                let in_flight_batches = auto.shares.in_flight_batches;
                assert!(
                    in_flight_batches >= host.shares.in_flight_batches
                        && auto.workers >= host.workers
                );
                let is_out = layouts.left_out.is_some();
                assert_eq!(
                    (plan.layouts().len(), layouts.each.len()),
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
