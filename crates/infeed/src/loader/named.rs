//! Batches by name: made on all cores in the order of the requests, as a feeder does.
//!
//! The same job as a loader's fills the rows. Three things differ: which batch an in-flight batch
//! is, the rules that apply to it, and that its rows are sent instead of assembled.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::digest::DigestScope;
use super::facts;
use super::fetched::{FetchedRecords, ReadPurpose, RowAttempts};
use super::made::FilledRow;
use super::names::{BatchRequest, RequestedBatches};
use super::options::Options;
use super::prepare::prepare;
use super::records::{InFlightRecords, RecordJob, RecordRead, WorkerScratch};
use crate::pipeline::{Handle, Pipeline};
use crate::plan::device::Placement;
use crate::wire::WireError;
use crate::wire::frame::{self, Checksum, Kind};
use crate::wire::hello::{Fact, Limits};
use crate::wire::looks::Look;
use crate::wire::note::Note;
use crate::wire::rows::{Column, HEAD_BYTES, KeptRow, RowHead, RowsHead, RowsLayout};
use infeed_core::batch::{Array, BatchRow, ColumnKind, ColumnSpec};
use infeed_core::error::Error;
use infeed_core::exec::{
    BatchChoice, Executor, FillOutcome, Job, JoinedReads, MemoryReservation, NextBatch, ReadRun,
    RowLocation, Sequence,
};
use infeed_core::order::partition::{Partition, PartitionError, Tail};
use infeed_source::Source;

/// In-flight batches in transfer, in addition to those that keep all cores busy.
const BESIDE: usize = 4;

impl RecordJob {
    /// Returns the layout of the rows in frames.
    pub(super) fn layout(&self, digested: DigestScope) -> RowsLayout {
        let column = |spec: &ColumnSpec| match &spec.kind {
            ColumnKind::Fixed { dtype, shape } => Column::Slab {
                row_bytes: shape.iter().product::<usize>() * dtype.bytes(),
            },
            ColumnKind::Padded { dtype, rank } => Column::Own {
                rank: Some(*rank),
                element: dtype.bytes(),
            },
            ColumnKind::Ragged { dtype } => Column::Own {
                rank: None,
                element: dtype.bytes(),
            },
            ColumnKind::Bytes | ColumnKind::Text => Column::Own {
                rank: None,
                element: 1,
            },
        };
        RowsLayout {
            columns: RecordJob::plan(self).columns().iter().map(column).collect(),
            pixels: digested == DigestScope::Pixels,
            row_bytes: self.row_bytes,
        }
    }

    /// Returns the size limits of records, so that feeders apply the same limits.
    pub(super) fn limits(&self, again: u64) -> Limits {
        Limits {
            read: self.fetched_bytes,
            again,
            scratch: self.kept_bytes.max(self.large.limit_bytes()),
            row: self.row_bytes,
        }
    }

    /// Returns the reads of sequence numbers whose reads cannot be planned.
    fn without_reading(&self, from: Sequence, until: Sequence, why: &Error) -> ReadRun<RecordRead> {
        let wants = (from..until).map(ReadPurpose::padding).collect();
        let read = RecordRead {
            read: None,
            wants,
            tried: RowAttempts::default(),
            failed: Some(why.clone()),
        };
        ReadRun {
            end: until,
            reads: vec![(from, read)],
        }
    }
}

/// A loader's job that returns the rows of a batch without assembling them.
struct FeederJob(RecordJob);

/// The rows of a batch, filled but not assembled.
pub(crate) struct UnassembledBatch {
    /// The batch.
    pub(crate) named: BatchRequest,
    /// The rows, or the reason why this feeder cannot make them.
    pub(crate) rows: Result<FeederRows, Error>,
}

/// Filled rows and their slabs.
pub(crate) struct FeederRows {
    slabs: Vec<Option<Array>>,
    done: Vec<FilledRow>,
}

impl Job for FeederJob {
    type Read = RecordRead;
    type Fetched = FetchedRecords;
    type InFlight = InFlightRecords;
    type Row = BatchRow;
    type Done = FilledRow;
    type Batch = Result<FeederRows, Error>;
    type Scratch = WorkerScratch;
    type Fault = Error;

    fn place(&self, sequence: Sequence) -> RowLocation {
        self.0.place(sequence)
    }

    fn first(&self, in_flight: u64) -> Sequence {
        self.0.first(in_flight)
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<RecordRead>, Error> {
        // A fault of one batch must not affect the batches after it.
        let planned = Job::plan(&self.0, from, until);
        let rows_end = |from| match self.0.names() {
            Some(names) => names.rows_end(from, self.0.partition()).min(until),
            None => until,
        };
        Ok(planned.unwrap_or_else(|error| {
            let run = self.0.without_reading(from, rows_end(from), &error);
            ReadRun { end: until, ..run }
        }))
    }

    fn read(
        &self,
        read: RecordRead,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, FetchedRecords)> {
        self.0.read(read, gate)
    }

    fn join(
        &self,
        waiting: Option<FetchedRecords>,
        come: FetchedRecords,
    ) -> JoinedReads<FetchedRecords> {
        self.0.join(waiting, come)
    }

    fn open(&self, in_flight: u64) -> Result<(InFlightRecords, Vec<BatchRow>), Error> {
        self.0.open(in_flight)
    }

    fn scratch(&self) -> WorkerScratch {
        self.0.scratch()
    }

    fn fill(
        &self,
        sequence: Sequence,
        fetched: FetchedRecords,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
    ) -> FillOutcome<FeederJob> {
        match self.0.fill(sequence, fetched, row, worker) {
            FillOutcome::Done(done) => FillOutcome::Done(done),
            FillOutcome::Again(read) => FillOutcome::Again(read),
            FillOutcome::Failed(fault) => FillOutcome::Failed(fault),
        }
    }

    fn close(
        &self,
        in_flight: InFlightRecords,
        rows: Vec<Result<FilledRow, Error>>,
    ) -> Result<Result<FeederRows, Error>, Error> {
        let count = rows.len();
        let slabs = in_flight.in_flight.sealed(count);
        let done: Result<Vec<FilledRow>, Error> = rows.into_iter().collect();
        Ok(done.map(|done| FeederRows { slabs, done }))
    }
}

/// Makes batches by name, for trainers that differ only in rank and rules.
pub(crate) struct BatchMaker {
    executor: Executor<FeederJob>,
    names: Arc<RequestedBatches>,
    source: Arc<dyn Source>,
    facts: Vec<Fact>,
    layout: RowsLayout,
    /// Records, batch size, world size and tail, from which a rank's partition follows.
    cut: (u64, u64, u64, Tail),
}

impl BatchMaker {
    /// Opens a pipeline for batches of one of `options.world_size` ranks. With `for_device`, rows
    /// have the layout for a device that expands them. The pipeline has no functions on batches,
    /// because trainers call them. `looks` are hashes of some records of the source.
    pub(crate) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        looks: &[Look],
        options: &Options,
        for_device: bool,
    ) -> Result<BatchMaker, Error> {
        let placement = match for_device {
            true => Placement::Device,
            false => Placement::Host,
        };
        let prepared = prepare(pipeline, source, handles, options, None, placement, BESIDE)?;
        let facts = facts::facts(&prepared, looks)?;
        let partition = *prepared.job.partition();
        let names = Arc::new(RequestedBatches::new(partition.rows()));
        let layout = prepared.job.layout(options.digest);
        let source = Arc::clone(prepared.job.source());
        let begin = &prepared.begin;
        let cut = (
            begin.records,
            begin.batch,
            options.world_size,
            partition.tail(),
        );
        let job = FeederJob(prepared.job.named(Arc::clone(&names)));
        let config = infeed_core::exec::Config {
            taking: BatchChoice::Asked,
            ..prepared.config
        };
        let executor = Executor::start(job, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        Ok(BatchMaker {
            executor,
            names,
            source,
            facts,
            layout,
            cut,
        })
    }

    /// Facts on which trainers must agree.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Returns the layout of its rows.
    pub(crate) fn layout(&self, digested: DigestScope) -> RowsLayout {
        RowsLayout {
            pixels: digested == DigestScope::Pixels,
            ..self.layout.clone()
        }
    }

    /// Number of batches that may be in flight at once, including finished ones that are not sent.
    pub(crate) fn room(&self) -> usize {
        self.executor.config().in_flight_batches
    }

    /// Returns the partition of a rank.
    pub(crate) fn partition(&self, rank: u64) -> Result<Partition, PartitionError> {
        let (records, batch, world_size, tail) = self.cut;
        Partition::new(records, batch, rank, world_size, tail)
    }

    /// Requests a batch; returns false if the order has no such batch.
    pub(crate) fn ask(&self, named: BatchRequest) -> bool {
        if !named.is_there() {
            return false;
        }
        self.names.push(named);
        self.executor.ask(1);
        true
    }

    /// Returns the next batch in request order, or `None` if none is ready within `timeout`.
    ///
    /// # Errors
    ///
    /// If no more batches will come.
    pub(crate) fn next(&self, timeout: Duration) -> Result<Option<UnassembledBatch>, Error> {
        let rows = match self.executor.next(timeout) {
            NextBatch::Batch(rows) => rows,
            NextBatch::Fault(error) => {
                self.executor.pass_over();
                Err(error)
            }
            NextBatch::Timeout => return Ok(None),
            NextBatch::Broken(text) => return Err(Error::Panicked { text }),
            NextBatch::Closed => return Err(Error::Closed),
            NextBatch::Forked => return Err(Error::Forked),
        };
        let named = self.names.pop();
        Ok(named.map(|named| UnassembledBatch { named, rows }))
    }

    /// Writes the rows of a batch, or a message that this feeder declines it. Returns the written
    /// bytes, and whether they were rows.
    ///
    /// # Errors
    ///
    /// The errors of the connection.
    pub(crate) fn send(
        &self,
        batch: &UnassembledBatch,
        mut to: impl Write,
    ) -> Result<(u64, bool), WireError> {
        let named = &batch.named;
        let layout = self.layout(named.terms.digested);
        let made = match &batch.rows {
            Ok(rows) => rows.head(named, &*self.source).map(|head| (rows, head)),
            Err(error) => Err(error.chain()),
        };
        let made = made.and_then(|(rows, head)| {
            let body = head.encode(&layout);
            match body.len() as u64 <= u64::from(HEAD_BYTES) {
                true => Ok((rows, head, body)),
                false => Err("its list of bad records is too long".to_owned()),
            }
        });
        match made {
            Ok((rows, head, body)) => {
                frame::write(&mut to, Kind::Rows, &body)?;
                let bytes = rows.write(&head, &layout, &mut to)?;
                to.flush()?;
                Ok((bytes + body.len() as u64, true))
            }
            Err(why) => {
                let mut put = crate::wire::bytes::Put::default();
                let body = put.u64(named.epoch).u64(named.step).text(&why, 1024);
                frame::write(&mut to, Kind::Declined, &body.finish())?;
                to.flush()?;
                Ok((0, false))
            }
        }
    }
}

impl FeederRows {
    /// Returns the head of the rows, or the reason why the trainer has to make them.
    fn head(&self, named: &BatchRequest, source: &dyn Source) -> Result<RowsHead, String> {
        let row = |done: &FilledRow| {
            let notes = done.bad.iter().map(|bad| {
                Note::of(&bad.reason, source)
                    .ok_or_else(|| format!("the trainer has to decide: {}", bad.reason.chain()))
            });
            let kept = done.row.as_ref().map(|row| {
                let own = row.own.iter().flatten();
                let own = own.map(|(shape, bytes)| {
                    let shape = shape.iter().map(|&length| length as u64);
                    (shape.collect(), bytes.len() as u64)
                });
                KeptRow {
                    record: row.record,
                    ids: done.digest.ids,
                    pixels: done.digest.pixels,
                    unknown_pixels: done.unknown_pixels,
                    own: own.collect(),
                }
            });
            Ok(RowHead {
                kept,
                notes: notes.collect::<Result<_, String>>()?,
            })
        };
        Ok(RowsHead {
            epoch: named.epoch,
            step: named.step,
            rows: self.done.iter().map(row).collect::<Result<_, String>>()?,
        })
    }

    /// Writes the columns of the rows.
    fn write(
        &self,
        head: &RowsHead,
        layout: &RowsLayout,
        to: &mut impl Write,
    ) -> Result<u64, WireError> {
        let mut written = 0;
        for (at, column) in layout.columns.iter().enumerate() {
            let mut sum = Checksum::default();
            let mut put = |bytes: &[u8]| {
                sum.add(bytes);
                written += bytes.len() as u64;
                to.write_all(bytes)
            };
            match (column, &self.slabs[at]) {
                (&Column::Slab { row_bytes }, Some(slab)) => {
                    let slab = slab.bytes();
                    // Consecutive rows are written at once.
                    let kept = head.rows.iter().map(|row| row.kept.is_some());
                    let kept: Vec<bool> = kept.collect();
                    for run in runs(&kept) {
                        put(&slab[run.start * row_bytes..run.end * row_bytes])?;
                    }
                }
                _ => {
                    let rows = self.done.iter().filter_map(|done| done.row.as_ref());
                    for (_, bytes) in rows.filter_map(|row| row.own[at].as_ref()) {
                        put(bytes)?;
                    }
                }
            }
            to.write_all(&sum.finish().to_le_bytes())?;
        }
        Ok(written)
    }
}

/// Returns the ranges of kept rows.
fn runs(kept: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for row in (0..kept.len()).filter(|&row| kept[row]) {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_kept_go_out_in_runs() {
        assert_eq!(runs(&[true, true, false, true]), [0..2, 3..4]);
        assert_eq!(runs(&[false, false]), []);
    }
}
