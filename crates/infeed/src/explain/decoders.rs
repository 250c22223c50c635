//! What a case's records give a device's decoder to do: measured, where the pipeline leaves it files and
//! the device has one.

use super::case::Case;
use super::decoding::{Decoding, Ends, weigh};
use super::findings::NotTried;
use super::interval::Interval;
use super::placement::{Cost, Placing, Split};
use super::sides::left;
use super::ways::{SENDING, Sent, Tried};
use crate::device::{Any, Device};
use crate::error::Error;
use crate::loader::DecodeBy;
use crate::loader::ahead::Placement;
use crate::plan::Plan;

/// Files a record below which there are none for the decoder.
const NONE: f64 = 0.01;

/// Share of the files, of those that it takes at most, that a mix must have had so that a line through it
/// tells of none.
const TELLS: std::ops::Range<f64> = 0.2..0.8;

impl Case {
    /// Whether files can be left to the device's decoder.
    pub(super) fn can_decode(&self) -> bool {
        let Some(device) = &self.conditions.device else {
            return false;
        };
        let leaves = Plan::over(&self.pipeline, &*self.own)
            .and_then(|mut plan| plan.for_device_by(DecodeBy::Gpu, Placement::Resize, false));
        leaves.is_ok() && device.decoder(&Default::default()).is_ok()
    }

    /// Refuses what cannot go with files that a device decodes, before anything is measured.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the mend.
    pub(super) fn check_decode(&self) -> Result<(), Error> {
        if self.decodes() && self.conditions.feeders.is_some() {
            let problem = "feeders leave no files to a device's decoder; explain one of the two";
            return Err(Error::config("decode", problem));
        }
        Ok(())
    }

    /// Weighs the shares of records that the device might decode; None where it has no decoder, or none of
    /// the records is one for it. What storage allows is given, and the ways with the host's pixels. If it
    /// does not run, and nobody asked for it, that is told. `timing` hears what share of it is timed.
    ///
    /// # Errors
    ///
    /// As running the pipeline on the device.
    pub(super) fn decoding(
        &self,
        tried: &[Tried],
        placing: &Placing,
        storage: Option<Interval>,
        not: &mut Vec<NotTried>,
        timing: &dyn Fn(f64),
    ) -> Result<Option<Decoding>, Error> {
        let found = |decodes: bool| {
            let mut tried = tried.iter();
            tried.find(|tried| tried.split == Split::Resize && tried.decodes == decodes)
        };
        let best = placing.ways.iter().find(|way| way.split == placing.chosen);
        let resized = placing.ways.iter().find(|way| way.split == Split::Resize);
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
        let sent = |decode| all.sent_by(device, self.rows(), decode, length);
        timing(0.0);
        let ends = sent(DecodeBy::Gpu).and_then(|whole| {
            timing(0.5);
            Ok((whole, sent(DecodeBy::Mix(8))?))
        });
        let (whole, half) = match ends {
            Ok(ends) => ends,
            Err(error) if !self.decodes() => {
                not.push(all.not(&error));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let measured = Measured {
            whole,
            half,
            bus_bytes_per_s: resized.bus_bytes / resized.bus_s.max(1e-12),
        };
        if measured.whole.files < NONE {
            return Ok(None);
        }
        let cost = |host: Interval, sent: &Sent, decoder_s: f64| -> Result<Cost, Error> {
            Ok(Cost {
                split: Split::Resize,
                left: format!("decoding, {}", left(&self.routes(Split::Resize)?)),
                host,
                bus_bytes: sent.bytes,
                bus_s: sent.copying_s - decoder_s,
                decoder_s,
                device_s: sent.device_s,
            })
        };
        let ends = Ends {
            none: cost(none.host, &measured.none(), 0.0)?,
            all: cost(all.host, &measured.whole, measured.decoder_s())?,
            taken: measured.whole.files.min(1.0),
        };
        let now = self.conditions.open.decode.share();
        let about = (device.name(), self.known());
        Ok(Some(weigh(
            about,
            now,
            best,
            &ends,
            &self.supply(storage, 1),
        )))
    }

    /// Why the device decodes nothing, where the pipeline would leave it files; None where it does, or there
    /// is no device.
    pub(super) fn no_decoder(&self) -> Option<String> {
        let device: &Any = self.conditions.device.as_ref()?;
        let leaves = Plan::over(&self.pipeline, &*self.own)
            .and_then(|mut plan| plan.for_device_by(DecodeBy::Gpu, Placement::Resize, false));
        let refused = device.decoder(&Default::default()).err()?;
        leaves.ok()?;
        let why = refused.on(device.name());
        Some(format!("JPEGs are the host's to decode: {}", why.chain()))
    }
}

/// What batches took on their way, of which the decoder had all files that it takes, and half of them.
struct Measured {
    whole: Sent,
    half: Sent,
    /// Of large copies by themselves.
    bus_bytes_per_s: f64,
}

impl Measured {
    /// Time of the decoder, a sample, where it has all: what is left beside the bytes' time on the bus.
    fn decoder_s(&self) -> f64 {
        let copying_s = self.whole.bytes / self.bus_bytes_per_s;
        (self.whole.copying_s - copying_s).max(0.0)
    }

    /// What a batch would take of which the decoder has none, each image with a copy of its own: on the line
    /// through the two that were measured.
    fn none(&self) -> Sent {
        let (half, whole) = (&self.half, &self.whole);
        let part = half.files / whole.files;
        if !TELLS.contains(&part) {
            return self.half;
        }
        let line = |half: f64, whole: f64| (half - (whole - half) * part / (1.0 - part)).max(0.0);
        let bytes = line(half.bytes, whole.bytes);
        Sent {
            bytes,
            // A decoder's time varies by more than copies take, but no copy passes the bus.
            copying_s: line(half.copying_s, whole.copying_s).max(bytes / self.bus_bytes_per_s),
            device_s: line(half.device_s, whole.device_s),
            files: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: f64, copying_s: f64, device_s: f64, files: f64) -> Sent {
        Sent {
            bytes,
            copying_s,
            device_s,
            files,
        }
    }

    #[test]
    fn what_none_would_take_lies_on_the_line_through_half_and_all() {
        // Crops of 400 kB and files of 100 kB over 10 GB/s; 200 us of decoder a file.
        let measured = Measured {
            whole: sent(100e3, 210e-6, 4e-6, 1.0),
            half: sent(250e3, 125e-6, 3e-6, 0.5),
            bus_bytes_per_s: 10e9,
        };

        let none = measured.none();

        assert!((none.bytes - 400e3).abs() < 1e-6, "{none:?}");
        assert!((none.copying_s - 40e-6).abs() < 1e-12, "{none:?}");
        assert!((none.device_s - 2e-6).abs() < 1e-12, "{none:?}");
        assert!((measured.decoder_s() - 200e-6).abs() < 1e-12);
    }

    #[test]
    fn files_of_which_some_are_the_hosts_anyway_lie_on_the_same_line() {
        let measured = Measured {
            whole: sent(0.0, 0.6, 0.0, 0.6),
            half: sent(0.0, 0.15, 0.0, 0.15),
            bus_bytes_per_s: 1e9,
        };

        assert!(measured.none().copying_s.abs() < 1e-12);
    }

    #[test]
    fn no_bytes_pass_the_bus_in_less_than_their_time_whatever_the_decoder_varies_by() {
        let measured = Measured {
            whole: sent(100e3, 2_000e-6, 0.0, 1.0),
            half: sent(250e3, 900e-6, 0.0, 0.5),
            bus_bytes_per_s: 10e9,
        };

        let none = measured.none();

        assert!((none.copying_s - 40e-6).abs() < 1e-12, "{none:?}");
    }

    #[test]
    fn a_mix_that_had_nearly_all_or_none_stands_for_none_itself() {
        let measured = Measured {
            whole: sent(100e3, 2e-3, 0.0, 1.0),
            half: sent(120e3, 1.8e-3, 0.0, 0.9),
            bus_bytes_per_s: 10e9,
        };

        assert!((measured.none().bytes - 120e3).abs() < 1e-6);
    }
}
