//! Runs of rows: neighbouring rows of a batch that are copied together, where records are in memory
//! and samples are copies of them.
//!
//! Handles, locks and counters for each row take about 1.5 us, as much as copying 10 kB. A run takes
//! that time once. Batches, errors and digests are those of single rows.

use std::sync::Arc;

use super::record_job::{ATTEMPTS, ReadFrom, RecordJob, RecordRead, WorkerScratch};
use crate::fields::cells::copy_exactly;
use crate::fields::failure::StageFailure;
use crate::fields::scratch::Position;
use crate::loader::assemble::FilledRows;
use crate::loader::digest::{CellHash, Digest};
use crate::loader::failure::sample_error;
use crate::loader::fetched_records::{BadRecord, FetchedRows, ReadPurpose, RowAttempts};
use crate::loader::rules::{BatchRules, OnError};
use infeed_core::batch::{BatchRow, PADDING, RowCell, RowDone};
use infeed_core::counters::{Meter, Stage};
use infeed_core::error::Error;
use infeed_core::exec::{FillOutcome, ReadRun, Sequence};
use infeed_core::order::partition::Tail;
use infeed_core::sample::Record;
use infeed_source::{Source, damage_error, load_pages};

/// Bytes of a run: copying them takes far longer than the work for each run.
const RUN_BYTES: usize = 256 << 10;

/// Most rows of a run, so that several workers fill a small batch.
const RUN_ROWS: usize = 256;

/// Runs that are planned at a time.
const PLANNED: u64 = 16;

impl RecordJob {
    /// Returns the number of rows to copy together; `None` if rows have to be filled one by one.
    pub(in crate::loader) fn run_rows(&self) -> Option<usize> {
        let is_resident = self.source.resident().is_some() && self.source.groups().is_none();
        if !is_resident || !self.plan.only_copies() || self.cache.is_some() {
            return None;
        }
        let columns = self.plan.columns().iter();
        let row_bytes: usize = columns.filter_map(|column| column.kind.row_bytes()).sum();
        let rows = (RUN_BYTES / row_bytes.max(1)).min(RUN_ROWS);
        (rows > 1).then_some(rows)
    }

    /// Plans the reads of the first runs from one sequence number until another.
    pub(super) fn plan_runs(&self, from: Sequence, until: Sequence) -> ReadRun<RecordRead> {
        let end = until.min(from + PLANNED);
        let mut reads = Vec::with_capacity((end - from) as usize);
        for sequence in from..end {
            let rows = self.schedule.rows(sequence);
            if rows.is_empty() {
                continue;
            }
            let first = self.partition().row_position(rows.start);
            let epoch = self.order.epoch(first.epoch);
            let positions = first.position..first.position + (rows.end - rows.start);
            let taken = positions.map_while(|position| self.partition().taken_from(position));
            let read = RecordRead {
                from: ReadFrom::Resident(taken.map(|position| epoch.get(position)).collect()),
                wants: Arc::new([ReadPurpose::padding(sequence)]),
                tried: RowAttempts::default(),
            };
            reads.push((sequence, read));
        }
        ReadRun { end, reads }
    }

    /// Brings the records of a run into memory, if they are in a mapped file.
    pub(super) fn read_resident(
        &self,
        records: Vec<u64>,
        wants: &[ReadPurpose],
    ) -> Vec<(Sequence, FetchedRows)> {
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let fields = self.source.fields();
        if let Some(rows) = self.source.resident() {
            load_pages(rows, &records, fields.len());
        }
        let record_bytes = fields.iter().filter_map(|field| field.kind.record_bytes());
        let bytes = records.len() as u64 * record_bytes.sum::<usize>() as u64;
        self.reading
            .count(Stage::Read, records.len() as u64, bytes, bytes);
        meter.finish(Stage::Read, std::time::Duration::ZERO, &self.reading);
        vec![(wants[0].sequence, FetchedRows::Run(records))]
    }

    /// Fills a run of rows with copies of records. Rows after these are padding.
    pub(super) fn fill_run(
        &self,
        sequence: Sequence,
        records: &[u64],
        run: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> FillOutcome<RecordJob> {
        let rows = self.schedule.rows(sequence);
        let first = self.partition().row_position(rows.start);
        let rows = (rows.end - rows.start) as usize;
        let rules = self.schedule.rules(sequence);
        let in_flight = first.epoch * self.partition().steps() + first.step;
        let scratch = &mut worker.maker.scratch;
        scratch.counters.work_for(in_flight);
        scratch.meter.start();
        let mut filled = FilledRows {
            rows: Vec::with_capacity(rows),
            bad: Vec::new(),
            digest: Digest::empty(rules.digested),
            unknown_pixels: 0,
        };
        let copied = copy_run(&*self.source, records, run, rows);
        // The digest of a row covers its mark.
        self.pad(run, records.len(), rows);
        for (row, (&record, is_copied)) in records.iter().zip(copied).enumerate() {
            let at = Position {
                epoch: first.epoch,
                position: first.position + row as u64,
            };
            let written = match is_copied {
                true => Some(record),
                false => match self.copy_read(record, at, (row, rows), run, &mut filled, &rules) {
                    Ok(written) => written,
                    Err(error) => return FillOutcome::Failed(error),
                },
            };
            if let Some(record) = written {
                let cells = || CellHash::of_run(run, row, rows);
                let digest = Digest::of_row(rules.digested, at, record, cells);
                filled.digest = filled.digest.plus(digest);
            }
            filled.rows.push(written.map(row_done));
        }
        filled.rows.resize_with(rows, || Some(row_done(PADDING)));
        let scratch = &mut worker.maker.scratch;
        let samples = records.len() as u64;
        scratch.counters.count(Stage::Write, samples, 0, 0);
        scratch.lap(Stage::Write);
        scratch.meter.settle(&scratch.counters);
        FillOutcome::Done(filled)
    }

    /// Fills a row of a run whose record could not be copied: reads the record, which shows what is
    /// wrong with it, and treats a bad one as the rules say. Returns the record in the row; `None` if
    /// the row is skipped.
    fn copy_read(
        &self,
        record: u64,
        at: Position,
        (row, rows): (usize, usize),
        run: &mut BatchRow,
        filled: &mut FilledRows,
        rules: &BatchRules,
    ) -> Result<Option<u64>, Error> {
        let (mut record, mut attempt) = (record, 0);
        loop {
            let made = self.read_now(record).and_then(|found| {
                let copied = copy_record(&found, run, (row, rows));
                let failed = |failure| sample_error(&*self.source, found.index, failure);
                copied.map(|()| found.index).map_err(failed)
            });
            let error = match made {
                Ok(index) => return Ok(Some(index)),
                Err(error) => error,
            };
            let bad = BadRecord::new(&error, at, rules).ok_or_else(|| error.clone())?;
            filled.bad.push(bad);
            if rules.on_error == OnError::Skip {
                return Ok(None);
            }
            attempt += 1;
            if attempt > ATTEMPTS {
                return Err(error);
            }
            record = self.order.substitute(at.epoch, at.position, attempt);
        }
    }

    /// Reads a record that is in memory or in a mapped file.
    fn read_now(&self, record: u64) -> Result<Record, Error> {
        let source = &*self.source;
        let mut found = None;
        for read in source.plan(&[record], u64::MAX) {
            let number = read.records.first().map_or(record, |&(_, number)| number);
            source
                .read(&read, &mut |_| Ok(()), &mut |_, result| {
                    found = Some(result.map_err(|cause| damage_error(source, number, cause)));
                })
                .map_err(|error| error.about(source))?;
        }
        found.unwrap_or_else(|| {
            Err(Error::Panicked {
                text: format!("the source did not return {}", source.id(record, None)),
            })
        })
    }

    /// Turns the rows after the records into padding, and sets the mark of valid rows.
    fn pad(&self, run: &mut BatchRow, records: usize, rows: usize) {
        for cell in slabs(run) {
            let size = cell.len() / rows;
            cell[records * size..].fill(0);
        }
        if self.partition().tail() == Tail::Pad
            && let Some(valid) = slabs(run).last()
        {
            valid[..records].fill(1);
        }
    }
}

/// Copies records to a run of `rows` rows. Returns for each record whether it was copied; those that
/// were not have to be read.
fn copy_run(source: &dyn Source, records: &[u64], run: &mut BatchRow, rows: usize) -> Vec<bool> {
    let Some(resident) = source.resident() else {
        return vec![false; records.len()];
    };
    let mut copied = vec![true; records.len()];
    for (field, cell) in slabs(run).take(source.fields().len()).enumerate() {
        let to = cell.chunks_exact_mut((cell.len() / rows).max(1));
        for ((&record, to), is_copied) in records.iter().zip(to).zip(&mut copied) {
            *is_copied &= resident.copy(record, field, to);
        }
    }
    copied
}

/// Copies the fields of a record to one row of a run of `rows` rows.
fn copy_record(
    record: &Record,
    run: &mut BatchRow,
    (row, rows): (usize, usize),
) -> Result<(), StageFailure> {
    let cells = slabs(run).zip(&record.fields).enumerate();
    for (field, (cell, bytes)) in cells {
        let size = cell.len() / rows;
        copy_exactly(field, bytes, &mut cell[row * size..(row + 1) * size])?;
    }
    Ok(())
}

/// Returns the memory of a run in each column.
fn slabs(run: &mut BatchRow) -> impl Iterator<Item = &mut [u8]> {
    run.cells.iter_mut().filter_map(|cell| match cell {
        RowCell::Slab(run) => Some(run.bytes_mut()),
        RowCell::Own { .. } => None,
    })
}

fn row_done(record: u64) -> RowDone {
    let own = Vec::new();
    RowDone { record, own }
}
