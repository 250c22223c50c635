//! `infeed bench`: runs a pipeline as a training loop would and prints its rate and costs.

pub(crate) mod json;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use infeed::loader::DecodeBy;
use infeed::loader::any::{AnyLoader, AnyStep};
use infeed::loader::device::{DeviceLoader, Placement};
use infeed::{Loader, Options};
use infeed_device::SLOTS;
use infeed_device::busy::UtilisationMonitor;
use infeed_raw::machine::{peak_rss_bytes, usable_cores};

use crate::cache::CacheArgs;
use crate::error::{CliError, CommandResult};
use crate::feeders::FeederArgs;
use crate::json::put_json;
use crate::on_error::OnBadRecord;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::{human_bytes, spinner};
use crate::{args, interrupt};
use report::BenchResult;

/// Default duration in seconds.
const DEFAULT_SECONDS: f64 = 10.0;

/// Longest wait between two checks of the clock and of Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed bench pipeline.toml
  infeed bench photos                      a default pipeline for the folder
  infeed bench photos --plan               also print that pipeline and its plan
  infeed bench photos --step-ms 50         consume with a step of 50 ms
  infeed bench photos --epochs 2 --json    numbers for a script
  infeed bench photos --device cuda        batches on the GPU, as a training loop gets them
  infeed bench photos --device sim:bandwidth=2e9    on a simulated GPU behind a slow bus

Rate and waits of the consumer count from the first batch on. CPU and wall time of a stage are
summed over threads. Ctrl-C stops and prints the results so far.")]
pub(crate) struct Args {
    #[arg(help = path_help())]
    path: PathBuf,
    /// Duration of a training step in milliseconds [default: no step, batches are taken as fast as
    /// they arrive]
    #[arg(long, value_name = "N", value_parser = args::positive)]
    step_ms: Option<f64>,
    /// Number of whole epochs to run
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// Seconds to run; epochs repeat [default: 10]
    #[arg(long, value_name = "S", value_parser = args::positive)]
    seconds: Option<f64>,
    /// Worker threads, or `auto` to tune their number during the run [default: the cores this
    /// process may use]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<Workers>,
    /// Memory limit for batches and workers, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = infeed_core::units::parse_bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Treatment of bad records
    #[arg(long, value_enum, default_value_t = OnBadRecord::Stop)]
    on_error: OnBadRecord,
    #[command(flatten)]
    feeders: FeederArgs,
    /// Deliver batches to a device: cuda, cuda:1, or sim (simulated); repeat the option to split
    /// each batch over several devices
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Where rows are expanded (cast to float, one-hot)
    #[arg(long, value_enum, default_value_t = PlacementArg::Auto, requires = "device")]
    placement: PlacementArg,
    /// Decoder of baseline JPEGs: cpu, gpu (also resizes; pixels differ slightly from the CPU's),
    /// the GPU's share of the records such as 5/16 or 0.5, or auto, which keeps the CPU's pixels
    #[arg(
        long,
        value_name = "DECODER",
        default_value = "auto",
        requires = "device"
    )]
    decode: DecodeBy,
    /// Print the plan after the result, and the default pipeline if the path is not a pipeline file
    #[arg(long, conflicts_with = "json")]
    plan: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum PlacementArg {
    /// The placement with the shortest steps: they are tried in turn during the run
    Auto,
    /// On the host: finished rows cross the bus
    Host,
    /// On the device: uint8 rows cross the bus
    Device,
    /// On the device, with the resize: crops cross the bus
    DeviceResize,
}

impl From<PlacementArg> for Placement {
    fn from(place: PlacementArg) -> Placement {
        match place {
            PlacementArg::Auto => Placement::Auto,
            PlacementArg::Host => Placement::Host,
            PlacementArg::Device => Placement::Device,
            PlacementArg::DeviceResize => Placement::Resize,
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
        Err(_) => Err("write a number of threads, such as 4, or `auto`".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let start = Instant::now();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let mut options = Options::default();
    options.workers = match args.workers {
        Some(Workers::Auto) => None,
        Some(Workers::Number(number)) => Some(number),
        // The number is fixed, because tuning during a measurement would change the result.
        None => Some(usable_cores()),
    };
    (options.memory, options.cache) = (args.memory, args.cache.options());
    options.on_error = args.on_error.into();
    options.decode = args.decode;
    if let Some(feeders) = args.feeders.feeders()? {
        options.remote = Some(Arc::new(feeders));
    }
    let feed = target
        .pipeline
        .open_any(&args.device, args.placement.into(), SLOTS, &[], &options)
        .map_err(|error| CliError::from_error(&error))?;
    let loader = feed.loader();
    if target.guessed && !args.json {
        print_err!(
            "{} is not a pipeline file; measuring a default pipeline, which --plan prints",
            args.path.display()
        );
    }

    let (measured, failure) = measure(&feed, args, start)?;
    if args.json {
        put_json(&measured.to_json())?;
    } else if measured.stats.batches > 0 {
        put!("{}", measured.table(args.step_ms))?;
    }
    if let Some(tuned) = measured.stats.tuned.as_ref().filter(|_| !args.json) {
        putln!("{}", tuned.text)?;
    }
    if args.plan {
        put!("{}", plan(&target, loader)?)?;
    }
    for notice in loader.take_notices() {
        print_err!("infeed: {notice}");
    }
    failure.map_or(Ok(()), Err)
}

/// Returns the default pipeline, if the target is no pipeline file, and the plan.
fn plan(target: &Target, loader: &Loader) -> Result<String, CliError> {
    let failed = |error: infeed::Error| CliError::from_error(&error);
    let stats = loader.stats().map_err(failed)?;
    let mut text = String::new();
    if target.guessed {
        text += &format!("\ndefault pipeline\n{}", indent(&target.text()));
    }
    text += &format!(
        "\nplan\n{}  {} records, {} workers, {} I/O threads, {} for batches\n",
        indent(&loader.plan().map_err(failed)?),
        loader.source().map_err(failed)?.len(),
        stats.workers,
        stats.readers,
        human_bytes(stats.budget_bytes),
    );
    Ok(text)
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Consumes batches until the limit is reached, the user presses Ctrl-C, or a batch fails. A
/// failure still returns the measurements so far.
fn measure(
    feed: &AnyLoader,
    args: &Args,
    start: Instant,
) -> Result<(BenchResult, Option<CliError>), CliError> {
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
    let mut first: Option<FirstBatch> = None;
    let (mut wait, mut rows, mut epochs) = (Duration::ZERO, 0_u64, 0_u64);
    let mut failure = None;
    let first_ring = feed.on_device().map(DeviceLoader::ring);
    let watch = first_ring.and_then(|ring| UtilisationMonitor::over(ring.device()));
    let interrupted = loop {
        if interrupt::is_requested() {
            break true;
        }
        let done = args.epochs.is_some_and(|wanted| epochs >= wanted)
            || limit.is_some_and(|limit| first.as_ref().is_some_and(|f| f.at.elapsed() >= limit));
        if done {
            break false;
        }
        let begun = Instant::now();
        let got = feed.next_within(POLL_INTERVAL, &[]).and_then(|step| {
            step.synchronize()?;
            Ok(step)
        });
        if first.is_some() {
            wait += begun.elapsed();
        }
        match got {
            Ok(step @ (AnyStep::Host(_) | AnyStep::Device(_))) => {
                rows += step.samples() as u64;
                drop(step);
                let first = first.get_or_insert_with(|| FirstBatch {
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
            Ok(AnyStep::End) => epochs += 1,
            Ok(AnyStep::Timeout) => {}
            Err(error) => {
                failure = Some(CliError::of_run(&error, args.on_error));
                break false;
            }
        }
    };
    progress.finish_and_clear();
    let utilisation = watch.and_then(UtilisationMonitor::end);
    let failed = |error: infeed::Error| CliError::from_error(&error);
    let stats = feed.loader().stats().map_err(failed)?;
    let since_first = first
        .as_ref()
        .map_or(Duration::ZERO, |first| first.at.elapsed());
    let measured = BenchResult {
        samples_per_s: first.as_ref().map_or(0.0, |first| rate_after(first, rows)),
        first_batch: first.map(|first| first.after),
        since_first,
        elapsed: start.elapsed(),
        wait,
        epochs,
        interrupted,
        peak_rss_bytes: peak_rss_bytes(),
        bad: feed.loader().bad_records(),
        stats,
        // If a device failed, `failure` reports it.
        sent: feed.device_total().ok().flatten(),
        utilisation,
        placed: feed.placement(),
    };
    Ok((measured, failure))
}

/// Arrival of the first batch.
struct FirstBatch {
    at: Instant,
    /// Time since the command started.
    after: Duration,
    rows: u64,
}

/// Samples per second after the first batch. A single batch counts from the start.
fn rate_after(first: &FirstBatch, rows: u64) -> f64 {
    let seconds = first.at.elapsed().as_secs_f64();
    if rows > first.rows {
        (rows - first.rows) as f64 / seconds.max(1e-9)
    } else {
        rows as f64 / first.after.as_secs_f64().max(1e-9)
    }
}
