//! `infeed probe`: what this machine can do, and what other machines could.

mod report;

use std::io;
use std::path::PathBuf;

use clap::Parser;
use infeed::probe::{PROFILES, Probe, Profile, profile, storage};
use serde_json::json;

use crate::error::CliError;
use crate::terminal::spinner;
use crate::{Outcome, interrupt};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed probe                  cores and memory
  infeed probe photos           and the storage below a folder
  infeed probe --on hdd         a machine one is not on
  infeed probe --list           which there are

What was measured is kept in ~/.cache/infeed/probe.json and shown again; --again measures anew.
Cold means that the pages of the files were dropped from this system's memory; a host or a disk
may have them still.")]
pub(crate) struct Args {
    /// Folder or file whose storage is measured
    path: Option<PathBuf>,
    /// Plan for a machine of this name
    #[arg(long, value_name = "NAME", value_parser = named, conflicts_with = "path")]
    on: Option<&'static Profile>,
    /// List the machines that have a name
    #[arg(long, conflicts_with_all = ["path", "on", "again"])]
    list: bool,
    /// Measure although it was measured before
    #[arg(long)]
    again: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn named(name: &str) -> Result<&'static Profile, String> {
    profile(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("there are {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.list {
        return match args.json {
            true => putln!("{}", json!({ "profiles": PROFILES })),
            false => put!("{}", report::profiles()),
        };
    }
    interrupt::watch();
    let progress = spinner();
    let measured = measure(args, &progress);
    progress.finish_and_clear();
    let (probe, kept) = measured?;
    let found = args.path.as_ref().and_then(|path| probe.storage_of(path));
    if args.json {
        let mut json = json!({
            "machine": probe.machine,
            "memory": {
                "one_core_bytes_per_s": probe.memory_one_core_bytes_per_s,
                "all_cores_bytes_per_s": probe.memory_all_cores_bytes_per_s,
            },
            "storage": found,
            "device": null,
            "made_at_s": probe.made_at_s,
            "kept": kept,
        });
        if let Some(profile) = args.on {
            json["profile"] = json!(profile);
        }
        putln!("{json}")?;
    } else {
        put!("{}", report::table(&probe, found, args.on, kept.as_deref()))?;
    }
    Ok(())
}

/// What is known of this machine, measured where it is not, and where it is kept.
fn measure(
    args: &Args,
    progress: &indicatif::ProgressBar,
) -> Result<(Probe, Option<PathBuf>), CliError> {
    let file = Probe::path();
    let known = file
        .as_deref()
        .filter(|_| !args.again)
        .and_then(Probe::load);
    let mut is_new = false;
    let mut probe = known.unwrap_or_else(|| {
        is_new = true;
        progress.set_message("copying memory");
        let mut probe = Probe::measure();
        // What is known of other folders stays known.
        let before = file.as_deref().and_then(Probe::load);
        probe.storage = before.map(|before| before.storage).unwrap_or_default();
        probe
    });
    if let Some(path) = &args.path
        && (args.again || probe.storage_of(path).is_none())
    {
        let found = storage(path, &mut |what| {
            progress.set_message(what.to_owned());
            !interrupt::asked()
        });
        let found = found.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => CliError::Failed("interrupted; nothing is kept".into()),
            io::ErrorKind::NotFound => CliError::Usage(error.to_string()),
            _ => CliError::Failed(error.to_string()),
        })?;
        probe.add(found);
        is_new = true;
    }
    let Some(file) = file else {
        return Ok((probe, None));
    };
    if is_new && let Err(error) = probe.save(&file) {
        // The numbers are there all the same.
        tell!("infeed: what was measured is not kept: {error}");
        return Ok((probe, None));
    }
    Ok((probe, Some(file)))
}
