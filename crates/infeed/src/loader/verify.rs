//! Replays of a pipeline: whether they deliver the same batches, and the first step that differs.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::digest::{Digest, DigestScope};
use super::run_record::{
    KeyKind, RecordedRun, RecordedStep, RowExplanation, RowHashes, RowKey, RunNames, RunRecord,
    RunWriter, is_same_digest,
};
use super::{Loader, OnError, Options, Step};
use infeed_core::batch::{Batch, PADDING, Values};
use infeed_core::error::Error;
use infeed_core::sample::RecordId;
use infeed_source::Source;

/// Longest wait between two calls of `go_on`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Number of records of a differing step that the message names.
const NAMED: usize = 8;

/// Id of a padding row, as in the `records` of a batch in Python.
const PADDING_ID: &str = "-1";

/// Reference of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerifyReference {
    /// A second replay with one worker. Checks that the pipeline is a function of its seed.
    #[default]
    Itself,
    /// Run record, such as one written by [`VerifyOptions::write`]. It determines whether ids or
    /// contents are compared. One of infeed's own loader also determines the digest's content, the
    /// rank and the policy for bad records.
    Recorded(PathBuf),
    /// No reference: the replay only writes a record.
    Nothing,
}

/// Options of a replay.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Reference of the replay.
    pub against: VerifyReference,
    /// Maximum number of steps. None: all steps of the record, or one epoch.
    pub steps: Option<u64>,
    /// File to write a run record to: with the hashes of rows if the digest covers pixels, else with
    /// the record numbers.
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
    /// Whether the records differ. If not, only their bytes differ. `None` if the reference has
    /// neither record numbers nor digests.
    pub other_records: Option<bool>,
    /// Digest of the reference; `None` if it has none.
    pub expected: Option<Digest>,
    /// Digest of the replay.
    pub found: Digest,
    /// The first row that differs; `None` if only digests do: bytes differ between the hashed pieces
    /// of a row.
    pub row: Option<DifferentRow>,
    /// The first few records of the step in this replay.
    pub records: Vec<RecordId>,
}

/// The first row that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferentRow {
    /// Position of the row in the epoch; `None` if rows were skipped before it.
    pub position: Option<u64>,
    /// Records of this replay and of the reference; `None` for padding, and for a record that the
    /// reference does not name.
    pub records: [Option<RecordId>; 2],
    /// Field whose bytes differ, if the records are equal and the reference is a replay.
    pub field: Option<String>,
    /// Keys of this replay and of the reference if it is a run record; `None` where one of them has
    /// fewer rows.
    pub keys: [Option<String>; 2],
    /// The difference as a sentence or several, without a full stop at the end.
    pub text: String,
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
        if let Some(row) = &self.row {
            return f.write_str(&row.text);
        }
        f.write_str(match self.other_records {
            Some(true) => "different records",
            _ => "the same records with different bytes",
        })?;
        if !self.records.is_empty() {
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
        VerifyReference::Recorded(path) => Some(RunRecord::read(path)?),
        VerifyReference::Itself | VerifyReference::Nothing => None,
    };
    if let Some(run) = recorded.as_ref().and_then(|recorded| recorded.run.as_ref()) {
        options.digest = run.digest;
        options.on_error = run.on_error;
        (options.rank, options.world_size) = (run.rank, run.world_size);
    } else if verify.against == VerifyReference::Itself {
        options.digest = DigestScope::Pixels;
    }
    let loader = open(&options)?;
    let run = RecordedRun::new(&options, &loader.begin);
    let writer = verify.write.as_deref();
    let writer = writer.map(|path| RunWriter::create(path, Some(run)));
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
    if let Some(run) = &recorded.run {
        let differences = loader.begin.differences(&run.begin);
        if !differences.is_empty() {
            let problem = format!("it belongs to another run ({})", differences.join("; "));
            return Err(Error::config("against", problem));
        }
    }
    replay.compare_with_record(verify.steps, &recorded)?;
    Ok(replay.result)
}

/// A running replay.
struct Replay<'a> {
    loader: &'a Loader,
    steps: u64,
    writer: Option<RunWriter>,
    /// Kind of the keys that are compared and written.
    kind: KeyKind,
    go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    result: VerifyReport,
}

impl<'a> Replay<'a> {
    fn new(
        loader: &'a Loader,
        writer: Option<RunWriter>,
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
            kind: match loader.options.digest {
                DigestScope::Ids => KeyKind::Ids,
                DigestScope::Pixels => KeyKind::Hashes,
            },
            go_on,
            result,
        })
    }

    /// Compares with a run record.
    fn compare_with_record(
        &mut self,
        most: Option<u64>,
        recorded: &RunRecord,
    ) -> Result<(), Error> {
        let most = most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        self.result.wanted = recorded.steps().len().min(most) as u64;
        let (Some(first), Some(kind)) = (recorded.steps().first(), recorded.kind()) else {
            return Err(Error::config("against", "the file has no steps"));
        };
        self.kind = kind;
        self.check_ids(recorded)?;
        self.result.from = self.place_of_step(first.step);
        let mut run = RunRecord::default();
        for expected in recorded.steps().iter().take(most) {
            // The file may lack the rest of an epoch.
            let at = self.place_of_step(expected.step);
            if place_of(self.loader, self.steps) != at {
                self.loader.seek(at.0, at.1)?;
            }
            let Some(batch) = self.next(self.loader)? else {
                return Ok(());
            };
            let found = self.recorded_step(&batch)?;
            let digest = self.loader.step_digest();
            let has_same_rows = (found.step, &found.rows) == (expected.step, &expected.rows);
            let is_same = has_same_rows && is_same_digest(expected.digest, Some(digest));
            if is_same {
                self.same(&found, digest)?;
            }
            run.push(found)?;
            if !is_same {
                let mut difference = self.difference(&batch, expected.digest, digest)?;
                if kind == KeyKind::Ids && !has_same_rows {
                    difference.other_records = Some(true);
                }
                let found = RowExplanation::new(recorded, &run, expected.step);
                difference.row = self.recorded_row(&batch, &difference, &found)?;
                self.result.difference = Some(difference);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Checks that ids in a record of another loader are record numbers.
    fn check_ids(&self, recorded: &RunRecord) -> Result<(), Error> {
        let records = self.loader.source()?.len();
        if recorded.run.is_some() || self.kind == KeyKind::Hashes {
            return Ok(());
        }
        let mut keys = recorded.steps().iter().flat_map(|step| &step.rows);
        let is_number = |key: &RowKey| {
            number_of(key, records).is_some() || *key == RowKey::Id(PADDING_ID.into())
        };
        match keys.find(|key| !is_number(key)) {
            Some(key) => {
                let problem = format!(
                    "its id {key} is not the number of one of the {records} records; record with \
                     ids=lambda batch: [number for number, _ in batch.records], or without ids"
                );
                Err(Error::config("against", problem))
            }
            None => Ok(()),
        }
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
                    let mut difference = self.difference(&batch, Some(expected), found)?;
                    difference.row = self.different_row(&batch, &other, &difference.positions)?;
                    self.result.difference = Some(difference);
                    return Ok(());
                }
            }
            let step = self.recorded_step(&batch)?;
            self.same(&step, found)?;
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

    fn same(&mut self, step: &RecordedStep, digest: Digest) -> Result<(), Error> {
        if let Some(writer) = &mut self.writer {
            writer.write(step)?;
        }
        self.result.steps += 1;
        self.result.digest = self.result.digest.plus(digest);
        // Report every step, so that a caller that ends the replay knows the last one.
        (self.go_on)(self.result.steps, self.result.wanted);
        Ok(())
    }

    /// Returns the keys and the digest of the batch that was just taken.
    fn recorded_step(&self, batch: &Batch) -> Result<RecordedStep, Error> {
        let id = |&record: &u64| match record {
            PADDING => RowKey::Id(PADDING_ID.into()),
            record => RowKey::Id(record.to_string().into()),
        };
        Ok(RecordedStep {
            step: batch.epoch * self.steps + batch.step,
            rows: match self.kind {
                KeyKind::Ids => batch.records.iter().map(id).collect(),
                KeyKind::Hashes => RowHashes::of_batch(batch)?,
            },
            digest: Some(self.loader.step_digest()),
        })
    }

    /// Returns epoch and step in the epoch of a step in the run.
    fn place_of_step(&self, step: u64) -> (u64, u64) {
        let steps = self.steps.max(1);
        (step / steps, step % steps)
    }

    fn difference(
        &self,
        batch: &Batch,
        expected: Option<Digest>,
        found: Digest,
    ) -> Result<StepDifference, Error> {
        let source = self.loader.source()?;
        let records = batch.records.iter().filter(|&&record| record != PADDING);
        Ok(StepDifference {
            epoch: batch.epoch,
            step: batch.step,
            positions: self.loader.positions(batch.epoch, batch.step)?,
            other_records: expected.map(|expected| expected.ids != found.ids),
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
    fn different_row(
        &self,
        batch: &Batch,
        other: &Batch,
        positions: &Range<u64>,
    ) -> Result<Option<DifferentRow>, Error> {
        let source = self.loader.source()?;
        let rows = batch.rows().max(other.rows());
        let of = |batch: &Batch, row: usize| batch.records.get(row).copied();
        let field = |row| {
            let mut both = batch.columns.iter().zip(&other.columns);
            both.find(|(one, other)| !is_same_row(&one.values, &other.values, row))
                .map(|(column, _)| column.name.clone())
        };
        Ok((0..rows).find_map(|row| {
            let records = [of(batch, row), of(other, row)];
            let field = match records[0] == records[1] {
                true => Some(field(row)?),
                false => None,
            };
            let records = records.map(|record| id_of(&*source, record));
            let position = self.position(positions, row);
            let [one, second] = records.each_ref().map(name_of);
            let text = match &field {
                Some(field) => format!("different bytes in `{field}` of {one}"),
                None => format!("{one} in one replay, {second} in the other"),
            };
            Some(DifferentRow {
                text: at_position(position, &text),
                position,
                records,
                field,
                keys: [None, None],
            })
        }))
    }

    /// Describes the first row in which a batch differs from a run record.
    fn recorded_row(
        &self,
        batch: &Batch,
        difference: &StepDifference,
        found: &RowExplanation<'_>,
    ) -> Result<Option<DifferentRow>, Error> {
        let Some(row) = found.row else {
            return Ok(None);
        };
        let source = self.loader.source()?;
        let record = batch.records.get(row).copied();
        let expected = match difference.other_records {
            Some(false) => record,
            _ => found.expected.and_then(|key| number_of(key, source.len())),
        };
        let position = self.position(&difference.positions, row);
        let records = [record, expected].map(|record| id_of(&*source, record));
        let text = match difference.other_records {
            Some(false) => format!("different bytes in {}", name_of(&records[0])),
            other_records => {
                let sample = |key: &RowKey| match number_of(key, source.len()) {
                    Some(record) => source.id(record, None).to_string(),
                    None => key.to_string(),
                };
                let step = |step: u64| {
                    let (epoch, step) = self.place_of_step(step);
                    format!("step {step} of epoch {epoch}")
                };
                let names = RunNames {
                    sample: &sample,
                    step: &step,
                };
                let mut kind = match other_records {
                    Some(_) => "another record".to_owned(),
                    None => "other contents".to_owned(),
                };
                if self.kind == KeyKind::Hashes {
                    // Sentences about hashes name no record.
                    kind += &format!(", {}", name_of(&records[0]));
                }
                // The replay ends here, and the rest of the run could contain the sample.
                let sentences = found.sentences(false, &names).join(" ");
                format!("{kind}. {}", sentences.trim_end_matches('.'))
            }
        };
        Ok(Some(DifferentRow {
            text: at_position(position, &text),
            position,
            records,
            field: None,
            keys: [found.found, found.expected].map(|key| key.map(RowKey::text)),
        }))
    }

    /// Returns the position of a row; `None` if rows may have been skipped before it.
    fn position(&self, positions: &Range<u64>, row: usize) -> Option<u64> {
        let skips = self.loader.options.on_error == OnError::Skip;
        (!skips).then(|| positions.start + row as u64)
    }
}

/// Returns epoch and step of the next batch. The end of an epoch is the beginning of the next one.
fn place_of(loader: &Loader, steps: u64) -> (u64, u64) {
    match loader.place() {
        (epoch, step) if step == steps => (epoch + 1, 0),
        place => place,
    }
}

/// Returns the record whose number is the id of a row; `None` for other keys and for padding.
fn number_of(key: &RowKey, records: u64) -> Option<u64> {
    match key {
        RowKey::Id(id) => id.parse().ok().filter(|&record| record < records),
        RowKey::Hash(_) => None,
    }
}

fn id_of(source: &dyn Source, record: Option<u64>) -> Option<RecordId> {
    record
        .filter(|&record| record != PADDING)
        .map(|record| source.id(record, None))
}

fn name_of(record: &Option<RecordId>) -> String {
    match record {
        Some(record) => record.to_string(),
        None => "padding".to_owned(),
    }
}

fn at_position(position: Option<u64>, text: &str) -> String {
    match position {
        Some(position) => format!("position {position} has {text}"),
        None => text.to_owned(),
    }
}

/// Whether a row of a column is equal in two batches.
fn is_same_row(one: &Values, other: &Values, row: usize) -> bool {
    let is_same_shape = match (one, other) {
        (Values::Array(one), Values::Array(other)) => one.shape() == other.shape(),
        _ => true,
    };
    is_same_shape && one.row_bytes(row) == other.row_bytes(row)
}
