//! `infeed explain`: finds the limiting resource, predicts the gain of each remedy, and applies and
//! checks remedies. Also prints the recording of a loop.

mod apply;
mod last;
mod recording;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use infeed::device::AnyDevice;
use infeed::loader::DecodeBy;
use infeed::printable::printable;
use infeed::probe;
use infeed::source::throttled::Throttle;
use infeed_explain::report;
use infeed_explain::{
    Case, Conditions, DescribedStorage, Explanation, PlannedMachine, WhatIf, applies, check_id,
    explain, ledger,
};

use crate::bench::OnBadRecord;
use crate::error::CliError;
use crate::feeders::{EXPLAIN_EXAMPLES, FeederArgs};
use crate::ledger::default_path;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::{put_json, put_page, spinner, width};
use crate::{CommandResult, args, interrupt};

/// Default duration of the plain run in seconds.
const DEFAULT_SECONDS: f64 = 6.0;

/// Maximum time to wait until other programs leave the cores.
const WAIT: Duration = Duration::from_secs(20);

#[derive(Parser)]
#[command(after_help = format!("Examples:
  infeed explain photos                     what limits a folder of images on this machine
  infeed explain pipeline.toml --step-ms 12 with a training step of 12 ms
  infeed explain photos --on hdd            as if the data were on a hard disk
  infeed explain photos --device cuda:0     with batches on a GPU: placement and transfers
  infeed explain photos --device cuda:0 --decode gpu         with JPEGs decoded on the GPU
  infeed explain photos --on h100x8         placement of the work for 8 H100
{EXPLAIN_EXAMPLES}  infeed explain photos --cores 16 --storage s3              the rate on another machine
  infeed explain photos --ram 64GiB         the share of the reads that memory would answer
  infeed explain photos --full              all measurements: stages, evidence, arithmetic, ledger
  infeed explain photos --html report.html  with plots and the timeline
  infeed explain run.json                   the recording of a loop: what it waited for
  infeed explain photos --apply 1           apply remedy 1 of the last report, and measure its gain

A remedy is a change of options, pipeline or data. explain tries each remedy on a few hundred of
your records. --apply writes new data next to the original and never changes the original. Ctrl-C
stops and prints the results so far."))]
pub(crate) struct Args {
    #[arg(help = format!("{}, or a recording of a loop", path_help()))]
    path: PathBuf,
    /// Duration of a training step in milliseconds [default: no step, batches are taken as fast as
    /// they arrive]
    #[arg(long, value_name = "N", value_parser = args::positive)]
    step_ms: Option<f64>,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    workers: Option<usize>,
    /// I/O threads [default: 4]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    io_threads: Option<usize>,
    /// Memory limit for batches and workers, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = infeed::units::parse_bytes)]
    memory: Option<u64>,
    /// Treatment of bad records
    #[arg(long, value_enum, default_value_t = OnBadRecord::Stop)]
    on_error: OnBadRecord,
    /// Seconds of the run without remedies; less than 1 also shortens the trials
    #[arg(long, value_name = "S", value_parser = args::positive, default_value_t = DEFAULT_SECONDS)]
    seconds: f64,
    /// Plan with the storage and bus of another machine; `infeed probe --list` lists the machines
    #[arg(long, value_name = "NAME", value_parser = profile)]
    on: Option<&'static probe::Profile>,
    /// Deliver batches to a device, such as cuda:0 or sim, and find the best placement of the work
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Decoder of baseline JPEGs in the run: cpu, gpu (pixels differ slightly from the CPU's), the
    /// GPU's share of the records such as 5/16 or 0.3, or auto, which keeps the CPU's pixels
    #[arg(
        long,
        value_name = "DECODER",
        default_value = "auto",
        requires = "device"
    )]
    decode: DecodeBy,
    #[command(flatten)]
    feeders: FeederArgs,
    /// Plan feeders behind a network of this rate, such as 10Gbit [default: the loopback rate, an
    /// upper bound]
    #[arg(long, value_name = "RATE", value_parser = args::network)]
    network: Option<f64>,
    /// Plan feeders with this number of cores like this machine's [default: the number of workers]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    feeder_cores: Option<usize>,
    /// Predict the rate with this number of cores like those here
    #[arg(long, value_name = "N", value_parser = args::threads)]
    cores: Option<usize>,
    /// Predict the rate on a machine with this much memory, such as 64GiB, half of which keeps
    /// pages of the data
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    ram: Option<u64>,
    /// Predict the rate of another storage: hdd, sata-ssd, nvme, nfs, s3, 1gbe, 10gbe, 100gbe, or
    /// MB/s,requests/s,ms such as 550,90000,0.1
    #[arg(
        long,
        value_name = "NAME|MB/s,IOPS,ms",
        value_parser = DescribedStorage::from_str
    )]
    storage: Option<DescribedStorage>,
    /// Predict the rate and the memory of batches of this number of samples
    #[arg(long, value_name = "N", value_parser = args::rows)]
    batch: Option<u64>,
    /// Measure at once while other programs use the cores [default: wait up to 20 s until they leave
    /// them; the load of this shell's own jobs does not count]
    #[arg(long)]
    no_wait: bool,
    /// Try no remedies and print only the limits, in a third of the time
    #[arg(long, conflicts_with = "apply")]
    no_remedies: bool,
    /// Rank all remedies by gain [default: remedies that change no pixel come first]
    #[arg(long)]
    lossy: bool,
    /// Apply a remedy and measure its gain: its number in the last report, its id, or `all`; may be
    /// repeated
    #[arg(long, value_name = "N|ID|all")]
    apply: Vec<String>,
    /// Output of an applied remedy [default: next to the data, named after the remedy]
    #[arg(long, value_name = "DIR", requires = "apply")]
    out: Option<PathBuf>,
    /// Ledger file [default: in the user's data folder]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Print all measurements
    #[arg(long)]
    full: bool,
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
        format!(
            "no such machine; the known machines are {}",
            names.join(", ")
        )
    })
}

/// Returns the storage and bus of a profile, which replace this machine's.
fn planned_machine(profile: &probe::Profile) -> PlannedMachine {
    PlannedMachine {
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

pub(crate) fn run(args: &Args) -> CommandResult {
    if let Some(done) = recording::run(args) {
        return done;
    }
    interrupt::watch();
    let several = args.apply.len() > 1 || args.apply.iter().any(|wanted| wanted == "all");
    if args.out.is_some() && several {
        let problem = "--out takes one remedy; without it, each output goes next to the data";
        return Err(CliError::Usage(problem.to_owned()));
    }
    if let (Some(device), Some(profile)) = (&args.device, args.on)
        && profile.devices > 0
    {
        let problem = format!(
            "--on {} plans for an absent machine and --device {device} uses a present one; use one \
             of the two",
            profile.name
        );
        return Err(CliError::Usage(problem));
    }
    if let (Some(_), Some(profile)) = (&args.storage, args.on)
        && profile.storage.is_some()
    {
        let problem = format!(
            "--on {} runs with a simulated storage and --storage predicts another one; use one of \
             the two",
            profile.name
        );
        return Err(CliError::Usage(problem));
    }
    let path = match &args.ledger {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    // An unknown remedy is an error before anything is measured.
    let mut wanted: Vec<String> = args.apply.clone();
    for wanted in wanted.iter_mut().filter(|wanted| *wanted != "all") {
        check_id(wanted).map_err(apply::usage)?;
        if let Some(id) = last::id_of(&path, &args.path, wanted) {
            print_err!("remedy {wanted} of the last report is {id}");
            *wanted = id;
        }
    }
    let target = Target::with_functions(&args.path, &args.functions)?;
    let cli_error = |error| CliError::of_run(&error, args.on_error);
    let mut conditions = Conditions::default();
    conditions.open.workers = args.workers;
    conditions.open.readers = args.io_threads;
    conditions.open.memory = args.memory;
    conditions.open.on_error = args.on_error.into();
    conditions.open.decode = args.decode;
    conditions.step = args.step_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
    conditions.seconds = args.seconds;
    conditions.planned_machine = args.on.map(planned_machine);
    let device = args.device.as_deref().map(AnyDevice::open).transpose();
    conditions.device = device.map_err(cli_error)?;
    if !args.no_wait {
        conditions.wait = WAIT;
    }
    conditions.try_remedies = !args.no_remedies;
    conditions.lossy = args.lossy;
    conditions.network = args.network;
    conditions.feeder_cores = args.feeder_cores;
    conditions.what_if = WhatIf {
        cores: args.cores,
        memory_bytes: args.ram,
        storage: args.storage.clone(),
        batch: args.batch,
    };
    conditions.feeders = args.feeders.feeders()?;
    let with_feeders =
        conditions.feeders.is_some() || args.network.is_some() || args.feeder_cores.is_some();
    let name = args.path.display().to_string();
    let case = Case::new(name, &target.pipeline, &[], conditions).map_err(cli_error)?;
    let progress = spinner();
    let begun = Instant::now();
    let mut explanation = explain(&case, &|what, share| {
        say(&progress, what, share, begun);
        !interrupt::asked()
    })
    .map_err(cli_error)?;
    progress.finish_and_clear();
    if target.guessed {
        let note = "this is a default pipeline for these data (`infeed bench --plan` prints it); \
                    remedies and applied data fit it, and may not fit yours: explain your pipeline \
                    file instead";
        explanation.notes.insert(0, note.to_owned());
    }
    let known = ledger::read(&path).map_err(|error| at(&path, &error))?;
    let mine = |entry: &infeed_explain::LedgerEntry| entry.subject == explanation.subject.name;
    explanation.ledger = known.into_iter().filter(mine).collect();
    if !args.json {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let text = match args.full {
            true => report::text(&explanation, width(), colour),
            false => report::summary(&explanation, width(), colour, with_feeders),
        };
        put_page(&text)?;
        let ids = explanation.remedies.iter().map(|remedy| remedy.id.as_str());
        last::keep(&path, &args.path, ids);
    }

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
        put_json(&report::json(&explanation))?;
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

fn at(path: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}

/// Shows the phase, the share of the whole that is done, and the time left.
fn say(progress: &ProgressBar, what: &str, share: f64, begun: Instant) {
    let share = share.clamp(0.0, 1.0);
    let left = match share > 0.0 {
        true => {
            let left = begun.elapsed().as_secs_f64() * (1.0 - share) / share;
            format!(", about {left:.0} s left")
        }
        false => String::new(),
    };
    let what = printable(what);
    progress.set_message(format!("{what}  {:.0} %{left}", 100.0 * share));
}

fn write(
    path: Option<&Path>,
    explanation: &Explanation,
    form: fn(&Explanation) -> String,
) -> CommandResult {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, form(explanation)).map_err(|error| at(path, &error))?;
    print_err!("wrote {}", path.display());
    Ok(())
}
