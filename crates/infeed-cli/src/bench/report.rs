//! The result of a run, as a table.

use std::fmt::Write as _;
use std::time::Duration;

use infeed::Stats;
use infeed::loader::BadRecord;
use infeed::loader::device::PlacementState;
use infeed_device::RingStats;
use infeed_device::busy::Utilisation;

use crate::terminal::{human_bytes, human_seconds};

/// Maximum number of bad records in the table. JSON lists all.
const LISTED: usize = 10;

/// Measurements of one run.
pub(super) struct BenchResult {
    /// Rate after the first batch.
    pub(super) samples_per_s: f64,
    /// Time since the start of the command, including the listing of files.
    pub(super) first_batch: Option<Duration>,
    pub(super) since_first: Duration,
    pub(super) elapsed: Duration,
    /// Time that the consumer waited after the first batch.
    pub(super) wait: Duration,
    /// Number of whole epochs.
    pub(super) epochs: u64,
    pub(super) interrupted: bool,
    pub(super) peak_rss_bytes: u64,
    pub(super) bad: Vec<BadRecord>,
    pub(super) stats: Stats,
    /// Names of the devices, and the transfers to them.
    pub(super) sent: Option<(String, RingStats)>,
    /// Utilisation of the GPU, if the driver reports it.
    pub(super) utilisation: Option<Utilisation>,
    /// Placement of the expansion on host or device.
    pub(super) placed: Option<PlacementState>,
}

impl BenchResult {
    pub(super) fn table(&self, step_ms: Option<f64>) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        let seconds = self.since_first.as_secs_f64();
        if self.interrupted {
            line("interrupted; measured so far:".to_owned());
        }
        line(format!(
            "samples/s     {:.1}    ({} samples in {} batches, {})",
            self.samples_per_s,
            self.stats.samples,
            self.stats.batches,
            human_seconds(self.elapsed.as_secs_f64()),
        ));
        let first = self
            .first_batch
            .map(|time| human_seconds(time.as_secs_f64()));
        line(format!(
            "first batch   {}",
            first.as_deref().unwrap_or("none")
        ));
        let share = 100.0 * self.wait.as_secs_f64() / seconds.max(1e-9);
        let step = step_ms.map_or(String::new(), |ms| format!(", with a step of {ms} ms"));
        line(format!(
            "waited        {} of {} ({share:.1} %){step}",
            human_seconds(self.wait.as_secs_f64()),
            human_seconds(seconds),
        ));
        line(format!(
            "peak memory   {}    (memory limit for batches and workers {})",
            human_bytes(self.peak_rss_bytes),
            human_bytes(self.stats.budget_bytes),
        ));
        if let Some(cache) = &self.stats.decoded_cache {
            let memory = match cache.limit_bytes {
                0 => String::new(),
                limit => format!(
                    "{} of {}: {} records; ",
                    human_bytes(cache.used_bytes),
                    human_bytes(limit),
                    cache.records,
                ),
            };
            line(format!(
                "cache         {memory}{} of {} samples were cached",
                cache.hits,
                cache.hits + cache.misses,
            ));
            if let Some(disk) = &cache.disk {
                let damaged = match disk.damaged {
                    0 => String::new(),
                    damaged => format!(", {damaged} damaged"),
                };
                line(format!(
                    "cache folder  {} records came from it{damaged}",
                    disk.hits,
                ));
            }
        }
        if let Some((name, sent)) = &self.sent {
            let batches = sent.batches.max(1);
            line(format!(
                "device        {name}: {} per batch over the bus in {} copies, {} slots",
                human_bytes(sent.bytes / batches),
                sent.transfers / batches,
                sent.slots,
            ));
            if sent.jpegs > 0 {
                line(format!(
                    "  decoded     {} JPEGs per batch, by the device",
                    sent.jpegs / batches,
                ));
            }
            let each = |time: Duration, batches: u64| {
                human_seconds(time.as_secs_f64() / batches.max(1) as f64)
            };
            if sent.times.batches > 0 {
                line(format!(
                    "  per batch   {} on the bus, {} in kernels, by the device's clock",
                    each(sent.times.copying, sent.times.batches),
                    each(sent.times.expanding, sent.times.expanded),
                ));
            }
            if let Some(placed) = &self.placed {
                let why = placed.why.strip_prefix("placement: ");
                line(format!("  placement   {}", why.unwrap_or(&placed.why)));
            }
        }
        if let Some(found) = &self.utilisation {
            line(format!(
                "nvidia-smi    would report {:.0} %: the share of time in which any kernel ran",
                100.0 * found.busy
            ));
        }
        if self.stats.unknown_pixels > 0 {
            line(format!(
                "no class      {} pixels of masks",
                self.stats.unknown_pixels
            ));
        }
        if self.stats.warnings > 0 {
            line(format!(
                "warnings      {} from decoders, harmless",
                self.stats.warnings
            ));
        }
        if !self.bad.is_empty() {
            line(format!("bad records   {}", self.bad.len()));
            for bad in self.bad.iter().take(LISTED) {
                line(format!("  {}", bad.reason.chain()));
            }
        }
        out.push('\n');
        out + &self.stages() + &self.feeders()
    }

    /// One line per feeder: batches, wait, and batches that were made elsewhere.
    fn feeders(&self) -> String {
        let mut out = String::new();
        for feeder in &self.stats.remote {
            let each = feeder.wait.as_secs_f64() / feeder.batches.max(1) as f64;
            let _ = write!(
                out,
                "feeder {}    {} batches, {}, {} each, {} redone",
                feeder.host,
                feeder.batches,
                human_bytes(feeder.bytes),
                human_seconds(each),
                feeder.redone,
            );
            if let Some(problem) = &feeder.problem {
                let _ = write!(out, "; {problem}");
            }
            out.push('\n');
        }
        out
    }

    /// One line per stage: wall time, processor time and bytes of a sample, the share of all
    /// processor time, and the time that all threads waited.
    fn stages(&self) -> String {
        let mut out = String::new();
        let mut row = |cells: [&str; 8]| {
            let [name, rest @ ..] = cells;
            let _ = write!(out, "{name:<10}");
            for (cell, width) in rest.iter().zip([9, 10, 10, 7, 10, 10, 10]) {
                let _ = write!(out, "{cell:>width$}");
            }
            out.push('\n');
        };
        row([
            "stage", "samples", "wall", "CPU", "share", "waited", "in", "out",
        ]);
        let all: f64 = self
            .stats
            .stages
            .iter()
            .map(|(_, s)| s.cpu.as_secs_f64())
            .sum();
        // A stage without samples has no cost, for example the decoding of pixels in memory.
        for (stage, s) in self.stats.stages.iter().filter(|(_, s)| s.samples > 0) {
            let samples = s.samples.max(1);
            let each = |time: Duration| human_seconds(time.as_secs_f64() / samples as f64);
            row([
                stage.name(),
                &s.samples.to_string(),
                &each(s.wall),
                &each(s.cpu),
                &format!("{:.0} %", 100.0 * s.cpu.as_secs_f64() / all.max(1e-9)),
                &human_seconds(s.wait.as_secs_f64()),
                &human_bytes(s.bytes_in / samples),
                &human_bytes(s.bytes_out / samples),
            ]);
        }
        out.push_str("wall, CPU, in and out are per sample; waited is the sum over threads\n");
        out
    }
}
