//! The list of the commands, and the exit status of the program.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::{Parser, Subcommand};
use infeed_core::printable::printable_lines;

use crate::error::{CliError, CommandResult};
#[cfg(feature = "feed")]
use crate::feed;
#[cfg(not(feature = "feed"))]
use crate::no_feed;
use crate::{
    bench, cache, demo, explain, inspect, interrupt, ledger, log, pack, probe, sample, schema,
    verify,
};

/// Prepare training data on all cores, and find what limits the speed
#[derive(Parser)]
#[command(
    name = "infeed",
    version,
    arg_required_else_help = true,
    after_help = "The Python package adds `infeed adopt FILE:FUNCTION`, which replaces a \
                  DataLoader, `infeed check SCRIPT`, which fails if a training waits for its \
                  batches too long, and `infeed experiment NAME`, which repeats measurements \
                  about data loading."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a pipeline and print its rate, waits, memory and the cost of each stage
    Bench(bench::Args),
    /// List, remove or verify what a cache on a disk holds
    Cache(cache::Args),
    /// Show the other commands on generated pictures, or on your own
    Demo(demo::Args),
    /// Find the resource that limits a pipeline, predict the gain of each remedy, apply a remedy
    /// and measure its gain
    Explain(Box<explain::Args>),
    /// Make batches of a pipeline for trainers on other machines
    #[cfg(feature = "feed")]
    Feed(feed::Args),
    /// Report that this build cannot run feeders
    #[cfg(not(feature = "feed"))]
    #[command(hide = true)]
    Feed(no_feed::NoFeedArgs),
    /// Print the predicted and the measured gain of all applied remedies
    Ledger(ledger::Args),
    /// Print the contents of a dataset: counts, formats, sizes, classes, bad files; draw samples
    Inspect(inspect::Args),
    /// Write a copy of a dataset in a format that is cheaper to read
    Pack(pack::Args),
    /// Restore the files of a dataset of lossless records
    Unpack(pack::UnpackArgs),
    /// Measure cores, memory and storage of this machine, or print those of a known machine
    Probe(probe::Args),
    /// Write a realistic dataset for experiments
    Sample(sample::Args),
    /// Print the JSON schemas of the results that commands print with --json
    Schema(schema::Args),
    /// Replay a pipeline and compare its steps with recorded digests
    Verify(verify::Args),
}

/// Runs the command. `argv` starts with the program's name.
///
/// Returns the exit status: 0 for success, 1 if the work failed, 2 for invalid arguments, 3 if bad
/// records were left out of a packed dataset, 130 if Ctrl-C ended the work, 141 if the reader of the
/// standard output closed it.
/// All messages are printed before it returns: results to the standard output, the rest to the
/// standard error.
pub fn run<I, T>(argv: I) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.to_string();
            match printable_lines(&text) {
                // A closed pipe is no reason to report an error.
                Cow::Borrowed(_) => drop(error.print()),
                // Without colours, because the arguments have control characters too.
                Cow::Owned(_) => print_err!("{}", text.trim_end()),
            }
            return u8::from(error.use_stderr()) * 2;
        }
    };
    let sink = log::start();
    let outcome = cli.command.run();
    infeed_core::log::send_to(sink);
    match outcome {
        Err(CliError::Closed) => CliError::Closed.status(),
        // Listing may end with a part of the files, so success is no success either.
        outcome if interrupt::ended_early() => {
            match outcome.map_err(|error| error.to_string()) {
                Ok(()) => print_err!("infeed: interrupted"),
                Err(text) if text.starts_with("interrupted") => print_err!("infeed: {text}"),
                Err(text) => print_err!("infeed: interrupted: {text}"),
            }
            interrupt::STATUS
        }
        Ok(()) => 0,
        Err(error) => {
            print_err!("infeed: {error}");
            error.status()
        }
    }
}

impl Command {
    fn run(self) -> CommandResult {
        match self {
            Command::Bench(args) => bench::run(&args),
            Command::Cache(args) => cache::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Explain(args) => explain::run(&args),
            #[cfg(feature = "feed")]
            Command::Feed(args) => feed::run(&args),
            #[cfg(not(feature = "feed"))]
            Command::Feed(args) => no_feed::run(&args),
            Command::Ledger(args) => ledger::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Pack(args) => pack::run(&args),
            Command::Unpack(args) => pack::unpack(&args),
            Command::Probe(args) => probe::run(&args),
            Command::Sample(args) => sample::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::Verify(args) => verify::run(&args),
        }
    }
}
