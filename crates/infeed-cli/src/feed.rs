//! `infeed feed`: makes batches of a pipeline for trainers on other machines until Ctrl-C.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;
use infeed_feed::wire::channel::Encryption;
use infeed_feed::{FeedOptions, FeedStats, serve};

use crate::error::{CliError, CommandResult};
use crate::feeders::token;
use crate::target::{FunctionArgs, Target};
use crate::terminal::human_bytes;
use crate::{args, interrupt};

/// Time between two checks of Ctrl-C and of the counters.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed feed pipeline.toml                               for trainers on this machine
  infeed feed pipeline.toml --listen 10.0.0.7:7077 --token-file token
  infeed bench pipeline.toml --feeders 10.0.0.7:7077 --token-file token

Give each feeder the trainer's pipeline file and the same data. The feeder rejects a trainer with
other data, another pipeline or another version of infeed, and prints the difference. The feeder
imports Python functions by their names when it starts (PYTHONPATH); trainers never send code.
Connections between machines are encrypted. Trainers and feeders share a token of at least 16
characters; `openssl rand -hex 16 > token` makes one.")]
pub(crate) struct Args {
    /// Pipeline file (TOML) of the trainer, or the folder, shards or tables that the trainer reads
    /// without a pipeline file
    path: PathBuf,
    /// Address and port to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7077")]
    listen: String,
    /// File with the token that trainers must have
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Connections that must be encrypted; the feeder accepts encrypted connections in any case
    #[arg(long, value_enum, default_value_t = Encrypt::Remote)]
    encrypt: Encrypt,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// Memory limit for batches and workers, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = infeed_core::units::parse_bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    functions: FunctionArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Encrypt {
    /// Connections from other machines
    Remote,
    /// All connections, also from this machine
    Always,
    /// No connections: for a network of trusted machines only
    Never,
}

impl From<Encrypt> for Encryption {
    fn from(encrypt: Encrypt) -> Encryption {
        match encrypt {
            Encrypt::Remote => Encryption::Remote,
            Encrypt::Always => Encryption::Always,
            Encrypt::Never => Encryption::Never,
        }
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let failed = |error: infeed::Error| CliError::from_error(&error);
    let mut options = FeedOptions::default();
    options.listen = args.listen.clone();
    options.token = token(args.token_file.as_ref())?;
    options.encryption = args.encrypt.into();
    (options.workers, options.memory) = (args.workers, args.memory);
    let feeder = serve(&target.pipeline, &[], &options).map_err(failed)?;
    for notice in feeder.notices() {
        print_err!("infeed: {notice}");
    }
    // Scripts that use port 0 wait for this line.
    putln!("feeding at {}", feeder.address())?;
    interrupt::is_regular_end();
    let mut printed = FeedStats::default();
    while !interrupt::is_requested() {
        thread::sleep(SLICE);
        let now = feeder.stats();
        if now.sessions != printed.sessions {
            print_err!("infeed: {}", sentence(&now));
        }
        if now.refused > printed.refused {
            let why = now.problem.as_deref().unwrap_or("no reason was given");
            print_err!("infeed: a trainer was rejected: {why}");
        }
        printed = now;
    }
    print_err!("infeed: {}", sentence(&feeder.stats()));
    Ok(())
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
        "{trainers} served; {batches} batches, {} sent so far",
        human_bytes(*bytes)
    )
}
