//! Records of the cache.

use bytes::Bytes;

use super::*;
use crate::plan::prepared;

/// Cached records that an I/O thread passes on at once.
pub(super) const RUN: usize = 64;

impl RecordJob {
    /// Returns the cached copy of a stored record, which may have been added since the read was
    /// planned; otherwise decodes the record into the cache. `None` if there is no room in memory, or
    /// an error, which may concern pixels that the sample does not use.
    pub(super) fn cached(
        &self,
        cache: &DecodedCache,
        record: &Record,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Option<Record> {
        let found = cache.get(record.index);
        cache.count(found.is_some());
        if found.is_some() || !cache.accepts(record.index) {
            return found;
        }
        let prepared = self.within_limits(worker, limits, |scratch, counters, admit| {
            let has_room = |bytes| cache.has_room(record.index, bytes);
            self.plan
                .prepare(record, scratch, counters, admit, has_room)
        });
        let buffer = prepared.ok()??;
        cache.add(record.index, &buffer);
        let Some(shared) = cache.get(record.index) else {
            // It is in the folder only.
            return prepared::read(record.index, &Bytes::from(buffer));
        };
        // The sample is made of the shared copy, and a worker keeps only small buffers.
        if buffer.len() as u64 <= self.kept_bytes {
            worker.scratch.prepared = buffer;
        }
        Some(shared)
    }

    /// Passes on records that are in memory.
    pub(super) fn read_cached(
        &self,
        records: &[u64],
        wants: &[ReadPurpose],
    ) -> Vec<(Sequence, FetchedRecords)> {
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let cached = |record: u64| self.cache.as_ref().and_then(|cache| cache.get(record));
        let fetched = records.iter().zip(wants).map(|(&record, &want)| {
            let content = FetchedContent {
                found: cached(record).map(Ok),
                state: PixelState::Prepared,
                _permit: None,
            };
            let tried = RowAttempts::default();
            (want.sequence, FetchedRecords::new(want, content, tried))
        });
        let fetched = fetched.collect();
        meter.finish(Stage::Read, std::time::Duration::ZERO, &self.reading);
        fetched
    }

    /// Reads a record from the folder of the cache. If the folder lost it, or it is too large, its
    /// worker requests it again, from the source.
    pub(super) fn read_from_disk(
        &self,
        record: u64,
        want: ReadPurpose,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, FetchedRecords)> {
        // Another read may have brought it since this one was planned.
        if self
            .cache
            .as_ref()
            .is_some_and(|cache| cache.contains(record))
        {
            return self.read_cached(&[record], &[want]);
        }
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let mut waited = std::time::Duration::ZERO;
        let limits = self.schedule.rules(want.sequence).limits;
        let most = match u64::from(want.together) {
            1 => limits.read,
            together => self.fetched_bytes.min(limits.read) / (together * ROOM),
        };
        let found = self.cache.as_ref().and_then(|cache| cache.on_disk(record));
        let mut content = FetchedContent {
            found: None,
            state: PixelState::Prepared,
            _permit: None,
        };
        if let Some(found) = found.filter(|found| found.bytes() <= most) {
            let bytes = found.bytes();
            let begun = std::time::Instant::now();
            let granted = gate.admit(bytes);
            waited = begun.elapsed();
            match granted {
                Ok(permit) => {
                    content.found = found.read().map(Ok);
                    content._permit = Some(Arc::new(permit));
                    self.reading.count(Stage::Read, 1, bytes, bytes);
                }
                Err(BudgetError::Closed) => return Vec::new(),
                Err(BudgetError::TooLarge { .. }) => {}
            }
        }
        meter.finish(Stage::Read, waited, &self.reading);
        let row = FetchedRecords::new(want, content, RowAttempts::default());
        vec![(want.sequence, row)]
    }
}
