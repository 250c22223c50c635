//! Progress lines and number formats for people. Progress goes to the standard error if it is a
//! terminal. Results go to the standard output.

use std::fmt::{Arguments, Write};
use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use infeed::printable::printable_page;

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
    let text = text.to_string();
    let mut out = io::stdout().lock();
    match out
        .write_all(printable_page(&text).as_bytes())
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::Closed),
        Err(error) => Err(CliError::Failed(format!(
            "cannot write to the standard output: {error}"
        ))),
    }
}

/// Writes a line to the standard error, with control characters escaped.
pub(crate) fn print_err(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable_page(&text.to_string()));
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

/// Returns the columns of the terminal, at least 60. Without a terminal, 100.
pub(crate) fn width() -> usize {
    let (_, columns) = console::Term::stdout().size_checked().unwrap_or((0, 100));
    usize::from(columns).max(60)
}

/// Formats a size such as `1.5 GiB` with at most three digits.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match value {
        _ if unit == "B" => format!("{bytes} B"),
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

/// Formats a time such as `12.3 s`, `45 ms`, `870 us` or `60 ns`.
pub(crate) fn human_seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_with_three_figures() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(110_000), "107 KiB");
        assert_eq!(human_bytes(3 << 29), "1.50 GiB");
    }

    #[test]
    fn times_are_written_in_the_unit_that_fits() {
        assert_eq!(human_seconds(0.0), "0");
        assert_eq!(human_seconds(0.000_87), "870 us");
        assert_eq!(human_seconds(2.0), "2.00 s");
    }
}
