//! The ways to share a case's work between host and device, with what each costs: the host's part from
//! trials, bus and device timed or planned.

use std::time::Duration;

use infeed_raw::kernel::Kernel;

use super::capacity::Capacities;
use super::case::{Case, Stand};
use super::findings::NotTried;
use super::interval::Interval;
use super::limit::Limit;
use super::placement::{
    About, Bound, Cost, EQUAL, Known, Placing, Split, Supply, UNKNOWN, Way, place,
};
use super::units::{bytes, per_s};
use super::ways::{SENDING, Tried};
use crate::device::ring::{Route, Upload};
use crate::device::timing::batch_times;
use crate::device::{Any, Device};
use crate::error::Error;
use crate::plan::Plan;
use crate::plan::device::Placement;

/// Spread of a copy or a kernel that was timed by itself.
const TIMED: f64 = 0.02;

/// What bus and device are known from.
enum Means<'a> {
    Device(&'a Any),
    Profile(&'a Stand, f64),
}

impl Case {
    /// Whether what makes rows larger is left to the device, as the pipeline runs now.
    pub(super) fn expands(&self) -> bool {
        self.conditions.device.is_some()
    }

    /// The way that runs now; with nothing to leave to a device, what crosses is finished.
    pub(super) fn split(&self) -> Split {
        match self.expands() {
            true if self.decodes() => Split::Resize,
            true if self.can(Split::Device) => Split::Device,
            _ => Split::Host,
        }
    }

    /// Columns and how each would get to a device.
    pub(super) fn routes(&self, split: Split) -> Result<Vec<Route>, Error> {
        let mut plan = Plan::over(&self.pipeline, &*self.own)?;
        let placement = match split {
            Split::Host => Placement::Host,
            Split::Device => Placement::Device,
            Split::Resize => Placement::Resize,
        };
        // Asked for one of them there is one form, at least.
        let forms = plan.for_device(placement, false).each;
        Ok(forms.into_iter().next().map_or(Vec::new(), |form| form.1))
    }

    /// Bytes of a row as the host leaves it to a device that makes rows larger; None where rows differ
    /// in size.
    pub(super) fn small_bytes(&self) -> Option<f64> {
        let routes = self.routes(Split::Device).ok()?;
        let bytes = routes.iter().map(|route| route.host.kind.row_bytes());
        Some(bytes.sum::<Option<usize>>()? as f64)
    }

    /// Whether there is a device, or one is planned for.
    pub(super) fn has_sides(&self) -> bool {
        self.conditions.device.is_some() || self.bus().is_some()
    }

    /// Whether there is a device or one is planned for, and this way is one of its own.
    pub(super) fn can(&self, split: Split) -> bool {
        let is_of = |route: &Route| match split {
            Split::Host => true,
            Split::Device => route.kernel().is_some(),
            Split::Resize => matches!(route.upload, Upload::Resize(_)),
        };
        let routes = self.has_sides().then(|| self.routes(split));
        matches!(routes, Some(Ok(routes)) if split == Split::Host || routes.iter().any(is_of))
    }

    /// Decides where the work belongs, from what the host's cores give in each way that was tried; None
    /// without a device and without a profile that has one. A way that does not run is told. `timing`
    /// hears what share of the ways is timed.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if copies and kernels cannot be timed.
    pub(super) fn placing(
        &self,
        tried: &[Tried],
        storage: Option<Interval>,
        not: &mut Vec<NotTried>,
        timing: &dyn Fn(f64),
    ) -> Result<Option<Placing>, Error> {
        let means = match (&self.conditions.device, &self.conditions.stand) {
            (Some(device), _) => Means::Device(device),
            (None, Some(stand)) => match stand.bus_bytes_per_s {
                Some(bus) => Means::Profile(stand, bus),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let mut costs = Vec::new();
        let placed: Vec<&Tried> = tried.iter().filter(|tried| !tried.decodes).collect();
        for (nth, tried) in placed.iter().enumerate() {
            timing(nth as f64 / placed.len() as f64);
            match self.cost(tried, &means) {
                Ok(cost) => costs.push(cost),
                // Room for whole crops may be more than there is, where all else fits.
                Err(error) if tried.split == Split::Resize => not.push(tried.not(&error)),
                Err(error) => return Err(error),
            }
        }
        let (known, devices, name) = match &means {
            Means::Device(device) => (self.known(), 1, device.name()),
            Means::Profile(stand, _) => (self.known(), stand.devices, stand.name.clone()),
        };
        let about = About {
            device: name,
            known,
            now: self.split(),
            decodes: self.decodes(),
        };
        Ok(place(about, &costs, &self.supply(storage, devices)))
    }

    /// Where the numbers of bus and device are from.
    pub(super) fn known(&self) -> Known {
        match &self.conditions.device {
            Some(Any::Cuda(_)) => Known::Measured,
            Some(Any::Sim(_)) => Known::Simulated,
            None => Known::Planned,
        }
    }

    /// What all ways have in common.
    pub(super) fn supply(&self, storage: Option<Interval>, devices: u32) -> Supply {
        let step = self.conditions.step;
        Supply {
            storage,
            step_s: step.map(|step| step.as_secs_f64() / self.rows() as f64),
            contention: UNKNOWN,
            contention_measured: false,
            devices,
        }
    }

    fn cost(&self, tried: &Tried, means: &Means<'_>) -> Result<Cost, Error> {
        let Tried { split, host, .. } = *tried;
        let routes = self.routes(split)?;
        let rows = self.rows() as f64;
        let left = left(&routes);
        let (bus_bytes, bus_s, device_s) = match means {
            // What images of a size each take depends on the sizes.
            Means::Device(device) if split == Split::Resize => {
                let sent = tried.sent(device, self.rows(), self.turn(SENDING))?;
                (sent.bytes, sent.copying_s, sent.device_s)
            }
            Means::Device(device) => {
                let times = batch_times(*device, &routes, self.rows() as usize)?;
                let sample = |time: Duration| time.as_secs_f64() / rows;
                let bus_bytes = times.bytes as f64 / rows;
                (bus_bytes, sample(times.copying), sample(times.expanding))
            }
            Means::Profile(stand, bus) => {
                let bytes: f64 = routes.iter().map(bus_bytes).sum();
                let cut = tried.cut_bytes(&routes)?;
                let moved: f64 = routes.iter().map(|route| moved_bytes(route, cut)).sum();
                let device_s = stand.device_bytes_per_s.map_or(0.0, |rate| moved / rate);
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

impl Capacities {
    /// Adds what bus and device allow in the way that runs on a device; the device's work only where it
    /// makes a difference beside the step.
    pub(super) fn add_device(&mut self, now: &Way, device: &str) {
        if let Some(rate) = now.allowed(Bound::Bus) {
            let text = format!(
                "{} / {} per sample{} = {:.0} samples/s, copies to {device} timed from pinned memory",
                per_s(now.bus_bytes / now.bus_s),
                bytes(now.bus_bytes),
                match rate.mid * now.bus_s < 0.999 {
                    true => ", in turn with the decoder",
                    false => "",
                },
                rate.mid,
            );
            self.add(Limit::Copy, rate.widen(TIMED), text);
        }
        if let Some(rate) = now.allowed(Bound::Decoder) {
            let text = format!(
                "1 / {:.2} µs of decoder and copies per sample = {:.0} samples/s, timed on {device}",
                1e6 / rate.mid,
                rate.mid,
            );
            self.add(Limit::Decoder, rate.widen(TIMED), text);
        }
        let step = now
            .allowed(Bound::Step)
            .map_or(f64::INFINITY, |rate| rate.mid);
        let device = now.allowed(Bound::Device);
        if let Some(rate) = device.filter(|rate| rate.mid * EQUAL < step) {
            let text = format!(
                "1 / {:.2} µs of kernels per sample{} = {:.0} samples/s",
                1e6 * now.device_s,
                match step.is_finite() {
                    true => ", beside the step",
                    false => "",
                },
                rate.mid
            );
            self.add(Limit::Device, rate.widen(TIMED), text);
        }
    }
}

/// What is left to the device, a few words.
pub(super) fn left(routes: &[Route]) -> String {
    let left: Vec<String> = routes.iter().filter_map(left_of).collect();
    left.join(", ")
}

/// What the device does with a column, a few words.
fn left_of(route: &Route) -> Option<String> {
    let what = match route.kernel()? {
        Kernel::Expand { .. } => "floats and layout",
        Kernel::OneHot { .. } => "one-hot",
        Kernel::Classes { .. } | Kernel::Widen { .. } => "class numbers",
        Kernel::Resize { .. } => "resize, floats and layout",
    };
    Some(format!("{what} of {}", route.host.name))
}

/// Bytes of a row over the bus.
fn bus_bytes(route: &Route) -> f64 {
    match route.upload {
        Upload::Stay => 0.0,
        _ => route.host.kind.row_bytes().unwrap_or(0) as f64,
    }
}

/// Bytes of a row that a kernel reads and writes; of images that it resizes, so many are read.
fn moved_bytes(route: &Route, cut: f64) -> f64 {
    let written = route.device.kind.row_bytes().unwrap_or(0) as f64;
    let read = match route.upload {
        Upload::Resize(_) => cut,
        _ => bus_bytes(route),
    };
    route.kernel().map_or(0.0, |_| read + written)
}
