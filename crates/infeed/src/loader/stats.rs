//! Snapshot of a loader's counters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::budget::Shares;
use super::cache::DecodedCacheStats;
use super::records::RecordJob;
use super::remote::RemoteWorkerStats;
use super::tuning::TuningState;
use infeed_core::counters::{Stage, StageStats};
use infeed_core::exec::Executor;
use infeed_source::PythonTime;
use infeed_source::store::{self, CacheCounts, RequestCounts};

/// Counters since a loader was opened.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Delivered batches.
    pub batches: u64,
    /// Delivered samples.
    pub samples: u64,
    /// Bad records in delivered batches, each counted once.
    pub bad: u64,
    /// Time that the consumer waited for batches.
    pub wait: Duration,
    /// Time from opening to the first batch, once there was one.
    pub first_batch: Option<Duration>,
    /// Time that the consumer waited for the first batch; part of `wait`.
    pub first_wait: Duration,
    /// Time since the loader was opened.
    pub elapsed: Duration,
    /// Counters by stage, in the order of the data flow.
    pub stages: Vec<(Stage, StageStats)>,
    /// Time of reads in Python, for sources in Python.
    pub python: Option<PythonTime>,
    /// Batches that are ready.
    pub ready: usize,
    /// Batches that the consumer holds.
    pub held: usize,
    /// Whether a warning was logged because the consumer held too many batches.
    pub held_warned: bool,
    /// Pixels of unknown class in delivered masks, accepted by `unknown` or `ignore_index`.
    pub unknown_pixels: u64,
    /// Warnings of decoders about records that are still usable.
    pub warnings: u64,
    /// Active workers.
    pub workers: usize,
    /// State of the worker tuning; `None` if the options fix the number.
    pub tuned: Option<TuningState>,
    /// I/O threads.
    pub readers: usize,
    /// Memory budget in bytes.
    pub budget_bytes: u64,
    /// Bytes of one batch's slabs.
    pub slab_bytes: u64,
    /// Most batches in memory that the consumer has not taken.
    pub in_flight_batches: usize,
    /// Peak number of fetched encoded bytes.
    pub fetched_peak_bytes: u64,
    /// Statistics of each remote worker, in the given order.
    pub remote: Vec<RemoteWorkerStats>,
    /// Time during which any remote worker sent bytes; overlaps count once.
    pub receiving: Duration,
    /// Requests to object stores and web servers, of all loaders of this process since it started.
    pub storage: RequestCounts,
    /// Disk cache hits for those requests; same scope as `storage`.
    pub cache: CacheCounts,
    /// The cache of decoded records, if the loader has one.
    pub decoded_cache: Option<DecodedCacheStats>,
}

/// Counters at the starts of the last two epochs after the first one, oldest first.
#[derive(Debug, Default)]
pub(super) struct EpochStarts(Vec<Stats>);

impl EpochStarts {
    pub(super) fn add(&mut self, stats: Stats) {
        if self.0.len() == 2 {
            self.0.remove(0);
        }
        self.0.push(stats);
    }

    /// Returns the counters since the oldest start with batches after it.
    pub(super) fn recent(&self, stats: Stats) -> Stats {
        let start = self.0.first().filter(|start| start.batches < stats.batches);
        // Remote workers count for themselves.
        let start = start.filter(|_| stats.remote.is_empty());
        match start {
            Some(start) => stats.since(start),
            None => stats,
        }
    }
}

impl Stats {
    /// Returns the counters since an earlier time. What is no sum stays as it is now.
    fn since(&self, earlier: &Stats) -> Stats {
        let stages = self.stages.iter().zip(&earlier.stages);
        let stages = stages.map(|((stage, now), (_, before))| {
            let since = StageStats {
                samples: now.samples.saturating_sub(before.samples),
                bytes_in: now.bytes_in.saturating_sub(before.bytes_in),
                bytes_out: now.bytes_out.saturating_sub(before.bytes_out),
                wall: now.wall.saturating_sub(before.wall),
                cpu: now.cpu.saturating_sub(before.cpu),
                wait: now.wait.saturating_sub(before.wait),
                p99: now.p99,
            };
            (*stage, since)
        });
        let python = self.python.map(|now| {
            let before = earlier.python.unwrap_or_default();
            PythonTime {
                items: now.items.saturating_sub(before.items),
                waited: now.waited.saturating_sub(before.waited),
                inside: now.inside.saturating_sub(before.inside),
            }
        });
        let decoded_cache = self.decoded_cache.map(|now| {
            let before = earlier.decoded_cache.unwrap_or_default();
            DecodedCacheStats {
                hits: now.hits.saturating_sub(before.hits),
                misses: now.misses.saturating_sub(before.misses),
                ..now
            }
        });
        Stats {
            batches: self.batches.saturating_sub(earlier.batches),
            samples: self.samples.saturating_sub(earlier.samples),
            wait: self.wait.saturating_sub(earlier.wait),
            first_batch: Some(Duration::ZERO),
            first_wait: Duration::ZERO,
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            stages: stages.collect(),
            python,
            decoded_cache,
            ..self.clone()
        }
    }
}

/// Collects the counters of the executor and its job.
pub(super) fn gather(executor: &Executor<RecordJob>, shares: &Shares) -> Stats {
    let job = executor.job();
    let waits = executor.waits();
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
        workers: executor.workers(),
        ready: executor.ready(),
        held: held_batches(executor),
        warnings: job.warnings(),
        budget_bytes: shares.total_bytes,
        slab_bytes: shares.slab_bytes,
        in_flight_batches: shares.in_flight_batches,
        fetched_peak_bytes: executor.fetched_bytes().1,
        storage: store::requests(),
        cache: store::cache_use(),
        decoded_cache: job.cache_stats(),
        ..Stats::default()
    }
}

/// Number of batches that the consumer holds.
pub(super) fn held_batches(executor: &Executor<RecordJob>) -> usize {
    executor
        .job()
        .assembler()
        .live()
        .saturating_sub(executor.ready())
}
