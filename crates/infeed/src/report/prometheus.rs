//! What loaders count, for Prometheus and what reads its format.
//!
//! Source: Prometheus documentation, "Exposition formats", the text format 0.0.4, and "Metric and
//! label naming".

mod families;

use std::fmt::Write as _;

use crate::device::ring::RingStats;
use crate::loader::Stats;

use families::{Family, OF_DEVICE, OF_FEEDER, OF_LOADER, OF_PROCESS, OF_STAGE};

/// The media type of what [`prometheus`] gives.
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a loader counted, under a name.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The value of the label `loader`.
    pub name: &'a str,
    /// Of the loader.
    pub stats: &'a Stats,
    /// Names of the devices that batches go to, and what went there.
    pub devices: &'a [(String, RingStats)],
}

/// The counts of loaders in the text format of Prometheus, each loader under the name given with
/// it: `infeed_samples_total{loader="train"} 4096`. Feeders and devices are numbered, from 0. What the
/// storage was asked for is the process's, whichever loader asked.
///
/// All loaders of a process go into one call: the format wants the numbers of one kind together.
pub fn prometheus(loaders: &[Counted<'_>]) -> String {
    let mut out = String::new();
    for family in &OF_LOADER {
        family.head(&mut out);
        for one in loaders {
            let labels = format!("loader=\"{}\"", escaped(one.name));
            family.line(&mut out, &labels, one.stats);
        }
    }
    for family in &OF_STAGE {
        family.head(&mut out);
        for one in loaders {
            for (stage, counts) in &one.stats.stages {
                let loader = escaped(one.name);
                let labels = format!("loader=\"{loader}\",stage=\"{}\"", stage.name());
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_DEVICE {
        family.head(&mut out);
        for one in loaders {
            for (at, (name, counts)) in one.devices.iter().enumerate() {
                let (loader, name) = (escaped(one.name), escaped(name));
                let labels = format!("loader=\"{loader}\",device=\"{at}\",name=\"{name}\"");
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_FEEDER {
        family.head(&mut out);
        for one in loaders {
            for (at, counts) in one.stats.feeders.iter().enumerate() {
                let (loader, host) = (escaped(one.name), escaped(&counts.host));
                let labels = format!("loader=\"{loader}\",feeder=\"{at}\",host=\"{host}\"");
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_PROCESS {
        family.head(&mut out);
        // They count the same; the last of them was asked last.
        if let Some(one) = loaders.last() {
            family.line(&mut out, "", one.stats);
        }
    }
    out
}

impl<T> Family<T> {
    fn head(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {} {}", self.name, self.help);
        let _ = writeln!(out, "# TYPE {} {}", self.name, self.kind);
    }

    fn line(&self, out: &mut String, labels: &str, counts: &T) {
        let (name, value) = (self.name, (self.value)(counts));
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        // Rust writes what is no number as the format does: NaN, inf. Only +Inf has a sign there.
        let _ = match value.is_infinite() {
            true => writeln!(out, "{name}{labels} +Inf"),
            false => writeln!(out, "{name}{labels} {value}"),
        };
    }
}

/// A label's value: the format escapes three characters.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counters::{Stage, StageStats};
    use crate::loader::feeders::FeederStats;

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

    fn named<'a>(name: &'a str, stats: &'a Stats) -> Counted<'a> {
        let devices = &[];
        Counted {
            name,
            stats,
            devices,
        }
    }

    #[test]
    fn counts_of_loaders_and_stages_are_told_apart_by_labels() {
        let stats = stats();
        let told = prometheus(&[named("train", &stats), named("val", &Stats::default())]);

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
        let devices = [("sim".to_owned(), RingStats::default())];
        let train = Counted {
            devices: &devices,
            ..named("train", &stats)
        };
        let told = prometheus(&[train, named("val", &stats)]);

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
                    assert!(typed && number.split('{').next() == Some(current), "{line}");
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
                _ => panic!("what is {line:?}?"),
            }
        }
        let families = OF_LOADER.len() + OF_STAGE.len() + OF_DEVICE.len();
        assert_eq!(seen.len(), families + OF_FEEDER.len() + OF_PROCESS.len());
    }

    #[test]
    fn devices_feeders_and_storage_are_told_each_by_its_number_or_once() {
        let feeder = |host: &str, batches| FeederStats {
            host: host.to_owned(),
            connected: true,
            batches,
            ..FeederStats::default()
        };
        let mut stats = stats();
        stats.feeders = vec![feeder("a:1", 3), feeder("", 0)];
        stats.storage.requests = 12;
        stats.cache.hits = 7;
        let sent = |bytes| RingStats {
            bytes,
            ..RingStats::default()
        };
        // Two simulated devices may have one name.
        let devices = [("sim".to_owned(), sent(5)), ("sim".to_owned(), sent(6))];
        let train = Counted {
            devices: &devices,
            ..named("train", &stats)
        };

        let told = prometheus(&[train, named("val", &stats)]);

        for line in [
            "infeed_feeder_batches_total{loader=\"train\",feeder=\"0\",host=\"a:1\"} 3",
            "infeed_feeder_connected{loader=\"val\",feeder=\"1\",host=\"\"} 1",
            "infeed_device_bytes_total{loader=\"train\",device=\"0\",name=\"sim\"} 5",
            "infeed_device_bytes_total{loader=\"train\",device=\"1\",name=\"sim\"} 6",
            "infeed_storage_requests_total 12",
            "infeed_cache_hits_total 7",
        ] {
            let found = told.lines().filter(|l| *l == line).count();
            assert_eq!(found, 1, "{line}\n{told}");
        }
        assert!(!told.contains("infeed_device_bytes_total{loader=\"val\""));
    }

    #[test]
    fn a_name_of_a_loader_cannot_break_its_line() {
        let told = prometheus(&[named("a\"} 1\n\\", &Stats::default())]);

        assert!(told.contains("infeed_samples_total{loader=\"a\\\"} 1\\n\\\\\"} 0\n"));
    }
}
