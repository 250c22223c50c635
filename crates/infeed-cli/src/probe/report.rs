//! Prints the measurements as a table.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use infeed_core::probe::{PROFILES, Probe, Profile, Reads, StorageProfile, StorageRates};
use infeed_core::units::format_bytes_per_s;

use crate::terminal::{ago, human_bytes, human_seconds};

/// Formats the measured machine, one of its storages, and a profile, which replaces the measured
/// numbers.
pub(super) fn table(
    probe: &Probe,
    storage: Option<&StorageRates>,
    profile: Option<&Profile>,
    kept: Option<&Path>,
) -> String {
    let mut out = String::new();
    let machine = &probe.machine;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "machine   {}, {} usable cores, {} of memory, {}",
        machine.cpu,
        machine.cores,
        human_bytes(machine.memory_bytes),
        machine.system,
    );
    let _ = writeln!(
        out,
        "memory    one core copies {}, all cores {} (read plus written)",
        format_bytes_per_s(probe.memory_one_core_bytes_per_s),
        format_bytes_per_s(probe.memory_all_cores_bytes_per_s),
    );
    if profile.is_none_or(|profile| profile.devices == 0) {
        out.push_str(
            "device    no device found; --on NAME plans with one, --list lists the names\n",
        );
    }
    if let Some(profile) = profile {
        self::profile(&mut out, profile);
    }
    if let Some(storage) = storage {
        reads(&mut out, storage);
    }
    if let Some(kept) = kept {
        let made_at = UNIX_EPOCH.checked_add(Duration::from_secs(probe.made_at_s));
        let _ = writeln!(
            out,
            "\nmeasured {}, cached in {}",
            ago(made_at.unwrap_or(UNIX_EPOCH)),
            kept.display()
        );
    }
    out
}

fn profile(out: &mut String, profile: &Profile) {
    let _ = writeln!(out, "\n{}: {}", profile.name, profile.about);
    for line in figures(profile) {
        let _ = writeln!(out, "  {line}");
    }
    for (nth, line) in wrap(profile.source, 78).iter().enumerate() {
        let head = if nth == 0 { "source  " } else { "        " };
        let _ = writeln!(out, "  {head}{line}");
    }
}

/// Returns the numbers of a profile, one per line.
fn figures(profile: &Profile) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(StorageProfile {
        bytes_per_s,
        requests_per_s,
        latency_s,
    }) = profile.storage
    {
        lines.push(format!(
            "storage {}, {requests_per_s:.0} requests/s, {} per request",
            format_bytes_per_s(bytes_per_s),
            human_seconds(latency_s)
        ));
    }
    if let Some(bus) = profile.bus_bytes_per_s {
        let devices = match profile.devices {
            1 => "one device".to_owned(),
            devices => format!("each of {devices} devices"),
        };
        lines.push(format!("bus     {} to {devices}", format_bytes_per_s(bus)));
    }
    if let Some(memory) = profile.device_bytes_per_s {
        lines.push(format!("device  {} of memory", format_bytes_per_s(memory)));
    }
    lines
}

/// Lists all profiles, one per line.
pub(super) fn profiles() -> String {
    let mut out = String::new();
    for profile in PROFILES {
        let _ = writeln!(out, "{:<10} {}", profile.name, profile.about);
        for line in figures(profile) {
            let _ = writeln!(out, "{:<10} {line}", "");
        }
    }
    out.push_str("\nnext: infeed probe --on NAME prints the sources of the numbers\n");
    out
}

fn reads(out: &mut String, storage: &StorageRates) {
    let _ = writeln!(
        out,
        "\nstorage   {}: {} files, {} on average",
        storage.path.display(),
        storage.files,
        human_bytes(storage.mean_bytes as u64),
    );
    let _ = writeln!(
        out,
        "          {:<6} {:>8} {:>12} {:>10} {:>10} {:>10}",
        "", "readers", "bytes/s", "files/s", "mean", "p99"
    );
    let mut rows = |name: &str, reads: &[Reads]| {
        for (nth, row) in reads.iter().enumerate() {
            let _ = writeln!(
                out,
                "          {:<6} {:>8} {:>12} {:>10.0} {:>10} {:>10}",
                if nth == 0 { name } else { "" },
                row.readers,
                format_bytes_per_s(row.bytes_per_s),
                row.requests_per_s,
                human_seconds(row.mean_s),
                human_seconds(row.p99_s),
            );
        }
    };
    rows("cold", &storage.cold);
    rows("warm", &storage.warm);
    if storage.cold.is_empty() {
        out.push_str("          cold reads cannot be measured on this system\n");
    }
    match storage.sequential {
        Some(found) => {
            let _ = writeln!(
                out,
                "          one large file, cold: {} over {}",
                format_bytes_per_s(found.bytes_per_s),
                human_bytes(found.bytes)
            );
        }
        None => out.push_str("          no file is long enough for a long read\n"),
    }
}

/// Wraps a sentence into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_source_is_broken_between_words() {
        let lines = wrap("one two three four", 9);

        assert_eq!(lines, ["one two", "three", "four"]);
    }
}
