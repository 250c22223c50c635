//! The transfers between host and device: bytes and copies per step, and waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use infeed::loader::device::{Placement, PlacementState};
use infeed_core::batch::ColumnSpec;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_percent, format_seconds};
use infeed_device::ring::{RingStats, Route, Upload};

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Transfers of a loader to a device. A loader copies nothing back.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Transfers {
    /// Name of the device.
    pub device: String,
    /// Whether the device is simulated.
    pub simulated: bool,
    /// Batches sent.
    pub batches: u64,
    /// Batches that the loop received.
    pub delivered: u64,
    /// Copies over the bus.
    pub copies: u64,
    /// Bytes of all copies.
    pub bytes: u64,
    /// All fields with their route.
    pub fields: Vec<FieldTransfer>,
    /// Number of slots.
    pub slots: u64,
    /// Slots that were added because the loop kept all others.
    pub overflow: u64,
    /// Bytes of host memory for batches that the driver could not pin.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unpinned: u64,
    /// JPEGs that the device decoded.
    #[serde(default, skip_serializing_if = "is_none")]
    pub jpegs: u64,
    /// Batches with known times on the device's clock.
    pub timed: u64,
    /// Bytes of the timed batches.
    pub timed_bytes: u64,
    /// Copy time of the timed batches, in seconds.
    pub copying_s: f64,
    /// Timed batches that kernels worked on.
    pub expanded: u64,
    /// Kernel time of these batches, in seconds, next to other work of the device.
    pub expanding_s: f64,
    /// Time that the loop waited on the host for batches to be sent, in seconds.
    pub host_wait_s: f64,
    /// Time that the device waited for data on its own clock, in seconds. Requires a known stream
    /// of the loop.
    pub gap_s: f64,
    /// Longest of these waits, in seconds.
    pub longest_gap_s: f64,
    /// Number of batches with a known wait.
    pub gap_batches: u64,
    /// Time in seconds that the loop waited for batches it already held, if its stream is not
    /// known.
    #[serde(default)]
    pub late_s: f64,
    /// Number of batches with a known wait of that kind.
    #[serde(default)]
    pub late_batches: u64,
    /// Share of the device's time for rows that lengthened the step, 0 to 1. Known if the loader
    /// tried placements in turn, on steps that did not wait for data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<f64>,
    /// Summary in one line.
    pub verdict: String,
    /// Observations and numbers, one per line.
    pub seen: Vec<String>,
}

/// A field and its route.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct FieldTransfer {
    /// Name of the field.
    pub name: String,
    /// Bytes of a row on the bus. 0 if the field stays on the host.
    pub row_bytes: u64,
    /// Bytes of a row as the loop gets it on the device. 0 if the field stays on the host.
    pub device_bytes: u64,
    /// Whether rows hold files that the device decodes, or crops. Then only the files or crops
    /// cross the bus, and `row_bytes` is the room for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

impl FieldTransfer {
    fn of(route: &Route) -> FieldTransfer {
        let of = |column: &ColumnSpec| match route.upload {
            Upload::Stay => 0,
            _ => column.kind.row_bytes().unwrap_or(0) as u64,
        };
        FieldTransfer {
            name: route.host.name.clone(),
            row_bytes: of(&route.host),
            device_bytes: of(&route.device),
            files: matches!(route.upload, Upload::Decode(_)),
        }
    }

    fn stays(&self) -> bool {
        self.row_bytes == 0
    }
}

/// Sums up a ring's transfers. The loop received `delivered` batches and waited `host_wait_s` for
/// them.
pub(crate) fn transfers(
    (device, simulated): (String, bool),
    stats: &RingStats,
    routes: &[Route],
    delivered: u64,
    host_wait_s: f64,
) -> Transfers {
    let mut found = Transfers {
        device,
        simulated,
        batches: stats.batches,
        delivered,
        copies: stats.transfers,
        bytes: stats.bytes,
        fields: routes.iter().map(FieldTransfer::of).collect(),
        slots: stats.slots as u64,
        overflow: stats.overflow,
        unpinned: stats.unpinned,
        jpegs: stats.jpegs,
        timed: stats.times.batches,
        timed_bytes: stats.times.bytes,
        copying_s: stats.times.copying.as_secs_f64(),
        expanded: stats.times.expanded,
        expanding_s: stats.times.expanding.as_secs_f64(),
        host_wait_s,
        gap_s: stats.gaps.waited.as_secs_f64(),
        longest_gap_s: stats.gaps.longest.as_secs_f64(),
        gap_batches: stats.gaps.batches,
        late_s: stats.late.waited.as_secs_f64(),
        late_batches: stats.late.batches,
        contention: None,
        verdict: String::new(),
        seen: Vec::new(),
    };
    let ahead = stats.ahead as u64;
    let exceptions = found.exceptions(ahead);
    found.verdict = found.in_a_line(exceptions.is_empty());
    found.seen = found.numbers();
    found.seen.extend(exceptions);
    found
}

/// Share of a step that the device may wait for data. With longer waits, the length of a step says
/// nothing about contention.
const WAITS: f64 = 0.02;

/// Minimum share of a step that the work on rows must take. Less is within the variation
/// of steps.
const MIN_WORK: f64 = 0.05;

/// Returns the share of the work on rows that lengthened a step, from steps without it and with it.
/// None if the steps do not show it.
fn contention(host_s: f64, device_s: f64, expanding_s: f64, gap_s: f64) -> Option<f64> {
    let is_clear = expanding_s > MIN_WORK * host_s && gap_s < WAITS * host_s;
    is_clear.then(|| ((device_s - host_s) / expanding_s).clamp(0.0, 1.0))
}

impl Transfers {
    /// Adds the result of trying placements in turn on the run's own steps.
    pub(crate) fn add_trial(&mut self, placed: &PlacementState) {
        self.seen.push(placed.why.clone());
        let per = |time: f64, count: u64| time / count.max(1) as f64;
        // Compares steps on the host with steps next to the kernels of one layout. With two
        // layouts, the time of each is unknown.
        let sides = match (placed.choice, &placed.others[..]) {
            (Placement::Host, [other]) => Some((1.0, other.ratio)),
            (_, [other]) if other.placement == Placement::Host => Some((other.ratio, 1.0)),
            _ => None,
        };
        if let (Some(step), Some((host, device)), true) = (placed.step, sides, self.gap_batches > 0)
        {
            let (host_s, device_s) = (step.as_secs_f64() * host, step.as_secs_f64() * device);
            let expanding_s = per(self.expanding_s, self.expanded);
            // Every device waits for its first batch.
            let gap_s = per(self.gap_s - self.longest_gap_s, self.gap_batches);
            self.contention = contention(host_s, device_s, expanding_s, gap_s);
        }
        if let Some(share) = self.contention {
            self.seen.push(format!(
                "of the device's time for rows, {} lengthened the step, measured over trial steps",
                format_percent(share)
            ));
        }
    }

    /// Mean bytes of a batch on the bus.
    pub(crate) fn batch_bytes(&self) -> f64 {
        self.bytes as f64 / self.batches.max(1) as f64
    }

    fn in_a_line(&self, nothing_else: bool) -> String {
        let sent: Vec<String> = self
            .fields
            .iter()
            .filter(|field| !field.stays())
            .map(|field| field.name.clone())
            .collect();
        let what = match sent.as_slice() {
            [] => {
                return format!(
                    "nothing goes to {}: all fields stay on the host",
                    self.device
                );
            }
            names => names.join(" and "),
        };
        let copies = self.copies as f64 / self.batches.max(1) as f64;
        let copies = match copies {
            c if (c - 1.0).abs() < 0.005 => "1 copy".to_owned(),
            c if (c - c.round()).abs() < 0.05 => format!("{c:.0} copies"),
            c => format!("{c:.1} copies"),
        };
        let simulated = if self.simulated { ", simulated" } else { "" };
        format!(
            "one batch per step to {}{simulated} ({what}: {copies}, {}){}",
            self.device,
            format_bytes(self.batch_bytes()),
            match nothing_else {
                true => ", nothing else and nothing back",
                false => ", nothing back, and the lines below",
            }
        )
    }

    /// Returns lines with times and waits.
    fn numbers(&self) -> Vec<String> {
        let each = |sum: f64, count: u64| format_seconds(sum / count.max(1) as f64);
        let mut lines = Vec::new();
        if self.timed > 0 && self.copying_s > 0.0 {
            let mut line = format!(
                "a batch is {} on the bus{}, {}",
                each(self.copying_s, self.timed),
                match self.jpegs {
                    0 => "",
                    _ => " and in the decoder",
                },
                format_bytes_per_s(self.timed_bytes as f64 / self.copying_s),
            );
            if self.expanding_s > 0.0 {
                line += &format!(
                    ", and {} in kernels, next to other work of the device",
                    each(self.expanding_s, self.expanded)
                );
            }
            lines.push(line);
        }
        if self.jpegs > 0 {
            lines.push(format!(
                "{:.1} files per batch were decoded on the device",
                self.jpegs as f64 / self.batches.max(1) as f64
            ));
        }
        if self.gap_batches > 0 {
            lines.push(format!(
                "the device waited {} per step for data by its own clock, at most {}",
                each(self.gap_s, self.gap_batches),
                format_seconds(self.longest_gap_s)
            ));
        } else if self.late_batches == 0 {
            lines.push(
                "the device's wait for data is unknown: the loop did not pass its stream"
                    .to_owned(),
            );
        }
        if self.late_batches > 0 {
            lines.push(format!(
                "the loop waited {} per step for batches it already held",
                each(self.late_s, self.late_batches)
            ));
        }
        lines.push(format!(
            "the loop waited {} per step on the host for batches to be sent",
            each(self.host_wait_s, self.delivered)
        ));
        lines
    }

    /// Returns lines with observations beyond one batch per step.
    fn exceptions(&self, ahead: u64) -> Vec<String> {
        let mut lines = Vec::new();
        for field in self.fields.iter().filter(|field| field.stays()) {
            lines.push(format!(
                "`{}` stays on the host; copies that the loop makes of it are not counted here",
                field.name
            ));
        }
        if self.overflow > 0 {
            let what = match self.overflow {
                1 => "1 slot was made".to_owned(),
                n => format!("{n} slots were made"),
            };
            lines.push(format!(
                "{what} in addition, because the loop kept all batches: now {} slots",
                self.slots
            ));
        }
        if self.unpinned > 0 {
            lines.push(format!(
                "the driver could not pin {} of host memory for batches, so copies from it are \
                 slower; allow the process to lock more memory",
                format_bytes(self.unpinned as f64)
            ));
        }
        let dropped = self.batches.saturating_sub(self.delivered + ahead);
        if dropped > 0 {
            lines.push(format!(
                "{dropped} of {} batches were sent for nothing: the loop ended or moved to another \
                 step before it took them",
                self.batches
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use infeed_core::batch::ColumnKind;
    use infeed_core::sample::DType;
    use infeed_device::ring::{GapTotals, SentTimes};

    fn column(name: &str, kind: ColumnKind) -> ColumnSpec {
        ColumnSpec {
            name: name.to_owned(),
            kind,
        }
    }

    fn image() -> Route {
        let kind = ColumnKind::Fixed {
            dtype: DType::UInt8,
            shape: vec![100, 100, 3],
        };
        Route::copy(column("image", kind))
    }

    fn stats() -> RingStats {
        RingStats {
            batches: 12,
            transfers: 12,
            bytes: 12 * 960_000,
            jpegs: 0,
            slots: 3,
            ahead: 2,
            free: 0,
            overflow: 0,
            unpinned: 0,
            gaps: GapTotals {
                batches: 10,
                waited: Duration::from_millis(5),
                longest: Duration::from_millis(2),
                first: Duration::from_millis(2),
            },
            late: GapTotals::default(),
            times: SentTimes {
                batches: 10,
                bytes: 9_600_000,
                copying: Duration::from_millis(1),
                expanded: 0,
                expanding: Duration::ZERO,
            },
        }
    }

    fn of(stats: &RingStats, routes: &[Route]) -> Transfers {
        transfers(("cuda:0".to_owned(), false), stats, routes, 10, 0.02)
    }

    #[test]
    fn one_batch_per_step_is_summed_up_in_one_line() {
        let found = of(&stats(), &[image()]);

        assert_eq!(
            found.verdict,
            "one batch per step to cuda:0 (image: 1 copy, 960 kB), nothing else and nothing back"
        );
        assert_eq!(
            found.seen,
            [
                "a batch is 100 µs on the bus, 9.6 GB/s",
                "the device waited 500 µs per step for data by its own clock, at most 2 ms",
                "the loop waited 2 ms per step on the host for batches to be sent",
            ]
        );
    }

    #[test]
    fn other_observations_have_a_line_each() {
        let text = Route::stay(column("text", ColumnKind::Text));
        let mut stats = stats();
        (stats.overflow, stats.ahead, stats.slots) = (2, 0, 5);
        stats.unpinned = 3_000_000;

        let found = of(&stats, &[image(), text]);

        assert!(found.verdict.ends_with("and the lines below"), "{found:?}");
        let seen = found.seen.join("\n");
        assert!(seen.contains("`text` stays on the host"), "{seen}");
        assert!(seen.contains("2 slots were made in addition"), "{seen}");
        assert!(seen.contains("could not pin 3 MB of host memory"), "{seen}");
        assert!(
            seen.contains("2 of 12 batches were sent for nothing"),
            "{seen}"
        );
    }

    #[test]
    fn an_unknown_gap_is_reported_as_unknown() {
        let mut stats = stats();
        stats.gaps = GapTotals::default();

        let seen = of(&stats, &[image()]).seen.join("\n");

        assert!(seen.contains("is unknown: the loop did not pass"), "{seen}");
        assert!(!seen.contains("by its own clock"), "{seen}");
    }

    #[test]
    fn waits_for_held_batches_are_reported_without_a_known_stream() {
        let mut stats = stats();
        (stats.late, stats.gaps) = (stats.gaps, GapTotals::default());

        let seen = of(&stats, &[image()]).seen.join("\n");

        assert!(
            seen.contains("the loop waited 500 µs per step for batches"),
            "{seen}"
        );
        assert!(!seen.contains("is not known"), "{seen}");
    }

    #[test]
    fn only_steps_that_wait_for_nothing_show_contention() {
        // 10 ms without kernels, and 10.5 ms with kernels of 2 ms.
        let share = contention(0.010, 0.0105, 0.002, 0.0001).expect("the steps show it");
        assert!((share - 0.25).abs() < 1e-9, "{share}");

        assert_eq!(contention(0.010, 0.0099, 0.002, 0.0), Some(0.0));
        assert_eq!(contention(0.010, 0.0200, 0.002, 0.0), Some(1.0));
        assert_eq!(contention(0.010, 0.0105, 0.002, 0.001), None, "it waited");
        assert_eq!(contention(0.010, 0.0105, 0.0001, 0.0), None, "too little");
    }

    #[test]
    fn fields_that_stay_on_the_host_send_nothing() {
        let text = Route::stay(column("text", ColumnKind::Text));
        let mut stats = stats();
        (stats.transfers, stats.bytes, stats.times) = (0, 0, SentTimes::default());

        let found = of(&stats, &[text]);

        assert!(
            found.verdict.starts_with("nothing goes to cuda:0"),
            "{found:?}"
        );
    }
}
