//! The ways to share a case's work between host and device, run as trials: what is left to the host is
//! made by its cores alone, and then sent for a moment, where the device says what that takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::case::Case;
use super::findings::NotTried;
use super::interval::Interval;
use super::placement::Split;
use super::trial::{Variant, fixed, ratio};
use crate::counters::Stage;
use crate::device::ring::{Route, Upload};
use crate::device::{Any, Device, SLOTS};
use crate::error::Error;
use crate::loader::DecodeBy;
use crate::loader::ahead::{DeviceStep, Placement};

/// How long batches are sent, at least, unless trials are shorter than usual.
pub(super) const SENDING: Duration = Duration::from_millis(400);

/// Batches that are sent, at least, unless that takes ten times as long.
const BATCHES: u64 = 6;

/// Slices' length, for what is counted and not timed.
const SLICE: Duration = Duration::from_millis(100);

/// A way that was tried beside the pipeline as it runs, or that is the pipeline as it runs.
pub(super) struct Tried {
    pub(super) split: Split,
    /// Whether files are left to the device's decoder besides, all that it takes.
    pub(super) decodes: bool,
    /// Samples a second that the host's cores give.
    pub(super) host: Interval,
    variant: Variant,
}

/// What batches took on their way, a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Bytes over the bus, with the tables of what is resized.
    pub(super) bytes: f64,
    /// Time of copies and of decoding, which take turns.
    pub(super) copying_s: f64,
    /// Time of kernels.
    pub(super) device_s: f64,
    /// Files that the device decoded.
    pub(super) files: f64,
}

/// The ways of a case, to be run in turn with the pipeline as it is.
pub(super) struct Ways {
    /// The one that the pipeline takes now, if it is one of them.
    now: Option<(Split, Variant)>,
    others: Vec<(Split, bool, Variant)>,
}

impl Case {
    /// Whether files are left to the device's decoder as the pipeline runs.
    pub(super) fn decodes(&self) -> bool {
        self.conditions.open.decode.is_by_device()
    }

    /// For whom rows are made: a device, with what is left to it, or the host alone.
    pub(super) fn aim(&self, decode: DecodeBy) -> Option<Placement> {
        self.conditions.device.as_ref()?;
        Some(match decode.is_by_device() {
            true => Placement::Resize,
            false => Placement::Device,
        })
    }

    /// The ways there are, of which `base` is the pipeline as it runs; none without a device and without a
    /// profile that has one.
    pub(super) fn ways(&self, base: &Variant) -> Ways {
        let mut ways = Ways {
            now: None,
            others: Vec::new(),
        };
        if !self.has_sides() {
            return ways;
        }
        let now = self.split();
        for split in [Split::Host, Split::Device, Split::Resize] {
            if !self.can(split) {
                continue;
            }
            let mut variant = base.clone();
            variant.options.decode = DecodeBy::Auto;
            variant.aim = match split {
                Split::Host => None,
                Split::Device => Some(Placement::Device),
                Split::Resize => Some(Placement::Resize),
            };
            match split == now && !self.decodes() {
                true => ways.now = Some((split, base.clone())),
                false => ways.others.push((split, false, variant)),
            }
        }
        if self.can_decode() {
            let mut variant = base.clone();
            variant.options.decode = DecodeBy::Gpu;
            variant.aim = Some(Placement::Resize);
            ways.others.push((Split::Resize, true, variant));
        }
        ways
    }
}

impl Ways {
    /// What is to be run, in the order in which its rates are to be given.
    pub(super) fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.others.iter().map(|(_, _, variant)| variant)
    }

    /// The ways with what cores give in each: `rates` round by round beside those of the pipeline as it
    /// runs, which are `base` in all. One that did not run is told.
    pub(super) fn tried(
        self,
        rates: Vec<Result<Vec<f64>, Error>>,
        (base_rates, base): (&[f64], Interval),
        not: &mut Vec<NotTried>,
    ) -> Vec<Tried> {
        let now = self.now.map(|(split, variant)| Tried {
            split,
            decodes: false,
            host: base,
            variant,
        });
        let mut all: Vec<Tried> = now.into_iter().collect();
        for ((split, decodes, variant), rates) in self.others.into_iter().zip(rates) {
            match rates {
                Ok(rates) if rates.is_empty() => {}
                Ok(rates) => all.push(Tried {
                    split,
                    decodes,
                    // Rounds in turn tell the ratio better than either rate.
                    host: ratio(&rates, base_rates).map(|ratio| ratio * base.mid),
                    variant,
                }),
                Err(error) => not.push(not_tried(split, decodes, &error)),
            }
        }
        all.sort_by_key(|tried| (tried.split, tried.decodes));
        all
    }
}

/// A way that did not run, and why.
fn not_tried(split: Split, decodes: bool, error: &Error) -> NotTried {
    let (id, name) = match decodes {
        true => ("decode-gpu", "files decoded on the device".to_owned()),
        false => (split.name(), format!("placement=\"{}\"", split.name())),
    };
    NotTried {
        id: id.to_owned(),
        name,
        why: error.chain(),
    }
}

impl Tried {
    /// Why it could not be sent.
    pub(super) fn not(&self, error: &Error) -> NotTried {
        not_tried(self.split, self.decodes, error)
    }

    /// Sends batches of so many rows for a moment, of such a length at least.
    ///
    /// # Errors
    ///
    /// As opening and running the pipeline on the device.
    pub(super) fn sent(&self, device: &Any, rows: u64, length: Duration) -> Result<Sent, Error> {
        self.sent_by(device, rows, self.variant.options.decode, length)
    }

    /// As [`sent`](Tried::sent), with such a share of the files left to the device's decoder.
    ///
    /// # Errors
    ///
    /// As [`sent`](Tried::sent).
    pub(super) fn sent_by(
        &self,
        device: &Any,
        rows: u64,
        decode: DecodeBy,
        length: Duration,
    ) -> Result<Sent, Error> {
        let mut pipeline = self.variant.pipeline.plain();
        (pipeline.batch.size, pipeline.batch.per_rank) = (Some(rows), None);
        let mut options = fixed(&self.variant.options);
        options.decode = decode;
        let source = Arc::clone(&self.variant.source);
        let loader =
            pipeline.open_on_over(device.clone(), Placement::Resize, SLOTS, source, &options)?;
        let stream = device.stream().map_err(|error| error.on(device.name()))?;
        let (begun, mut batches) = (Instant::now(), 0);
        loop {
            let elapsed = begun.elapsed();
            let is_enough = elapsed >= length && batches >= BATCHES;
            // One batch that takes longer is waited for.
            if is_enough || (batches > 0 && elapsed >= 10 * SENDING) {
                break;
            }
            if let DeviceStep::Batch(batch) = loader.next_within(SLICE, Some(stream))? {
                batch.ready_on(stream)?;
                batch.synchronize()?;
                batches += 1;
            }
        }
        let stats = loader.ring().stats()?;
        let times = stats.times;
        // The records of a trial have no end, so its batches are full.
        let per = |amount: f64, batches: u64| amount / (batches.max(1) * rows) as f64;
        Ok(Sent {
            bytes: per(stats.bytes as f64, stats.batches),
            copying_s: per(times.copying.as_secs_f64(), times.batches),
            device_s: per(times.expanding.as_secs_f64(), times.expanded),
            files: per(stats.jpegs as f64, stats.batches),
        })
    }

    /// Bytes of the images that the host leaves in its rows to be resized, a sample; 0 if it leaves none.
    ///
    /// # Errors
    ///
    /// As running the pipeline.
    pub(super) fn cut_bytes(&self, routes: &[Route]) -> Result<f64, Error> {
        let is_cut = |route: &&Route| matches!(route.upload, Upload::Resize(_));
        if !routes.iter().any(|route| is_cut(&route)) {
            return Ok(0.0);
        }
        let bytes = |route: &Route| route.host.kind.row_bytes().unwrap_or(0) as f64;
        let room: f64 = routes.iter().filter(is_cut).map(bytes).sum();
        let seen = self.variant.watched(SLICE)?.stats;
        let written = seen.stages.iter().find(|(stage, _)| *stage == Stage::Write);
        Ok(written.map_or(room, |(_, write)| {
            // What a mask beside it takes is in it, too.
            (write.bytes_in as f64 / write.samples.max(1) as f64).min(room)
        }))
    }
}
