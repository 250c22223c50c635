//! Records of the cache.

use bytes::Bytes;

use super::record_job::{RecordJob, WorkerScratch};
use crate::fields::pixels::prepared_record;
use crate::fields::pixels::prepared_record::PixelState;
use crate::loader::budget::ROOM;
use crate::loader::cache::DecodedCache;
use crate::loader::fetched_records::{
    FetchedContent, FetchedRecords, FetchedRows, ReadPurpose, RowAttempts,
};
use infeed_core::counters::{Meter, Stage};
use infeed_core::exec::budget::{BudgetError, Permit};
use infeed_core::exec::{MemoryReservation, Sequence};
use infeed_core::sample::Record;
use infeed_source::Read;
use infeed_source::store::held_bytes;
use std::sync::Arc;

/// Cached records that an I/O thread passes on at once.
pub(super) const RUN: usize = 64;

impl RecordJob {
    /// Returns the cached copy of a stored record, which may have been added since the read was
    /// planned; otherwise decodes the record into the cache. `None` if there is no room in memory, or
    /// an error, which may concern pixels that the sample does not use.
    pub(super) fn get_or_decode(
        &self,
        cache: &DecodedCache,
        record: &Record,
        worker: &mut WorkerScratch<'_>,
    ) -> Option<Record> {
        let found = cache.get(record.index);
        cache.count(found.is_some());
        // Functions run with the sample; see `buffer_to_keep`.
        let is_prepared = self.plan.cached_state() == PixelState::Prepared;
        if found.is_some() || !is_prepared || !cache.accepts(record.index) {
            return found;
        }
        let has_room = |bytes| cache.has_room(record.index, bytes);
        let prepared = worker.maker.prepare(record, has_room);
        let buffer = prepared.ok()??;
        cache.add(record.index, &buffer);
        let Some(shared) = cache.get(record.index) else {
            // It is in the folder only.
            return prepared_record::read(record.index, &Bytes::from(buffer));
        };
        // The sample is made of the shared copy, and a worker keeps only small buffers.
        if buffer.len() as u64 <= self.kept_bytes {
            worker.maker.prepared = buffer;
        }
        Some(shared)
    }

    /// Returns the buffer for what the cache keeps of the sample of a record, if it keeps results of
    /// functions and has room.
    pub(super) fn buffer_to_keep(
        &self,
        record: u64,
        state: PixelState,
        worker: &mut WorkerScratch<'_>,
    ) -> Option<Vec<u8>> {
        let is_computed = self.plan.cached_state() == PixelState::Computed;
        let cache = self.cache.as_ref()?;
        let is_kept = is_computed && state == PixelState::Stored && cache.accepts(record);
        let mut buffer = is_kept.then(|| std::mem::take(&mut worker.maker.prepared))?;
        buffer.clear();
        Some(buffer)
    }

    /// Adds what is kept of a sample to the cache, if it was made without warnings, which are
    /// repeated in every epoch.
    pub(super) fn keep(
        &self,
        record: u64,
        is_good: bool,
        bytes: Vec<u8>,
        worker: &mut WorkerScratch<'_>,
    ) {
        if let Some(cache) = &self.cache
            && is_good
            && worker.maker.scratch.warnings == 0
            && !bytes.is_empty()
            && cache.has_room(record, bytes.len() as u64)
        {
            cache.add(record, &bytes);
        }
        if bytes.len() as u64 <= self.kept_bytes {
            worker.maker.prepared = bytes;
        }
    }

    /// Passes on records that are in memory.
    pub(super) fn read_cached(
        &self,
        records: &[u64],
        wants: &[ReadPurpose],
    ) -> Vec<(Sequence, FetchedRows)> {
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let cached = |record: u64| self.cache.as_ref().and_then(|cache| cache.get(record));
        let fetched = records.iter().zip(wants).map(|(&record, &want)| {
            let content = FetchedContent {
                found: cached(record).map(Ok),
                state: self.plan.cached_state(),
                _permit: None,
            };
            let tried = RowAttempts::default();
            let row = FetchedRecords::new(want, content, tried);
            (want.sequence, FetchedRows::One(row))
        });
        let fetched = fetched.collect();
        meter.finish(Stage::Read, std::time::Duration::ZERO, &self.reading);
        fetched
    }

    /// Reads a record from the folder of the cache.
    ///
    /// # Errors
    ///
    /// The read from the source, if the folder lost the record, or if it is too large.
    pub(super) fn read_from_disk<'a>(
        &self,
        record: u64,
        want: ReadPurpose,
        gate: MemoryReservation<'a>,
    ) -> Result<Vec<(Sequence, FetchedRows)>, LostRecord<'a>> {
        // Another read may have brought it since this one was planned.
        if self
            .cache
            .as_ref()
            .is_some_and(|cache| cache.contains(record))
        {
            return Ok(self.read_cached(&[record], &[want]));
        }
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let limits = self.schedule.rules(want.sequence).limits;
        let most = match u64::from(want.together) {
            1 => limits.read,
            together => self.fetched_bytes.min(limits.read) / (together * ROOM),
        };
        let found = self.cache.as_ref().and_then(|cache| cache.on_disk(record));
        let Some(found) = found.filter(|found| found.bytes() <= most) else {
            return Err(self.plan_lost_record(record, Some(gate), None));
        };
        let bytes = found.bytes();
        // A row of several records cannot read one of them later, should the folder have lost it.
        let reserved = match want.together {
            1 => bytes,
            _ => bytes.max(self.source_bytes(record).min(most)),
        };
        let begun = std::time::Instant::now();
        let granted = gate.admit(reserved);
        let waited = begun.elapsed();
        let mut permit = match granted {
            Ok(permit) => permit,
            Err(BudgetError::Closed) => return Ok(Vec::new()),
            Err(BudgetError::TooLarge { .. }) => {
                return Err(self.plan_lost_record(record, None, None));
            }
        };
        let read = found.read();
        meter.finish(Stage::Read, waited, &self.reading);
        let Some(read) = read else {
            return Err(self.plan_lost_record(record, None, Some(permit)));
        };
        permit.keep(bytes);
        self.reading.count(Stage::Read, 1, bytes, bytes);
        let content = FetchedContent {
            found: Some(Ok(read)),
            state: self.plan.cached_state(),
            _permit: Some(Arc::new(permit)),
        };
        let row = FetchedRecords::new(want, content, RowAttempts::default());
        Ok(vec![(want.sequence, FetchedRows::One(row))])
    }

    /// Bytes of memory that reading a record from the source takes, as far as that is known.
    fn source_bytes(&self, record: u64) -> u64 {
        let reads = self.source.plan(&[record], self.fetched_bytes / ROOM);
        let planned = reads.iter().filter_map(|read| read.bytes).sum::<u64>();
        let files = self.source.files(record);
        let lengths = files.iter().filter_map(|path| std::fs::metadata(path).ok());
        let files = lengths.map(|found| held_bytes(found.len())).sum();
        planned.max(files)
    }

    /// Plans the read of a record that the folder lost.
    fn plan_lost_record<'a>(
        &self,
        record: u64,
        gate: Option<MemoryReservation<'a>>,
        permit: Option<Permit>,
    ) -> LostRecord<'a> {
        let reads = self.source.plan(&[record], self.fetched_bytes / ROOM);
        let read = reads.into_iter().find(|read| !read.records.is_empty());
        LostRecord { read, gate, permit }
    }
}

/// A record that the folder of the cache lost, and the memory for reading it from the source.
pub(super) struct LostRecord<'a> {
    pub(super) read: Option<Read>,
    pub(super) gate: Option<MemoryReservation<'a>>,
    /// Memory that was reserved for the record of the folder.
    pub(super) permit: Option<Permit>,
}

/// Returns a row whose record is missing, so that its worker requests it again.
pub(super) fn missing(want: ReadPurpose) -> Vec<(Sequence, FetchedRows)> {
    let content = FetchedContent {
        found: None,
        state: PixelState::Stored,
        _permit: None,
    };
    let row = FetchedRecords::new(want, content, RowAttempts::default());
    vec![(want.sequence, FetchedRows::One(row))]
}
