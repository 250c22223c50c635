//! Records on the conveyor: what reading, filling and closing mean for them, and what becomes of
//! bad ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::budget::Shares;
use super::{OnError, Options};
use crate::batch::{Batch, BatchRow, Batcher, Cell, RowDone, Tray};
use crate::counters::{Calls, Meter, Stage, StageStats, ThreadCounters, Timeline};
use crate::error::Error;
use crate::exec::budget::{Permit, Pool, Refused};
use crate::exec::{Filled, Gate, Job, Place, Run, Ticket};
use crate::order::Order;
use crate::order::partition::Partition;
use crate::plan::Plan;
use crate::plan::failure::{Failure, SampleError};
use crate::plan::sample::{Bench, Position};
use crate::sample::{Record, RecordId};
use crate::source::{self, Found, Read, ReadError, Source};

/// What reads of several records may hold of the bytes for reading, as one part of so many: the
/// next run is read while this one is used.
const ROOM: u64 = 2;

/// Substitutes tried for one position before the run stops: a dataset of which half is bad
/// gets there once in 10^19 positions.
const ATTEMPTS: u32 = 64;

/// A record that was skipped or substituted.
#[derive(Clone, Debug)]
pub struct BadRecord {
    /// Which.
    pub record: RecordId,
    /// Epoch in which it was met.
    pub epoch: u64,
    /// Position in the epoch whose row it should have filled.
    pub position: u64,
    /// What is wrong with it.
    pub reason: Error,
}

/// The job of a loader.
#[derive(Debug)]
pub(crate) struct Records {
    source: Arc<dyn Source>,
    plan: Plan,
    order: Order,
    partition: Partition,
    batcher: Batcher,
    on_error: OnError,
    /// Scratch beyond what workers keep.
    large: Pool,
    kept_bytes: u64,
    parcel_bytes: u64,
    row_bytes: u64,
    /// Counters of each worker.
    workers: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Counters of all I/O threads.
    reading: ThreadCounters,
    warnings: AtomicU64,
    timeline: Option<Arc<Timeline>>,
}

/// A read of the source, and where its records go.
pub(crate) struct RecordRead {
    read: Read,
    /// Ticket of each place in the run.
    tickets: Arc<[Ticket]>,
    attempt: u32,
    bad: Vec<BadRecord>,
}

/// A record at a worker's door.
pub(crate) struct Parcel {
    content: Result<Record, Error>,
    attempt: u32,
    /// Bad records met for this ticket so far.
    bad: Vec<BadRecord>,
    /// Its bytes' leave, shared with the other records of the read.
    permit: Option<Arc<Permit>>,
}

/// What a filled ticket leaves.
#[derive(Debug)]
pub(crate) struct Done {
    /// None if the row is left out.
    row: Option<RowDone>,
    bad: Vec<BadRecord>,
}

/// A batch and the bad records met in making it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(super) batch: Batch,
    pub(super) bad: Vec<BadRecord>,
}

/// A batch being filled, and which.
pub(crate) struct RecordTray {
    tray: Tray,
    epoch: u64,
    step: u64,
}

/// Working memory of one worker.
pub(crate) struct Worker {
    bench: Bench,
    counters: Arc<ThreadCounters>,
}

impl Records {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        source: Arc<dyn Source>,
        plan: Plan,
        order: Order,
        partition: Partition,
        batcher: Batcher,
        options: &Options,
        shares: &Shares,
        row_bytes: u64,
        timeline: Option<Arc<Timeline>>,
    ) -> Records {
        Records {
            source,
            plan,
            order,
            partition,
            batcher,
            on_error: options.on_error,
            large: Pool::new(shares.large_bytes),
            kept_bytes: shares.kept_bytes,
            parcel_bytes: shares.parcel_bytes,
            row_bytes,
            workers: Mutex::default(),
            reading: ThreadCounters::new(timeline.clone()),
            timeline,
            warnings: AtomicU64::new(0),
        }
    }

    pub(super) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(super) fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Adds what all threads counted of a stage.
    pub(super) fn add_counts(&self, stage: Stage, sum: &mut StageStats) {
        self.reading.add_to(stage, sum);
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().for_each(|thread| thread.add_to(stage, sum));
        let mut calls = Calls::default();
        self.reading.add_calls(stage, &mut calls);
        workers
            .iter()
            .for_each(|thread| thread.add_calls(stage, &mut calls));
        sum.p99 = calls.quantile(0.99);
    }

    pub(super) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_deref()
    }
}

impl Job for Records {
    type Read = RecordRead;
    type Parcel = Parcel;
    type Tray = RecordTray;
    type Row = BatchRow;
    type Done = Done;
    type Batch = Made;
    type Scratch = Worker;
    type Fault = Error;

    fn place(&self, ticket: Ticket) -> Place {
        let spot = self.partition.spot(ticket);
        Place {
            tray: spot.epoch * self.partition.steps() + spot.step,
            row: spot.row,
        }
    }

    fn first(&self, tray: u64) -> Ticket {
        let steps = self.partition.steps();
        self.partition.ticket(tray / steps, tray % steps)
    }

    fn plan(&self, from: Ticket) -> Result<Run<RecordRead>, Error> {
        let end = self.run_end(from);
        let mut epoch = None;
        let records: Vec<u64> = (from..end)
            .map(|ticket| {
                let spot = self.partition.spot(ticket);
                let (known, permutation) =
                    epoch.get_or_insert_with(|| (spot.epoch, self.order.epoch(spot.epoch)));
                if *known != spot.epoch {
                    (*known, *permutation) = (spot.epoch, self.order.epoch(spot.epoch));
                }
                permutation.get(spot.position)
            })
            .collect();
        let mut reads = self.source.plan(&records, self.parcel_bytes / ROOM);
        reads.retain(|read| !read.records.is_empty());
        let first = |read: &Read| {
            read.records
                .iter()
                .map(|(place, _)| *place)
                .min()
                .unwrap_or(0)
        };
        reads.sort_by_key(first);
        self.fits(&reads)?;
        let tickets: Arc<[Ticket]> = (from..end).collect();
        let planned = |read: Read| {
            let ticket = tickets[first(&read)];
            let tickets = Arc::clone(&tickets);
            (
                ticket,
                RecordRead {
                    read,
                    tickets,
                    attempt: 0,
                    bad: Vec::new(),
                },
            )
        };
        Ok(Run {
            end,
            reads: reads.into_iter().map(planned).collect(),
        })
    }

    fn read(&self, request: RecordRead, gate: Gate<'_>) -> Vec<(Ticket, Parcel)> {
        let RecordRead {
            read,
            tickets,
            attempt,
            bad,
        } = request;
        let mut gate = Some(gate);
        let mut permit = None;
        let mut content: HashMap<usize, Found> = HashMap::with_capacity(read.records.len());
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let mut waited = std::time::Duration::ZERO;
        let mut admit = |bytes: u64| {
            let Some(gate) = gate.take() else {
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
                refused: Refused::Closed,
                ..
            }) => return Vec::new(),
            Err(error) => Some(error.about(&*self.source)),
        };
        let parcel = |&(place, record): &(usize, u64)| {
            let content = match (content.get(&place), &failed) {
                (Some(Ok(found)), _) => Ok(found.clone()),
                (Some(Err(cause)), _) => {
                    Err(source::damaged(&*self.source, record, Arc::clone(cause)))
                }
                (None, Some(error)) => Err(error.clone()),
                (None, None) => {
                    let id = self.source.id(record, None);
                    Err(Error::Panicked {
                        text: format!("the source brought no {id}"),
                    })
                }
            };
            let parcel = Parcel {
                content,
                attempt,
                bad: bad.clone(),
                permit: permit.clone(),
            };
            (tickets[place], parcel)
        };
        read.records.iter().map(parcel).collect()
    }

    fn open(&self, tray: u64) -> Result<(RecordTray, Vec<BatchRow>), Error> {
        let steps = self.partition.steps();
        let (epoch, step) = (tray / steps, tray % steps);
        let rows = self.partition.rows_at(step) as usize;
        let bytes = self.batcher.slab_bytes();
        let (tray, rows) = self
            .batcher
            .begin(rows)
            .map_err(|_| Error::OutOfMemory { bytes })?;
        Ok((RecordTray { tray, epoch, step }, rows))
    }

    fn scratch(&self) -> Worker {
        let counters = Arc::new(ThreadCounters::new(self.timeline.clone()));
        let mut all = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        Worker {
            bench: Bench::new(),
            counters,
        }
    }

    fn fill(
        &self,
        ticket: Ticket,
        parcel: Parcel,
        row: &mut BatchRow,
        worker: &mut Worker,
    ) -> Filled<Records> {
        let Parcel {
            content,
            attempt,
            mut bad,
            permit,
        } = parcel;
        let spot = self.partition.spot(ticket);
        let tray = spot.epoch * self.partition.steps() + spot.step;
        worker.counters.work_for(tray);
        let made = content.and_then(|record| {
            let at = Position {
                epoch: spot.epoch,
                position: spot.position,
            };
            self.sample(&record, at, row, worker).map(|()| record.index)
        });
        drop(permit);
        let error = match made {
            Ok(index) => {
                return Filled::Done(Done {
                    row: Some(row.finish(index)),
                    bad,
                });
            }
            Err(error) if !error.is_bad_record() => return Filled::Failed(error),
            Err(error) => error,
        };
        let Some(record) = error.record().cloned() else {
            return Filled::Failed(error);
        };
        if self.on_error == OnError::Stop {
            return Filled::Failed(error);
        }
        let (epoch, position) = (spot.epoch, spot.position);
        bad.push(BadRecord {
            record,
            epoch,
            position,
            reason: error.clone(),
        });
        if self.on_error == OnError::Skip {
            return Filled::Done(Done { row: None, bad });
        }
        let attempt = attempt + 1;
        if attempt > ATTEMPTS {
            return Filled::Failed(error);
        }
        let substitute = self.order.substitute(epoch, position, attempt);
        let reads = self.source.plan(&[substitute], self.parcel_bytes / ROOM);
        let Some(read) = reads.into_iter().find(|read| !read.records.is_empty()) else {
            return Filled::Failed(error);
        };
        Filled::Again(RecordRead {
            read,
            tickets: Arc::new([ticket]),
            attempt,
            bad,
        })
    }

    fn close(&self, tray: RecordTray, rows: Vec<Result<Done, Error>>) -> Result<Made, Error> {
        let RecordTray { tray, epoch, step } = tray;
        let mut bad = Vec::new();
        let mut done = Vec::with_capacity(rows.len());
        for row in rows {
            // The first failure in row order, whichever came first in time.
            let row = row?;
            bad.extend(row.bad);
            done.push(row.row);
        }
        let bytes = self.batcher.slab_bytes();
        let batch = self.batcher.finish(tray, done, epoch, step);
        Ok(Made {
            batch: batch.map_err(|_| Error::OutOfMemory { bytes })?,
            bad,
        })
    }
}

impl Records {
    /// One past the last ticket of the run that begins with `from`: as long as the source likes,
    /// but groups that can only be read whole are read in one run, so that none is read twice.
    fn run_end(&self, from: Ticket) -> Ticket {
        let Some(groups) = self.source.groups().filter(|groups| groups.whole) else {
            return from + self.source.run_length().max(1);
        };
        let begin = self.partition.spot(from);
        let window_end = self.order.epoch(begin.epoch).window_end(begin.position);
        let (mut low, mut high) = (from + 1, from + groups.records().max(1));
        // The first ticket beyond the window: tickets go up with epoch and position.
        while low < high {
            let middle = low + (high - low) / 2;
            let spot = self.partition.spot(middle);
            match (spot.epoch, spot.position) < (begin.epoch, window_end) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Makes the sample of a record, within the memory that workers may take.
    fn sample(
        &self,
        record: &Record,
        at: Position,
        row: &mut BatchRow,
        worker: &mut Worker,
    ) -> Result<(), Error> {
        let Worker { bench, counters } = worker;
        let mut large = None;
        let mut admit = |needed: u64| {
            if needed <= self.kept_bytes {
                return Ok(());
            }
            large = Some(self.large.take(needed).map_err(|_| SampleError::TooLarge {
                purpose: "decoding",
                needed_bytes: needed,
                limit_bytes: self.large.limit_bytes(),
            })?);
            Ok(())
        };
        let result = self.plan.run(record, at, row, bench, counters, &mut admit);
        if large.is_some() {
            bench.shrink();
        }
        let warnings = std::mem::take(&mut bench.warnings);
        if warnings > 0 {
            self.warnings.fetch_add(warnings, Ordering::Relaxed);
        }
        result.map_err(|failure| sample_error(&*self.source, record.index, failure))?;
        self.within_row_limit(record, row)
    }

    /// Rows outside of slabs have a limit each, so that all of them together have one.
    fn within_row_limit(&self, record: &Record, row: &BatchRow) -> Result<(), Error> {
        let own = row.cells.iter().map(|cell| match cell {
            Cell::Own { bytes, .. } => bytes.len() as u64,
            Cell::Slab(_) => 0,
        });
        let needed_bytes = own.sum();
        if needed_bytes <= self.row_bytes {
            return Ok(());
        }
        Err(Error::RecordTooLarge {
            record: self.source.id(record.index, None),
            purpose: "a row of its batch",
            needed_bytes,
            limit_bytes: self.row_bytes,
        })
    }

    /// Whether all reads that are alive at one place of a run fit the budget together: the ones
    /// that bring several records hold their bytes from the first to the last.
    fn fits(&self, reads: &[Read]) -> Result<(), Error> {
        let mut edges: Vec<(usize, i64, u64)> = Vec::new();
        for read in reads.iter().filter(|read| read.records.len() > 1) {
            let places = read.records.iter().map(|(place, _)| *place);
            let (Some(first), Some(last)) = (places.clone().min(), places.max()) else {
                continue;
            };
            let bytes = read.bytes.unwrap_or(u64::MAX);
            edges.push((first, 1, bytes));
            edges.push((last + 1, -1, bytes));
        }
        edges.sort_unstable_by_key(|&(place, sign, _)| (place, sign));
        let mut alive: u64 = 0;
        for (_, sign, bytes) in edges {
            alive = if sign > 0 {
                alive.saturating_add(bytes)
            } else {
                alive.saturating_sub(bytes)
            };
            if alive > self.parcel_bytes {
                let problem = format!(
                    "{alive} bytes of shards would be held at once, over the {} that memory \
                     leaves for reading; raise memory",
                    self.parcel_bytes
                );
                return Err(Error::config("open", problem));
            }
        }
        Ok(())
    }
}

/// What is wrong with a record as the loader's error.
pub(crate) fn sample_error(source: &dyn Source, record: u64, failure: Failure) -> Error {
    let Failure {
        field,
        transform,
        error,
    } = failure;
    let name = || {
        source
            .fields()
            .get(field)
            .map(|field| field.name.clone())
            .unwrap_or_default()
    };
    let record = source.id(record, Some(field));
    match error {
        SampleError::Decode(error) => Error::Decode {
            record,
            field: name(),
            source: Arc::new(error),
        },
        SampleError::Transform(error) => Error::Transform {
            record,
            transform: transform.unwrap_or("the plan"),
            source: Arc::new(error),
        },
        SampleError::Shape {
            found,
            expected,
            mend,
        } => Error::Shape {
            record,
            field: name(),
            found,
            expected,
            mend,
        },
        SampleError::TooLarge {
            purpose,
            needed_bytes,
            limit_bytes,
        } => Error::RecordTooLarge {
            record,
            purpose,
            needed_bytes,
            limit_bytes,
        },
    }
}
