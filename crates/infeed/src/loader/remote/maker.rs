//! Batches on request: made on all cores in the order of the requests, and not assembled.

use std::sync::Arc;
use std::time::Duration;

use super::requests::{BatchRequest, RequestedBatches};
use super::run::RunDescription;
use crate::loader::assemble::{FilledRows, OpenBatch};
use crate::loader::fetched_records::{FetchedRows, ReadPurpose, RowAttempts};
use crate::loader::options::Options;
use crate::loader::records::{ReadFrom, RecordJob, RecordRead, WorkerScratch};
use crate::loader::start::PreparedRun;
use infeed_core::batch::{Array, BatchRow};
use infeed_core::error::Error;
use infeed_core::exec::{
    BatchChoice, Executor, FillOutcome, Job, JoinedReads, MemoryReservation, NextBatch, ReadRun,
    RowLocation, Sequence,
};
use infeed_core::order::partition::{Partition, PartitionError};

/// In-flight batches in transfer, in addition to those that keep all cores busy.
pub(crate) const IN_TRANSFER: usize = 4;

impl RecordJob {
    /// Returns the reads of sequence numbers whose reads cannot be planned.
    fn without_reading(&self, from: Sequence, until: Sequence, why: &Error) -> ReadRun<RecordRead> {
        let wants = (from..until).map(ReadPurpose::padding).collect();
        let read = RecordRead {
            from: ReadFrom::Nothing(Some(why.clone())),
            wants,
            tried: RowAttempts::default(),
        };
        ReadRun {
            end: until,
            reads: vec![(from, read)],
        }
    }
}

/// A loader's job that returns the rows of a batch without assembling them.
struct RowsJob(RecordJob);

/// The rows of a batch, filled but not assembled.
#[derive(Debug)]
pub struct UnassembledBatch {
    /// The request.
    pub request: BatchRequest,
    /// The rows, or the reason why this process cannot make them.
    pub rows: Result<UnassembledRows, Error>,
}

/// Filled rows and their slabs.
#[derive(Debug)]
pub struct UnassembledRows {
    /// Slab of each column; `None` for columns whose rows differ in size.
    pub slabs: Vec<Option<Array>>,
    /// Result of each row, in order.
    pub rows: Vec<FilledRows>,
}

impl Job for RowsJob {
    type Read = RecordRead;
    type FetchedData = Box<FetchedRows>;
    type InFlight = OpenBatch;
    type Row = BatchRow;
    type RowOutput = FilledRows;
    type Batch = Result<UnassembledRows, Error>;
    type Scratch<'job> = WorkerScratch<'job>;
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
        Ok(planned.unwrap_or_else(|error| {
            let rows_end = self.0.schedule().rows_end(from, until);
            let run = self.0.without_reading(from, rows_end, &error);
            ReadRun { end: until, ..run }
        }))
    }

    fn read(
        &self,
        read: RecordRead,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, Box<FetchedRows>)> {
        self.0.read(read, gate)
    }

    fn join(
        &self,
        waiting: Option<Box<FetchedRows>>,
        received: Box<FetchedRows>,
    ) -> JoinedReads<Box<FetchedRows>> {
        self.0.join(waiting, received)
    }

    fn is_expensive(&self, fetched: &Box<FetchedRows>) -> bool {
        self.0.is_expensive(fetched)
    }

    fn open(&self, in_flight: u64) -> Result<(OpenBatch, Vec<BatchRow>), Error> {
        self.0.open(in_flight)
    }

    fn scratch(&self) -> WorkerScratch<'_> {
        self.0.scratch()
    }

    fn fill(
        &self,
        sequence: Sequence,
        fetched: Box<FetchedRows>,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> FillOutcome<RowsJob> {
        match self.0.fill(sequence, fetched, row, worker) {
            FillOutcome::Done(done) => FillOutcome::Done(done),
            FillOutcome::Again(read) => FillOutcome::Again(read),
            FillOutcome::Failed(fault) => FillOutcome::Failed(fault),
        }
    }

    fn close(
        &self,
        in_flight: OpenBatch,
        rows: Vec<Result<FilledRows, Error>>,
    ) -> Result<Result<UnassembledRows, Error>, Error> {
        let count = rows.len();
        self.0.losses().log(u64::MAX);
        let slabs = in_flight.into_slabs(count);
        let rows: Result<Vec<FilledRows>, Error> = rows.into_iter().collect();
        Ok(rows.map(|rows| UnassembledRows { slabs, rows }))
    }
}

/// Makes batches on request, for ranks of one run that differ only in rank and rules.
#[derive(Debug)]
pub struct BatchMaker {
    executor: Executor<RowsJob>,
    requests: Arc<RequestedBatches>,
    run: RunDescription,
}

impl BatchMaker {
    /// Starts the threads of a run.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`].
    pub(crate) fn start(prepared: PreparedRun, options: &Options) -> Result<BatchMaker, Error> {
        let run = prepared.describe(options);
        let requests = Arc::new(RequestedBatches::new(run.partition.rows()));
        let job = RowsJob(prepared.job.on_request(Arc::clone(&requests)));
        let config = infeed_core::exec::Config {
            taking: BatchChoice::Requested,
            ..prepared.config
        };
        let executor = Executor::start(job, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        Ok(BatchMaker {
            executor,
            requests,
            run,
        })
    }

    /// The run whose batches it makes, as its rank 0.
    pub fn run(&self) -> &RunDescription {
        &self.run
    }

    /// Number of batches that may be in flight at once, including finished ones that are not
    /// dropped.
    pub fn room(&self) -> usize {
        self.executor.config().in_flight_batches
    }

    /// Returns the partition of a rank.
    ///
    /// # Errors
    ///
    /// If the run has no such rank.
    pub fn partition(&self, rank: u64) -> Result<Partition, PartitionError> {
        self.run.partition.of_rank(rank)
    }

    /// Requests a batch; returns false if the order has no such batch.
    pub fn ask(&self, request: BatchRequest) -> bool {
        if !request.is_there() {
            return false;
        }
        self.requests.push(request);
        self.executor.ask(1);
        true
    }

    /// Returns the next batch in request order, or `None` if none is ready within `timeout`.
    ///
    /// # Errors
    ///
    /// If no more batches will come.
    pub fn next(&self, timeout: Duration) -> Result<Option<UnassembledBatch>, Error> {
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
        let request = self.requests.pop();
        Ok(request.map(|request| UnassembledBatch { request, rows }))
    }
}
