//! The placements that a case has: the work that its device, real or planned, can take from the
//! host.

use super::Case;
use crate::model::placement::{DeviceOrigin, Split};
use infeed::loader::DecodeBy;
use infeed::plan::SamplePlan;
use infeed::plan::device::Placement;
use infeed_core::error::Error;
use infeed_device::ring::{Route, Upload};
use infeed_device::{AnyDevice, Device};

impl Case {
    /// Returns whether the pipeline leaves the expansion (cast, one-hot) to the device now.
    pub(crate) fn expands(&self) -> bool {
        self.conditions.device.is_some()
    }

    /// Returns the present placement. Without work for a device, finished rows cross the bus.
    pub(crate) fn split(&self) -> Split {
        match self.expands() {
            true if self.decodes() => Split::Resize,
            true if self.can(Split::Device) => Split::Device,
            _ => Split::Host,
        }
    }

    /// Returns the columns and their route to a device.
    pub(crate) fn routes(&self, split: Split) -> Result<Vec<Route>, Error> {
        let mut plan = SamplePlan::over(&self.pipeline, &*self.own)?;
        let placement = match split {
            Split::Host => Placement::Host,
            Split::Device => Placement::Device,
            Split::Resize => Placement::Resize,
        };
        // With one placement requested, there is at least one layout.
        let layouts = plan.for_device(placement, false).each;
        Ok(layouts
            .into_iter()
            .next()
            .map_or(Vec::new(), |layout| layout.1))
    }

    /// Returns the bytes of a row as the host leaves it to a device that expands it. None if rows
    /// differ in size.
    pub(crate) fn small_bytes(&self) -> Option<f64> {
        let routes = self.routes(Split::Device).ok()?;
        let bytes = routes.iter().map(|route| route.host.kind.row_bytes());
        Some(bytes.sum::<Option<usize>>()? as f64)
    }

    /// Returns whether the case has a device, real or planned.
    pub(crate) fn has_sides(&self) -> bool {
        self.conditions.device.is_some() || self.bus().is_some()
    }

    /// Returns whether the case has a device, real or planned, for which this placement is a
    /// separate one.
    pub(crate) fn can(&self, split: Split) -> bool {
        let is_of = |route: &Route| match split {
            Split::Host => true,
            Split::Device => route.kernel().is_some(),
            Split::Resize => matches!(route.upload, Upload::Resize(_)),
        };
        let routes = self.has_sides().then(|| self.routes(split));
        matches!(routes, Some(Ok(routes)) if split == Split::Host || routes.iter().any(is_of))
    }

    /// Returns the origin of the numbers of bus and device.
    pub(crate) fn device_origin(&self) -> DeviceOrigin {
        match &self.conditions.device {
            Some(device) if device.is_simulated() => DeviceOrigin::Simulated,
            Some(_) => DeviceOrigin::Measured,
            None => DeviceOrigin::Planned,
        }
    }

    /// Returns whether the pipeline leaves files to the device's decoder.
    pub(crate) fn decodes(&self) -> bool {
        self.conditions.open.decode.is_by_device()
    }

    /// Returns the placement for which rows are made. None: the host finishes the rows.
    pub(crate) fn row_placement(&self, decode: DecodeBy) -> Option<Placement> {
        self.conditions.device.as_ref()?;
        Some(match decode.is_by_device() {
            true => Placement::Resize,
            false => Placement::Device,
        })
    }

    /// Returns whether files can be left to the device's decoder.
    pub(crate) fn can_decode(&self) -> bool {
        let Some(device) = &self.conditions.device else {
            return false;
        };
        let leaves = SamplePlan::over(&self.pipeline, &*self.own)
            .and_then(|mut plan| plan.for_device_by(DecodeBy::Gpu, Placement::Resize, false));
        leaves.is_ok() && device.decoder(&Default::default()).is_ok()
    }

    /// Rejects settings that do not work with decoding on the device, before anything is measured.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the fix.
    pub(crate) fn check_decode(&self) -> Result<(), Error> {
        if self.decodes() && self.conditions.feeders.is_some() {
            let problem = "feeders send decoded images, so a device's decoder gets no files; use \
                either feeders or the decoder";
            return Err(Error::config("decode", problem));
        }
        Ok(())
    }

    /// Returns the reason why the device decodes nothing although the pipeline would leave it
    /// files. None if the device decodes, or without a device.
    pub(crate) fn no_decoder(&self) -> Option<String> {
        let device: &AnyDevice = self.conditions.device.as_ref()?;
        let leaves = SamplePlan::over(&self.pipeline, &*self.own)
            .and_then(|mut plan| plan.for_device_by(DecodeBy::Gpu, Placement::Resize, false));
        let refused = device.decoder(&Default::default()).err()?;
        leaves.ok()?;
        let why = refused.on(device.name());
        Some(format!("the host decodes all JPEGs: {}", why.chain()))
    }
}
