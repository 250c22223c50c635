//! `infeed explain`: finds the limiting resource, predicts the gain of each remedy, and applies and
//! checks remedies. Also prints the recording of a loop.

mod apply;
mod last;
mod options;
mod output;
mod recording;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use infeed_core::probe;
use infeed_device::AnyDevice;
use infeed_explain::report;
use infeed_explain::{
    Case, Conditions, PlannedMachine, WhatIf, applies, check_id, explain, ledger,
};
use infeed_source::throttle::Throttle;

use crate::error::{CliError, CommandResult};
use crate::interrupt;
use crate::ledger::default_path;
use crate::target::Target;
use crate::terminal::{put_json_text, put_page, spinner, width};
pub(crate) use options::Args;
use output::{say, write_report};

/// Maximum time to wait until other programs leave the cores.
const WAIT: Duration = Duration::from_secs(20);

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
        !interrupt::is_requested()
    })
    .map_err(cli_error)?;
    progress.finish_and_clear();
    if target.guessed {
        let note = "this is a default pipeline for these data (`infeed bench --plan` prints it); \
                    remedies and applied data fit it, and may not fit yours: explain your pipeline \
                    file instead";
        explanation.notes.insert(0, note.to_owned());
    }
    let known = ledger::read(&path).map_err(|error| CliError::at(&path, &error))?;
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
        if interrupt::is_requested() {
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
        put_json_text(&report::json(&explanation))?;
    }
    write_report(args.html.as_deref(), &explanation, report::html)?;
    write_report(args.trace.as_deref(), &explanation, report::trace)?;
    match left_out.is_empty() {
        true => Ok(()),
        false => Err(CliError::LeftOut(format!(
            "left out: {}",
            left_out.join("; ")
        ))),
    }
}
