//! The job as the executor sees it: what its threads call, in the order of the data flow.

use std::sync::{Arc, PoisonError};

use super::record_job::{RecordJob, RecordRead, WorkerScratch};
use crate::loader::assemble::{FilledRows, FinishedBatch, OpenBatch};
use crate::loader::fetched_records::FetchedRows;
use crate::loader::rules::RecordLimits;
use crate::maker::SampleMaker;
use crate::maker::memory::SampleMemory;
use infeed_core::batch::BatchRow;
use infeed_core::counters::ThreadCounters;
use infeed_core::error::Error;
use infeed_core::exec::{
    FillOutcome, Job, JoinedReads, MemoryReservation, ReadRun, RowLocation, Sequence,
};

impl Job for RecordJob {
    type Read = RecordRead;
    // Boxed, so that the tree of fetched records, which a lock guards, has few cache lines.
    type FetchedData = Box<FetchedRows>;
    type InFlight = OpenBatch;
    type Row = BatchRow;
    type RowOutput = FilledRows;
    type Batch = FinishedBatch;
    type Scratch<'job> = WorkerScratch<'job>;
    type Fault = Error;

    fn place(&self, sequence: Sequence) -> RowLocation {
        self.schedule.place(sequence)
    }

    fn first(&self, in_flight: u64) -> Sequence {
        self.schedule.first(in_flight)
    }

    fn rows(&self, sequence: Sequence) -> u64 {
        let rows = self.schedule.rows(sequence);
        rows.end - rows.start
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<RecordRead>, Error> {
        match self.schedule.is_in_runs() {
            true => Ok(self.plan_runs(from, until)),
            false => self.plan_reads(from, until),
        }
    }

    fn read(
        &self,
        request: RecordRead,
        gate: MemoryReservation<'_>,
    ) -> Vec<(Sequence, Box<FetchedRows>)> {
        let rows = self.read_records(request, gate).into_iter();
        rows.map(|(sequence, fetched)| (sequence, Box::new(fetched)))
            .collect()
    }

    fn join(
        &self,
        waiting: Option<Box<FetchedRows>>,
        received: Box<FetchedRows>,
    ) -> JoinedReads<Box<FetchedRows>> {
        FetchedRows::join(waiting, received)
    }

    fn is_expensive(&self, fetched: &Box<FetchedRows>) -> bool {
        let FetchedRows::One(fetched) = &**fetched else {
            return false;
        };
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

    fn scratch(&self) -> WorkerScratch<'_> {
        let counters = Arc::new(ThreadCounters::new(self.timeline.clone()));
        let mut all = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        WorkerScratch {
            maker: SampleMaker::with_counters(&self.plan, counters)
                .with_memory(SampleMemory::new(self.kept_bytes, &self.large))
                .with_tiles(&self.tiles),
            at: (0, 0),
            limits: RecordLimits::NONE,
        }
    }

    fn fill(
        &self,
        sequence: Sequence,
        fetched: Box<FetchedRows>,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> FillOutcome<RecordJob> {
        match *fetched {
            FetchedRows::One(fetched) => self.fill_row(sequence, fetched, row, worker),
            FetchedRows::Run(records) => self.fill_run(sequence, &records, row, worker),
        }
    }

    fn close(
        &self,
        open: OpenBatch,
        rows: Vec<Result<FilledRows, Error>>,
    ) -> Result<FinishedBatch, Error> {
        let partition = self.partition();
        let first = partition.row_position(partition.sequence(open.epoch, open.step));
        self.assembler
            .finish(&self.plan, open, rows, first.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_source::RecordResult;
    use infeed_source::handle_bytes;

    #[test]
    fn record_handles_fit_into_the_bytes_counted_per_group() {
        let found = size_of::<(usize, RecordResult)>();
        let handle = size_of::<(Sequence, Box<FetchedRows>)>();
        let fetched = size_of::<FetchedRows>();

        // A table of results, up to half empty; fetched records in a list and in boxes; the boxes in
        // a list, and in a tree whose nodes are up to half empty, into which they are inserted at
        // once.
        let most = 2 * found + 2 * fetched + 3 * handle;

        assert!(
            most as u64 <= handle_bytes(1, 0),
            "{most}: {found}, {fetched}"
        );
    }
}
