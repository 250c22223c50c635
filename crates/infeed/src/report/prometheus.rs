//! What loaders count, for Prometheus and what reads its format.
//!
//! Source: Prometheus documentation, "Exposition formats", the text format 0.0.4, and "Metric and
//! label naming".

use std::fmt::Write as _;
use std::time::Duration;

use crate::counters::StageStats;
use crate::loader::Stats;

/// The media type of what [`prometheus`] gives.
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One number of a loader.
struct Family<F> {
    name: &'static str,
    help: &'static str,
    value: F,
}

const fn family<F>(name: &'static str, help: &'static str, value: F) -> Family<F> {
    Family { name, help, value }
}

type OfLoader = Family<fn(&Stats) -> f64>;
type OfStage = Family<fn(&StageStats) -> f64>;

/// What only grows while a loader is open.
const COUNTERS: [OfLoader; 6] = [
    family("infeed_batches_total", "Batches delivered.", |s| {
        s.batches as f64
    }),
    family("infeed_samples_total", "Samples delivered.", |s| {
        s.samples as f64
    }),
    family(
        "infeed_bad_records_total",
        "Bad records met, each once.",
        |s| s.bad as f64,
    ),
    family(
        "infeed_wait_seconds_total",
        "Time the consumer waited for batches.",
        |s| seconds(s.wait),
    ),
    family(
        "infeed_unknown_pixels_total",
        "Pixels of masks whose colour or index is no class.",
        |s| s.unknown_pixels as f64,
    ),
    family(
        "infeed_decoder_warnings_total",
        "Decoders' warnings that change nothing.",
        |s| s.warnings as f64,
    ),
];

/// What only grows, by stage.
const STAGE_COUNTERS: [OfStage; 6] = [
    family(
        "infeed_stage_samples_total",
        "Samples that went through the stage.",
        |s| s.samples as f64,
    ),
    family(
        "infeed_stage_in_bytes_total",
        "Bytes taken in by the stage.",
        |s| s.bytes_in as f64,
    ),
    family(
        "infeed_stage_out_bytes_total",
        "Bytes given on by the stage.",
        |s| s.bytes_out as f64,
    ),
    family(
        "infeed_stage_wall_seconds_total",
        "Time threads spent inside the stage.",
        |s| seconds(s.wall),
    ),
    family(
        "infeed_stage_cpu_seconds_total",
        "Processor time threads used inside the stage.",
        |s| seconds(s.cpu),
    ),
    family(
        "infeed_stage_wait_seconds_total",
        "Time threads were blocked before the stage.",
        |s| seconds(s.wait),
    ),
];

/// What rises and falls, or stays.
const GAUGES: [OfLoader; 9] = [
    family(
        "infeed_open_seconds",
        "Time since the loader was opened.",
        |s| seconds(s.elapsed),
    ),
    family(
        "infeed_first_batch_seconds",
        "Time from opening to the first batch, NaN before it.",
        |s| s.first_batch.map_or(f64::NAN, seconds),
    ),
    family(
        "infeed_ready_batches",
        "Batches ready and not taken; 0 where the consumer waits.",
        |s| s.ready as f64,
    ),
    family("infeed_held_batches", "Batches the consumer holds.", |s| {
        s.held as f64
    }),
    family("infeed_worker_threads", "Worker threads.", |s| {
        s.workers as f64
    }),
    family("infeed_io_threads", "I/O threads.", |s| s.readers as f64),
    family("infeed_budget_bytes", "The byte budget.", |s| {
        s.budget_bytes as f64
    }),
    family(
        "infeed_slab_bytes",
        "Bytes of the slabs of one batch.",
        |s| s.slab_bytes as f64,
    ),
    family(
        "infeed_encoded_peak_bytes",
        "Most encoded bytes that were held at once.",
        |s| s.parcel_peak_bytes as f64,
    ),
];

/// The counts of loaders in the text format of Prometheus, each loader under the name given with
/// it: `infeed_samples_total{loader="train"} 4096`.
///
/// All loaders of a process go into one call: the format wants the numbers of one kind together.
pub fn prometheus(loaders: &[(&str, &Stats)]) -> String {
    let mut out = String::new();
    let kinds = COUNTERS.iter().map(|family| (family, "counter"));
    for (family, kind) in kinds.chain(GAUGES.iter().map(|family| (family, "gauge"))) {
        head(&mut out, family.name, family.help, kind);
        for (loader, stats) in loaders {
            let labels = format!("loader=\"{}\"", escaped(loader));
            line(&mut out, family.name, &labels, (family.value)(stats));
        }
    }
    for family in &STAGE_COUNTERS {
        head(&mut out, family.name, family.help, "counter");
        for (loader, stats) in loaders {
            for (stage, counts) in &stats.stages {
                let loader = escaped(loader);
                let labels = format!("loader=\"{loader}\",stage=\"{}\"", stage.name());
                line(&mut out, family.name, &labels, (family.value)(counts));
            }
        }
    }
    out
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    // Rust writes what is no number as the format does: NaN, inf. Only +Inf has a sign there.
    let _ = match value.is_infinite() {
        true => writeln!(out, "{name}{{{labels}}} +Inf"),
        false => writeln!(out, "{name}{{{labels}}} {value}"),
    };
}

/// A label's value: the format escapes three characters.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Stage;

    fn stats() -> Stats {
        let decode = StageStats {
            samples: 64,
            cpu: Duration::from_millis(1500),
            ..StageStats::default()
        };
        Stats {
            samples: 4096,
            wait: Duration::from_millis(250),
            stages: vec![
                (Stage::Read, StageStats::default()),
                (Stage::Decode, decode),
            ],
            ready: 2,
            ..Stats::default()
        }
    }

    #[test]
    fn counts_of_loaders_and_stages_are_told_apart_by_labels() {
        let stats = stats();
        let told = prometheus(&[("train", &stats), ("val", &Stats::default())]);

        for line in [
            "infeed_samples_total{loader=\"train\"} 4096",
            "infeed_samples_total{loader=\"val\"} 0",
            "infeed_wait_seconds_total{loader=\"train\"} 0.25",
            "infeed_ready_batches{loader=\"train\"} 2",
            "infeed_first_batch_seconds{loader=\"train\"} NaN",
            "infeed_stage_cpu_seconds_total{loader=\"train\",stage=\"decode\"} 1.5",
            "# TYPE infeed_stage_cpu_seconds_total counter",
            "# TYPE infeed_ready_batches gauge",
        ] {
            assert!(told.lines().any(|l| l == line), "{line}\n{told}");
        }
    }

    #[test]
    fn every_family_is_told_once_with_help_and_type_before_its_numbers() {
        let stats = stats();
        let told = prometheus(&[("train", &stats), ("val", &stats)]);

        let mut seen: Vec<&str> = Vec::new();
        let mut current = "";
        let mut typed = false;
        for line in told.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("#"), Some("HELP"), Some(name)) => {
                    assert!(!seen.contains(&name), "{name} comes twice");
                    seen.push(name);
                    (current, typed) = (name, false);
                }
                (Some("#"), Some("TYPE"), Some(name)) => {
                    assert_eq!(name, current);
                    let counter = line.ends_with(" counter");
                    assert_eq!(counter, name.ends_with("_total"), "{line}");
                    typed = true;
                }
                (Some(number), Some(value), None) => {
                    assert!(
                        typed && number.starts_with(&format!("{current}{{")),
                        "{line}"
                    );
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
                _ => panic!("what is {line:?}?"),
            }
        }
        assert_eq!(
            seen.len(),
            COUNTERS.len() + GAUGES.len() + STAGE_COUNTERS.len()
        );
    }

    #[test]
    fn a_name_of_a_loader_cannot_break_its_line() {
        let told = prometheus(&[("a\"} 1\n\\", &Stats::default())]);

        assert!(told.contains("infeed_samples_total{loader=\"a\\\"} 1\\n\\\\\"} 0\n"));
    }
}
