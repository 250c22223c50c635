//! A loader's job on the executor: reading, filling and closing of batches, and handling of bad
//! records.
//!
//! If samples are mixed, a row needs two records: its own, and the one at its partner's position.
//! The partner's sample is made as it would be at its own position and then mixed in. A row of a
//! mosaic has three partners, that of a paste one.

mod cached;
mod joined;
mod limits;
mod substitutes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::assemble::{BatchAssembler, FilledRow, FinishedBatch, OpenBatch};
use super::budget::{MemoryAdvisor, ROOM, Shares};
use super::cache::{DecodedCache, DecodedCacheStats};
use super::costs::RecordCosts;
use super::failed::sample_error;
use super::fetched::{
    BadRecord, FetchedContent, FetchedRecords, ReadPurpose, RecordRole, RowAttempts,
};
use super::losses::LossLog;
use super::remote::requests::RequestedBatches;
use super::rules::{BatchRules, RecordLimits};
use super::schedule::BatchSchedule;
use super::whole_groups::fits;
use super::{OnError, Options};
use crate::plan::Plan;
use crate::plan::joined::JoinDraw;
use crate::plan::prepared::PixelState;
use crate::plan::sample::{Position, SampleScratch};
use crate::plan::shared_tiles::SharedTiles;
use infeed_codec::transform::Mixing;
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::counters::{Calls, Meter, Stage, StageStats, ThreadCounters, Timeline};
use infeed_core::error::Error;
use infeed_core::exec::budget::{BudgetError, BytePool, Permit};
use infeed_core::exec::{
    FillOutcome, Job, JoinedReads, MemoryReservation, ReadRun, RowLocation, Sequence,
};
use infeed_core::order::Order;
use infeed_core::order::partition::{Partition, RowPosition, Tail};
use infeed_core::random::DrawKey;
use infeed_core::sample::Record;
use infeed_source::{self as source, Read, ReadError, RecordResult, Source};

/// Substitutes tried for one position before the run stops. With half of a dataset bad, that
/// happens once in 10^19 positions.
const ATTEMPTS: u32 = 64;

/// The job of a loader.
#[derive(Debug)]
pub(crate) struct RecordJob {
    source: Arc<dyn Source>,
    plan: Plan,
    cache: Option<Arc<DecodedCache>>,
    costs: RecordCosts,
    order: Order,
    schedule: BatchSchedule,
    assembler: BatchAssembler,
    /// Pool of scratch beyond the scratch that workers keep.
    pub(super) large: BytePool,
    pub(super) kept_bytes: u64,
    pub(super) fetched_bytes: u64,
    pub(super) row_bytes: u64,
    advisor: MemoryAdvisor,
    /// Counters of each worker.
    workers: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Counters of all I/O threads.
    reading: ThreadCounters,
    warnings: AtomicU64,
    losses: LossLog,
    /// Tiles of mosaics that all workers share.
    tiles: Arc<SharedTiles>,
    timeline: Option<Arc<Timeline>>,
}

/// A read, and the destinations of its records.
pub(crate) struct RecordRead {
    pub(super) from: ReadFrom,
    /// Purpose of each place of the run.
    pub(super) wants: Arc<[ReadPurpose]>,
    pub(super) tried: RowAttempts,
}

/// Origin of the records of a read.
pub(super) enum ReadFrom {
    /// The source.
    Source(Read),
    /// The memory of the cache: one record per place.
    Memory(Vec<u64>),
    /// The folder of the cache: a record.
    Disk(u64),
    /// Nothing, for padding, or for the reason why nothing can be read.
    Nothing(Option<Error>),
}

/// Other positions of the epoch whose records a row needs.
enum Partners {
    None,
    Mixing(Mixing),
    Joined(JoinDraw),
}

impl Partners {
    fn positions(&self) -> &[u64] {
        match self {
            Partners::None => &[],
            Partners::Mixing(mixing) => std::slice::from_ref(&mixing.partner),
            Partners::Joined(drawn) => drawn.partners(),
        }
    }

    fn positions_mut(&mut self) -> &mut [u64] {
        match self {
            Partners::None => &mut [],
            Partners::Mixing(mixing) => std::slice::from_mut(&mut mixing.partner),
            Partners::Joined(drawn) => drawn.partners_mut(),
        }
    }
}

/// Working memory of one worker.
pub(crate) struct WorkerScratch {
    scratch: SampleScratch,
    counters: Arc<ThreadCounters>,
    /// Row for samples that are mixed into others.
    partner: BatchRow,
    /// Batch and sequence number of the row that is being filled.
    at: (u64, Sequence),
}

impl RecordJob {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        source: Arc<dyn Source>,
        plan: Plan,
        order: Order,
        partition: Partition,
        assembler: BatchAssembler,
        options: &Options,
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
            schedule: BatchSchedule::in_order(
                partition,
                BatchRules {
                    on_error: options.on_error,
                    digested: options.digest,
                    limits: RecordLimits::NONE,
                },
            ),
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
    pub(super) fn with_cache(self, cache: Option<DecodedCache>) -> RecordJob {
        let cache = cache.map(Arc::new);
        RecordJob { cache, ..self }
    }

    /// Logs data that batches do not have, from now on.
    pub(super) fn with_losses(self, losses: LossLog) -> RecordJob {
        RecordJob { losses, ..self }
    }

    pub(super) fn cache(&self) -> Option<Arc<DecodedCache>> {
        self.cache.clone()
    }

    pub(super) fn cache_stats(&self) -> Option<DecodedCacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }

    pub(super) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Makes the requested batches from now on.
    pub(super) fn on_request(self, requests: Arc<RequestedBatches>) -> RecordJob {
        let schedule = self.schedule.on_request(requests);
        RecordJob { schedule, ..self }
    }

    /// Batch, row and rules of each sequence number.
    pub(super) fn schedule(&self) -> &BatchSchedule {
        &self.schedule
    }

    /// Returns the location of a sequence number's row in the order.
    pub(super) fn row_position(&self, sequence: Sequence) -> RowPosition {
        self.schedule.row_position(sequence)
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn partition(&self) -> &Partition {
        self.schedule.partition()
    }

    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// Opens and finishes its batches.
    pub(super) fn assembler(&self) -> &BatchAssembler {
        &self.assembler
    }

    /// Log of data that decoded pixels do not have.
    pub(super) fn losses(&self) -> &LossLog {
        &self.losses
    }

    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Adds the counters of all threads for a stage.
    pub(super) fn add_counts(&self, stage: Stage, sum: &mut StageStats) {
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

    pub(super) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_deref()
    }

    /// Returns the sequence number after the run that begins with `from`. The source decides the
    /// length. Groups that can only be read whole form one run, so that no group is read twice.
    fn run_end(&self, from: Sequence, until: Sequence) -> Sequence {
        if !self.source.groups().is_some_and(|groups| groups.whole) {
            return from + self.source.run_length().max(1);
        }
        if !self.schedule.is_in_order() {
            return until;
        }
        let begin = self.partition().row_position(from);
        // With a filled tail, the beginning of the epoch, or padding, follows its end.
        let window_end = begin.taken_from.map_or(u64::MAX, |position| {
            let epoch_start = begin.position - position;
            epoch_start + self.order.epoch(begin.epoch).window_end(position)
        });
        let (mut low, mut high) = (from + 1, from + self.order.len().max(1));
        // Binary search for the end of the window: epoch and position grow with the sequence
        // number.
        while low < high {
            let middle = low + (high - low) / 2;
            let row_position = self.partition().row_position(middle);
            match (row_position.epoch, row_position.position) < (begin.epoch, window_end) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the key of the random draws while a record is read.
    fn draw_key(&self, want: ReadPurpose) -> DrawKey {
        let row_position = self.row_position(want.sequence);
        let position = match want.role {
            RecordRole::Own => row_position.position,
            // The partner's sample is made as it would be at its own position.
            RecordRole::Partner(number) => {
                let partners = self.partners(row_position);
                let position = partners.positions().get(usize::from(number));
                position.copied().unwrap_or(row_position.position)
            }
        };
        source::draw_key(self.plan.seed(), row_position.epoch, position)
    }

    /// Makes the sample of a record within the memory limits of workers. Adds the record to the
    /// cache, if there is one.
    fn sample(
        &self,
        (record, state): (&Record, PixelState),
        at: Position,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let begun = std::time::Instant::now();
        let cached = match (&self.cache, state) {
            (None, _) => None,
            (Some(cache), PixelState::Stored) => self.cached(cache, record, worker, limits),
            (Some(cache), _) => {
                cache.count(true);
                None
            }
        };
        let from = match &cached {
            Some(cached) => (cached, self.plan.cached_state()),
            None => (record, state),
        };
        let mut keep = self.buffer_to_keep(record.index, from.1, worker);
        let result = self.within_limits(worker, limits, |scratch, counters, admit| {
            let plan = &self.plan;
            plan.run_keeping(from, at, row, keep.as_mut(), scratch, counters, admit)
        });
        if let Some(bytes) = keep {
            self.keep(record.index, result.is_ok(), bytes, worker);
        }
        self.costs
            .measured(record.index, record.bytes(), begun.elapsed());
        self.losses.check(&*self.source, worker.at, record);
        self.add_warnings(worker);
        let error = |failure| sample_error(&*self.source, record.index, failure);
        result.map_err(|failure| self.advised(error(failure)))
    }

    /// Counts the decoder warnings of a sample, and notes its losses.
    fn add_warnings(&self, worker: &mut WorkerScratch) {
        let warnings = std::mem::take(&mut worker.scratch.warnings);
        if warnings > 0 {
            self.warnings.fetch_add(warnings, Ordering::Relaxed);
        }
        let losses = worker.scratch.losses.drain(..);
        losses.for_each(|loss| self.losses.note(&*self.source, worker.at, loss));
    }

    /// Completes a row: sets the mark of a valid row if there is a sample in it.
    fn finished(
        &self,
        tried: RowAttempts,
        at: Position,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        rules: &BatchRules,
    ) -> FilledRow {
        if tried.written.is_some()
            && self.partition().tail() == Tail::Pad
            && let Some(RowCell::Slab(valid)) = row.cells.last_mut()
        {
            valid.bytes_mut().fill(1);
        }
        if !rules.hashes_rows() {
            return FilledRow::new(tried, at, row, rules);
        }
        worker.scratch.meter.start();
        let filled = FilledRow::new(tried, at, row, rules);
        worker.scratch.meter.lap(Stage::Write, &worker.counters);
        worker.scratch.meter.settle(&worker.counters);
        filled
    }
}

impl Job for RecordJob {
    type Read = RecordRead;
    type Fetched = FetchedRecords;
    type InFlight = OpenBatch;
    type Row = BatchRow;
    type Done = FilledRow;
    type Batch = FinishedBatch;
    type Scratch = WorkerScratch;
    type Fault = Error;

    fn place(&self, sequence: Sequence) -> RowLocation {
        self.schedule.place(sequence)
    }

    fn first(&self, in_flight: u64) -> Sequence {
        self.schedule.first(in_flight)
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<RecordRead>, Error> {
        let rows_end = self.schedule.rows_end(from, until);
        let end = self.run_end(from, rows_end).min(rows_end);
        let mut epoch = None;
        let (mut records, mut wants, mut padding) = (Vec::new(), Vec::new(), Vec::new());
        let (mut cached, mut on_disk) = (Vec::new(), Vec::new());
        for sequence in from..end {
            let row_position = self.row_position(sequence);
            let Some(taken_from) = row_position.taken_from else {
                padding.push(ReadPurpose::padding(sequence));
                continue;
            };
            let (known, permutation) = epoch
                .get_or_insert_with(|| (row_position.epoch, self.order.epoch(row_position.epoch)));
            if *known != row_position.epoch {
                (*known, *permutation) = (row_position.epoch, self.order.epoch(row_position.epoch));
            }
            let partners = self.partners(row_position);
            let mut want = |place, role| {
                let record = permutation.get(place);
                let purpose = ReadPurpose {
                    sequence,
                    role,
                    together: 1 + partners.positions().len() as u8,
                };
                match &self.cache {
                    Some(cache) if cache.contains(record) => cached.push((record, purpose)),
                    Some(cache) if cache.is_on_disk(record) => on_disk.push((record, purpose)),
                    _ => {
                        records.push(record);
                        wants.push(purpose);
                    }
                }
            };
            want(taken_from, RecordRole::Own);
            for (number, &place) in partners.positions().iter().enumerate() {
                want(place, RecordRole::Partner(number as u8));
            }
        }
        let mut reads = self.source.plan(&records, self.fetched_bytes / ROOM);
        reads.retain(|read| !read.records.is_empty());
        let first = |read: &Read| {
            read.records
                .iter()
                .map(|(place, _)| *place)
                .min()
                .unwrap_or(0)
        };
        reads.sort_by_key(first);
        fits(&reads, self.fetched_bytes)?;
        let wants: Arc<[ReadPurpose]> = wants.into();
        let planned = |sequence, from, wants| {
            let tried = RowAttempts::default();
            (sequence, RecordRead { from, wants, tried })
        };
        let mut reads: Vec<(Sequence, RecordRead)> = reads
            .into_iter()
            .map(|read| {
                let sequence = wants[first(&read)].sequence;
                planned(sequence, ReadFrom::Source(read), Arc::clone(&wants))
            })
            .collect();
        let mut insert = |from, wants: Arc<[ReadPurpose]>| {
            let sequence = wants[0].sequence;
            let at = reads.partition_point(|(first, _)| *first < sequence);
            reads.insert(at, planned(sequence, from, wants));
        };
        if !padding.is_empty() {
            insert(ReadFrom::Nothing(None), padding.into());
        }
        for run in cached.chunks(cached::RUN) {
            let (records, wants): (_, Vec<ReadPurpose>) = run.iter().copied().unzip();
            insert(ReadFrom::Memory(records), wants.into());
        }
        for (record, purpose) in on_disk {
            insert(ReadFrom::Disk(record), Arc::new([purpose]));
        }
        // Sequence numbers between a short requested batch and the next batch are no rows.
        let end = if end == rows_end { until } else { end };
        Ok(ReadRun { end, reads })
    }

    fn read(
        &self,
        request: RecordRead,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, FetchedRecords)> {
        let RecordRead { from, wants, tried } = request;
        let (mut read, mut gate, mut permit) = match from {
            ReadFrom::Source(read) => (read, Some(gate), None),
            ReadFrom::Memory(records) => return self.read_cached(&records, &wants),
            ReadFrom::Disk(record) => match self.read_from_disk(record, wants[0], gate) {
                Ok(rows) => return rows,
                Err(lost) => match lost.read {
                    Some(read) => (read, lost.gate, lost.permit.map(Arc::new)),
                    None => return cached::missing(wants[0]),
                },
            },
            ReadFrom::Nothing(failed) => {
                let padding = |want: &ReadPurpose| {
                    let row = FetchedRecords::without_reading(failed.clone());
                    (want.sequence, row)
                };
                return wants.iter().map(padding).collect();
            }
        };
        if self.source.python().is_some() {
            let wants = read.records.iter().map(|(place, _)| wants[*place]);
            read.draws = wants.map(|want| self.draw_key(want)).collect();
        }
        // The records of one row have to fit the budget together.
        let together: u64 = match &read.records[..] {
            [(place, _)] => wants[*place].together.into(),
            _ => 1,
        };
        let of = read
            .records
            .first()
            .map(|(place, _)| wants[*place].sequence);
        let limits = of.map_or(RecordLimits::NONE, |sequence| {
            self.schedule.rules(sequence).limits
        });
        let most = match tried.own + tried.partner {
            0 => limits.read,
            _ => limits.again,
        };
        let limit = self.fetched_bytes.min(limits.read) / (together * ROOM);
        let has_no_gate = gate.is_none();
        let mut content: HashMap<usize, RecordResult> = HashMap::with_capacity(read.records.len());
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let mut waited = std::time::Duration::ZERO;
        let mut admit = |bytes: u64| {
            if together > 1 && bytes > limit {
                return Err(BudgetError::TooLarge { limit });
            }
            if bytes > most {
                return Err(BudgetError::TooLarge { limit: most });
            }
            let Some(gate) = gate.take() else {
                // No record of the read was passed on yet.
                let reserved = permit.as_mut().and_then(Arc::get_mut);
                let limit = reserved.as_ref().map_or(0, |permit| permit.bytes());
                if has_no_gate && bytes > limit {
                    return Err(BudgetError::TooLarge { limit });
                }
                if let Some(permit) = reserved {
                    permit.keep(bytes);
                }
                return Ok(());
            };
            let begun = std::time::Instant::now();
            let granted = gate.admit(bytes);
            waited = begun.elapsed();
            permit = Some(Arc::new(granted?));
            Ok(())
        };
        let result = self.source.read(&read, &mut admit, &mut |place, found| {
            content.insert(place, found);
        });
        let good = content.values().filter_map(|found| found.as_ref().ok());
        let bytes = good.map(Record::bytes).sum();
        let count = content.len() as u64;
        self.reading.count(Stage::Read, count, bytes, bytes);
        meter.finish(Stage::Read, waited, &self.reading);
        let failed = match result {
            Ok(()) => None,
            Err(ReadError::Refused {
                refused: BudgetError::Closed,
                ..
            }) => return Vec::new(),
            // Only a new read can wait for more memory.
            Err(ReadError::Refused { .. }) if has_no_gate => return cached::missing(wants[0]),
            Err(error) => Some(self.advised(error.about(&*self.source))),
        };
        let fetched = |&(place, record): &(usize, u64)| {
            let found = match (content.remove(&place), &failed) {
                (Some(Ok(found)), _) => Ok(found),
                (Some(Err(cause)), _) => Err(source::damaged(&*self.source, record, cause)),
                (None, Some(error)) => Err(error.clone()),
                (None, None) => {
                    let id = self.source.id(record, None);
                    Err(Error::Panicked {
                        text: format!("the source returned no {id}"),
                    })
                }
            };
            let content = FetchedContent {
                found: Some(found),
                state: PixelState::Stored,
                _permit: permit.clone(),
            };
            let want = wants[place];
            (
                want.sequence,
                FetchedRecords::new(want, content, tried.clone()),
            )
        };
        read.records.iter().map(fetched).collect()
    }

    fn join(
        &self,
        waiting: Option<FetchedRecords>,
        come: FetchedRecords,
    ) -> JoinedReads<FetchedRecords> {
        FetchedRecords::join(waiting, come)
    }

    fn is_expensive(&self, fetched: &FetchedRecords) -> bool {
        let partners = fetched.partners.iter().map(|(_, content)| content);
        fetched.own.iter().chain(partners).any(|content| {
            let record = content.found.as_ref().and_then(|found| found.as_ref().ok());
            record.is_some_and(|record| self.costs.is_expensive(record.index, record.bytes()))
        })
    }

    fn open(&self, in_flight: u64) -> Result<(OpenBatch, Vec<BatchRow>), Error> {
        let (epoch, step) = self.schedule.batch(in_flight);
        let rows = self.partition().rows_at(step) as usize;
        self.assembler.open((epoch, step), rows)
    }

    fn scratch(&self) -> WorkerScratch {
        let counters = Arc::new(ThreadCounters::new(self.timeline.clone()));
        let mut all = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        WorkerScratch {
            scratch: SampleScratch::new().with_tiles(&self.tiles),
            counters,
            partner: self.plan.spare_row(),
            at: (0, 0),
        }
    }

    fn fill(
        &self,
        sequence: Sequence,
        fetched: FetchedRecords,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
    ) -> FillOutcome<RecordJob> {
        let row_position = self.row_position(sequence);
        let in_flight = row_position.epoch * self.partition().steps() + row_position.step;
        let rules = self.schedule.rules(sequence);
        worker.counters.work_for(in_flight);
        worker.at = (in_flight, sequence);
        if row_position.taken_from.is_none() && fetched.own.is_none() {
            let blank = Some(row.blank());
            return FillOutcome::Done(FilledRow::without_record(blank, Vec::new(), &rules));
        }
        let at = position(row_position);
        let mixing = match self.partners(row_position) {
            Partners::None => None,
            Partners::Mixing(mixing) => Some(mixing),
            Partners::Joined(drawn) => {
                return self.fill_joined((sequence, at), &drawn, fetched, row, worker);
            }
        };
        let FetchedRecords {
            own,
            mut partners,
            mut tried,
            ..
        } = fetched;
        if let Some(content) = own {
            let FetchedContent { found, state, .. } = content;
            let Some(found) = found else {
                let position = row_position.taken_from.unwrap_or_default();
                let record = self.order.epoch(at.epoch).get(position);
                return self.again(sequence, RecordRole::Own, record, tried);
            };
            let made = found.and_then(|record| {
                self.sample((&record, state), at, row, worker, rules.limits)?;
                self.within_row_limit(&record, row, rules.limits)?;
                Ok(record.index)
            });
            match made {
                Ok(index) => {
                    tried.written = Some(index);
                    tried.add_unknown(worker.scratch.unknown_pixels);
                }
                Err(error) => return self.instead(sequence, RecordRole::Own, at, error, tried),
            }
        }
        if let Some(mixing) = mixing {
            let of = Position {
                epoch: at.epoch,
                position: mixing.partner,
            };
            // Released when the row's own record was bad, or lost by the cache.
            let Some((found, state)) = partners
                .pop()
                .and_then(|(_, content)| Some((content.found?, content.state)))
            else {
                let record = self.order.epoch(at.epoch).get(mixing.partner);
                return self.again(sequence, RecordRole::Partner(0), record, tried);
            };
            let limits = rules.limits;
            let made = found
                .and_then(|record| self.mix((&record, state), of, &mixing, row, worker, limits));
            if let Err(error) = made {
                return self.instead(sequence, RecordRole::Partner(0), of, error, tried);
            }
            tried.add_unknown(worker.scratch.unknown_pixels);
        }
        FillOutcome::Done(self.finished(tried, at, row, worker, &rules))
    }

    fn close(
        &self,
        open: OpenBatch,
        rows: Vec<Result<FilledRow, Error>>,
    ) -> Result<FinishedBatch, Error> {
        let partition = self.partition();
        let first = partition.row_position(partition.sequence(open.epoch, open.step));
        self.assembler
            .finish(&self.plan, open, rows, first.position)
    }
}

/// Returns the position that keys a row's random draws.
fn position(row_position: RowPosition) -> Position {
    Position {
        epoch: row_position.epoch,
        position: row_position.position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_source::handle_bytes;

    #[test]
    fn record_handles_fit_into_the_bytes_counted_per_group() {
        let found = size_of::<(usize, RecordResult)>();
        let fetched = size_of::<(Sequence, FetchedRecords)>();

        // A table of results, up to half empty; fetched records in a list, and in a tree whose
        // nodes are up to half empty, into which they are inserted at once.
        let most = 2 * found + fetched + fetched;

        assert!(
            most as u64 <= handle_bytes(1, 0),
            "{most}: {found}, {fetched}"
        );
    }
}
