//! Batches by name: made on all cores in whatever order they are asked for, as a feeder does.
//!
//! The same job as a loader's makes the rows. What differs is which batch the number of a tray means,
//! whose terms hold for it, and that a tray's rows are not made into a batch here but handed on.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digested;
use super::facts;
use super::made::Done;
use super::names::{Named, Names};
use super::options::Options;
use super::parcel::{Parcel, Tried, Want};
use super::prepare::prepare;
use super::records::{RecordRead, RecordTray, Records, Worker};
use crate::batch::{Array, BatchRow, ColumnKind, ColumnSpec};
use crate::error::Error;
use crate::exec::{Conveyor, Filled, Gate, Job, Joined, Next, Place, Run, Taking, Ticket};
use crate::order::partition::{Partition, PartitionError, Tail};
use crate::pipeline::{Handle, Pipeline};
use crate::plan::device::Placement;
use crate::source::Source;
use crate::wire::WireError;
use crate::wire::frame::{self, Checksum, Kind};
use crate::wire::hello::{Fact, Limits};
use crate::wire::looks::Look;
use crate::wire::note::Note;
use crate::wire::rows::{Column, HEAD_BYTES, KeptRow, Layout, RowHead, RowsHead};

/// Batches under way beside those that keep all cores at work: they are on the wire.
const BESIDE: usize = 4;

impl Records {
    /// What its rows are, as frames tell of them.
    pub(super) fn layout(&self, digested: Digested) -> Layout {
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
        Layout {
            columns: Records::plan(self).columns().iter().map(column).collect(),
            pixels: digested == Digested::Pixels,
            row_bytes: self.row_bytes,
        }
    }

    /// Up to which size it makes records, as others are to do for it.
    pub(super) fn limits(&self, again: u64) -> Limits {
        Limits {
            read: self.parcel_bytes,
            again,
            scratch: self.kept_bytes.max(self.large.limit_bytes()),
            row: self.row_bytes,
        }
    }

    /// The reads of tickets for which none can be planned.
    fn without_reading(&self, from: Ticket, until: Ticket, why: &Error) -> Run<RecordRead> {
        let wants = (from..until).map(Want::padding).collect();
        let read = RecordRead {
            read: None,
            wants,
            tried: Tried::default(),
            failed: Some(why.clone()),
        };
        Run {
            end: until,
            reads: vec![(from, read)],
        }
    }
}

/// The job of a loader, whose trays are handed on as rows.
struct Kitchen(Records);

/// The rows of a batch, made and not put together.
pub(crate) struct Sheet {
    /// Which batch it is.
    pub(crate) named: Named,
    /// Why it cannot be made here.
    pub(crate) rows: Result<Rows, Error>,
}

/// Rows, and the slabs that they lie in.
pub(crate) struct Rows {
    slabs: Vec<Option<Array>>,
    done: Vec<Done>,
}

impl Job for Kitchen {
    type Read = RecordRead;
    type Parcel = Parcel;
    type Tray = RecordTray;
    type Row = BatchRow;
    type Done = Done;
    type Batch = Result<Rows, Error>;
    type Scratch = Worker;
    type Fault = Error;

    fn place(&self, ticket: Ticket) -> Place {
        self.0.place(ticket)
    }

    fn first(&self, tray: u64) -> Ticket {
        self.0.first(tray)
    }

    fn plan(&self, from: Ticket, until: Ticket) -> Result<Run<RecordRead>, Error> {
        // A fault of one batch is not one of those behind it.
        let planned = Job::plan(&self.0, from, until);
        let rows_end = |from| match self.0.names() {
            Some(names) => names.rows_end(from, self.0.partition()).min(until),
            None => until,
        };
        Ok(planned.unwrap_or_else(|error| {
            let run = self.0.without_reading(from, rows_end(from), &error);
            Run { end: until, ..run }
        }))
    }

    fn read(&self, read: RecordRead, gate: Gate<'_>) -> Vec<(Ticket, Parcel)> {
        self.0.read(read, gate)
    }

    fn join(&self, waiting: Option<Parcel>, come: Parcel) -> Joined<Parcel> {
        self.0.join(waiting, come)
    }

    fn open(&self, tray: u64) -> Result<(RecordTray, Vec<BatchRow>), Error> {
        self.0.open(tray)
    }

    fn scratch(&self) -> Worker {
        self.0.scratch()
    }

    fn fill(
        &self,
        ticket: Ticket,
        parcel: Parcel,
        row: &mut BatchRow,
        worker: &mut Worker,
    ) -> Filled<Kitchen> {
        match self.0.fill(ticket, parcel, row, worker) {
            Filled::Done(done) => Filled::Done(done),
            Filled::Again(read) => Filled::Again(read),
            Filled::Failed(fault) => Filled::Failed(fault),
        }
    }

    fn close(
        &self,
        tray: RecordTray,
        rows: Vec<Result<Done, Error>>,
    ) -> Result<Result<Rows, Error>, Error> {
        let count = rows.len();
        let slabs = tray.tray.sealed(count);
        let done: Result<Vec<Done>, Error> = rows.into_iter().collect();
        Ok(done.map(|done| Rows { slabs, done }))
    }
}

/// Makes batches by name, for trainers that differ in rank and terms alone.
pub(crate) struct Maker {
    conveyor: Conveyor<Kitchen>,
    names: Arc<Names>,
    source: Arc<dyn Source>,
    facts: Vec<Fact>,
    layout: Layout,
    /// What a partition of it is cut from.
    cut: (u64, u64, u64, Tail),
}

impl Maker {
    /// Opens a pipeline for batches of one of `options.world_size` ranks; `for_device` with rows as they
    /// go to a device that makes them larger. It has no functions on batches, which trainers call;
    /// `looks` are what some records of the source hold.
    pub(crate) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        looks: &[Look],
        options: &Options,
        for_device: bool,
    ) -> Result<Maker, Error> {
        let placement = match for_device {
            true => Placement::Device,
            false => Placement::Host,
        };
        let prepared = prepare(pipeline, source, handles, options, None, placement, BESIDE)?;
        let facts = facts::facts(&prepared, looks)?;
        let partition = *prepared.job.partition();
        let names = Arc::new(Names::new(partition.rows()));
        let layout = prepared.job.layout(options.digest);
        let source = Arc::clone(prepared.job.source());
        let begin = &prepared.begin;
        let cut = (
            begin.records,
            begin.batch,
            options.world_size,
            partition.tail(),
        );
        let kitchen = Kitchen(prepared.job.named(Arc::clone(&names)));
        let config = crate::exec::Config {
            taking: Taking::Asked,
            ..prepared.config
        };
        let conveyor = Conveyor::start(kitchen, config, 0).map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
        Ok(Maker {
            conveyor,
            names,
            source,
            facts,
            layout,
            cut,
        })
    }

    /// What trainers must agree with.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// What its rows are.
    pub(crate) fn layout(&self, digested: Digested) -> Layout {
        Layout {
            pixels: digested == Digested::Pixels,
            ..self.layout.clone()
        }
    }

    /// Batches that may be under way at once, those included that are made and held.
    pub(crate) fn room(&self) -> usize {
        self.conveyor.config().trays
    }

    /// How a rank cuts the order.
    pub(crate) fn partition(&self, rank: u64) -> Result<Partition, PartitionError> {
        let (records, batch, world_size, tail) = self.cut;
        Partition::new(records, batch, rank, world_size, tail)
    }

    /// Asks for a batch; false if the order has none of that name.
    pub(crate) fn ask(&self, named: Named) -> bool {
        if !named.is_there() {
            return false;
        }
        self.names.push(named);
        self.conveyor.ask(1);
        true
    }

    /// The next batch, in the order in which they were asked for; None if none comes within `patience`.
    ///
    /// # Errors
    ///
    /// If no batch will come any more.
    pub(crate) fn next(&self, patience: Duration) -> Result<Option<Sheet>, Error> {
        let rows = match self.conveyor.next(patience) {
            Next::Batch(rows) => rows,
            Next::Fault(error) => {
                self.conveyor.pass_over();
                Err(error)
            }
            Next::Timeout => return Ok(None),
            Next::Broken(text) => return Err(Error::Panicked { text }),
            Next::Forked => return Err(Error::Forked),
        };
        let named = self.names.pop();
        Ok(named.map(|named| Sheet { named, rows }))
    }

    /// Writes the rows of a batch, or that it cannot be made here. Gives the bytes that went out, and
    /// whether they were rows.
    ///
    /// # Errors
    ///
    /// As the connection's.
    pub(crate) fn send(&self, sheet: &Sheet, mut to: impl Write) -> Result<(u64, bool), WireError> {
        let named = &sheet.named;
        let layout = self.layout(named.terms.digested);
        let made = match &sheet.rows {
            Ok(rows) => rows.head(named, &*self.source).map(|head| (rows, head)),
            Err(error) => Err(error.chain()),
        };
        let made = made.and_then(|(rows, head)| {
            let body = head.encode(&layout);
            match body.len() as u64 <= u64::from(HEAD_BYTES) {
                true => Ok((rows, head, body)),
                false => Err("too much is to be said about its bad records".to_owned()),
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

impl Rows {
    /// What is said of the rows; or why the trainer has to make them.
    fn head(&self, named: &Named, source: &dyn Source) -> Result<RowsHead, String> {
        let row = |done: &Done| {
            let notes = done.bad.iter().map(|bad| {
                Note::of(&bad.reason, source)
                    .ok_or_else(|| format!("the trainer is to judge of it: {}", bad.reason.chain()))
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

    /// Writes the columns.
    fn write(
        &self,
        head: &RowsHead,
        layout: &Layout,
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
                    // Rows that lie behind each other go out at once.
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

/// Runs of rows that are kept.
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
