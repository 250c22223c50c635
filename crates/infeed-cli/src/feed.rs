//! `infeed feed`: makes batches of a pipeline for trainers on other machines, until Ctrl-C.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;
use infeed::feed::{FeedOptions, FeedStats, serve};
use infeed::wire::token::Token;

use crate::error::CliError;
use crate::target::{FunctionArgs, Target};
use crate::terminal::human_bytes;
use crate::{Outcome, args, interrupt};

/// Between two looks at Ctrl-C and at what happened.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed feed pipeline.toml                               for trainers on this machine
  infeed feed pipeline.toml --listen 10.0.0.7:7077 --token-file token
  infeed bench pipeline.toml --feeders 10.0.0.7:7077 --token-file token

Give each feeder the pipeline file of the run and its own view of the same data. A trainer of other
data, another description or another version is refused, and told what differs. Functions in Python
are imported by their names when it starts (PYTHONPATH), never sent. Nothing is encrypted: listen on
a private network. The token is 16 or more characters that trainers and feeders share;
`openssl rand -hex 16 > token` makes one.")]
pub(crate) struct Args {
    /// Pipeline file (TOML), or what a trainer without one names: folder, shards or tables
    path: PathBuf,
    /// Address and port to listen at; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7077")]
    listen: String,
    /// File with the token that trainers must know
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// Memory for batches and what makes them, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    functions: FunctionArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    interrupt::watch();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let failed = |error: infeed::Error| CliError::failed(&error);
    let mut options = FeedOptions::default();
    options.listen = args.listen.clone();
    options.token = token(args.token_file.as_ref())?;
    (options.workers, options.memory) = (args.workers, args.memory);
    let feeder = serve(&target.pipeline, &[], &options).map_err(failed)?;
    for notice in feeder.notices() {
        tell!("infeed: {notice}");
    }
    // Scripts that took port 0 wait for this line.
    putln!("feeding at {}", feeder.address())?;
    let mut told = FeedStats::default();
    while !interrupt::asked() {
        thread::sleep(SLICE);
        let now = feeder.stats();
        if now.sessions != told.sessions {
            tell!("infeed: {}", sentence(&now));
        }
        if now.refused > told.refused {
            let why = now.problem.as_deref().unwrap_or("it did not say why");
            tell!("infeed: a trainer is not fed: {why}");
        }
        told = now;
    }
    tell!("infeed: {}", sentence(&feeder.stats()));
    Ok(())
}

/// The token in a file; none without one.
pub(crate) fn token(file: Option<&PathBuf>) -> Result<Token, CliError> {
    match file {
        None => Ok(Token::default()),
        Some(file) => Token::load(file).map_err(|error| CliError::failed(&error)),
    }
}

fn sentence(stats: &FeedStats) -> String {
    let FeedStats {
        sessions,
        batches,
        bytes,
        ..
    } = stats;
    let trainers = match sessions {
        1 => "1 trainer is".to_owned(),
        n => format!("{n} trainers are"),
    };
    format!(
        "{trainers} fed; {batches} batches, {} sent so far",
        human_bytes(*bytes)
    )
}
