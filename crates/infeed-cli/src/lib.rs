//! The `infeed` command: a library that takes the arguments and gives the exit status.
//!
//! One file a command; `args` reads what people write (`2GiB`, `500x375`), `error` decides what
//! they are told when something fails.

#[macro_use]
mod terminal;

mod args;
mod bench;
mod error;
mod explain;
mod feed;
mod files;
mod inspect;
mod interrupt;
mod ledger;
mod named;
mod npy;
mod pack;
mod probe;
mod sample;
mod target;
mod verify;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use error::CliError;

/// Keeps accelerators fed: reads, decodes, transforms and batches training data on all cores.
#[derive(Parser)]
#[command(
    name = "infeed",
    version,
    arg_required_else_help = true,
    after_help = "The Python package adds `infeed experiment NAME`, which measures again what the \
                  field's folklore rests on."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a pipeline and tell rate, waiting, memory and the cost of each stage
    Bench(bench::Args),
    /// Tell which resource limits a pipeline and what each remedy would gain; apply one and check
    Explain(explain::Args),
    /// Make batches of a pipeline for trainers on other machines
    Feed(feed::Args),
    /// Tell what was predicted, and what came of it
    Ledger(ledger::Args),
    /// Tell what is in a dataset: counts, formats, sizes, classes, bad files; draw a contact sheet
    Inspect(inspect::Args),
    /// Rewrite a dataset once into a form that is cheaper to read
    Pack(pack::Args),
    /// Measure what this machine can do, or tell what others could
    Probe(probe::Args),
    /// Write a realistic dataset for trying things out
    Sample(sample::Args),
    /// Replay a pipeline from a state and name the first step that differs
    Verify(verify::Args),
}

/// Runs the command; `argv` starts with the program's name.
///
/// Returns the exit status: 0 for success, 1 when the work failed, 2 when the arguments make no
/// sense, 3 when records that are bad were left out of what was packed, 141 when nobody reads the
/// standard output any more. Everything a user should see
/// has been printed: results to the standard output, the rest to the standard error.
pub fn run<I, T>(argv: I) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is no reason to complain.
            let _ = error.print();
            return u8::from(error.use_stderr()) * 2;
        }
    };
    let outcome = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Feed(args) => feed::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Sample(args) => sample::run(&args),
        Command::Verify(args) => verify::run(&args),
    };
    match outcome {
        Ok(()) => 0,
        Err(CliError::Closed) => CliError::Closed.status(),
        Err(error) => {
            tell!("infeed: {error}");
            error.status()
        }
    }
}

/// What every command returns.
type Outcome = Result<(), CliError>;
