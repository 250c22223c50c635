//! Costs of the placements of a case's work on host and device. Trials measure the host's part. Bus
//! and device are timed or planned.

use std::time::Duration;

use infeed_raw::kernel::Kernel;

use super::trials::{PlacementTrial, SENDING};
use crate::case::{Case, PlannedMachine};
use crate::findings::UntriedRemedy;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::placement::words::describe_placement;
use crate::model::placement::{
    Cost, EQUAL, PlacementContext, PlacementModel, PlacementRate, PlacementReport, Split, UNKNOWN,
    place,
};
use crate::model::supply::Supply;
use infeed_core::error::Error;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_seconds};
use infeed_device::ring::{Route, Upload};
use infeed_device::timing::batch_times;
use infeed_device::{AnyDevice, Device};

/// Spread of a copy or a kernel that was timed alone.
const TIMED: f64 = 0.02;

/// Source of the numbers of bus and device.
enum RateSource<'a> {
    Device(&'a AnyDevice),
    Profile(&'a PlannedMachine, f64),
}

impl Case {
    /// Chooses the placement from the rates of the host's cores in each trial. None without a
    /// device and without a profile that has one. A placement that fails goes to `not`. `timing`
    /// receives the share of the placements that are timed.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if copies and kernels cannot be timed.
    pub(crate) fn place_work(
        &self,
        tried: &[PlacementTrial],
        storage: Option<Interval>,
        not: &mut Vec<UntriedRemedy>,
        timing: &dyn Fn(f64),
    ) -> Result<Option<PlacementReport>, Error> {
        let rates = match (&self.conditions.device, &self.conditions.planned_machine) {
            (Some(device), _) => RateSource::Device(device),
            (None, Some(machine)) => match machine.bus_bytes_per_s {
                Some(bus) => RateSource::Profile(machine, bus),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let mut costs = Vec::new();
        let placed: Vec<&PlacementTrial> = tried.iter().filter(|tried| !tried.decodes).collect();
        for (nth, tried) in placed.iter().enumerate() {
            timing(nth as f64 / placed.len() as f64);
            match self.cost(tried, &rates) {
                Ok(cost) => costs.push(cost),
                // The memory for whole crops may exceed what the device has, while other placements
                // fit.
                Err(error) if tried.split == Split::Resize => not.push(tried.to_untried(&error)),
                Err(error) => return Err(error),
            }
        }
        let (origin, devices, name) = match &rates {
            RateSource::Device(device) => (self.device_origin(), 1, device.name()),
            RateSource::Profile(machine, _) => {
                (self.device_origin(), machine.devices, machine.name.clone())
            }
        };
        let context = PlacementContext {
            device: name,
            origin,
            now: self.split(),
            decodes: self.decodes(),
        };
        let model = self.placement_model(storage, devices);
        let mut placement = place(context, &costs, &model);
        placement.iter_mut().for_each(describe_placement);
        Ok(placement)
    }

    /// Returns the rates that do not depend on the placement.
    pub(crate) fn placement_model(
        &self,
        storage: Option<Interval>,
        devices: u32,
    ) -> PlacementModel {
        let step = self.conditions.step;
        PlacementModel {
            storage,
            step_s: step.map(|step| step.as_secs_f64() / self.rows() as f64),
            contention: UNKNOWN,
            contention_measured: false,
            devices,
        }
    }

    fn cost(&self, tried: &PlacementTrial, rates: &RateSource<'_>) -> Result<Cost, Error> {
        let PlacementTrial { split, host, .. } = *tried;
        let routes = self.routes(split)?;
        let rows = self.rows() as f64;
        let left = describe_device_work(&routes);
        let (bus_bytes, bus_s, device_s) = match rates {
            // The times depend on the sizes of the images, so real batches are sent.
            RateSource::Device(device) if split == Split::Resize => {
                let sent = tried.send(device, self.rows(), self.turn(SENDING))?;
                (sent.bytes, sent.copying_s, sent.device_s)
            }
            RateSource::Device(device) => {
                let times = batch_times(*device, &routes, self.rows() as usize)?;
                let sample = |time: Duration| time.as_secs_f64() / rows;
                let bus_bytes = times.bytes as f64 / rows;
                (bus_bytes, sample(times.copying), sample(times.expanding))
            }
            RateSource::Profile(machine, bus) => {
                let bytes: f64 = routes.iter().map(bus_bytes).sum();
                let cut = tried.cut_bytes(&routes)?;
                let moved: f64 = routes.iter().map(|route| moved_bytes(route, cut)).sum();
                let device_s = machine.device_bytes_per_s.map_or(0.0, |rate| moved / rate);
                (bytes, bytes / bus, device_s)
            }
        };
        Ok(Cost {
            split,
            left,
            host,
            bus_bytes,
            bus_s,
            decoder_s: 0.0,
            device_s,
        })
    }
}

impl Supply {
    /// Adds the rates of bus and device in the placement that runs on a device. The device's work
    /// counts only if it makes a difference next to the step.
    pub(crate) fn add_device(&mut self, now: &PlacementRate, device: &str) {
        if let Some(rate) = now.rate_of(Limit::Copy) {
            let text = format!(
                "{} / {} per sample{} = {:.0} samples/s, copies to {device} timed from pinned memory",
                format_bytes_per_s(now.bus_bytes / now.bus_s),
                format_bytes(now.bus_bytes),
                match rate.mid * now.bus_s < 0.999 {
                    true => ", in turn with the decoder",
                    false => "",
                },
                rate.mid,
            );
            self.add(Limit::Copy, rate.widen(TIMED), text);
        }
        if let Some(rate) = now.rate_of(Limit::Decoder) {
            let text = format!(
                "1 / {} of decoder and copies per sample = {:.0} samples/s, timed on {device}",
                format_seconds(1.0 / rate.mid),
                rate.mid,
            );
            self.add(Limit::Decoder, rate.widen(TIMED), text);
        }
        let step = now
            .rate_of(Limit::Step)
            .map_or(f64::INFINITY, |rate| rate.mid);
        let device = now.rate_of(Limit::Device);
        if let Some(rate) = device.filter(|rate| rate.mid * EQUAL < step) {
            let text = format!(
                "1 / {} of kernels per sample{} = {:.0} samples/s",
                format_seconds(now.device_s),
                match step.is_finite() {
                    true => ", next to the step",
                    false => "",
                },
                rate.mid
            );
            self.add(Limit::Device, rate.widen(TIMED), text);
        }
    }
}

/// Describes the device's work in a few words.
pub(super) fn describe_device_work(routes: &[Route]) -> String {
    let left: Vec<String> = routes.iter().filter_map(left_of).collect();
    left.join(", ")
}

/// Describes the device's work on a column in a few words.
fn left_of(route: &Route) -> Option<String> {
    let what = match route.kernel()? {
        Kernel::Expand { .. } => "floats and layout",
        Kernel::OneHot { .. } => "one-hot",
        Kernel::Classes { .. } | Kernel::Widen { .. } => "class numbers",
        Kernel::Resize { .. } => "resize, floats and layout",
    };
    Some(format!("{what} of {}", route.host.name))
}

/// Returns the bytes of a row on the bus.
fn bus_bytes(route: &Route) -> f64 {
    match route.upload {
        Upload::Stay => 0.0,
        _ => route.host.kind.row_bytes().unwrap_or(0) as f64,
    }
}

/// Returns the bytes of a row that a kernel reads and writes. For images that it resizes, it reads
/// `cut` bytes.
fn moved_bytes(route: &Route, cut: f64) -> f64 {
    let written = route.device.kind.row_bytes().unwrap_or(0) as f64;
    let read = match route.upload {
        Upload::Resize(_) => cut,
        _ => bus_bytes(route),
    };
    route.kernel().map_or(0.0, |_| read + written)
}
