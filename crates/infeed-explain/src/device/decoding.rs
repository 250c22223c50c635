//! Measures the work that the records give a device's JPEG decoder, if the pipeline leaves files to
//! it.

use super::placement::describe_device_work;
use super::trials::{PlacementTrial, SENDING, SendingCost};
use crate::case::Case;
use crate::findings::UntriedRemedy;
use crate::model::decoding::words::describe_decoding;
use crate::model::decoding::{DecodingCosts, DecodingReport, weigh};
use crate::model::interval::Interval;
use crate::model::placement::{Cost, PlacementReport, Split};
use infeed::loader::DecodeBy;
use infeed_core::error::Error;
use infeed_device::Device;

/// Files per record below which the decoder has no work.
const NONE: f64 = 0.01;

/// Share of the decoder's files that a measured mix must have. Only then does a line through the
/// mix predict the time without any files.
const USABLE_SHARES: std::ops::Range<f64> = 0.2..0.8;

impl Case {
    /// Compares the shares of records that the device might decode. `None` if the device has no
    /// decoder or no record is a JPEG. Takes the storage rate and the placements with host pixels.
    /// If decoding on the device fails and the user did not ask for it, the failure goes to the
    /// list of what was not tried. `timing` receives the share of the timing that is done.
    ///
    /// # Errors
    ///
    /// As running the pipeline on the device.
    pub(crate) fn decoding(
        &self,
        tried: &[PlacementTrial],
        placement: &PlacementReport,
        storage: Option<Interval>,
        not: &mut Vec<UntriedRemedy>,
        timing: &dyn Fn(f64),
    ) -> Result<Option<DecodingReport>, Error> {
        let found = |decodes: bool| {
            let mut tried = tried.iter();
            tried.find(|tried| tried.split == Split::Resize && tried.decodes == decodes)
        };
        let best = placement
            .candidates
            .iter()
            .find(|candidate| candidate.split == placement.chosen);
        let resized = placement
            .candidates
            .iter()
            .find(|candidate| candidate.split == Split::Resize);
        let (Some(device), Some(none), Some(all), Some(best), Some(resized)) = (
            &self.conditions.device,
            found(false),
            found(true),
            best,
            resized,
        ) else {
            return Ok(None);
        };
        let length = self.turn(SENDING);
        let send = |decode| all.send_with(device, self.rows(), decode, length);
        timing(0.0);
        let ends = send(DecodeBy::Gpu).and_then(|whole| {
            timing(0.5);
            Ok((whole, send(DecodeBy::Mix(8))?))
        });
        let (whole, half) = match ends {
            Ok(ends) => ends,
            Err(error) if !self.decodes() => {
                not.push(all.to_untried(&error));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let measured = DecoderTimes {
            whole,
            half,
            bus_bytes_per_s: resized.bus_bytes / resized.bus_s.max(1e-12),
        };
        if measured.whole.files < NONE {
            return Ok(None);
        }
        let cost = |host: Interval, sent: &SendingCost, decoder_s: f64| -> Result<Cost, Error> {
            Ok(Cost {
                split: Split::Resize,
                left: format!(
                    "decoding, {}",
                    describe_device_work(&self.routes(Split::Resize)?)
                ),
                host,
                bus_bytes: sent.bytes,
                bus_s: sent.copying_s - decoder_s,
                decoder_s,
                device_s: sent.device_s,
            })
        };
        let ends = DecodingCosts {
            none: cost(none.host, &measured.none(), 0.0)?,
            all: cost(all.host, &measured.whole, measured.decoder_s())?,
            taken: measured.whole.files.min(1.0),
        };
        let now = self.conditions.open.decode.share();
        let about = (device.name(), self.device_origin());
        let model = self.placement_model(storage, 1);
        let mut decoding = weigh(about, now, best, &ends, &model);
        describe_decoding(&mut decoding);
        Ok(Some(decoding))
    }
}

/// Measurements of batches in which the decoder had all files that it takes, and half of them.
struct DecoderTimes {
    whole: SendingCost,
    half: SendingCost,
    /// Rate of large copies alone, in bytes per second.
    bus_bytes_per_s: f64,
}

impl DecoderTimes {
    /// Decoder time per sample if the decoder has all files: the copy time minus the bytes' time on
    /// the bus.
    fn decoder_s(&self) -> f64 {
        let copying_s = self.whole.bytes / self.bus_bytes_per_s;
        (self.whole.copying_s - copying_s).max(0.0)
    }

    /// Predicts a batch in which the decoder has no file and each image is copied by itself.
    /// Extrapolates the line through the two measurements.
    fn none(&self) -> SendingCost {
        let (half, whole) = (&self.half, &self.whole);
        let part = half.files / whole.files;
        if !USABLE_SHARES.contains(&part) {
            return self.half;
        }
        let line = |half: f64, whole: f64| (half - (whole - half) * part / (1.0 - part)).max(0.0);
        let bytes = line(half.bytes, whole.bytes);
        SendingCost {
            bytes,
            // The decoder's time varies more than copy times do, so the line can fall below the bus
            // time.
            copying_s: line(half.copying_s, whole.copying_s).max(bytes / self.bus_bytes_per_s),
            device_s: line(half.device_s, whole.device_s),
            files: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending_cost(bytes: f64, copying_s: f64, device_s: f64, files: f64) -> SendingCost {
        SendingCost {
            bytes,
            copying_s,
            device_s,
            files,
        }
    }

    #[test]
    fn the_cost_without_files_is_on_the_line_through_half_and_all() {
        // Crops of 400 kB and files of 100 kB over 10 GB/s, 200 us of decoding per file.
        let measured = DecoderTimes {
            whole: sending_cost(100e3, 210e-6, 4e-6, 1.0),
            half: sending_cost(250e3, 125e-6, 3e-6, 0.5),
            bus_bytes_per_s: 10e9,
        };

        let none = measured.none();

        assert!((none.bytes - 400e3).abs() < 1e-6, "{none:?}");
        assert!((none.copying_s - 40e-6).abs() < 1e-12, "{none:?}");
        assert!((none.device_s - 2e-6).abs() < 1e-12, "{none:?}");
        assert!((measured.decoder_s() - 200e-6).abs() < 1e-12);
    }

    #[test]
    fn files_that_the_host_always_decodes_keep_the_line() {
        let measured = DecoderTimes {
            whole: sending_cost(0.0, 0.6, 0.0, 0.6),
            half: sending_cost(0.0, 0.15, 0.0, 0.15),
            bus_bytes_per_s: 1e9,
        };

        assert!(measured.none().copying_s.abs() < 1e-12);
    }

    #[test]
    fn the_bus_time_is_a_lower_bound_despite_decoder_variation() {
        let measured = DecoderTimes {
            whole: sending_cost(100e3, 2_000e-6, 0.0, 1.0),
            half: sending_cost(250e3, 900e-6, 0.0, 0.5),
            bus_bytes_per_s: 10e9,
        };

        let none = measured.none();

        assert!((none.copying_s - 40e-6).abs() < 1e-12, "{none:?}");
    }

    #[test]
    fn a_mix_with_nearly_all_or_no_files_is_not_extrapolated() {
        let measured = DecoderTimes {
            whole: sending_cost(100e3, 2e-3, 0.0, 1.0),
            half: sending_cost(120e3, 1.8e-3, 0.0, 0.9),
            bus_bytes_per_s: 10e9,
        };

        assert!((measured.none().bytes - 120e3).abs() < 1e-6);
    }
}
