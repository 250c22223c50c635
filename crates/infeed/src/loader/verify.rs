//! Replays of a pipeline: whether they deliver the same batches, and the first step that differs.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::digest::{Digest, DigestScope};
use super::digest_file::{DigestFile, DigestHeader, DigestWriter};
use super::{Loader, OnError, Options, Step};
use infeed_core::batch::{Array, Batch, PADDING, Values};
use infeed_core::error::Error;
use infeed_core::sample::RecordId;

/// Longest wait between two calls of `go_on`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Number of records of a differing step that the message names.
const NAMED: usize = 8;

/// Reference of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerifyReference {
    /// A second replay with one worker. Checks that the pipeline is a function of its seed.
    #[default]
    Itself,
    /// File written by [`VerifyOptions::write`]. It determines the digest's content, the rank and
    /// the policy for bad records.
    Recorded(PathBuf),
    /// No reference: the replay only writes a file.
    Nothing,
}

/// Options of a replay.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Reference of the replay.
    pub against: VerifyReference,
    /// Maximum number of steps. None: all steps of the file, or one epoch.
    pub steps: Option<u64>,
    /// File to write the digest of each step to.
    pub write: Option<PathBuf>,
    /// Options of the loader.
    pub options: Options,
}

/// Result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyReport {
    /// Epoch and step of the first step.
    pub from: (u64, u64),
    /// Equal steps, or replayed steps if there is no reference.
    pub steps: u64,
    /// Number of steps to replay.
    pub wanted: u64,
    /// Digest of the replayed steps.
    pub digest: Digest,
    /// The first step that differs.
    pub difference: Option<StepDifference>,
}

/// A step that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct StepDifference {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Positions of its rows in the epoch.
    pub positions: Range<u64>,
    /// Whether the records differ. If not, only their bytes differ.
    pub other_records: bool,
    /// Digest of the reference.
    pub expected: Digest,
    /// Digest of the replay.
    pub found: Digest,
    /// The first row that differs; `None` if the reference is a file.
    pub row: Option<DifferentRow>,
    /// The first few records of the step in this replay.
    pub records: Vec<RecordId>,
}

/// The first row that differs between two replays.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferentRow {
    /// Position of the row in the epoch; `None` if rows were skipped before it.
    pub position: Option<u64>,
    /// Records of both replays; `None` for padding.
    pub records: [Option<RecordId>; 2],
    /// Field whose bytes differ, if the records are equal.
    pub field: Option<String>,
}

impl fmt::Display for StepDifference {
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
                write!(
                    f,
                    "different bytes in `{field}` of {}",
                    name(&row.records[0])
                )
            }
            (None, true) => f.write_str("different records"),
            (None, false) => f.write_str("the same records with different bytes"),
        }?;
        if self.row.is_none() && !self.records.is_empty() {
            let names: Vec<String> = self.records.iter().map(RecordId::to_string).collect();
            let rows = end - start;
            let more = match rows > names.len() as u64 {
                true => ", …",
                false => "",
            };
            write!(f, "; in this run, it contains {}{more}", names.join(", "))?;
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

/// Replays steps of the loader that `open` returns, and compares them.
///
/// # Errors
///
/// As `open`; [`Error::Config`] for a file of another run; [`Error::Write`] if the file cannot be
/// written; or the error that stopped a replay.
pub(crate) fn replay(
    verify: &VerifyOptions,
    open: impl Fn(&Options) -> Result<Loader, Error>,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<VerifyReport, Error> {
    let mut options = verify.options.clone();
    let recorded = match &verify.against {
        VerifyReference::Recorded(path) => Some(DigestFile::read(path)?),
        VerifyReference::Itself | VerifyReference::Nothing => None,
    };
    if let Some(DigestFile { header, .. }) = &recorded {
        options.digest = header.of;
        options.on_error = header.on_error;
        (options.rank, options.world_size) = (header.rank, header.world_size);
    } else if verify.against == VerifyReference::Itself {
        options.digest = DigestScope::Pixels;
    }
    let loader = open(&options)?;
    let header = DigestHeader::new(&options, &loader.begin);
    let writer = verify.write.as_deref();
    let writer = writer.map(|path| DigestWriter::create(path, &header));
    let mut replay = Replay::new(&loader, writer.transpose()?, go_on)?;
    let Some(recorded) = recorded else {
        let second = match verify.against {
            VerifyReference::Itself => {
                options.workers = Some(1);
                Some(open(&options)?)
            }
            _ => None,
        };
        replay.compare_replays(verify.steps, second.as_ref())?;
        return Ok(replay.result);
    };
    let differences = loader.begin.differences(&recorded.header.run);
    if !differences.is_empty() {
        let problem = format!("it belongs to another run ({})", differences.join("; "));
        return Err(Error::config("against", problem));
    }
    replay.compare_with_file(verify.steps, &recorded)?;
    Ok(replay.result)
}

/// A running replay.
struct Replay<'a> {
    loader: &'a Loader,
    steps: u64,
    writer: Option<DigestWriter>,
    go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    result: VerifyReport,
}

impl<'a> Replay<'a> {
    fn new(
        loader: &'a Loader,
        writer: Option<DigestWriter>,
        go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Replay<'a>, Error> {
        let steps = loader.steps()?;
        let result = VerifyReport {
            from: place_of(loader, steps),
            steps: 0,
            wanted: 0,
            digest: Digest::empty(loader.options.digest),
            difference: None,
        };
        Ok(Replay {
            loader,
            steps,
            writer,
            go_on,
            result,
        })
    }

    /// Compares with the digests of a file.
    fn compare_with_file(&mut self, most: Option<u64>, recorded: &DigestFile) -> Result<(), Error> {
        let most = most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        self.result.wanted = recorded.steps.len().min(most) as u64;
        let Some((&first, _)) = recorded.steps.first_key_value() else {
            return Err(Error::config("against", "the file has no steps"));
        };
        self.result.from = first;
        for (&at, &expected) in recorded.steps.iter().take(most) {
            // The file may lack the rest of an epoch.
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
            self.same(at, found)?;
        }
        Ok(())
    }

    /// Compares with a second replay, if there is one.
    fn compare_replays(&mut self, most: Option<u64>, second: Option<&Loader>) -> Result<(), Error> {
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
            self.same((batch.epoch, batch.step), found)?;
        }
        Ok(())
    }

    /// Returns the next batch, across epochs; `None` if the caller ends the replay.
    fn next(&mut self, loader: &Loader) -> Result<Option<Batch>, Error> {
        loop {
            if !(self.go_on)(self.result.steps, self.result.wanted) {
                return Ok(None);
            }
            match loader.next_within(POLL_INTERVAL)? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::End | Step::Timeout => {}
            }
        }
    }

    fn same(&mut self, (epoch, step): (u64, u64), digest: Digest) -> Result<(), Error> {
        if let Some(writer) = &mut self.writer {
            writer.step(epoch, step, digest)?;
        }
        self.result.steps += 1;
        self.result.digest = self.result.digest.plus(digest);
        // Report every step, so that a caller that ends the replay knows the last one.
        (self.go_on)(self.result.steps, self.result.wanted);
        Ok(())
    }

    fn difference(
        &self,
        batch: &Batch,
        expected: Digest,
        found: Digest,
    ) -> Result<StepDifference, Error> {
        let source = self.loader.source()?;
        let records = batch.records.iter().filter(|&&record| record != PADDING);
        Ok(StepDifference {
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

    /// Returns the first row in which two batches of one step differ.
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

/// Returns epoch and step of the next batch. The end of an epoch is the beginning of the next one.
fn place_of(loader: &Loader, steps: u64) -> (u64, u64) {
    match loader.place() {
        (epoch, step) if step == steps => (epoch + 1, 0),
        place => place,
    }
}

/// Whether a row of a column is equal in two batches.
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

/// Returns the bytes of one list of a ragged column.
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
