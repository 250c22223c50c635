//! The work of an executor, which the loader and the tests implement.

use super::budget::MemoryReservation;

/// Sequence number of a position in the order of this rank. It continues across epochs.
pub type Sequence = u64;

/// The work of an executor. The loader implements it with records, the tests with integers.
///
/// Threads call the methods concurrently and in any order, so no method may depend on the order of
/// calls.
pub trait Job: Send + Sync + Sized + 'static {
    /// One read to perform. It can fetch the data of several sequence numbers.
    type Read: Send;
    /// Data that a read returns for one sequence number. It owns the permit for its bytes, so
    /// dropping it releases them.
    type FetchedData: Send;
    /// A batch being filled. Dropping it after its rows must free or recycle its memory.
    type InFlight: Send;
    /// The row of one sequence number in an in-flight batch.
    type Row: Send;
    /// Result of filling a row, in addition to the bytes in the row.
    type RowOutput: Send;
    /// A finished batch.
    type Batch: Send;
    /// Scratch of one worker. It may borrow from the job.
    type Scratch<'job>;
    /// Reason why a sequence number or an in-flight batch failed.
    type Fault: Send + Clone;

    /// Returns the in-flight batch and the row of a sequence number.
    fn place(&self, sequence: Sequence) -> RowLocation;

    /// Returns the first sequence number of an in-flight batch.
    fn first(&self, in_flight: u64) -> Sequence;

    /// Returns the number of rows that a sequence number stands for, for statistics.
    fn rows(&self, _sequence: Sequence) -> u64 {
        1
    }

    /// Plans reads for the next sequence numbers, from `from` up to at most `until` (exclusive).
    ///
    /// # Errors
    ///
    /// The consumer receives the fault when it reaches this sequence number. Nothing later is
    /// planned.
    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<Self::Read>, Self::Fault>;

    /// Performs a read, on an I/O thread. It must reserve bytes with `gate` before it allocates
    /// them. If the reservation fails because the budget is closed, it may return any result: the
    /// executor discards it.
    fn read(
        &self,
        read: Self::Read,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, Self::FetchedData)>;

    /// Combines the results of several reads for one sequence number. `waiting` arrived earlier and
    /// was incomplete; `arrived` is new. Runs under the executor's lock, so it must not drop either
    /// of them (dropping a permit takes another lock).
    fn join(
        &self,
        waiting: Option<Self::FetchedData>,
        arrived: Self::FetchedData,
    ) -> JoinedReads<Self::FetchedData> {
        drop(waiting);
        JoinedReads::Whole(arrived)
    }

    /// Whether a row is expected to take much longer than others. Workers fill such rows first, so
    /// that a batch does not wait for its last row. A row of several reads takes much longer if one
    /// of them does.
    fn is_expensive(&self, _fetched: &Self::FetchedData) -> bool {
        false
    }

    /// Opens an in-flight batch: its memory and one row for each of its sequence numbers.
    ///
    /// # Errors
    ///
    /// The fault becomes the result of the in-flight batch.
    fn open(&self, in_flight: u64) -> Result<OpenedBatch<Self>, Self::Fault>;

    /// Creates the scratch of a worker.
    fn scratch(&self) -> Self::Scratch<'_>;

    /// Fills one row, on a worker.
    fn fill(
        &self,
        sequence: Sequence,
        fetched: Self::FetchedData,
        row: &mut Self::Row,
        scratch: &mut Self::Scratch<'_>,
    ) -> FillOutcome<Self>;

    /// Finishes a batch. Its rows are filled or failed and already dropped; `rows` holds their
    /// results in row order.
    ///
    /// # Errors
    ///
    /// The consumer receives the fault instead of the batch, on every call until a reset.
    fn close(
        &self,
        in_flight: Self::InFlight,
        rows: Vec<Result<Self::RowOutput, Self::Fault>>,
    ) -> Result<Self::Batch, Self::Fault>;
}

/// A newly opened in-flight batch and one row for each of its sequence numbers.
pub type OpenedBatch<J> = (<J as Job>::InFlight, Vec<<J as Job>::Row>);

/// Location of a sequence number's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLocation {
    /// Number of the in-flight batch. It continues across epochs.
    pub in_flight: u64,
    /// Row in the in-flight batch.
    pub row: usize,
}

/// A run of planned sequence numbers and their reads.
#[derive(Debug)]
pub struct ReadRun<R> {
    /// One past the last sequence number of the run.
    pub end: Sequence,
    /// Reads with the first sequence number that each fetches, sorted by it.
    pub reads: Vec<(Sequence, R)>,
}

/// Result of combining the reads of one sequence number.
pub enum JoinedReads<P> {
    /// Complete: the row can be filled.
    Whole(P),
    /// Incomplete: the result of another read is missing.
    Part(P),
}

/// Result of filling a row.
pub enum FillOutcome<J: Job> {
    /// The row is filled.
    Done(J::RowOutput),
    /// The row needs another read. The sequence number is filled again with its result.
    Again(J::Read),
    /// The row failed.
    Failed(J::Fault),
}
