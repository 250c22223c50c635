//! The counters of loaders in the Prometheus text format.
//!
//! Source: Prometheus documentation, "Exposition formats", the text format 0.0.4, and "Metric and
//! label naming".

mod families;

use std::fmt::Write as _;

use infeed::loader::Stats;
use infeed_device::ring::RingStats;

use families::{Family, OF_DEVICE, OF_FEEDER, OF_LOADER, OF_PROCESS, OF_STAGE};

/// Media type of the output of [`prometheus`].
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters of a loader, with the loader's name.
#[derive(Clone, Copy, Debug)]
pub struct LoaderMetrics<'a> {
    /// Value of the label `loader`.
    pub name: &'a str,
    /// Counters of the loader.
    pub stats: &'a Stats,
    /// Names of the devices that batches go to, with the transfers to each.
    pub devices: &'a [(String, RingStats)],
}

/// Returns the counters of loaders in the text format of Prometheus, each under its loader's name:
/// `infeed_samples_total{loader="train"} 4096`. Feeders and devices are numbered from 0. Storage
/// requests are counted per process, not per loader.
///
/// Pass all loaders of a process in one call, because the format groups numbers by metric.
pub fn prometheus(loaders: &[LoaderMetrics<'_>]) -> String {
    let mut out = String::new();
    for family in &OF_LOADER {
        family.head(&mut out);
        for one in loaders {
            let labels = format!("loader=\"{}\"", escape_label(one.name));
            family.line(&mut out, &labels, one.stats);
        }
    }
    for family in &OF_STAGE {
        family.head(&mut out);
        for one in loaders {
            for (stage, counts) in &one.stats.stages {
                let loader = escape_label(one.name);
                let labels = format!("loader=\"{loader}\",stage=\"{}\"", stage.name());
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_DEVICE {
        family.head(&mut out);
        for one in loaders {
            for (at, (name, counts)) in one.devices.iter().enumerate() {
                let (loader, name) = (escape_label(one.name), escape_label(name));
                let labels = format!("loader=\"{loader}\",device=\"{at}\",name=\"{name}\"");
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_FEEDER {
        family.head(&mut out);
        for one in loaders {
            for (at, counts) in one.stats.remote.iter().enumerate() {
                let (loader, host) = (escape_label(one.name), escape_label(&counts.host));
                let labels = format!("loader=\"{loader}\",feeder=\"{at}\",host=\"{host}\"");
                family.line(&mut out, &labels, counts);
            }
        }
    }
    for family in &OF_PROCESS {
        family.head(&mut out);
        // All loaders have the same process counters. The last was read last.
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
        // Rust writes NaN and infinity like the format, except that the format writes +Inf with a
        // sign.
        let _ = match value.is_infinite() {
            true => writeln!(out, "{name}{labels} +Inf"),
            false => writeln!(out, "{name}{labels} {value}"),
        };
    }
}

/// Escapes a label's value. The format escapes three characters.
fn escape_label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use infeed::loader::remote::RemoteWorkerStats;
    use infeed_core::counters::{Stage, StageStats};

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

    fn loader_metrics<'a>(name: &'a str, stats: &'a Stats) -> LoaderMetrics<'a> {
        let devices = &[];
        LoaderMetrics {
            name,
            stats,
            devices,
        }
    }

    #[test]
    fn labels_separate_counters_of_loaders_and_stages() {
        let stats = stats();
        let output = prometheus(&[
            loader_metrics("train", &stats),
            loader_metrics("val", &Stats::default()),
        ]);

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
            assert!(output.lines().any(|l| l == line), "{line}\n{output}");
        }
    }

    #[test]
    fn every_family_has_help_and_type_once_before_its_numbers() {
        let stats = stats();
        let devices = [("sim".to_owned(), RingStats::default())];
        let train = LoaderMetrics {
            devices: &devices,
            ..loader_metrics("train", &stats)
        };
        let output = prometheus(&[train, loader_metrics("val", &stats)]);

        let mut seen: Vec<&str> = Vec::new();
        let mut current = "";
        let mut typed = false;
        for line in output.lines() {
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
    fn devices_and_feeders_are_numbered_and_storage_appears_once() {
        let feeder = |host: &str, batches| RemoteWorkerStats {
            host: host.to_owned(),
            connected: true,
            batches,
            ..RemoteWorkerStats::default()
        };
        let mut stats = stats();
        stats.remote = vec![feeder("a:1", 3), feeder("", 0)];
        stats.storage.requests = 12;
        stats.cache.hits = 7;
        let sent = |bytes| RingStats {
            bytes,
            ..RingStats::default()
        };
        // Two simulated devices may have the same name.
        let devices = [("sim".to_owned(), sent(5)), ("sim".to_owned(), sent(6))];
        let train = LoaderMetrics {
            devices: &devices,
            ..loader_metrics("train", &stats)
        };

        let output = prometheus(&[train, loader_metrics("val", &stats)]);

        for line in [
            "infeed_feeder_batches_total{loader=\"train\",feeder=\"0\",host=\"a:1\"} 3",
            "infeed_feeder_connected{loader=\"val\",feeder=\"1\",host=\"\"} 1",
            "infeed_device_bytes_total{loader=\"train\",device=\"0\",name=\"sim\"} 5",
            "infeed_device_bytes_total{loader=\"train\",device=\"1\",name=\"sim\"} 6",
            "infeed_storage_requests_total 12",
            "infeed_cache_hits_total 7",
        ] {
            let found = output.lines().filter(|l| *l == line).count();
            assert_eq!(found, 1, "{line}\n{output}");
        }
        assert!(!output.contains("infeed_device_bytes_total{loader=\"val\""));
    }

    #[test]
    fn a_name_of_a_loader_cannot_break_its_line() {
        let output = prometheus(&[loader_metrics("a\"} 1\n\\", &Stats::default())]);

        assert!(output.contains("infeed_samples_total{loader=\"a\\\"} 1\\n\\\\\"} 0\n"));
    }
}
