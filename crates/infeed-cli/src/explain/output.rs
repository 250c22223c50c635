//! The progress line and the files of `infeed explain`.

use std::fs;
use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use infeed_core::printable::printable;
use infeed_explain::Explanation;

use crate::error::{CliError, CommandResult};

/// Shows the phase, the share of the whole that is done, and the time left.
pub(super) fn say(progress: &ProgressBar, what: &str, share: f64, begun: Instant) {
    let share = share.clamp(0.0, 1.0);
    let left = match share > 0.0 {
        true => {
            let left = begun.elapsed().as_secs_f64() * (1.0 - share) / share;
            format!(", about {left:.0} s left")
        }
        false => String::new(),
    };
    let what = printable(what);
    progress.set_message(format!("{what}  {:.0} %{left}", 100.0 * share));
}

/// Writes a report to a file.
pub(super) fn write_report(
    path: Option<&Path>,
    explanation: &Explanation,
    render: fn(&Explanation) -> String,
) -> CommandResult {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, render(explanation)).map_err(|error| CliError::at(path, &error))?;
    print_err!("wrote {}", path.display());
    Ok(())
}
