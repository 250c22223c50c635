//! The ways to share a case's work between host and device, with what each costs: the host's part from
//! trials, bus and device timed or planned.

use std::time::Duration;

use infeed_raw::kernel::Kernel;

use super::capacity::Capacities;
use super::case::{Case, Stand};
use super::interval::Interval;
use super::limit::Limit;
use super::placement::{About, Bound, Cost, EQUAL, Known, Placing, Split, Supply, UNKNOWN, place};
use super::units::{bytes, per_s};
use crate::device::ring::{Route, Upload};
use crate::device::timing::batch_times;
use crate::device::{Any, Device};
use crate::error::Error;
use crate::plan::Plan;
use crate::plan::device::Placement;

/// Spread of a copy or a kernel that was timed by itself.
const TIMED: f64 = 0.02;

/// Samples a second that the host's cores give in the way that is run, and in the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRates {
    pub(super) now: Interval,
    /// None where it was not tried.
    pub(super) other: Option<Interval>,
}

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
    fn split(&self) -> Split {
        match self.expands() && self.has_sides() {
            true => Split::Device,
            false => Split::Host,
        }
    }

    /// Columns and how each would get to a device.
    fn routes(&self, split: Split) -> Result<Vec<Route>, Error> {
        let mut plan = Plan::over(&self.pipeline, &*self.own)?;
        let placement = match split {
            Split::Host => Placement::Host,
            Split::Device => Placement::Device,
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

    /// Whether host and device can share the work in more than one way, where there is a device or
    /// one is planned for.
    pub(super) fn has_sides(&self) -> bool {
        let wanted = self.conditions.device.is_some() || self.bus().is_some();
        wanted
            && self
                .routes(Split::Device)
                .is_ok_and(|routes| routes.iter().any(|route| route.kernel().is_some()))
    }

    /// Decides where the work belongs; None without a device and without a profile that has one.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if copies and kernels cannot be timed.
    pub(super) fn placing(
        &self,
        host: HostRates,
        storage: Option<Interval>,
    ) -> Result<Option<Placing>, Error> {
        let means = match (&self.conditions.device, &self.conditions.stand) {
            (Some(device), _) => Means::Device(device),
            (None, Some(stand)) => match stand.bus_bytes_per_s {
                Some(bus) => Means::Profile(stand, bus),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let now = self.split();
        let both = [Split::Host, Split::Device].map(|split| match split == now {
            true => Some((split, host.now)),
            false => host.other.map(|rate| (split, rate)),
        });
        let mut costs = Vec::new();
        for (split, host) in both.into_iter().flatten() {
            costs.push(self.cost(split, host, &means)?);
        }
        let (known, devices, name) = match &means {
            Means::Device(device) => match device {
                Any::Cuda(_) => (Known::Measured, 1, device.name()),
                Any::Sim(_) => (Known::Simulated, 1, device.name()),
            },
            Means::Profile(stand, _) => (Known::Planned, stand.devices, stand.name.clone()),
        };
        let step = self.conditions.step;
        let supply = Supply {
            storage,
            step_s: step.map(|step| step.as_secs_f64() / self.rows() as f64),
            contention: UNKNOWN,
            contention_measured: false,
            devices,
        };
        let about = About {
            device: name,
            known,
            now,
        };
        Ok(place(about, &costs, &supply))
    }

    fn cost(&self, split: Split, host: Interval, means: &Means<'_>) -> Result<Cost, Error> {
        let routes = self.routes(split)?;
        let rows = self.rows() as f64;
        let left = routes
            .iter()
            .filter_map(left)
            .collect::<Vec<_>>()
            .join(", ");
        let (bus_bytes, bus_s, device_s) = match means {
            Means::Device(device) => {
                let times = batch_times(*device, &routes, self.rows() as usize)?;
                let sample = |time: Duration| time.as_secs_f64() / rows;
                let bus_bytes = times.bytes as f64 / rows;
                (bus_bytes, sample(times.copying), sample(times.expanding))
            }
            Means::Profile(stand, bus) => {
                let bytes: f64 = routes.iter().map(bus_bytes).sum();
                let moved: f64 = routes.iter().map(moved_bytes).sum();
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
            device_s,
        })
    }
}

impl Capacities {
    /// Adds what bus and device allow in the way that runs, where batches go to a device; the
    /// device's work only where it makes a difference beside the step.
    pub(super) fn add_device(&mut self, placing: &Placing, case: &Case) {
        let now = placing.ways.iter().find(|way| way.split == placing.now);
        let (Some(now), Some(_)) = (now, &case.conditions.device) else {
            return;
        };
        if let Some(rate) = now.allowed(Bound::Bus) {
            let text = format!(
                "{} / {} per sample = {:.0} samples/s, copies to {} timed from pinned memory",
                per_s(now.bus_bytes / now.bus_s),
                bytes(now.bus_bytes),
                rate.mid,
                placing.device,
            );
            self.add(Limit::Copy, rate.widen(TIMED), text);
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

/// What the device does with a column, a few words.
fn left(route: &Route) -> Option<String> {
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

/// Bytes of a row that a kernel reads and writes.
fn moved_bytes(route: &Route) -> f64 {
    let written = route.device.kind.row_bytes().unwrap_or(0) as f64;
    route.kernel().map_or(0.0, |_| bus_bytes(route) + written)
}
