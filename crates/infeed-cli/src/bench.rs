//! `infeed bench`: runs a pipeline as a training loop would and tells what it cost.

mod feed;
mod report;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use infeed::device::busy::Watch;
use infeed::loader::DecodeBy;
use infeed::loader::ahead::Placement;
use infeed::loader::feeders::{Feeders, Local};
use infeed::{OnError, Options};
use infeed_raw::machine::{peak_rss_bytes, usable_cores};

use crate::error::CliError;
use crate::feed::token;
use crate::target::{FunctionArgs, Target};
use crate::terminal::{human_bytes, spinner};
use crate::{Outcome, args, interrupt};
use feed::{Feed, Got};
use report::Measured;

/// Seconds measured when nothing else is asked for.
const DEFAULT_SECONDS: f64 = 10.0;

/// Longest wait between two looks at the clock and at Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed bench pipeline.toml
  infeed bench photos                      a default pipeline for what the folder holds
  infeed bench photos --step-ms 50         consume like a device that takes 50 ms a step
  infeed bench photos --epochs 2 --json    numbers for a script
  infeed bench photos --device cuda        batches on the card, as a training loop gets them
  infeed bench photos --device sim:bandwidth=2e9    on a simulated card behind a slow bus

The rate is taken after the first batch; wait is what the consumer waited after it. CPU and
wall time of a stage are summed over threads. Ctrl-C stops and prints what was measured.")]
pub(crate) struct Args {
    /// Pipeline file (TOML), folder of data, .npy file, shards (.tar, .tfrecord, MDS) or tables
    /// (.parquet, .arrow, .npz)
    path: PathBuf,
    /// Milliseconds that a step of the consumer takes
    #[arg(long, value_name = "N", value_parser = args::positive)]
    step_ms: Option<f64>,
    /// Whole epochs to run
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// Seconds to run; epochs repeat [default: 10]
    #[arg(long, value_name = "S", value_parser = args::positive)]
    seconds: Option<f64>,
    /// Worker threads, or `auto` to have them tuned by the step [default: the cores this process
    /// may use]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<Workers>,
    /// Memory for batches and what makes them, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    memory: Option<u64>,
    /// What becomes of a bad record
    #[arg(long, value_enum, default_value_t = Policy::Stop)]
    on_error: Policy,
    /// Feeders that make batches too (`infeed feed`): host:port, several by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = args::feeder)]
    feeders: Vec<String>,
    /// File with the token that the feeders know
    #[arg(long, value_name = "FILE", requires = "feeders")]
    token_file: Option<PathBuf>,
    /// What the cores of this machine do beside feeders
    #[arg(long, value_enum, default_value_t = Own::Help, requires = "feeders")]
    local: Own,
    /// Deliver on a device: cuda, cuda:1, or sim, which simulates one; named again, on several, a part
    /// of each batch on each
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Who makes rows larger, such as floats of bytes
    #[arg(long, value_enum, default_value_t = Place::Auto, requires = "device")]
    placement: Place,
    /// Who decodes baseline JPEGs: cpu, gpu (whose pixels are near the CPU's, and which resizes
    /// them, too), the GPU's share such as 5/16 or 0.5, or auto, which changes no bit
    #[arg(long, value_name = "WHO", default_value = "auto", requires = "device")]
    decode: DecodeBy,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Own {
    /// They make batches too
    Help,
    /// They make what feeders do not
    Fallback,
}

impl From<Own> for Local {
    fn from(own: Own) -> Local {
        match own {
            Own::Help => Local::Help,
            Own::Fallback => Local::Fallback,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Place {
    /// Whichever makes steps shorter: both are tried in turn while it runs
    Auto,
    /// The host: finished rows cross the bus
    Host,
    /// The device: bytes cross the bus
    Device,
    /// The device, which resizes, too: crops cross the bus
    DeviceResize,
}

impl From<Place> for Placement {
    fn from(place: Place) -> Placement {
        match place {
            Place::Auto => Placement::Auto,
            Place::Host => Placement::Host,
            Place::Device => Placement::Device,
            Place::DeviceResize => Placement::Resize,
        }
    }
}

#[derive(Clone, Copy)]
enum Workers {
    Auto,
    Number(usize),
}

fn workers(text: &str) -> Result<Workers, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Workers::Auto),
        Ok(number) => Ok(Workers::Number(number)),
        Err(_) => Err("a number of threads or `auto` is wanted".to_owned()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Policy {
    /// It ends the run
    Stop,
    /// Another record takes its place
    Substitute,
    /// Its batch is shorter
    Skip,
}

impl From<Policy> for OnError {
    fn from(policy: Policy) -> OnError {
        match policy {
            Policy::Stop => OnError::Stop,
            Policy::Substitute => OnError::Substitute,
            Policy::Skip => OnError::Skip,
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    interrupt::watch();
    let start = Instant::now();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let mut options = Options::default();
    options.workers = match args.workers {
        Some(Workers::Auto) => None,
        Some(Workers::Number(number)) => Some(number),
        // What is measured is not to change while it is.
        None => Some(usable_cores()),
    };
    options.memory = args.memory;
    options.on_error = args.on_error.into();
    options.decode = args.decode;
    if !args.feeders.is_empty() {
        let mut feeders = Feeders::new(args.feeders.iter().cloned());
        feeders.token = token(args.token_file.as_ref())?;
        feeders.local = args.local.into();
        options.feeders = Some(feeders);
    }
    let feed = Feed::open(&target, &options, &args.device, args.placement.into())?;
    let loader = feed.loader();

    if !args.json {
        let source = loader.source().map_err(|error| CliError::failed(&error))?;
        let stats = loader.stats().map_err(|error| CliError::failed(&error))?;
        if target.guessed {
            putln!(
                "{} has no pipeline of its own; this one runs:\n",
                args.path.display()
            )?;
            putln!("{}", indented(&target.text()))?;
        }
        putln!(
            "{}",
            indented(&loader.plan().map_err(|error| CliError::failed(&error))?)
        )?;
        putln!(
            "{} records, {} workers, {} I/O threads, {} for batches\n",
            source.len(),
            stats.workers,
            stats.readers,
            human_bytes(stats.budget_bytes),
        )?;
    }

    let (measured, failure) = measure(&feed, args, start)?;
    if args.json {
        putln!("{}", measured.json())?;
    } else if measured.stats.batches > 0 {
        put!("{}", measured.table(args.step_ms))?;
    }
    if let Some(tuned) = measured.stats.tuned.as_ref().filter(|_| !args.json) {
        putln!("{}", tuned.text)?;
    }
    for notice in loader.take_notices() {
        tell!("infeed: {notice}");
    }
    failure.map_or(Ok(()), Err)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Consumes batches until it is enough, the user has enough, or one fails; what was measured up
/// to a failure is still told.
fn measure(
    feed: &Feed,
    args: &Args,
    start: Instant,
) -> Result<(Measured, Option<CliError>), CliError> {
    let progress = spinner();
    let limit = match args.epochs {
        Some(_) => None,
        None => Some(Duration::from_secs_f64(
            args.seconds.unwrap_or(DEFAULT_SECONDS).min(1e9),
        )),
    };
    let step_time = args
        .step_ms
        .map(|ms| Duration::from_secs_f64((ms / 1e3).min(1e9)));
    let mut first: Option<First> = None;
    let (mut wait, mut rows, mut epochs) = (Duration::ZERO, 0_u64, 0_u64);
    let mut failure = None;
    let watch = feed.device().and_then(Watch::over);
    let interrupted = loop {
        if interrupt::asked() {
            break true;
        }
        let done = args.epochs.is_some_and(|wanted| epochs >= wanted)
            || limit.is_some_and(|limit| first.as_ref().is_some_and(|f| f.at.elapsed() >= limit));
        if done {
            break false;
        }
        let asked = Instant::now();
        let got = feed.next_within(PATIENCE);
        if first.is_some() {
            wait += asked.elapsed();
        }
        match got {
            Ok(Got::Samples(samples)) => {
                rows += samples;
                let first = first.get_or_insert_with(|| First {
                    at: Instant::now(),
                    after: start.elapsed(),
                    rows,
                });
                if let Some(time) = step_time {
                    thread::sleep(time);
                }
                let rate = rate_after(first, rows);
                progress.set_message(format!(
                    "epoch {epochs}  {rows} samples  {rate:.0} samples/s  waited {:.0} %",
                    100.0 * wait.as_secs_f64() / first.at.elapsed().as_secs_f64().max(1e-9),
                ));
            }
            Ok(Got::End) => epochs += 1,
            Ok(Got::Timeout) => {}
            Err(error) => {
                failure = Some(CliError::of_run(&error));
                break false;
            }
        }
    };
    progress.finish_and_clear();
    let utilisation = watch.and_then(Watch::end);
    let failed = |error: infeed::Error| CliError::failed(&error);
    let stats = feed.loader().stats().map_err(failed)?;
    let since_first = first
        .as_ref()
        .map_or(Duration::ZERO, |first| first.at.elapsed());
    let measured = Measured {
        samples_per_s: first.as_ref().map_or(0.0, |first| rate_after(first, rows)),
        first_batch: first.map(|first| first.after),
        since_first,
        elapsed: start.elapsed(),
        wait,
        epochs,
        interrupted,
        peak_rss_bytes: peak_rss_bytes(),
        bad: feed.loader().quarantine(),
        stats,
        // A device that failed is told by the failure.
        sent: feed.sent().ok().flatten(),
        utilisation,
        placed: feed.placed(),
    };
    Ok((measured, failure))
}

/// When the first batch came.
struct First {
    at: Instant,
    /// Since the command began.
    after: Duration,
    rows: u64,
}

/// Samples a second after the first batch; a single batch is counted from the start.
fn rate_after(first: &First, rows: u64) -> f64 {
    let seconds = first.at.elapsed().as_secs_f64();
    if rows > first.rows {
        (rows - first.rows) as f64 / seconds.max(1e-9)
    } else {
        rows as f64 / first.after.as_secs_f64().max(1e-9)
    }
}
