//! `infeed explain`: which resource limits a pipeline, what each remedy would gain, and, applied,
//! whether it did.

mod apply;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use indicatif::ProgressBar;
use infeed::device::Any;
use infeed::explain::{Case, Conditions, Explanation, Stand, applies, explain, ledger};
use infeed::loader::DecodeBy;
use infeed::loader::feeders::Feeders;
use infeed::probe;
use infeed::report;
use infeed::source::throttled::Throttle;

use crate::bench::{Own, Policy};
use crate::error::CliError;
use crate::feed::token;
use crate::ledger::default_path;
use crate::target::{FunctionArgs, Target};
use crate::terminal::{spinner, width};
use crate::{Outcome, args, interrupt};

/// Seconds of the plain run when nothing else is asked for.
const DEFAULT_SECONDS: f64 = 6.0;

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed explain photos                     what limits a folder of images on this machine
  infeed explain pipeline.toml --step-ms 12 with a training step of 12 ms beside it
  infeed explain photos --on hdd            as if the data lay on a hard disk
  infeed explain photos --device cuda:0     with batches on a card: what belongs there, what crosses
  infeed explain photos --device cuda:0 --decode gpu         with JPEGs decoded there
  infeed explain photos --on h100x8         what would belong on cards that are not here
  infeed explain train.toml --step-ms 12 --network 10Gbit    how many feeders the step would need
  infeed explain train.toml --feeders 10.0.0.7:7077 --token-file token    what a feeder that runs gives
  infeed explain photos --html report.html  with the timeline, to look at
  infeed explain photos --apply 1           do what helps most, measure it, keep the ledger

Every remedy is tried on a few hundred of your records. What is written goes beside the original,
never over it. Ctrl-C stops.")]
pub(crate) struct Args {
    /// Pipeline file (TOML), folder of data, .npy file, shards (.tar, .tfrecord, MDS) or tables
    /// (.parquet, .arrow, .npz)
    path: PathBuf,
    /// Milliseconds that a training step takes [default: batches are taken as fast as they come]
    #[arg(long, value_name = "N", value_parser = args::positive)]
    step_ms: Option<f64>,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// I/O threads [default: 4]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    io_threads: Option<usize>,
    /// Memory for batches and what makes them, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    memory: Option<u64>,
    /// What becomes of a bad record
    #[arg(long, value_enum, default_value_t = Policy::Stop)]
    on_error: Policy,
    /// Seconds of the plain run; less than 1 makes trials shorter, too
    #[arg(long, value_name = "S", value_parser = args::positive, default_value_t = DEFAULT_SECONDS)]
    seconds: f64,
    /// Plan for another machine's storage and bus: `infeed probe --list` names them
    #[arg(long, value_name = "NAME", value_parser = profile)]
    on: Option<&'static probe::Profile>,
    /// Deliver batches on a device, such as cuda:0 or sim, and say what of the work belongs there
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Who decodes baseline JPEGs in what runs: cpu, gpu (whose pixels are near the CPU's), the GPU's
    /// share such as 5/16 or 0.3, or auto, which changes no bit
    #[arg(long, value_name = "WHO", default_value = "auto", requires = "device")]
    decode: DecodeBy,
    /// Measure feeders that run (`infeed feed`) beside this machine's cores: host:port, several by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = args::feeder)]
    feeders: Vec<String>,
    /// File with the token that the feeders know
    #[arg(long, value_name = "FILE", requires = "feeders")]
    token_file: Option<PathBuf>,
    /// What the cores of this machine do beside feeders
    #[arg(long, value_enum, default_value_t = Own::Help, requires = "feeders")]
    local: Own,
    /// Plan feeders behind a network of this rate, such as 10Gbit [default: loopback, as a bound]
    #[arg(long, value_name = "RATE", value_parser = args::network)]
    network: Option<f64>,
    /// Plan feeders of so many cores like those here [default: as many as work here]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    feeder_cores: Option<usize>,
    /// Leave the remedies out: limits alone, in a third of the time
    #[arg(long, conflicts_with = "apply")]
    no_remedies: bool,
    /// Apply a remedy by its number or id, or `all`, and measure what it gains; may be repeated
    #[arg(long, value_name = "N|ID|all")]
    apply: Vec<String>,
    /// Where an applied remedy writes [default: beside the data, named after the remedy]
    #[arg(long, value_name = "DIR", requires = "apply")]
    out: Option<PathBuf>,
    /// The ledger of predictions [default: in the user's data folder]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Write a report with plots and the timeline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the timeline as Chrome trace events, for Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

fn profile(name: &str) -> Result<&'static probe::Profile, String> {
    probe::profile(name).ok_or_else(|| {
        let names: Vec<&str> = probe::PROFILES.iter().map(|profile| profile.name).collect();
        format!("no such profile; there are {}", names.join(", "))
    })
}

/// The storage and bus that stand in for this machine's.
fn stand(profile: &probe::Profile) -> Stand {
    Stand {
        name: profile.name.to_owned(),
        storage: profile.storage.as_ref().map(|storage| Throttle {
            bytes_per_s: storage.bytes_per_s,
            requests_per_s: storage.requests_per_s,
            latency: Duration::from_secs_f64(storage.latency_s),
        }),
        bus_bytes_per_s: profile.bus_bytes_per_s,
        device_bytes_per_s: profile.device_bytes_per_s,
        devices: profile.devices,
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    interrupt::watch();
    let several = args.apply.len() > 1 || args.apply.iter().any(|wanted| wanted == "all");
    if args.out.is_some() && several {
        let problem = "--out takes one remedy; leave it out to have each beside the data";
        return Err(CliError::Usage(problem.to_owned()));
    }
    if let (Some(device), Some(profile)) = (&args.device, args.on)
        && profile.devices > 0
    {
        let problem = format!(
            "--on {} plans for devices that are not here, and --device {device} names one that is; \
             give one of the two",
            profile.name
        );
        return Err(CliError::Usage(problem));
    }
    let target = Target::with_functions(&args.path, &args.functions)?;
    let mut conditions = Conditions::default();
    conditions.open.workers = args.workers;
    conditions.open.readers = args.io_threads;
    conditions.open.memory = args.memory;
    conditions.open.on_error = args.on_error.into();
    conditions.open.decode = args.decode;
    conditions.step = args.step_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
    conditions.seconds = args.seconds;
    conditions.stand = args.on.map(stand);
    let device = args.device.as_deref().map(Any::open).transpose();
    conditions.device = device.map_err(told)?;
    conditions.try_remedies = !args.no_remedies;
    conditions.network = args.network;
    conditions.feeder_cores = args.feeder_cores;
    if !args.feeders.is_empty() {
        let mut feeders = Feeders::new(args.feeders.iter().map(String::as_str));
        feeders.token = token(args.token_file.as_ref())?;
        feeders.local = args.local.into();
        conditions.feeders = Some(feeders);
    }
    let name = args.path.display().to_string();
    let case = Case::new(name, &target.pipeline, &[], conditions).map_err(told)?;
    if target.guessed && !args.json {
        tell!(
            "{} has no pipeline of its own; a default one is explained (`infeed bench` prints it)",
            args.path.display()
        );
    }

    let progress = spinner();
    let mut explanation = explain(&case, &|what, share| {
        say(&progress, what, share);
        !interrupt::asked()
    })
    .map_err(told)?;
    progress.finish_and_clear();
    let path = match &args.ledger {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    let known = ledger::read(&path).map_err(|error| at(&path, &error))?;
    let mine = |entry: &infeed::explain::LedgerEntry| entry.subject == explanation.subject.name;
    explanation.ledger = known.into_iter().filter(mine).collect();
    if !args.json {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        put!("{}", report::text(&explanation, width(), colour))?;
    }

    let mut wanted = args.apply.clone();
    if wanted.iter().any(|wanted| wanted == "all") {
        let remedies = explanation.remedies.iter();
        let there = remedies.filter(|remedy| applies(&case, remedy).is_ok());
        wanted = there.map(|remedy| remedy.id.clone()).collect();
    }
    let mut left_out = Vec::new();
    for wanted in &wanted {
        if interrupt::asked() {
            break;
        }
        let done = apply::apply(&case, &explanation, wanted, args, &path)?;
        explanation.ledger.push(done.applied.entry.clone());
        left_out.extend(done.left_out());
        if !args.json {
            put!("{}", apply::text(&done, &explanation))?;
        }
    }
    if args.json {
        putln!("{}", report::json(&explanation))?;
    }
    write(args.html.as_deref(), &explanation, report::html)?;
    write(args.trace.as_deref(), &explanation, report::trace)?;
    match left_out.is_empty() {
        true => Ok(()),
        false => Err(CliError::LeftOut(format!(
            "left out: {}",
            left_out.join("; ")
        ))),
    }
}

fn told(error: infeed::Error) -> CliError {
    CliError::of_run(&error)
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}

fn say(progress: &ProgressBar, what: &str, share: f64) {
    progress.set_message(format!("{what}  {:.0} %", 100.0 * share.clamp(0.0, 1.0)));
}

fn write(
    path: Option<&Path>,
    explanation: &Explanation,
    form: fn(&Explanation) -> String,
) -> Outcome {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, form(explanation)).map_err(|error| at(path, &error))?;
    tell!("wrote {}", path.display());
    Ok(())
}
