//! The job of a loader, with the reads and the working memory of its threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fields::scratch::Position;
use crate::loader::assemble::BatchAssembler;
use crate::loader::budget::{MemoryAdvisor, Shares};
use crate::loader::cache::{DecodedCache, DecodedCacheStats};
use crate::loader::costs::RecordCosts;
use crate::loader::fetched_records::{ReadPurpose, RowAttempts};
use crate::loader::losses::LossLog;
use crate::loader::remote::requests::RequestedBatches;
use crate::loader::rules::{BatchRules, RecordLimits};
use crate::loader::schedule::BatchSchedule;
use crate::maker::SampleMaker;
use crate::maker::shared_tiles::SharedTiles;
use crate::plan::SamplePlan;
use infeed_core::counters::{Calls, Stage, StageStats, ThreadCounters, Timeline};
use infeed_core::error::Error;
use infeed_core::exec::Sequence;
use infeed_core::exec::budget::BytePool;
use infeed_core::order::Order;
use infeed_core::order::partition::{Partition, RowPosition};
use infeed_source::{Read, Source};

/// Substitutes tried for one position before the run stops. With half of a dataset bad, that
/// happens once in 10^19 positions.
pub(super) const ATTEMPTS: u32 = 64;

/// The job of a loader.
#[derive(Debug)]
pub(crate) struct RecordJob {
    pub(super) source: Arc<dyn Source>,
    pub(super) plan: SamplePlan,
    pub(super) cache: Option<Arc<DecodedCache>>,
    pub(super) costs: RecordCosts,
    pub(super) order: Order,
    pub(super) schedule: BatchSchedule,
    pub(super) assembler: BatchAssembler,
    /// Pool of scratch beyond the scratch that workers keep.
    pub(in crate::loader) large: BytePool,
    pub(in crate::loader) kept_bytes: u64,
    pub(in crate::loader) fetched_bytes: u64,
    pub(in crate::loader) row_bytes: u64,
    pub(super) advisor: MemoryAdvisor,
    /// Counters of each worker.
    pub(super) workers: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Counters of all I/O threads.
    pub(super) reading: ThreadCounters,
    pub(super) warnings: AtomicU64,
    pub(super) losses: LossLog,
    /// Tiles of mosaics that all workers share.
    pub(super) tiles: Arc<SharedTiles>,
    pub(super) timeline: Option<Arc<Timeline>>,
}

/// A read, and the destinations of its records.
pub(crate) struct RecordRead {
    pub(in crate::loader) from: ReadFrom,
    /// Purpose of each place of the run.
    pub(in crate::loader) wants: Arc<[ReadPurpose]>,
    pub(in crate::loader) tried: RowAttempts,
}

/// Origin of the records of a read.
pub(in crate::loader) enum ReadFrom {
    /// The source.
    Source(Read),
    /// The memory of the cache: one record per place.
    Memory(Vec<u64>),
    /// The folder of the cache: a record.
    Disk(u64),
    /// The memory of the source: the records of a run of rows.
    Resident(Vec<u64>),
    /// Nothing, for padding, or for the reason why nothing can be read.
    Nothing(Option<Error>),
}

/// Working memory of one worker.
pub(crate) struct WorkerScratch<'a> {
    pub(super) maker: SampleMaker<'a>,
    /// Batch and sequence number of the row that is being filled.
    pub(super) at: (u64, Sequence),
    /// Limits of its records.
    pub(super) limits: RecordLimits,
}

impl RecordJob {
    #[allow(clippy::too_many_arguments)]
    pub(in crate::loader) fn new(
        source: Arc<dyn Source>,
        plan: SamplePlan,
        order: Order,
        partition: Partition,
        assembler: BatchAssembler,
        rules: BatchRules,
        shares: &Shares,
        timeline: Option<Arc<Timeline>>,
    ) -> RecordJob {
        RecordJob {
            costs: RecordCosts::new(source.len()),
            tiles: Arc::new(plan.shared_tiles(shares.tile_bytes)),
            source,
            plan,
            cache: None,
            order,
            schedule: BatchSchedule::in_order(partition, rules),
            assembler,
            large: BytePool::new(shares.large_bytes),
            kept_bytes: shares.kept_bytes,
            fetched_bytes: shares.fetched_bytes,
            row_bytes: shares.row_bytes,
            advisor: shares.advisor,
            workers: Mutex::default(),
            reading: ThreadCounters::new(timeline.clone()),
            timeline,
            warnings: AtomicU64::new(0),
            losses: LossLog::default(),
        }
    }

    /// Reads records from a cache from now on, and adds to it.
    pub(in crate::loader) fn with_cache(self, cache: Option<DecodedCache>) -> RecordJob {
        let cache = cache.map(Arc::new);
        RecordJob { cache, ..self }
    }

    /// Logs data that batches do not have, from now on.
    pub(in crate::loader) fn with_losses(self, losses: LossLog) -> RecordJob {
        RecordJob { losses, ..self }
    }

    pub(in crate::loader) fn cache(&self) -> Option<Arc<DecodedCache>> {
        self.cache.clone()
    }

    pub(in crate::loader) fn cache_stats(&self) -> Option<DecodedCacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }

    pub(in crate::loader) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Copies runs of rows from now on.
    pub(in crate::loader) fn in_runs(self, run: usize) -> RecordJob {
        RecordJob {
            schedule: self.schedule.in_runs(run as u64),
            assembler: self.assembler.in_runs(run),
            ..self
        }
    }

    /// Makes the requested batches from now on.
    pub(in crate::loader) fn on_request(self, requests: Arc<RequestedBatches>) -> RecordJob {
        let schedule = self.schedule.on_request(requests);
        RecordJob { schedule, ..self }
    }

    /// Batch, row and rules of each sequence number.
    pub(in crate::loader) fn schedule(&self) -> &BatchSchedule {
        &self.schedule
    }

    /// Returns the location of a sequence number's row in the order.
    pub(in crate::loader) fn row_position(&self, sequence: Sequence) -> RowPosition {
        self.schedule.row_position(sequence)
    }

    pub(in crate::loader) fn plan(&self) -> &SamplePlan {
        &self.plan
    }

    pub(in crate::loader) fn partition(&self) -> &Partition {
        self.schedule.partition()
    }

    pub(in crate::loader) fn order(&self) -> &Order {
        &self.order
    }

    /// Opens and finishes its batches.
    pub(in crate::loader) fn assembler(&self) -> &BatchAssembler {
        &self.assembler
    }

    /// Log of data that decoded pixels do not have.
    pub(in crate::loader) fn losses(&self) -> &LossLog {
        &self.losses
    }

    pub(in crate::loader) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Adds the counters of all threads for a stage.
    pub(in crate::loader) fn add_counts(&self, stage: Stage, sum: &mut StageStats) {
        self.reading.add_to(stage, sum);
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().for_each(|thread| thread.add_to(stage, sum));
        let mut calls = Calls::default();
        self.reading.add_calls(stage, &mut calls);
        workers
            .iter()
            .for_each(|thread| thread.add_calls(stage, &mut calls));
        self.assembler.add_counts(stage, sum, &mut calls);
        sum.p99 = calls.quantile(0.99);
    }

    pub(in crate::loader) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_deref()
    }
}

/// Returns the position that keys a row's random draws.
pub(super) fn position(row_position: RowPosition) -> Position {
    Position {
        epoch: row_position.epoch,
        position: row_position.position,
    }
}
