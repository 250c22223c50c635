//! `infeed demo`: shows the other commands on a generated dataset, or on the user's images.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use infeed_core::sample::Size;
use infeed_sample::Classification;

use crate::error::{CliError, CommandResult};
use crate::{args, bench, explain, inspect, interrupt, sample};

/// Sides of most pictures. Others vary around it.
const SIZE: Size = Size {
    height: 375,
    width: 500,
};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed demo
  infeed demo --data photos       the same with your own images
  infeed demo trial --count 2000

demo writes only to its folder. Pictures that are there from an earlier demo are used again.")]
pub(crate) struct Args {
    /// Folder for the pictures, the contact sheet and the report
    #[arg(default_value = "infeed-demo")]
    folder: PathBuf,
    /// Your own images or pipeline file instead of generated pictures
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Number of generated pictures
    #[arg(long, value_name = "N", default_value_t = 400, conflicts_with = "data",
          value_parser = clap::value_parser!(u64).range(20..))]
    count: u64,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = args::positive)]
    seconds: f64,
}

/// A command that the demo runs.
struct Step {
    title: &'static str,
    /// Name of the command, and its arguments.
    args: Vec<OsString>,
    run: fn(&[OsString]) -> CommandResult,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    fs::create_dir_all(&args.folder).map_err(|error| {
        CliError::Failed(format!("cannot create {}: {error}", args.folder.display()))
    })?;
    let data = match &args.data {
        Some(data) => data.clone(),
        None => pictures(&args.folder, args.count)?,
    };
    let (sheet, report) = (
        args.folder.join("sheet.png"),
        args.folder.join("report.html"),
    );
    for step in steps(&data, &sheet, &report, args.seconds) {
        if interrupt::is_requested() {
            return Err(CliError::Failed("interrupted".to_owned()));
        }
        putln!(
            "\n== {}\n$ infeed {}\n",
            step.title,
            shell_command(&step.args)
        )?;
        (step.run)(&step.args)?;
    }
    putln!("\n== Results")?;
    putln!("{} shows samples of the dataset.", sheet.display())?;
    putln!(
        "{} shows when each thread worked and when it waited.",
        report.display()
    )?;
    putln!("\n== Your own data\n{}", OWN_DATA)
}

const OWN_DATA: &str = "\
infeed inspect DIR        counts, sizes and bad files of a folder of images
infeed explain DIR        what limits reading it, and what to change
infeed pack DIR OUT --to fast
                          a copy without loss that is faster to decode";

/// Returns the folder of the generated pictures, which it writes if it is missing.
fn pictures(folder: &Path, count: u64) -> Result<PathBuf, CliError> {
    let photos = folder.join("photos");
    if photos.exists() {
        putln!("using the pictures in {}", photos.display())?;
        return Ok(photos);
    }
    let failed = |error: std::io::Error| {
        CliError::Failed(format!("cannot write {}: {error}", photos.display()))
    };
    // The folder has another name until it is complete, and is removed if this command fails. The
    // name is random: a folder of the user with a fixed name would be removed too.
    let temporary = tempfile::Builder::new()
        .prefix("photos.unfinished.")
        .tempdir_in(folder)
        .map_err(failed)?;
    // Inside it, because only this user can read a temporary folder.
    let unfinished = temporary.path().join("photos");
    let number = count.to_string();
    let command = ["sample", "classification"].map(OsString::from);
    let options = ["--count", &number].map(OsString::from);
    let args = [&command[..], &[photos.clone().into()], &options].concat();
    putln!("== Generated pictures\n$ infeed {}\n", shell_command(&args))?;
    let dataset = Classification {
        count,
        classes: 10,
        seed: 0,
        size: SIZE,
        quality: 94..=97,
    };
    putln!("{}", sample::write(&dataset, &unfinished)?.text(&photos))?;
    fs::rename(&unfinished, &photos).map_err(failed)?;
    Ok(photos)
}

fn steps(data: &Path, sheet: &Path, report: &Path, seconds: f64) -> [Step; 3] {
    let seconds = seconds.to_string();
    let args = |command: &str, options: &[&OsStr]| {
        let mut args = vec![command.into(), data.into()];
        args.extend(options.iter().map(|&option| option.to_owned()));
        args
    };
    [
        Step {
            title: "Contents of the dataset",
            args: args("inspect", &["--sheet".as_ref(), sheet.as_ref()]),
            run: |args| inspect::run(&parse(args)?),
        },
        Step {
            title: "Samples per second on this machine",
            args: args("bench", &["--seconds".as_ref(), seconds.as_ref()]),
            run: |args| bench::run(&parse(args)?),
        },
        Step {
            title: "What limits the rate, and what would help",
            args: args(
                "explain",
                &[
                    "--seconds".as_ref(),
                    seconds.as_ref(),
                    "--html".as_ref(),
                    report.as_ref(),
                ],
            ),
            run: |args| explain::run(&parse(args)?),
        },
    ]
}

fn parse<A: Parser>(args: &[OsString]) -> Result<A, CliError> {
    A::try_parse_from(args).map_err(|error| CliError::Usage(error.to_string()))
}

/// Returns arguments as a shell takes them.
fn shell_command(args: &[OsString]) -> String {
    let quoted = |arg: &OsString| {
        let text = arg.to_string_lossy();
        let plain = |c: char| c.is_alphanumeric() || "-_./:=,".contains(c);
        match !text.is_empty() && text.chars().all(plain) {
            true => text.into_owned(),
            false => format!("'{}'", text.replace('\'', r"'\''")),
        }
    };
    args.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_spaces_are_quoted() {
        let args = ["inspect".into(), "my photos".into(), "it's".into()];

        assert_eq!(shell_command(&args), r"inspect 'my photos' 'it'\''s'");
    }
}
