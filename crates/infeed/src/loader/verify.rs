//! Replays: whether a pipeline gives again what it gave, and at which step it first does not.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::digest::{Digest, Digested};
use super::digest_file::Recorded;
use super::{Loader, OnError, Options, State, Step};
use crate::batch::{Array, Batch, PADDING, Values};
use crate::error::Error;
use crate::pipeline::{Handle, Pipeline};
use crate::sample::RecordId;

/// Longest wait between two questions whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// Records of a differing step that are told by name.
const NAMED: usize = 8;

/// What a replay is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Against {
    /// A second replay beside it, with one worker: is the pipeline a function of its seed?
    #[default]
    Itself,
    /// Files that [`Options::digest_file`] wrote, of one rank or of every rank of a run. What they
    /// cover, the rank and what becomes of bad records are theirs.
    Recorded(Vec<PathBuf>),
    /// Nothing: it is made for the file that it writes.
    Nothing,
}

/// What to replay.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verify {
    /// Where to begin. None: at the first step recorded, or at the very first.
    pub state: Option<State>,
    /// What to compare with.
    pub against: Against,
    /// Most steps. None: all that are recorded, or the rest of the epoch.
    pub steps: Option<u64>,
    /// How the pipeline is opened; its [`Options::digest_file`] is written along.
    pub options: Options,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Epoch and step of the first one.
    pub from: (u64, u64),
    /// Steps that were the same, or were made where there was nothing to compare with.
    pub steps: u64,
    /// Steps that were asked for.
    pub wanted: u64,
    /// Digest of those steps.
    pub digest: Digest,
    /// The first step that was not the same.
    pub difference: Option<Difference>,
}

/// A step that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Positions of the epoch that its rows fill.
    pub positions: Range<u64>,
    /// Whether other records came. If not, they are the same and their bytes differ.
    pub other_records: bool,
    /// The digest that was expected.
    pub expected: Digest,
    /// The digest that came.
    pub found: Digest,
    /// The first row that differs; known where two replays ran beside each other.
    pub row: Option<DifferentRow>,
    /// The records of the step in this replay, the first few.
    pub records: Vec<RecordId>,
}

/// The first row that differs between two replays.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferentRow {
    /// Position of the epoch that it fills; None where rows were left out before it.
    pub position: Option<u64>,
    /// The records of both; None for padding.
    pub records: [Option<RecordId>; 2],
    /// The field whose bytes differ, where the records are the same.
    pub field: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.positions;
        let (step, epoch) = (self.step, self.epoch);
        write!(
            f,
            "step {step} of epoch {epoch} (positions {start} to {}) differs: ",
            end.saturating_sub(1)
        )?;
        let name = |record: &Option<RecordId>| match record {
            Some(record) => record.to_string(),
            None => "padding".to_owned(),
        };
        match (&self.row, self.other_records) {
            (Some(row), true) => {
                let [one, other] = &row.records;
                place(f, row.position)?;
                write!(
                    f,
                    "{} in one replay, {} in the other",
                    name(one),
                    name(other)
                )
            }
            (Some(row), false) => {
                place(f, row.position)?;
                let field = row.field.as_deref().unwrap_or("a field");
                write!(f, "other bytes of `{field}` of {}", name(&row.records[0]))
            }
            (None, true) => f.write_str("other records"),
            (None, false) => f.write_str("the same records, other bytes"),
        }?;
        if self.row.is_none() && !self.records.is_empty() {
            let names: Vec<String> = self.records.iter().map(RecordId::to_string).collect();
            let rows = end - start;
            let more = match rows > names.len() as u64 {
                true => ", …",
                false => "",
            };
            write!(f, "; here it holds {}{more}", names.join(", "))?;
        }
        Ok(())
    }
}

fn place(f: &mut fmt::Formatter<'_>, position: Option<u64>) -> fmt::Result {
    match position {
        Some(position) => write!(f, "position {position} has "),
        None => Ok(()),
    }
}

impl Pipeline {
    /// Replays steps and compares them. `go_on` is told the steps that are done and wanted, after
    /// each and about ten times a second, and ends the replay by answering false.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`] and [`Loader::restore`]; [`Error::Config`] for files of another run;
    /// or what stopped a replay.
    pub fn verify(
        &self,
        handles: &[Handle],
        verify: &Verify,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Verified, Error> {
        let source = self.open_source(handles)?;
        let mut options = verify.options.clone();
        let recorded = match &verify.against {
            Against::Recorded(files) => Some(Recorded::read(files)?),
            Against::Itself | Against::Nothing => None,
        };
        if let Some(Recorded { header, .. }) = &recorded {
            options.digest = header.of;
            options.on_error = header.on_error;
            (options.rank, options.world_size) = (header.rank, header.world_size);
        } else if verify.against == Against::Itself {
            options.digest = Digested::Pixels;
        }
        let loader = Loader::open(self, Arc::clone(&source), handles, &options)?;
        if let Some(state) = &verify.state {
            loader.restore(state)?;
        }
        let mut replay = Replay::new(&loader, go_on)?;
        let Some(recorded) = recorded else {
            let second = match verify.against {
                Against::Itself => {
                    options.workers = Some(1);
                    options.digest_file = None;
                    let second = Loader::open(self, source, handles, &options)?;
                    let (epoch, step) = replay.result.from;
                    second.seek(epoch, step)?;
                    Some(second)
                }
                _ => None,
            };
            replay.beside(verify.steps, second.as_ref())?;
            return Ok(replay.result);
        };
        let differences = loader.begin.differences(&recorded.header.run);
        if !differences.is_empty() {
            let problem = format!("it is of another run ({})", differences.join("; "));
            return Err(Error::config("against", problem));
        }
        let from = verify.state.as_ref().map(|_| replay.result.from);
        replay.recorded(verify.steps, from, &recorded)?;
        Ok(replay.result)
    }
}

/// A replay that runs.
struct Replay<'a> {
    loader: &'a Loader,
    steps: u64,
    go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    result: Verified,
}

impl<'a> Replay<'a> {
    fn new(
        loader: &'a Loader,
        go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Replay<'a>, Error> {
        let steps = loader.steps()?;
        let result = Verified {
            from: place_of(loader, steps),
            steps: 0,
            wanted: 0,
            digest: Digest::empty(loader.options.digest),
            difference: None,
        };
        Ok(Replay {
            loader,
            steps,
            go_on,
            result,
        })
    }

    /// Compares with what was recorded, from a place on.
    fn recorded(
        &mut self,
        most: Option<u64>,
        from: Option<(u64, u64)>,
        recorded: &Recorded,
    ) -> Result<(), Error> {
        let from = from.or_else(|| recorded.steps.keys().next().copied());
        let (epoch, step) = from.unwrap_or_default();
        let all = recorded.steps.range((epoch, step)..);
        let most = most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        self.result.wanted = all.clone().take(most).count() as u64;
        let Some((&first, _)) = all.clone().next() else {
            let problem = format!("it holds no step from step {step} of epoch {epoch} on");
            return Err(Error::config("against", problem));
        };
        self.result.from = first;
        for (&at, &expected) in all.take(most) {
            // An epoch that was left early has no steps after that.
            if place_of(self.loader, self.steps) != at {
                self.loader.seek(at.0, at.1)?;
            }
            let Some(batch) = self.next(self.loader)? else {
                return Ok(());
            };
            let found = self.loader.step_digest();
            if found != expected {
                self.result.difference = Some(self.difference(&batch, expected, found)?);
                return Ok(());
            }
            self.same(found);
        }
        Ok(())
    }

    /// Compares with a second replay, if there is one.
    fn beside(&mut self, most: Option<u64>, second: Option<&Loader>) -> Result<(), Error> {
        self.result.wanted = most.unwrap_or(self.steps - self.result.from.1);
        while self.result.steps < self.result.wanted {
            let Some(batch) = self.next(self.loader)? else {
                return Ok(());
            };
            let found = self.loader.step_digest();
            if let Some(second) = second {
                let Some(other) = self.next(second)? else {
                    return Ok(());
                };
                let expected = second.step_digest();
                if found != expected {
                    let mut difference = self.difference(&batch, expected, found)?;
                    difference.row = self.row(&batch, &other, &difference.positions)?;
                    self.result.difference = Some(difference);
                    return Ok(());
                }
            }
            self.same(found);
        }
        Ok(())
    }

    /// The next batch, across the seam of epochs; None if the caller has enough.
    fn next(&mut self, loader: &Loader) -> Result<Option<Batch>, Error> {
        loop {
            if !(self.go_on)(self.result.steps, self.result.wanted) {
                return Ok(None);
            }
            match loader.next_within(PATIENCE)? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::End | Step::Timeout => {}
            }
        }
    }

    fn same(&mut self, digest: Digest) {
        self.result.steps += 1;
        self.result.digest = self.result.digest.plus(digest);
        // The last step is told as well; whoever stops now has everything.
        (self.go_on)(self.result.steps, self.result.wanted);
    }

    fn difference(
        &self,
        batch: &Batch,
        expected: Digest,
        found: Digest,
    ) -> Result<Difference, Error> {
        let source = self.loader.source()?;
        let records = batch.records.iter().filter(|&&record| record != PADDING);
        Ok(Difference {
            epoch: batch.epoch,
            step: batch.step,
            positions: self.loader.positions(batch.epoch, batch.step)?,
            other_records: expected.ids != found.ids,
            expected,
            found,
            row: None,
            records: records
                .take(NAMED)
                .map(|&record| source.id(record, None))
                .collect(),
        })
    }

    /// The first row in which two batches of one step differ.
    fn row(
        &self,
        batch: &Batch,
        other: &Batch,
        positions: &Range<u64>,
    ) -> Result<Option<DifferentRow>, Error> {
        let source = self.loader.source()?;
        let rows = batch.rows().max(other.rows());
        let skips = self.loader.options.on_error == OnError::Skip;
        let of = |batch: &Batch, row: usize| batch.records.get(row).copied();
        let field = |row| {
            let mut both = batch.columns.iter().zip(&other.columns);
            both.find(|(one, other)| !same_row(&one.values, &other.values, row, rows))
                .map(|(column, _)| column.name.clone())
        };
        let id = |record: Option<u64>| {
            record
                .filter(|&record| record != PADDING)
                .map(|record| source.id(record, None))
        };
        Ok((0..rows).find_map(|row| {
            let records = [of(batch, row), of(other, row)];
            let field = match records[0] == records[1] {
                true => Some(field(row)?),
                false => None,
            };
            Some(DifferentRow {
                position: (!skips).then(|| positions.start + row as u64),
                records: records.map(id),
                field,
            })
        }))
    }
}

/// Epoch and step of the next batch, the end of an epoch being the beginning of the next.
fn place_of(loader: &Loader, steps: u64) -> (u64, u64) {
    match loader.place() {
        (epoch, step) if step == steps => (epoch + 1, 0),
        place => place,
    }
}

/// Whether a row of a column is the same in two batches.
fn same_row(one: &Values, other: &Values, row: usize, rows: usize) -> bool {
    let of = |array: &Array| {
        let bytes = array.bytes();
        let length = bytes.len() / rows.max(1);
        bytes
            .get(row * length..(row + 1) * length)
            .map(<[u8]>::to_vec)
    };
    match (one, other) {
        (Values::Array(one), Values::Array(other)) => {
            one.shape() == other.shape() && of(one) == of(other)
        }
        (Values::Bytes(one), Values::Bytes(other)) => one.get(row) == other.get(row),
        (Values::Text(one), Values::Text(other)) => one.get(row) == other.get(row),
        (
            Values::Ragged { values, offsets },
            Values::Ragged {
                values: other_values,
                offsets: other_offsets,
            },
        ) => list(values, offsets, row) == list(other_values, other_offsets, row),
        _ => false,
    }
}

/// The bytes of one list of a ragged column.
fn list<'a>(values: &'a Array, offsets: &Array, row: usize) -> Option<&'a [u8]> {
    let offset = |at: usize| {
        let bytes = offsets.bytes().get(at * 8..at * 8 + 8)?;
        let number = i64::from_ne_bytes(bytes.try_into().ok()?);
        usize::try_from(number)
            .ok()?
            .checked_mul(values.dtype().bytes())
    };
    values.bytes().get(offset(row)?..offset(row + 1)?)
}
