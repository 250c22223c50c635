//! `infeed verify`: replays a pipeline and compares its batches.

use std::path::PathBuf;

use clap::Parser;
use infeed::loader::digest::{Digest, DigestScope};
use infeed::loader::verify::{StepDifference, VerifyOptions, VerifyReference, VerifyReport};
use infeed_core::sample::RecordId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{CliError, CommandResult};
use crate::json::put_json;
use crate::on_error::OnBadRecord;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::bar;
use crate::{args, interrupt};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed verify pipeline.toml                          compare two replays of an epoch
  infeed verify pipeline.toml --steps 100 --write run.jsonl
  infeed verify pipeline.toml --against run.jsonl      on another machine, or a year later

Without --against and --write, verify runs the pipeline twice, with all workers and with one, and
compares the steps. --write writes a run record: a line for each step with its digest and the
numbers of its records. --against replays the steps of a run record and compares them. The record
may be one of infeed.runs.certify in Python. If a step differs, verify prints the first row and
record that differ, and the exit status is 1.")]
pub(crate) struct Args {
    #[arg(help = path_help())]
    path: PathBuf,
    /// Compare with a run record
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Maximum number of steps [default: all steps of the record, or one epoch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Write a run record to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Record hashes of the delivered bytes instead of record numbers
    #[arg(long, requires = "write", conflicts_with = "against")]
    pixels: bool,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// Treatment of bad records [default: stop, or with --against as in the record]
    #[arg(long, value_enum, conflicts_with = "against")]
    on_error: Option<OnBadRecord>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let mut verify = VerifyOptions::default();
    verify.against = match (&args.against, &args.write) {
        (Some(path), _) => VerifyReference::Recorded(path.clone()),
        (None, Some(_)) => VerifyReference::Nothing,
        (None, None) => VerifyReference::Itself,
    };
    verify.steps = args.steps;
    verify.options.workers = args.workers;
    verify.write.clone_from(&args.write);
    if args.pixels {
        verify.options.digest = DigestScope::Pixels;
    }
    if let Some(policy) = args.on_error {
        verify.options.on_error = policy.into();
    }
    let progress = bar(0, "steps");
    let verified = target.pipeline.verify(&[], &verify, &mut |done, wanted| {
        progress.set_length(wanted);
        progress.set_position(done);
        !interrupt::is_requested()
    });
    progress.finish_and_clear();
    let verified = verified.map_err(|error| CliError::from_error(&error))?;
    if args.json {
        put_json(&VerifyJson::from(&verified))?;
    }
    if let Some(difference) = &verified.difference {
        return Err(CliError::Failed(difference.to_string()));
    }
    let (epoch, step) = verified.from;
    let (steps, wanted) = (verified.steps, verified.wanted);
    if steps < wanted {
        let text = format!("interrupted after {steps} of {wanted} steps, which are equal");
        return Err(CliError::Failed(text));
    }
    if !args.json {
        let done = match verify.against {
            VerifyReference::Nothing => "replayed",
            VerifyReference::Itself => "equal in both replays:",
            VerifyReference::Recorded(_) => "equal to the record:",
        };
        let noun = if steps == 1 { "step" } else { "steps" };
        putln!(
            "{done} {steps} {noun} from step {step} of epoch {epoch}, digest {}",
            verified.digest
        )?;
        if let Some(path) = &args.write {
            putln!("wrote {}", path.display())?;
        }
    }
    Ok(())
}

/// Result of `infeed verify`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct VerifyJson {
    /// Epoch of the first step.
    epoch: u64,
    /// The first step, in its epoch.
    step: u64,
    /// Equal steps, or replayed steps if there is no reference.
    steps: u64,
    /// Number of steps to replay.
    wanted: u64,
    /// Whether all steps were replayed and are equal.
    same: bool,
    /// Digest of the replayed steps.
    #[schemars(with = "String")]
    digest: Digest,
    /// The first step that differs.
    difference: Option<DifferenceJson>,
}

/// A step that differs.
#[derive(JsonSchema, Serialize)]
struct DifferenceJson {
    /// Epoch, from 0.
    epoch: u64,
    /// Step in the epoch, from 0.
    step: u64,
    /// Position of its first row in the epoch, and that after its last row.
    positions: [u64; 2],
    /// Whether the records differ and not only their bytes; null if this is not known.
    other_records: Option<bool>,
    /// Digest of the reference; null if it has none.
    #[schemars(with = "Option<String>")]
    expected: Option<Digest>,
    /// Digest of this replay.
    #[schemars(with = "String")]
    found: Digest,
    /// The first row that differs; null if only the digests do.
    row: Option<RowJson>,
    /// The first few records of the step in this replay.
    records: Vec<RecordJson>,
    /// The message.
    text: String,
}

/// The first row that differs.
#[derive(JsonSchema, Serialize)]
struct RowJson {
    /// Position in the epoch; null if rows were skipped before it.
    position: Option<u64>,
    /// Field whose bytes differ, if two replays of the same record do.
    field: Option<String>,
    /// Records of this replay and of the reference; null for padding, and if not known.
    records: [Option<RecordJson>; 2],
    /// Keys of this replay and of the run record: a record number, an id or a hash.
    keys: [Option<String>; 2],
}

/// A record.
#[derive(JsonSchema, Serialize)]
struct RecordJson {
    /// Number in the source, from 0.
    index: u64,
    /// Name under which the user can find it.
    name: String,
}

impl From<&VerifyReport> for VerifyJson {
    fn from(verified: &VerifyReport) -> VerifyJson {
        VerifyJson {
            epoch: verified.from.0,
            step: verified.from.1,
            steps: verified.steps,
            wanted: verified.wanted,
            same: verified.difference.is_none() && verified.steps == verified.wanted,
            digest: verified.digest,
            difference: verified.difference.as_ref().map(DifferenceJson::from),
        }
    }
}

impl From<&StepDifference> for DifferenceJson {
    fn from(found: &StepDifference) -> DifferenceJson {
        DifferenceJson {
            epoch: found.epoch,
            step: found.step,
            positions: [found.positions.start, found.positions.end],
            other_records: found.other_records,
            expected: found.expected,
            found: found.found,
            row: found.row.as_ref().map(|row| RowJson {
                position: row.position,
                field: row.field.clone(),
                records: row
                    .records
                    .each_ref()
                    .map(|record| record.as_ref().map(RecordJson::from)),
                keys: row.keys.clone(),
            }),
            records: found.records.iter().map(RecordJson::from).collect(),
            text: found.to_string(),
        }
    }
}

impl From<&RecordId> for RecordJson {
    fn from(record: &RecordId) -> RecordJson {
        RecordJson {
            index: record.index,
            name: record.name.clone(),
        }
    }
}
