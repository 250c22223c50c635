//! Records on the conveyor: what reading, filling and closing mean for them, and what becomes of
//! bad ones.
//!
//! Where samples are mixed, a row needs two records: its own, and the one at its partner's
//! position, whose sample is made as it would be there and then mixed in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::budget::Shares;
use super::digest::{Digest, Digested};
use super::failed::sample_error;
use super::finish::Finisher;
use super::made::{Done, Made};
use super::names::{Names, Terms};
use super::parcel::{BadRecord, Content, Parcel, Role, Tried, Want};
use super::whole::fits;
use super::{OnError, Options};
use crate::batch::{BatchRow, Batcher, Cell, Tray};
use crate::counters::{Calls, Meter, Stage, StageStats, ThreadCounters, Timeline};
use crate::error::Error;
use crate::exec::budget::{Permit, Pool, Refused};
use crate::exec::{Filled, Gate, Job, Joined, Place, Run, Ticket};
use crate::order::Order;
use crate::order::partition::{Partition, Spot, Tail};
use crate::plan::Plan;
use crate::plan::failure::SampleError;
use crate::plan::sample::{Bench, Position};
use crate::sample::Record;
use crate::source::{self, Found, Read, ReadError, Source};
use crate::transform::Mixing;
use crate::wire::hello::Limits;

/// What reads of several records may hold of the bytes for reading, as one part of so many: the
/// next run is read while this one is used.
const ROOM: u64 = 2;

/// Substitutes tried for one position before the run stops: a dataset of which half is bad
/// gets there once in 10^19 positions.
const ATTEMPTS: u32 = 64;

/// The job of a loader.
#[derive(Debug)]
pub(crate) struct Records {
    source: Arc<dyn Source>,
    plan: Plan,
    order: Order,
    partition: Partition,
    /// Where batches are asked for by name; else they come in order.
    names: Option<Arc<Names>>,
    batcher: Batcher,
    /// Which form batches have that are begun from now on.
    form: AtomicUsize,
    finisher: Finisher,
    terms: Terms,
    /// Scratch beyond what workers keep.
    pub(super) large: Pool,
    pub(super) kept_bytes: u64,
    pub(super) parcel_bytes: u64,
    pub(super) row_bytes: u64,
    /// Counters of each worker.
    workers: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Counters of all I/O threads.
    reading: ThreadCounters,
    warnings: AtomicU64,
    timeline: Option<Arc<Timeline>>,
}

/// A read of the source, and where its records go.
pub(crate) struct RecordRead {
    /// None: the rows are padding, for which nothing is read; or none can be.
    pub(super) read: Option<Read>,
    /// Whose record is in each place of the run.
    pub(super) wants: Arc<[Want]>,
    pub(super) tried: Tried,
    /// Why nothing can be read.
    pub(super) failed: Option<Error>,
}

/// A batch being filled, and which.
pub(crate) struct RecordTray {
    pub(super) tray: Tray,
    form: usize,
    epoch: u64,
    step: u64,
}

/// Working memory of one worker.
pub(crate) struct Worker {
    bench: Bench,
    counters: Arc<ThreadCounters>,
    /// Where samples are made that are mixed into others.
    partner: BatchRow,
}

impl Records {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        source: Arc<dyn Source>,
        plan: Plan,
        order: Order,
        partition: Partition,
        batcher: Batcher,
        finisher: Finisher,
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
            form: AtomicUsize::new(0),
            finisher,
            names: None,
            terms: Terms {
                on_error: options.on_error,
                digested: options.digest,
                limits: Limits::NONE,
            },
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

    pub(super) fn digested(&self) -> Digested {
        self.terms.digested
    }

    pub(super) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Makes batches by these names from now on.
    pub(super) fn named(self, names: Arc<Names>) -> Records {
        let names = Some(names);
        Records { names, ..self }
    }

    /// The batches that it is asked for, where it is.
    pub(super) fn names(&self) -> Option<&Names> {
        self.names.as_deref()
    }

    /// Where the row of a ticket lies in the order.
    pub(super) fn spot(&self, ticket: Ticket) -> Spot {
        match &self.names {
            None => self.partition.spot(ticket),
            Some(names) => names.spot(ticket),
        }
    }

    /// By what rules the row of a ticket is made.
    fn terms(&self, ticket: Ticket) -> Terms {
        let named = self.names.as_ref().and_then(|names| names.at(ticket));
        named.map_or(self.terms, |named| named.terms)
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    pub(super) fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Lets batches that are begun from now on have this form. It changes no bit that the consumer
    /// gets, so neither order nor state know of it.
    pub(super) fn set_form(&self, form: usize) {
        // Relaxed: whoever begins a batch a moment later may still find the one before.
        self.form.store(form, Ordering::Relaxed);
    }

    /// Finished batches that are not dropped yet.
    pub(super) fn live(&self) -> usize {
        self.batcher.live().max(self.finisher.live())
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
        self.finisher.add_counts(stage, sum, &mut calls);
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
        if let Some(names) = &self.names {
            return names.place(ticket);
        }
        let spot = self.partition.spot(ticket);
        Place {
            tray: spot.epoch * self.partition.steps() + spot.step,
            row: spot.row,
        }
    }

    fn first(&self, tray: u64) -> Ticket {
        if let Some(names) = &self.names {
            return names.first(tray);
        }
        let steps = self.partition.steps();
        self.partition.ticket(tray / steps, tray % steps)
    }

    fn plan(&self, from: Ticket, until: Ticket) -> Result<Run<RecordRead>, Error> {
        let rows_end = match &self.names {
            None => until,
            Some(names) => names.rows_end(from, &self.partition).min(until),
        };
        let end = self.run_end(from, rows_end).min(rows_end);
        let mut epoch = None;
        let (mut records, mut wants, mut padding) = (Vec::new(), Vec::new(), Vec::new());
        for ticket in from..end {
            let spot = self.spot(ticket);
            let Some(taken_from) = spot.taken_from else {
                padding.push(Want::padding(ticket));
                continue;
            };
            let (known, permutation) =
                epoch.get_or_insert_with(|| (spot.epoch, self.order.epoch(spot.epoch)));
            if *known != spot.epoch {
                (*known, *permutation) = (spot.epoch, self.order.epoch(spot.epoch));
            }
            let mixing = self.mixing(spot);
            let mut want = |place, role| {
                records.push(permutation.get(place));
                wants.push(Want {
                    ticket,
                    role,
                    paired: mixing.is_some(),
                });
            };
            want(taken_from, Role::Own);
            if let Some(mixing) = mixing {
                want(mixing.partner, Role::Partner);
            }
        }
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
        fits(&reads, self.parcel_bytes)?;
        let wants: Arc<[Want]> = wants.into();
        let planned = |ticket, read, wants| {
            let tried = Tried::default();
            (
                ticket,
                RecordRead {
                    read,
                    wants,
                    tried,
                    failed: None,
                },
            )
        };
        let mut reads: Vec<(Ticket, RecordRead)> = reads
            .into_iter()
            .map(|read| planned(wants[first(&read)].ticket, Some(read), Arc::clone(&wants)))
            .collect();
        if let Some(&Want { ticket, .. }) = padding.first() {
            let at = reads.partition_point(|(first, _)| *first < ticket);
            reads.insert(at, planned(ticket, None, padding.into()));
        }
        // What is between a short batch by name and the next one is no row.
        let end = if end == rows_end { until } else { end };
        Ok(Run { end, reads })
    }

    fn read(&self, request: RecordRead, gate: Gate<'_>) -> Vec<(Ticket, Parcel)> {
        let RecordRead {
            read,
            wants,
            tried,
            failed,
        } = request;
        let Some(read) = read else {
            let padding = |want: &Want| (want.ticket, Parcel::without_reading(failed.clone()));
            return wants.iter().map(padding).collect();
        };
        // Two records of one row have to fit the budget together.
        let is_half = read
            .records
            .first()
            .is_some_and(|(place, _)| wants[*place].paired)
            && read.records.len() == 1;
        let of = read.records.first().map(|(place, _)| wants[*place].ticket);
        let limits = of.map_or(Limits::NONE, |ticket| self.terms(ticket).limits);
        let most = match tried.own + tried.partner {
            0 => limits.read,
            _ => limits.again,
        };
        let limit = self.parcel_bytes.min(limits.read) / (2 * ROOM);
        let mut gate = Some(gate);
        let mut permit: Option<Arc<Permit>> = None;
        let mut content: HashMap<usize, Found> = HashMap::with_capacity(read.records.len());
        let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
        let mut waited = std::time::Duration::ZERO;
        let mut admit = |bytes: u64| {
            if is_half && bytes > limit {
                return Err(Refused::TooLarge { limit });
            }
            if bytes > most {
                return Err(Refused::TooLarge { limit: most });
            }
            let Some(gate) = gate.take() else {
                // Nothing of it was handed on yet.
                if let Some(permit) = permit.as_mut().and_then(Arc::get_mut) {
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
                refused: Refused::Closed,
                ..
            }) => return Vec::new(),
            Err(error) => Some(error.about(&*self.source)),
        };
        let parcel = |&(place, record): &(usize, u64)| {
            let found = match (content.remove(&place), &failed) {
                (Some(Ok(found)), _) => Ok(found),
                (Some(Err(cause)), _) => Err(source::damaged(&*self.source, record, cause)),
                (None, Some(error)) => Err(error.clone()),
                (None, None) => {
                    let id = self.source.id(record, None);
                    Err(Error::Panicked {
                        text: format!("the source brought no {id}"),
                    })
                }
            };
            let content = Content {
                found,
                _permit: permit.clone(),
            };
            let want = wants[place];
            (want.ticket, Parcel::new(want, content, tried.clone()))
        };
        read.records.iter().map(parcel).collect()
    }

    fn join(&self, waiting: Option<Parcel>, come: Parcel) -> Joined<Parcel> {
        Parcel::join(waiting, come)
    }

    fn open(&self, tray: u64) -> Result<(RecordTray, Vec<BatchRow>), Error> {
        let steps = self.partition.steps();
        let named = self.names.as_ref().and_then(|names| names.get(tray));
        let (epoch, step) = match named {
            Some(named) => (named.epoch, named.step),
            None => (tray / steps, tray % steps),
        };
        let rows = self.partition.rows_at(step) as usize;
        let bytes = self.batcher.slab_bytes();
        let form = self.form.load(Ordering::Relaxed);
        let (tray, rows) = self
            .batcher
            .begin_as(form, rows)
            .map_err(|_| Error::OutOfMemory { bytes })?;
        let tray = RecordTray {
            tray,
            form,
            epoch,
            step,
        };
        Ok((tray, rows))
    }

    fn scratch(&self) -> Worker {
        let counters = Arc::new(ThreadCounters::new(self.timeline.clone()));
        let mut all = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        Worker {
            bench: Bench::new(),
            counters,
            partner: self.plan.spare_row(),
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
            own,
            partner,
            mut tried,
            ..
        } = parcel;
        let spot = self.spot(ticket);
        let tray = spot.epoch * self.partition.steps() + spot.step;
        let terms = self.terms(ticket);
        worker.counters.work_for(tray);
        if spot.taken_from.is_none() && own.is_none() {
            return Filled::Done(Done {
                row: Some(row.blank()),
                bad: Vec::new(),
                digest: Digest::empty(terms.digested),
                unknown_pixels: 0,
            });
        }
        let at = position(spot);
        let mixing = self.mixing(spot);
        if let Some(Content { found, _permit }) = own {
            let made = found.and_then(|record| {
                self.sample(&record, at, row, worker, terms.limits)?;
                self.within_row_limit(&record, row, terms.limits)?;
                Ok(record.index)
            });
            match made {
                Ok(index) => {
                    tried.written = Some(index);
                    tried.add_unknown(worker.bench.unknown_pixels);
                }
                Err(error) => return self.instead(ticket, Role::Own, at, error, tried),
            }
        }
        if let Some(mixing) = mixing {
            let of = Position {
                epoch: at.epoch,
                position: mixing.partner,
            };
            let Some(Content { found, _permit }) = partner else {
                // Let go when the row's own record turned out to be bad.
                let record = self.order.epoch(at.epoch).get(mixing.partner);
                return self.again(ticket, Role::Partner, record, tried);
            };
            let limits = terms.limits;
            let made = found.and_then(|record| self.mix(&record, of, &mixing, row, worker, limits));
            if let Err(error) = made {
                return self.instead(ticket, Role::Partner, of, error, tried);
            }
            tried.add_unknown(worker.bench.unknown_pixels);
        }
        let Tried {
            written,
            bad,
            unknown_pixels,
            ..
        } = tried;
        let digest = match written {
            Some(index) => self.finished(index, at, row, worker, terms.digested),
            None => Digest::empty(terms.digested),
        };
        Filled::Done(Done {
            row: written.map(|index| row.finish(index)),
            bad,
            digest,
            unknown_pixels: u64::from(unknown_pixels),
        })
    }

    fn close(&self, tray: RecordTray, rows: Vec<Result<Done, Error>>) -> Result<Made, Error> {
        let RecordTray {
            tray,
            form,
            epoch,
            step,
        } = tray;
        let mut bad = Vec::new();
        let mut digest = Digest::empty(self.terms.digested);
        let mut unknown_pixels = 0;
        let mut done = Vec::with_capacity(rows.len());
        for row in rows {
            // The first failure in row order, whichever came first in time.
            let row = row?;
            bad.extend(row.bad);
            digest = digest.plus(row.digest);
            // Feeders report it, and may report anything.
            unknown_pixels = row.unknown_pixels.saturating_add(unknown_pixels);
            done.push(row.row);
        }
        let bytes = self.batcher.slab_bytes();
        let batch = self.batcher.finish(tray, done, epoch, step);
        let batch = batch.map_err(|_| Error::OutOfMemory { bytes })?;
        let first = self.partition.spot(self.partition.ticket(epoch, step));
        Ok(Made {
            batch: self.finisher.run(&self.plan, batch, first.position)?,
            form,
            bad,
            digest,
            unknown_pixels,
        })
    }
}

impl Records {
    /// What is mixed into the sample of a position, if something is. Beyond the end of the order it
    /// is something near the record that comes once more.
    fn mixing(&self, spot: Spot) -> Option<Mixing> {
        let taken_from = spot.taken_from?;
        let beyond = spot.position - taken_from;
        let mut mixing = self.plan.mixing(position(spot), || {
            let near = self.order.near(spot.epoch, taken_from);
            near.start + beyond..near.end + beyond
        })?;
        mixing.partner -= beyond;
        Some(mixing)
    }

    /// What a row that holds its sample leaves beside it: the mark that it is no padding, and
    /// its digest.
    fn finished(
        &self,
        record: u64,
        at: Position,
        row: &mut BatchRow,
        worker: &mut Worker,
        digested: Digested,
    ) -> Digest {
        if self.partition.tail() == Tail::Pad
            && let Some(Cell::Slab(valid)) = row.cells.last_mut()
        {
            valid.bytes_mut().fill(1);
        }
        let digest = || Digest::of_row(digested, at.epoch, at.position, record, row);
        if digested == Digested::Ids {
            return digest();
        }
        worker.bench.meter.start();
        let digest = digest();
        worker.bench.meter.lap(Stage::Write, &worker.counters);
        worker.bench.meter.settle(&worker.counters);
        digest
    }

    /// What becomes of a row of which a record, that of position `at`, is bad.
    fn instead(
        &self,
        ticket: Ticket,
        role: Role,
        at: Position,
        error: Error,
        mut tried: Tried,
    ) -> Filled<Records> {
        let terms = self.terms(ticket);
        if !error.is_bad_record() || terms.on_error == OnError::Stop {
            return Filled::Failed(error);
        }
        let Some(record) = error.record().cloned() else {
            return Filled::Failed(error);
        };
        tried.bad.push(BadRecord {
            record,
            epoch: at.epoch,
            position: self.spot(ticket).position,
            reason: error.clone(),
        });
        if terms.on_error == OnError::Skip {
            return Filled::Done(Done {
                row: None,
                bad: tried.bad,
                digest: Digest::empty(terms.digested),
                unknown_pixels: 0,
            });
        }
        let attempt = match role {
            Role::Own => &mut tried.own,
            Role::Partner => &mut tried.partner,
        };
        *attempt += 1;
        if u32::from(*attempt) > ATTEMPTS {
            return Filled::Failed(error);
        }
        let substitute = self
            .order
            .substitute(at.epoch, at.position, u32::from(*attempt));
        self.again(ticket, role, substitute, tried)
    }

    /// Asks for one more record of a row. What else was brought for it is let go, so that nobody
    /// holds bytes while waiting for bytes.
    fn again(&self, ticket: Ticket, role: Role, record: u64, tried: Tried) -> Filled<Records> {
        let reads = self.source.plan(&[record], self.parcel_bytes / ROOM);
        let Some(read) = reads.into_iter().find(|read| !read.records.is_empty()) else {
            return Filled::Failed(Error::Panicked {
                text: format!("the source planned no {}", self.source.id(record, None)),
            });
        };
        let want = Want {
            ticket,
            role,
            paired: false,
        };
        Filled::Again(RecordRead {
            read: Some(read),
            wants: Arc::new([want]),
            tried,
            failed: None,
        })
    }

    /// Makes the sample of a partner, at its own position, and mixes it into a row.
    fn mix(
        &self,
        record: &Record,
        at: Position,
        mixing: &Mixing,
        row: &mut BatchRow,
        worker: &mut Worker,
        limits: Limits,
    ) -> Result<(), Error> {
        let mut partner = std::mem::take(&mut worker.partner);
        worker.bench.counted = 0;
        let made = self.sample(record, at, &mut partner, worker, limits);
        worker.bench.counted = 1;
        let mixed = made.and_then(|()| {
            worker.bench.meter.start();
            let mixed = self.plan.mix(mixing, &mut partner, row);
            worker.bench.meter.lap(Stage::Write, &worker.counters);
            mixed.map_err(|failure| sample_error(&*self.source, record.index, failure))
        });
        // A row beyond what workers keep is given back, as large scratch is.
        worker.partner = match self.plan.spare_row_bytes() <= self.kept_bytes {
            true => partner,
            false => self.plan.spare_row(),
        };
        mixed
    }

    /// One past the last ticket of the run that begins with `from`: as long as the source likes,
    /// but groups that can only be read whole are read in one run, so that none is read twice.
    fn run_end(&self, from: Ticket, until: Ticket) -> Ticket {
        if !self.source.groups().is_some_and(|groups| groups.whole) {
            return from + self.source.run_length().max(1);
        }
        if self.names.is_some() {
            return until;
        }
        let begin = self.partition.spot(from);
        // Where a tail is filled up, the end of the epoch is followed by its beginning, or nothing.
        let window_end = begin.taken_from.map_or(u64::MAX, |position| {
            let begun_anew = begin.position - position;
            begun_anew + self.order.epoch(begin.epoch).window_end(position)
        });
        let (mut low, mut high) = (from + 1, from + self.order.len().max(1));
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
        limits: Limits,
    ) -> Result<(), Error> {
        let Worker {
            bench, counters, ..
        } = worker;
        // What a partner is made in counts as scratch.
        let beside = match self.plan.mixes() {
            true => self.plan.spare_row_bytes(),
            false => 0,
        };
        let mut large = None;
        let mut admit = |needed: u64| {
            let needed = needed.saturating_add(beside);
            if needed <= self.kept_bytes.min(limits.scratch) {
                return Ok(());
            }
            let refused = |limit_bytes| SampleError::TooLarge {
                purpose: "decoding",
                needed_bytes: needed,
                limit_bytes,
            };
            if needed > limits.scratch {
                return Err(refused(limits.scratch));
            }
            let granted = self.large.take(needed);
            large = Some(granted.map_err(|_| refused(self.large.limit_bytes()))?);
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
        result.map_err(|failure| sample_error(&*self.source, record.index, failure))
    }

    /// Rows outside of slabs have a limit each, so that all of them together have one.
    fn within_row_limit(
        &self,
        record: &Record,
        row: &BatchRow,
        limits: Limits,
    ) -> Result<(), Error> {
        let own = row.cells.iter().map(|cell| match cell {
            Cell::Own { bytes, .. } => bytes.len() as u64,
            Cell::Slab(_) => 0,
        });
        let needed_bytes = own.sum();
        let limit_bytes = self.row_bytes.min(limits.row);
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(Error::RecordTooLarge {
            record: self.source.id(record.index, None),
            purpose: "a row of its batch",
            needed_bytes,
            limit_bytes,
        })
    }
}

/// What a spot's random draws belong to.
fn position(spot: Spot) -> Position {
    Position {
        epoch: spot.epoch,
        position: spot.position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::handle_bytes;

    #[test]
    fn the_handles_of_a_record_are_within_what_groups_count_for_them() {
        let found = size_of::<(usize, Found)>();
        let parcel = size_of::<(Ticket, Parcel)>();

        // A table of what was found, up to half empty; parcels in a list and, of which they are put
        // in at once, in a tree whose nodes are up to half empty.
        let most = 2 * found + parcel + parcel;

        assert!(
            most as u64 <= handle_bytes(1, 0),
            "{most}: {found}, {parcel}"
        );
    }
}
