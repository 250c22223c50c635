//! Reads of records: their plan, and their results for each row.

use std::collections::HashMap;
use std::sync::Arc;

use super::cached_records;
use super::record_job::{ReadFrom, RecordJob, RecordRead};
use crate::fields::pixels::prepared_record::PixelState;
use crate::loader::budget::ROOM;
use crate::loader::fetched_records::{
    FetchedContent, FetchedRecords, FetchedRows, ReadPurpose, RecordRole, RowAttempts,
};
use crate::loader::rules::RecordLimits;
use crate::loader::whole_groups::fits;
use crate::plan::join::JoinDraw;
use infeed_core::counters::{Meter, Stage};
use infeed_core::error::Error;
use infeed_core::exec::budget::BudgetError;
use infeed_core::exec::{MemoryReservation, ReadRun, Sequence};
use infeed_core::random::DrawKey;
use infeed_core::sample::Record;
use infeed_source::{self as source, Read, ReadError, RecordResult};

impl RecordJob {
    /// Plans the reads of the rows from one sequence number until another, or of the first of them.
    pub(super) fn plan_reads(
        &self,
        from: Sequence,
        until: Sequence,
    ) -> Result<ReadRun<RecordRead>, Error> {
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
            let drawn = self.partners(row_position);
            let partners = drawn.as_ref().map_or(&[][..], JoinDraw::partners);
            let mut want = |place, role| {
                let record = permutation.get(place);
                let purpose = ReadPurpose {
                    sequence,
                    role,
                    together: 1 + partners.len() as u8,
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
            for (number, &place) in partners.iter().enumerate() {
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
        for run in cached.chunks(cached_records::RUN) {
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

    /// Reads records and returns them for their rows.
    pub(super) fn read_records(
        &self,
        request: RecordRead,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, FetchedRows)> {
        let RecordRead { from, wants, tried } = request;
        let (mut read, mut gate, mut permit) = match from {
            ReadFrom::Source(read) => (read, Some(gate), None),
            ReadFrom::Memory(records) => return self.read_cached(&records, &wants),
            ReadFrom::Resident(records) => return self.read_resident(records, &wants),
            ReadFrom::Disk(record) => match self.read_from_disk(record, wants[0], gate) {
                Ok(rows) => return rows,
                Err(lost) => match lost.read {
                    Some(read) => (read, lost.gate, lost.permit.map(Arc::new)),
                    None => return cached_records::missing(wants[0]),
                },
            },
            ReadFrom::Nothing(failed) => {
                let padding = |want: &ReadPurpose| {
                    let row = FetchedRecords::without_reading(failed.clone());
                    (want.sequence, FetchedRows::One(row))
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
        let most = match tried.substitutes {
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
            Err(ReadError::Refused { .. }) if has_no_gate => {
                return cached_records::missing(wants[0]);
            }
            Err(error) => Some(self.add_advice(error.about(&*self.source))),
        };
        let fetched = |&(place, record): &(usize, u64)| {
            let found = match (content.remove(&place), &failed) {
                (Some(Ok(found)), _) => Ok(found),
                (Some(Err(cause)), _) => Err(source::damage_error(&*self.source, record, cause)),
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
            let row = FetchedRecords::new(want, content, tried.clone());
            (want.sequence, FetchedRows::One(row))
        };
        read.records.iter().map(fetched).collect()
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
                let drawn = self.partners(row_position);
                let partners = drawn.as_ref().map_or(&[][..], JoinDraw::partners);
                let position = partners.get(usize::from(number));
                position.copied().unwrap_or(row_position.position)
            }
        };
        source::draw_key(self.plan.seed(), row_position.epoch, position)
    }
}
