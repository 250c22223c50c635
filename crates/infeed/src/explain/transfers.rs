//! What crossed between host and device: bytes and copies of each step, and what else was seen.

use serde::{Deserialize, Serialize};

use super::units::{bytes, per_s, time};
use crate::batch::ColumnSpec;
use crate::device::ring::{RingStats, Route, Upload};
use crate::loader::ahead::{Placed, Placement};

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// What a loader sent to a device. It brings nothing back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfers {
    /// The device.
    pub device: String,
    /// Whether it is a simulated one.
    pub simulated: bool,
    /// Batches sent.
    pub batches: u64,
    /// Batches that the loop was given.
    pub delivered: u64,
    /// Copies over the bus.
    pub copies: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Every field, and how it gets there.
    pub fields: Vec<Carried>,
    /// Slots there are.
    pub slots: u64,
    /// Slots made because the loop kept all others.
    pub overflow: u64,
    /// JPEGs that the device decoded.
    #[serde(default, skip_serializing_if = "is_none")]
    pub jpegs: u64,
    /// Batches whose times on the device's clock are known.
    pub timed: u64,
    /// Bytes of those.
    pub timed_bytes: u64,
    /// Time that their copies took.
    pub copying_s: f64,
    /// Those of them that kernels worked on.
    pub expanded: u64,
    /// Time that their kernels took, beside whatever else the device did.
    pub expanding_s: f64,
    /// What the loop waited on the host for batches to be sent.
    pub host_wait_s: f64,
    /// What the device waited for data, on its own clock, where the loop's stream is known.
    pub gap_s: f64,
    /// The longest of those waits.
    pub longest_gap_s: f64,
    /// Batches for which that is known.
    pub gap_batches: u64,
    /// What batches were waited for by whoever had them, where the loop's stream is not known.
    #[serde(default)]
    pub late_s: f64,
    /// Batches for which that is known.
    #[serde(default)]
    pub late_batches: u64,
    /// Which share of its time the device's work on rows lengthened the step, 0 to 1, where placements
    /// were tried in turn on steps that waited for no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<f64>,
    /// In one line.
    pub verdict: String,
    /// What was seen besides, and the numbers, a line each.
    pub seen: Vec<String>,
}

/// A field on its way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Its name.
    pub name: String,
    /// Bytes of a row over the bus; 0 if it stays on the host.
    pub row_bytes: u64,
    /// Bytes of a row as the loop gets it on the device; 0 if it stays on the host.
    pub device_bytes: u64,
    /// Whether rows hold files that the device decodes, or crops: what crosses then is those alone, and
    /// `row_bytes` the room for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

impl Carried {
    fn of(route: &Route) -> Carried {
        let of = |column: &ColumnSpec| match route.upload {
            Upload::Stay => 0,
            _ => column.kind.row_bytes().unwrap_or(0) as u64,
        };
        Carried {
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

/// What a ring sent, of which the loop was given `delivered` batches and waited `host_wait_s` for them.
pub(super) fn transfers(
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
        fields: routes.iter().map(Carried::of).collect(),
        slots: stats.slots as u64,
        overflow: stats.overflow,
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
    let besides = found.besides(ahead);
    found.verdict = found.in_a_line(besides.is_empty());
    found.seen = found.numbers();
    found.seen.extend(besides);
    found
}

/// Share of a step that the device may wait for data before a step's length says nothing about
/// contention.
const WAITS: f64 = 0.02;

/// Least share of a step that the work on rows must take, so that its part can be told from how steps vary.
const TELLS: f64 = 0.05;

/// Which share of the work on rows lengthened a step beside it, from steps without it and with it; None
/// where these steps cannot tell.
fn contention(host_s: f64, device_s: f64, expanding_s: f64, gap_s: f64) -> Option<f64> {
    let tells = expanding_s > TELLS * host_s && gap_s < WAITS * host_s;
    tells.then(|| ((device_s - host_s) / expanding_s).clamp(0.0, 1.0))
}

impl Transfers {
    /// Adds what trying placements in turn on the run's own steps has come to.
    pub(super) fn add_trial(&mut self, placed: &Placed) {
        self.seen.push(placed.why.clone());
        let per = |time: f64, count: u64| time / count.max(1) as f64;
        // Of a host's steps and of those beside the kernels of one form: what each of two takes is not known.
        let sides = match (placed.choice, &placed.others[..]) {
            (Placement::Host, [other]) => Some((1.0, other.ratio)),
            (_, [other]) if other.placement == Placement::Host => Some((other.ratio, 1.0)),
            _ => None,
        };
        if let (Some(step), Some((host, device)), true) = (placed.step, sides, self.gap_batches > 0)
        {
            let (host_s, device_s) = (step.as_secs_f64() * host, step.as_secs_f64() * device);
            let expanding_s = per(self.expanding_s, self.expanded);
            // Before the first batch every device waits.
            let gap_s = per(self.gap_s - self.longest_gap_s, self.gap_batches);
            self.contention = contention(host_s, device_s, expanding_s, gap_s);
        }
        if let Some(share) = self.contention {
            self.seen.push(format!(
                "of the device's time for rows, {:.0} % lengthened the step, by the steps that were \
                 tried",
                100.0 * share
            ));
        }
    }

    /// Bytes of a batch over the bus, on average.
    pub(super) fn batch_bytes(&self) -> f64 {
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
            "one batch a step to {}{simulated} ({what}: {copies}, {}){}",
            self.device,
            bytes(self.batch_bytes()),
            match nothing_else {
                true => ", nothing else and nothing back",
                false => ", nothing back, and what stands below",
            }
        )
    }

    /// Times, and what waited for what.
    fn numbers(&self) -> Vec<String> {
        let each = |sum: f64, count: u64| time(sum / count.max(1) as f64);
        let mut lines = Vec::new();
        if self.timed > 0 && self.copying_s > 0.0 {
            let mut line = format!(
                "a batch is {} on the bus{}, {}",
                each(self.copying_s, self.timed),
                match self.jpegs {
                    0 => "",
                    _ => " and in the decoder",
                },
                per_s(self.timed_bytes as f64 / self.copying_s),
            );
            if self.expanding_s > 0.0 {
                line += &format!(
                    ", and {} in kernels beside whatever else the device does",
                    each(self.expanding_s, self.expanded)
                );
            }
            lines.push(line);
        }
        if self.jpegs > 0 {
            lines.push(format!(
                "{:.1} files of a batch were decoded on the device",
                self.jpegs as f64 / self.batches.max(1) as f64
            ));
        }
        if self.gap_batches > 0 {
            lines.push(format!(
                "the device waited {} a step for data by its own clock, at most {}",
                each(self.gap_s, self.gap_batches),
                time(self.longest_gap_s)
            ));
        } else if self.late_batches == 0 {
            lines.push(
                "what the device waited for data is not known: nobody named the loop's stream"
                    .to_owned(),
            );
        }
        if self.late_batches > 0 {
            lines.push(format!(
                "batches that the loop had were waited for {} a step until they were there",
                each(self.late_s, self.late_batches)
            ));
        }
        lines.push(format!(
            "the loop waited {} a step on the host for batches to be sent",
            each(self.host_wait_s, self.delivered)
        ));
        lines
    }

    /// What is more than one batch a step.
    fn besides(&self, ahead: u64) -> Vec<String> {
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
                "{what} besides, since the loop kept all batches it had: {} of memory there are now",
                self.slots
            ));
        }
        let dropped = self.batches.saturating_sub(self.delivered + ahead);
        if dropped > 0 {
            lines.push(format!(
                "{dropped} of {} batches were sent for nothing: the loop went elsewhere before it \
                 took them",
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
    use crate::batch::ColumnKind;
    use crate::device::ring::{GapTotals, SentTimes};
    use crate::sample::DType;

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
    fn one_batch_a_step_and_nothing_else_is_said_to_be_that() {
        let found = of(&stats(), &[image()]);

        assert_eq!(
            found.verdict,
            "one batch a step to cuda:0 (image: 1 copy, 960.0 kB), nothing else and nothing back"
        );
        assert_eq!(
            found.seen,
            [
                "a batch is 100.0 µs on the bus, 9.60 GB/s",
                "the device waited 500.0 µs a step for data by its own clock, at most 2.00 ms",
                "the loop waited 2.00 ms a step on the host for batches to be sent",
            ]
        );
    }

    #[test]
    fn what_else_was_seen_is_told_line_by_line() {
        let text = Route::stay(column("text", ColumnKind::Text));
        let mut stats = stats();
        (stats.overflow, stats.ahead, stats.slots) = (2, 0, 5);

        let found = of(&stats, &[image(), text]);

        assert!(
            found.verdict.ends_with("and what stands below"),
            "{found:?}"
        );
        let seen = found.seen.join("\n");
        assert!(seen.contains("`text` stays on the host"), "{seen}");
        assert!(seen.contains("2 slots were made besides"), "{seen}");
        assert!(
            seen.contains("2 of 12 batches were sent for nothing"),
            "{seen}"
        );
    }

    #[test]
    fn a_gap_that_nobody_could_measure_is_not_called_none() {
        let mut stats = stats();
        stats.gaps = GapTotals::default();

        let seen = of(&stats, &[image()]).seen.join("\n");

        assert!(seen.contains("is not known: nobody named"), "{seen}");
        assert!(!seen.contains("by its own clock"), "{seen}");
    }

    #[test]
    fn what_is_waited_for_in_the_loops_hands_is_told_where_its_stream_has_no_name() {
        let mut stats = stats();
        (stats.late, stats.gaps) = (stats.gaps, GapTotals::default());

        let seen = of(&stats, &[image()]).seen.join("\n");

        assert!(seen.contains("were waited for 500.0 µs a step"), "{seen}");
        assert!(!seen.contains("is not known"), "{seen}");
    }

    #[test]
    fn contention_is_told_by_steps_that_wait_for_nothing_and_by_no_others() {
        // 10 ms without and 10.5 ms with kernels of 2 ms beside them.
        let share = contention(0.010, 0.0105, 0.002, 0.0001).expect("it can be told");
        assert!((share - 0.25).abs() < 1e-9, "{share}");

        assert_eq!(contention(0.010, 0.0099, 0.002, 0.0), Some(0.0));
        assert_eq!(contention(0.010, 0.0200, 0.002, 0.0), Some(1.0));
        assert_eq!(contention(0.010, 0.0105, 0.002, 0.001), None, "it waited");
        assert_eq!(contention(0.010, 0.0105, 0.0001, 0.0), None, "too little");
    }

    #[test]
    fn fields_that_all_stay_send_nothing() {
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
