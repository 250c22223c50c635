//! Progress lines and number formats for people. Progress goes to the standard error if it is a
//! terminal. Results go to the standard output.

use std::fmt::{Arguments, Write};
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use infeed_core::printable::{printable_json, printable_lines, printable_page};
use infeed_core::units::format_bytes;
pub(crate) use infeed_core::units::format_seconds as human_seconds;

use crate::error::CliError;

/// Writes a result to the standard output, like `print!`, but returns errors.
macro_rules! put {
    ($($text:tt)*) => { $crate::terminal::put(format_args!($($text)*)) };
}

/// As `put!`, with a line end.
macro_rules! putln {
    ($($text:tt)*) => { $crate::terminal::put(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a line to the standard error. Ignores errors, such as a closed stream.
macro_rules! print_err {
    ($($text:tt)*) => { $crate::terminal::print_err(format_args!($($text)*)) };
}

/// Writes to the standard output, with control characters escaped.
///
/// # Errors
///
/// [`CliError::Closed`] if the reader has closed it, such as `head` after its last line.
pub(crate) fn put(text: Arguments<'_>) -> Result<(), CliError> {
    write_out(&printable_lines(&text.to_string()))
}

/// Writes a report to the standard output. Keeps its styles, and escapes other control characters.
///
/// # Errors
///
/// As [`put`].
pub(crate) fn put_page(text: &str) -> Result<(), CliError> {
    write_out(&printable_page(text))
}

/// Writes a JSON text and a line end to the standard output, with control characters escaped as in
/// JSON.
///
/// # Errors
///
/// As [`put`].
pub(crate) fn put_json_text(json: &str) -> Result<(), CliError> {
    write_out(&printable_json(&format!("{json}\n")))
}

fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::Closed),
        Err(error) => Err(CliError::Failed(format!(
            "cannot write to the standard output: {error}"
        ))),
    }
}

/// Writes a line to the standard error, with control characters escaped.
pub(crate) fn print_err(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(&text.to_string()));
}

/// Returns a progress bar over `total` items. Hidden if the standard error is no terminal.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template =
        format!("{{bar:30}} {{human_pos}}/{{human_len}} {what}  {{rate}}  {{eta}} left  {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            // A progress bar cannot report a drawing error.
            let _ = write!(out, "{:.1}/s", state.per_sec());
        };
        bar.set_style(style.progress_chars("=> ").with_key("rate", rate));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Returns a line of changing text. Hidden if the standard error is no terminal.
pub(crate) fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4}  {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Returns the columns of the terminal, at least 60. Without a terminal, 80.
pub(crate) fn width() -> usize {
    let (_, columns) = console::Term::stdout().size_checked().unwrap_or((0, 80));
    usize::from(columns).max(60)
}

/// Formats how long ago a time was.
pub(crate) fn ago(time: SystemTime) -> String {
    let seconds = time.elapsed().map_or(0, |age| age.as_secs());
    match seconds {
        0..120 => "just now".to_owned(),
        120..7_200 => format!("{} minutes ago", seconds / 60),
        7_200..172_800 => format!("{} hours ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Formats a size such as `1.5 GB` with at most three digits.
pub(crate) fn human_bytes(bytes: u64) -> String {
    format_bytes(bytes as f64)
}
