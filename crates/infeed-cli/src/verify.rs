//! `infeed verify`: whether a pipeline gives again what it gave.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use infeed::loader::State;
use infeed::loader::digest::Digested;
use infeed::loader::verify::{Against, Difference, Verified, Verify};
use infeed::sample::RecordId;
use serde_json::json;

use crate::bench::Policy;
use crate::error::CliError;
use crate::files::read;
use crate::target::{FunctionArgs, Target};
use crate::terminal::bar;
use crate::{Outcome, args, interrupt};

/// Bytes of a state's file that are read at most. It has a few hundred, and some for each bad
/// record.
const STATE_BYTES: u64 = 64 << 20;

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed verify pipeline.toml                        two replays of an epoch, beside each other
  infeed verify pipeline.toml --steps 100 --write digests.jsonl
  infeed verify pipeline.toml --against digests.jsonl      on another machine, or a year later
  infeed verify pipeline.toml --state state.json --against rank0.jsonl rank1.jsonl

A file of digests is what --write makes, or a loader that is opened with a digest file: a line a
step. One of a single rank is held against a replay of that rank, those of all ranks against one of
the whole. The first step that differs is named; the status is then 1. Without a file the pipeline
runs twice, with all workers and with one, and the first record that differs is named too.")]
pub(crate) struct Args {
    /// Pipeline file (TOML), folder of data, .npy file, shards (.tar, .tfrecord, MDS) or tables
    /// (.parquet, .arrow, .npz)
    path: PathBuf,
    /// State of a run, as JSON, from which to go on
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Files of digests to compare with: of one rank, or of all ranks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Steps at most [default: all that are in the files, or the rest of the epoch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Write the digests of the replay to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Let the digests that are written cover the delivered bytes too
    #[arg(long, requires = "write", conflicts_with = "against")]
    pixels: bool,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// What becomes of a bad record [default: stop, or as in the files]
    #[arg(long, value_enum, conflicts_with = "against")]
    on_error: Option<Policy>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    interrupt::watch();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let mut verify = Verify::default();
    verify.state = match &args.state {
        Some(path) => Some(state(path)?),
        None => None,
    };
    verify.against = match (args.against.is_empty(), &args.write) {
        (false, _) => Against::Recorded(args.against.clone()),
        (true, Some(_)) => Against::Nothing,
        (true, None) => Against::Itself,
    };
    verify.steps = args.steps;
    verify.options.workers = args.workers;
    verify.options.digest_file.clone_from(&args.write);
    if args.pixels {
        verify.options.digest = Digested::Pixels;
    }
    if let Some(policy) = args.on_error {
        verify.options.on_error = policy.into();
    }
    let progress = bar(0, "steps");
    let verified = target.pipeline.verify(&[], &verify, &mut |done, wanted| {
        progress.set_length(wanted);
        progress.set_position(done);
        !interrupt::asked()
    });
    progress.finish_and_clear();
    let verified = verified.map_err(|error| CliError::failed(&error))?;
    if args.json {
        putln!("{}", as_json(&verified))?;
    }
    if let Some(difference) = &verified.difference {
        return Err(CliError::Failed(difference.to_string()));
    }
    let (epoch, step) = verified.from;
    let (steps, wanted) = (verified.steps, verified.wanted);
    if steps < wanted {
        let text = format!("interrupted after {steps} of {wanted} steps, which did not differ");
        return Err(CliError::Failed(text));
    }
    if !args.json {
        let done = match verify.against {
            Against::Nothing => "replayed",
            Against::Itself => "the same in both replays:",
            Against::Recorded(_) => "the same as recorded:",
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

fn state(path: &Path) -> Result<State, CliError> {
    let at = |problem: String| CliError::Failed(format!("{}: {problem}", path.display()));
    if fs::metadata(path).is_ok_and(|file| file.len() > STATE_BYTES) {
        return Err(at("it is too large for a state".to_owned()));
    }
    let bytes = read(path).map_err(|error| at(error.to_string()))?;
    State::from_json(&String::from_utf8_lossy(&bytes)).map_err(|error| at(error.chain()))
}

fn as_json(verified: &Verified) -> serde_json::Value {
    let named = |record: &RecordId| json!({ "index": record.index, "name": record.name });
    let difference = |found: &Difference| {
        let row = found.row.as_ref().map(|row| {
            json!({
                "position": row.position,
                "field": row.field,
                "records": row.records.each_ref().map(|record| record.as_ref().map(named)),
            })
        });
        json!({
            "epoch": found.epoch,
            "step": found.step,
            "positions": [found.positions.start, found.positions.end],
            "other_records": found.other_records,
            "expected": found.expected,
            "found": found.found,
            "row": row,
            "records": found.records.iter().map(named).collect::<Vec<_>>(),
            "text": found.to_string(),
        })
    };
    json!({
        "epoch": verified.from.0,
        "step": verified.from.1,
        "steps": verified.steps,
        "wanted": verified.wanted,
        "same": verified.difference.is_none() && verified.steps == verified.wanted,
        "digest": verified.digest,
        "difference": verified.difference.as_ref().map(difference),
    })
}
