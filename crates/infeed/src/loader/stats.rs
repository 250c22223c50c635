//! What a loader counted, in one snapshot.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::budget::Shares;
use super::feeders::FeederStats;
use super::records::Records;
use super::tuning::Tuned;
use crate::counters::{Stage, StageStats};
use crate::exec::Conveyor;
use crate::source::PythonTime;
use crate::store::{self, CacheUse, Requests};

/// Counts since a loader was opened.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered.
    pub samples: u64,
    /// Bad records met in them, each once.
    pub bad: u64,
    /// Time the consumer waited for batches.
    pub wait: Duration,
    /// Time from opening to the first batch, once there was one.
    pub first_batch: Option<Duration>,
    /// What the consumer waited until the first batch; part of `wait`.
    pub first_wait: Duration,
    /// Time since the loader was opened.
    pub elapsed: Duration,
    /// Stages in the order data flows.
    pub stages: Vec<(Stage, StageStats)>,
    /// What reading took in Python, for records that come from there.
    pub python: Option<PythonTime>,
    /// Batches that are ready now.
    pub ready: usize,
    /// Batches that the consumer holds now.
    pub held: usize,
    /// Pixels of no class in the masks of delivered batches, accepted by `unknown` or `ignore_index`.
    pub unknown_pixels: u64,
    /// Decoders' warnings that change nothing.
    pub warnings: u64,
    /// Workers that may work now.
    pub workers: usize,
    /// How that number was come by, where it was left to the loader.
    pub tuned: Option<Tuned>,
    /// I/O threads.
    pub readers: usize,
    /// The byte budget.
    pub budget_bytes: u64,
    /// Bytes of one batch's slabs.
    pub slab_bytes: u64,
    /// Most encoded bytes that were held at once.
    pub parcel_peak_bytes: u64,
    /// What each feeder did, in the order in which they were given.
    pub feeders: Vec<FeederStats>,
    /// Time during which bytes came from any of them, counted once where several sent.
    pub receiving: Duration,
    /// What reads from buckets and web servers took: of all loaders of this process, since it began.
    pub storage: Requests,
    /// How often pieces of those were found on the disk; as `storage`.
    pub cache: CacheUse,
}

/// What the conveyor and its job counted.
pub(super) fn gather(conveyor: &Conveyor<Records>, shares: &Shares) -> Stats {
    let job = conveyor.job();
    let waits = conveyor.waits();
    let time = |ns: &std::sync::atomic::AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
    let stage = |stage: Stage| {
        let mut sum = StageStats::default();
        job.add_counts(stage, &mut sum);
        sum.wait += match stage {
            Stage::Read => time(&waits.readers_idle_ns),
            Stage::Decode => time(&waits.starved_ns),
            Stage::Transform | Stage::Python => Duration::ZERO,
            Stage::Write => time(&waits.blocked_ns),
        };
        (stage, sum)
    };
    let plan = job.plan();
    let calls = !plan.sample_calls().is_empty() || !plan.batch_calls().is_empty();
    let stages = Stage::ALL
        .into_iter()
        .filter(|stage| *stage != Stage::Python || calls);
    Stats {
        stages: stages.map(stage).collect(),
        python: job.source().python(),
        workers: conveyor.workers(),
        ready: conveyor.ready(),
        held: super::held(conveyor),
        warnings: job.warnings(),
        budget_bytes: shares.total_bytes,
        slab_bytes: shares.slab_bytes,
        parcel_peak_bytes: conveyor.parcel_bytes().1,
        storage: store::requests(),
        cache: store::cache_use(),
        ..Stats::default()
    }
}
