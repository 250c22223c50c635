//! `infeed verify`: replays a pipeline and compares its batches.

use std::path::PathBuf;

use clap::Parser;
use infeed::loader::digest::DigestScope;
use infeed::loader::verify::{StepDifference, VerifyOptions, VerifyReference, VerifyReport};
use infeed::sample::RecordId;
use serde_json::json;

use crate::error::{CliError, CommandResult};
use crate::on_error::OnBadRecord;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::{bar, put_json_text};
use crate::{args, interrupt};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed verify pipeline.toml                          compare two replays of an epoch
  infeed verify pipeline.toml --steps 100 --write digests.jsonl
  infeed verify pipeline.toml --against digests.jsonl  on another machine, or a year later

Without --against and --write, verify runs the pipeline twice, with all workers and with one, and
compares the steps. --write writes the digest of each step to a file, one line per step. --against
replays the steps of such a file and compares their digests. If a step differs, verify prints the
records of the step, and the exit status is 1.")]
pub(crate) struct Args {
    #[arg(help = path_help())]
    path: PathBuf,
    /// Compare with the digests in a file
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Maximum number of steps [default: all steps of the file, or one epoch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Write the digest of each step to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Also hash the delivered bytes, in addition to the record numbers
    #[arg(long, requires = "write", conflicts_with = "against")]
    pixels: bool,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// Treatment of bad records [default: stop, or with --against as in the file]
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
        put_json_text(&as_json(&verified).to_string())?;
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
            VerifyReference::Recorded(_) => "equal to the file:",
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

fn as_json(verified: &VerifyReport) -> serde_json::Value {
    let named = |record: &RecordId| json!({ "index": record.index, "name": record.name });
    let difference = |found: &StepDifference| {
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
