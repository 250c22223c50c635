//! Runs the placements of a case's work on host and device as trials. The host's cores make their
//! part alone. A device that can time it then receives batches for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::findings::UntriedRemedy;
use crate::measure::trial::ratio;
use crate::measure::variant::{Variant, with_fixed_workers};
use crate::model::interval::Interval;
use crate::model::placement::Split;
use infeed::loader::DecodeBy;
use infeed::loader::device::{DeviceStep, Placement};
use infeed_core::counters::Stage;
use infeed_core::error::Error;
use infeed_device::ring::{Route, Upload};
use infeed_device::{AnyDevice, Device, SLOTS};

/// Minimum time for which batches are sent, unless trials are shorter than usual.
pub(crate) const SENDING: Duration = Duration::from_millis(400);

/// Minimum number of batches to send, unless that takes ten times as long as [`SENDING`].
const BATCHES: u64 = 6;

/// Length of a slice that only counts and does not time.
const SLICE: Duration = Duration::from_millis(100);

/// A placement that was tried, or that the pipeline runs with.
pub(crate) struct PlacementTrial {
    pub(crate) split: Split,
    /// Whether the device's decoder also takes all files that it can decode.
    pub(crate) decodes: bool,
    /// Samples per second that the host's cores allow.
    pub(crate) host: Interval,
    variant: Variant,
}

/// Measured cost of sending, per sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendingCost {
    /// Bytes on the bus, including the tables of images to resize.
    pub(crate) bytes: f64,
    /// Time of copies and of decoding in seconds. Both take turns in one stream.
    pub(crate) copying_s: f64,
    /// Time of kernels in seconds.
    pub(crate) device_s: f64,
    /// Files that the device decoded.
    pub(crate) files: f64,
}

/// The placements of a case, to run in turn with the pipeline as it is.
pub(crate) struct PlacementTrials {
    /// The present placement, if it is one of the candidates.
    now: Option<(Split, Variant)>,
    others: Vec<(Split, bool, Variant)>,
}

impl Case {
    /// Returns the possible placements. `base` is the pipeline as it runs. Empty without a device
    /// and without a profile that has one.
    pub(crate) fn placement_trials(&self, base: &Variant) -> PlacementTrials {
        let mut trials = PlacementTrials {
            now: None,
            others: Vec::new(),
        };
        if !self.has_sides() {
            return trials;
        }
        let now = self.split();
        for split in [Split::Host, Split::Device, Split::Resize] {
            if !self.can(split) {
                continue;
            }
            let mut variant = base.clone();
            variant.options.decode = DecodeBy::Auto;
            variant.row_placement = match split {
                Split::Host => None,
                Split::Device => Some(Placement::Device),
                Split::Resize => Some(Placement::Resize),
            };
            match split == now && !self.decodes() {
                true => trials.now = Some((split, base.clone())),
                false => trials.others.push((split, false, variant)),
            }
        }
        if self.can_decode() {
            let mut variant = base.clone();
            variant.options.decode = DecodeBy::Gpu;
            variant.row_placement = Some(Placement::Resize);
            trials.others.push((Split::Resize, true, variant));
        }
        trials
    }
}

impl PlacementTrials {
    /// Returns the variants to run. Their rates must be passed to `with_rates` in the same order.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.others.iter().map(|(_, _, variant)| variant)
    }

    /// Returns the placements with the rate of the cores in each. `rates` has the rates of each
    /// variant round by round. `base_rates` and `base` are those of the pipeline as it runs. A
    /// placement that did not run goes to `not`.
    pub(crate) fn with_rates(
        self,
        rates: Vec<Result<Vec<f64>, Error>>,
        (base_rates, base): (&[f64], Interval),
        not: &mut Vec<UntriedRemedy>,
    ) -> Vec<PlacementTrial> {
        let now = self.now.map(|(split, variant)| PlacementTrial {
            split,
            decodes: false,
            host: base,
            variant,
        });
        let mut all: Vec<PlacementTrial> = now.into_iter().collect();
        for ((split, decodes, variant), rates) in self.others.into_iter().zip(rates) {
            match rates {
                Ok(rates) if rates.is_empty() => {}
                Ok(rates) => all.push(PlacementTrial {
                    split,
                    decodes,
                    // The ratio of turns is more exact than either rate.
                    host: ratio(&rates, base_rates).map(|ratio| ratio * base.mid),
                    variant,
                }),
                Err(error) => not.push(untried_remedy(split, decodes, &error)),
            }
        }
        all.sort_by_key(|tried| (tried.split, tried.decodes));
        all
    }
}

/// Returns the entry of a placement that did not run.
fn untried_remedy(split: Split, decodes: bool, error: &Error) -> UntriedRemedy {
    let (id, name) = match decodes {
        true => ("decode-gpu", "files decoded on the device".to_owned()),
        false => (split.name(), format!("placement=\"{}\"", split.name())),
    };
    UntriedRemedy {
        id: id.to_owned(),
        name,
        why: error.chain(),
    }
}

impl PlacementTrial {
    /// Returns the entry of a placement that could not be sent.
    pub(crate) fn to_untried(&self, error: &Error) -> UntriedRemedy {
        untried_remedy(self.split, self.decodes, error)
    }

    /// Sends batches of `rows` rows to the device for at least `length`.
    ///
    /// # Errors
    ///
    /// As opening and running the pipeline on the device.
    pub(crate) fn send(
        &self,
        device: &AnyDevice,
        rows: u64,
        length: Duration,
    ) -> Result<SendingCost, Error> {
        self.send_with(device, rows, self.variant.options.decode, length)
    }

    /// As [`send`](PlacementTrial::send), with a share of the files left to the device's decoder.
    ///
    /// # Errors
    ///
    /// As [`send`](PlacementTrial::send).
    pub(crate) fn send_with(
        &self,
        device: &AnyDevice,
        rows: u64,
        decode: DecodeBy,
        length: Duration,
    ) -> Result<SendingCost, Error> {
        let mut pipeline = self.variant.pipeline.plain();
        (pipeline.batch.size, pipeline.batch.per_rank) = (Some(rows), None);
        let mut options = with_fixed_workers(&self.variant.options);
        options.decode = decode;
        let source = Arc::clone(&self.variant.source);
        let loader =
            pipeline.open_on_over(device.clone(), Placement::Resize, SLOTS, source, &options)?;
        let stream = device.stream().map_err(|error| error.on(device.name()))?;
        let (begun, mut batches) = (Instant::now(), 0);
        loop {
            let elapsed = begun.elapsed();
            let is_enough = elapsed >= length && batches >= BATCHES;
            // A single batch that takes longer is waited for.
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
        // The records of a trial repeat without end, so every batch is full.
        let per = |amount: f64, batches: u64| amount / (batches.max(1) * rows) as f64;
        Ok(SendingCost {
            bytes: per(stats.bytes as f64, stats.batches),
            copying_s: per(times.copying.as_secs_f64(), times.batches),
            device_s: per(times.expanding.as_secs_f64(), times.expanded),
            files: per(stats.jpegs as f64, stats.batches),
        })
    }

    /// Returns the bytes per sample of the images that the host leaves to the device to resize. 0
    /// if there are none.
    ///
    /// # Errors
    ///
    /// As running the pipeline.
    pub(crate) fn cut_bytes(&self, routes: &[Route]) -> Result<f64, Error> {
        let is_cut = |route: &&Route| matches!(route.upload, Upload::Resize(_));
        if !routes.iter().any(|route| is_cut(&route)) {
            return Ok(0.0);
        }
        let bytes = |route: &Route| route.host.kind.row_bytes().unwrap_or(0) as f64;
        let room: f64 = routes.iter().filter(is_cut).map(bytes).sum();
        let seen = self.variant.run_slice(SLICE)?.stats;
        let written = seen.stages.iter().find(|(stage, _)| *stage == Stage::Write);
        Ok(written.map_or(room, |(_, write)| {
            // This includes the bytes of a mask.
            (write.bytes_in as f64 / write.samples.max(1) as f64).min(room)
        }))
    }
}
