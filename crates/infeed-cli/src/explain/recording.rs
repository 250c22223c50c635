//! `infeed explain run.json`: the answer of a recording that `loader.record` or `watch` wrote.

use std::io::IsTerminal;

use infeed_explain::{Recording, report};
use infeed_source::store;

use super::options::Args;
use super::output::write_report;
use crate::error::{CliError, CommandResult};
use crate::terminal::{put_json_text, put_page, width};

/// Prints the recording at the path of `args`. None if the path is no recording.
pub(super) fn run(args: &Args) -> Option<CommandResult> {
    if store::is_url(&args.path) {
        return None;
    }
    match Recording::open(&args.path) {
        Ok(recording) => Some(show(args, &recording?)),
        Err(error) => Some(Err(CliError::from_error(&error))),
    }
}

fn show(args: &Args, recording: &Recording) -> CommandResult {
    if let Some(option) = measuring_option(args) {
        return Err(CliError::Usage(format!(
            "{}: {option} measures, and a recording cannot be measured again; use --full, --html \
             or --json, or pass the pipeline file",
            args.path.display()
        )));
    }
    match (args.json, args.full) {
        (true, _) => put_json_text(&report::recording_json(recording))?,
        (false, full) => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            put_page(&report::recording(recording, width(), colour, full))?;
        }
    }
    match (args.html.as_deref(), &recording.explanation) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(CliError::Usage(format!(
            "{}: --html needs the recording of a loader of infeed that delivered a batch",
            args.path.display()
        ))),
        (Some(path), Some(explanation)) => write_report(Some(path), explanation, report::html),
    }
}

/// Returns the first option that applies to a pipeline only.
fn measuring_option(args: &Args) -> Option<&'static str> {
    let given = [
        ("--step-ms", args.step_ms.is_some()),
        ("--workers", args.workers.is_some()),
        ("--io-threads", args.io_threads.is_some()),
        ("--memory", args.memory.is_some()),
        ("--on", args.on.is_some()),
        ("--device", args.device.is_some()),
        ("--feeders", args.feeders.are_given()),
        ("--network", args.network.is_some()),
        ("--feeder-cores", args.feeder_cores.is_some()),
        ("--cores", args.cores.is_some()),
        ("--ram", args.ram.is_some()),
        ("--storage", args.storage.is_some()),
        ("--batch", args.batch.is_some()),
        ("--apply", !args.apply.is_empty()),
        ("--trace", args.trace.is_some()),
    ];
    given
        .into_iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| name)
}
