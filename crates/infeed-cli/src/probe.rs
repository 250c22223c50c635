//! `infeed probe`: measures this machine, or shows the numbers of another one.

pub(crate) mod json;
mod report;

use std::io;
use std::path::PathBuf;

use clap::Parser;
use infeed_core::probe::{PROFILES, Probe, Profile, profile, storage};

use crate::error::{CliError, CommandResult};
use crate::interrupt;
use crate::json::put_json;
use crate::terminal::spinner;
use json::{MemoryJson, ProbeJson, ProfilesJson};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed probe                  cores and memory
  infeed probe photos           also the storage of a folder
  infeed probe --on hdd         another machine
  infeed probe --list           the known machines

probe keeps its measurements in ~/.cache/infeed/probe.json; --again measures again. Cold means that
probe dropped the files from this system's page cache first. A hypervisor or a disk may still cache
them.")]
pub(crate) struct Args {
    /// Folder or file on the storage to measure
    path: Option<PathBuf>,
    /// Also print the numbers of a known machine, to compare
    #[arg(long, value_name = "NAME", value_parser = parse_profile, conflicts_with = "path")]
    on: Option<&'static Profile>,
    /// List the known machines
    #[arg(long, conflicts_with_all = ["path", "on", "again"])]
    list: bool,
    /// Measure again instead of using the cached result
    #[arg(long)]
    again: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn parse_profile(name: &str) -> Result<&'static Profile, String> {
    profile(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        format!(
            "no such machine; the known machines are {}",
            names.join(", ")
        )
    })
}

pub(crate) fn run(args: &Args) -> CommandResult {
    if args.list {
        return match args.json {
            true => put_json(&ProfilesJson { profiles: PROFILES }),
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
        put_json(&ProbeJson {
            machine: &probe.machine,
            memory: MemoryJson {
                one_core_bytes_per_s: probe.memory_one_core_bytes_per_s,
                all_cores_bytes_per_s: probe.memory_all_cores_bytes_per_s,
            },
            storage: found,
            made_at_s: probe.made_at_s,
            kept: kept.map(|path| path.display().to_string()),
            profile: args.on,
        })?;
    } else {
        put!("{}", report::table(&probe, found, args.on, kept.as_deref()))?;
    }
    Ok(())
}

/// Returns the numbers of this machine, measured if they are not cached, and the path of the cache.
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
        // Keeps the measurements of other folders.
        let before = file.as_deref().and_then(Probe::load);
        probe.storage = before.map(|before| before.storage).unwrap_or_default();
        probe
    });
    if let Some(path) = &args.path
        && (args.again || probe.storage_of(path).is_none())
    {
        let found = storage(path, &mut |what| {
            progress.set_message(what.to_owned());
            !interrupt::is_requested()
        });
        let found = found.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => CliError::Failed("interrupted; nothing was saved".into()),
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
        // The numbers are valid even if they cannot be saved.
        print_err!("infeed: cannot save the measurement: {error}");
        return Ok((probe, None));
    }
    Ok((probe, Some(file)))
}
