//! Moves work of the writing pass to a device: expanding rows (cast, one-hot) happens after the
//! transfer, so that pixels and class numbers cross the bus as bytes, never as floats or one-hot
//! masks.
//!
//! The device's kernels use the host's formulas, so all placements give the same bits.

use std::str::FromStr;

use super::added_columns::VALID;
use super::join::JoinPlan;
use super::sample_plan::SamplePlan;
use crate::fields::pixels::files::Devices;
use crate::fields::pixels::plan::PixelPlan;
use crate::fields::steps::FieldStep;
use infeed_core::batch::ColumnSpec;
use infeed_core::error::Error;
use infeed_device::ring::{Route, Upload};

/// Where the movable part of the row processing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the host: expanded rows cross the bus.
    Host,
    /// Rows are expanded on the device: bytes cross the bus. Same bits.
    Device,
    /// As `Device`, and the device also resizes images: crops of any size cross the bus. Same bits.
    Resize,
    /// The placement with the shortest steps, found by trials during the run.
    #[default]
    Auto,
}

impl Placement {
    /// Name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Host => "host",
            Placement::Device => "device",
            Placement::Resize => "device-resize",
            Placement::Auto => "auto",
        }
    }
}

/// Decoder of JPEGs that a device can decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeBy {
    /// The host, whose pixels are the reference.
    #[default]
    Auto,
    /// The host.
    Cpu,
    /// The device, whose pixels are close to the host's but not equal.
    Gpu,
    /// The device for this number of records in 16, the host for the others. A hash of seed and
    /// record decides.
    Mix(u8),
}

const NO_RESIZE: &str = "because no uint8 image has a bilinear resize followed only by flips";

/// Denominator of shares.
const PARTS: u8 = 16;

impl DecodeBy {
    /// Number of records in 16 that the device decodes.
    pub fn share(self) -> u8 {
        match self {
            DecodeBy::Auto | DecodeBy::Cpu => 0,
            DecodeBy::Gpu => PARTS,
            DecodeBy::Mix(share) => share.min(PARTS),
        }
    }

    /// Whether the device decodes some files.
    pub fn is_by_device(self) -> bool {
        self.share() > 0
    }

    /// Name of a share in options and messages.
    pub(crate) fn share_name(share: u8) -> String {
        match share {
            0 => "cpu".to_owned(),
            PARTS => "gpu".to_owned(),
            share => format!("{share}/{PARTS} gpu"),
        }
    }
}

impl FromStr for DecodeBy {
    type Err = String;

    /// Parses `auto`, `cpu`, `gpu`, or the device's share: sixteenths such as `5/16`, or a number
    /// between 0 and 1, rounded to sixteenths.
    fn from_str(text: &str) -> Result<DecodeBy, String> {
        match text {
            "auto" => return Ok(DecodeBy::Auto),
            "cpu" => return Ok(DecodeBy::Cpu),
            "gpu" => return Ok(DecodeBy::Gpu),
            _ => {}
        }
        let sixteenths = text.strip_suffix("/16").map(str::parse::<u8>);
        if let Some(Ok(share @ 1..PARTS)) = sixteenths {
            return Ok(DecodeBy::Mix(share));
        }
        match text.parse::<f64>() {
            Ok(share) if 0.0 < share && share < 1.0 => {
                let parts = (share * f64::from(PARTS)).round() as u8;
                Ok(DecodeBy::Mix(parts.clamp(1, PARTS - 1)))
            }
            _ => Err(format!(
                "unknown decoder {text:?}; use \"auto\", \"cpu\", \"gpu\", or the device's share: \
                 a number between 0 and 1, or sixteenths such as 5/16"
            )),
        }
    }
}

/// Layouts of batches on their way to a device: one, or several on trial.
#[derive(Debug)]
pub struct BatchLayouts {
    /// Placement and columns' routes of each layout. Batches begin with the first layout; a layout
    /// that the device resizes is the last.
    pub each: Vec<(Placement, Vec<Route>)>,
    /// The reason for a single layout, as a suffix to its name.
    pub(crate) only: &'static str,
    /// A layout that is not tried, and the reason.
    pub(crate) left_out: Option<(Placement, &'static str)>,
}

impl BatchLayouts {
    fn one(placement: Placement, routes: Vec<Route>, only: &'static str) -> BatchLayouts {
        let (each, left_out) = (vec![(placement, routes)], None);
        BatchLayouts {
            each,
            only,
            left_out,
        }
    }
}

/// One of the possible layouts of rows.
struct RowLayout {
    placement: Placement,
    pixels: Vec<Option<PixelPlan>>,
    columns: Vec<ColumnSpec>,
    routes: Vec<Route>,
}

impl SamplePlan {
    /// Moves the expansion of rows to a device as far as `wanted` allows. The host then makes
    /// smaller rows, or rows of several layouts. `by_bytes` says that the bytes of expanded rows
    /// are needed on the host.
    ///
    /// Columns that user functions or mixing read stay unchanged, because they need expanded rows.
    pub fn for_device(&mut self, wanted: Placement, by_bytes: bool) -> BatchLayouts {
        let whole: Vec<Route> = self
            .delivered_columns()
            .iter()
            .map(unchanged_route)
            .collect();
        let only = match wanted {
            Placement::Host => Some("as requested"),
            _ => self.why_on_host(by_bytes),
        };
        if let Some(only) = only {
            return BatchLayouts::one(Placement::Host, whole, only);
        }
        let device = self.left_to_device(false, &whole);
        let resizes = |route: &Route| matches!(route.upload, Upload::Resize(_) | Upload::Decode(_));
        let resize = self.left_to_device(true, &whole);
        let resize = resize.filter(|layout| layout.routes.iter().any(resizes));
        let (layouts, only) = match (wanted, device, resize) {
            (_, None, None) => {
                let only = "because no column can be expanded on a device";
                return BatchLayouts::one(Placement::Host, whole, only);
            }
            (Placement::Auto, device, resize) => {
                let host = RowLayout {
                    placement: Placement::Host,
                    pixels: self.pixels.clone(),
                    columns: self.columns.clone(),
                    routes: whole,
                };
                let layouts = [device, Some(host), resize].into_iter().flatten();
                (layouts.collect(), "")
            }
            (Placement::Resize, _, Some(resize)) => {
                let only = match self.devices {
                    Some(_) => "because it decodes",
                    None => "as requested",
                };
                (vec![resize], only)
            }
            (Placement::Resize, Some(device), None) => (vec![device], NO_RESIZE),
            (_, Some(device), _) => (vec![device], "as requested"),
            (_, None, Some(_)) => {
                let only = "because only a resize on the device could expand columns there";
                return BatchLayouts::one(Placement::Host, whole, only);
            }
        };
        self.begin_as(layouts, only)
    }

    /// Begins with the first of these layouts and keeps the others.
    fn begin_as(&mut self, layouts: Vec<RowLayout>, only: &'static str) -> BatchLayouts {
        let mut each = Vec::with_capacity(layouts.len());
        self.others.clear();
        for (at, layout) in layouts.into_iter().enumerate() {
            match at {
                0 => (self.pixels, self.columns) = (layout.pixels, layout.columns),
                _ => self.others.push((layout.pixels, layout.columns)),
            }
            each.push((layout.placement, layout.routes));
        }
        BatchLayouts {
            each,
            only,
            left_out: None,
        }
    }

    /// Removes the layout that the device resizes, if there are several.
    pub(crate) fn leave_out_resize(&mut self, layouts: &mut BatchLayouts, why: &'static str) {
        let is_last = matches!(layouts.each.last(), Some((Placement::Resize, _)));
        if is_last && self.others.pop().is_some() {
            layouts.each.pop();
            layouts.left_out = Some((Placement::Resize, why));
        }
    }

    /// As [`SamplePlan::for_device`], and leaves files to a device that decodes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no file that it can decode.
    pub fn for_device_by(
        &mut self,
        decode: DecodeBy,
        wanted: Placement,
        by_bytes: bool,
    ) -> Result<BatchLayouts, Error> {
        self.devices = decode
            .is_by_device()
            .then(|| Devices::with_share(decode.share()));
        let layouts = self.for_device(wanted, by_bytes);
        let decodes = |route: &Route| matches!(route.upload, Upload::Decode(_));
        let routes = layouts.each.iter().flat_map(|(_, routes)| routes);
        if decode.is_by_device() && !routes.into_iter().any(decodes) {
            let why = match (self.why_on_host(by_bytes), layouts.each.first()) {
                (Some(why), _) => why,
                (None, Some((Placement::Resize, _))) => {
                    "because no image is a file that is decoded to \"rgb\""
                }
                (None, _) => NO_RESIZE,
            };
            let problem = format!(
                "\"gpu\" needs images that the device decodes and resizes, but there are none, \
                 {why}; use decode=\"cpu\""
            );
            return Err(Error::config("decode", problem));
        }
        Ok(layouts)
    }

    /// Whether a device decodes the files of a record.
    pub(crate) fn is_by_device(&self, record: u64) -> bool {
        let devices = self.devices.as_ref();
        devices.is_some_and(|devices| devices.takes(self.seed, record))
    }

    /// Lets the host decode a record's files from now on.
    pub(crate) fn keep_on_host(&self, record: u64) {
        if let Some(devices) = &self.devices {
            devices.keep_on_host(record);
        }
    }

    /// Returns the reason why rows must be expanded on the host, if there is one.
    fn why_on_host(&self, by_bytes: bool) -> Option<&'static str> {
        if !self.calls.is_empty() {
            Some("because functions need expanded rows")
        } else if matches!(self.join, Some(JoinPlan::Mix(_))) {
            Some("because MixUp and CutMix need expanded rows")
        } else if self
            .columns
            .last()
            .is_some_and(|column| column.name == VALID)
        {
            // Padding rows are zeros, but an expanded row of zeros may not be.
            Some("because tail=\"pad\" adds rows of zeros")
        } else if by_bytes {
            Some("because digest=\"pixels\" needs expanded rows")
        } else {
            None
        }
    }

    /// Returns the layout without the work that a device can do. `None` if nothing changes compared
    /// with `whole`.
    fn left_to_device(&self, resizes: bool, whole: &[Route]) -> Option<RowLayout> {
        let (mut pixels, mut columns) = (self.pixels.clone(), self.columns.clone());
        let mut routes = Vec::with_capacity(columns.len());
        let decodes = self.devices.is_some();
        for (at, column) in columns.iter_mut().enumerate() {
            let route = if resizes
                && let Some(Some(plan)) = pixels.get_mut(at)
                && plan.resizes_last(&self.transforms)
                && let Some(kernel) = plan.leave_resize(&column.kind)
            {
                let device = column.clone();
                column.kind = plan.kind();
                plan.leaves_files = decodes && plan.is_file_of_colours();
                match plan.leaves_files {
                    true => Route::decode(column.clone(), kernel, device),
                    false => Route::resize(column.clone(), kernel, device),
                }
            } else if let Some(Some(plan)) = pixels.get_mut(at)
                && !plan.steps.iter().any(FieldStep::erases_row)
                && let Some(kernel) = plan.leave_to_device(&column.kind)
            {
                let device = column.clone();
                column.kind = plan.kind();
                Route::expand(column.clone(), kernel, device)
            } else {
                unchanged_route(column)
            };
            routes.push(route);
        }
        let placement = match resizes {
            true => Placement::Resize,
            false => Placement::Device,
        };
        (routes != whole).then_some(RowLayout {
            placement,
            pixels,
            columns,
            routes,
        })
    }
}

/// Returns the route of a column that no kernel changes.
fn unchanged_route(column: &ColumnSpec) -> Route {
    match column.kind.row_bytes() {
        Some(1..) => Route::copy(column.clone()),
        // Stored per row, or nothing to transfer.
        _ => Route::stay(column.clone()),
    }
}

#[cfg(test)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Pipeline, SourceSpec};
    use infeed_codec::transform::RandomResizedCrop;

    fn plan(seed: u64, decode: DecodeBy) -> SamplePlan {
        let pipeline = Pipeline::new(SourceSpec::folder("photos"))
            .shuffle(seed)
            .decode()
            .transform(RandomResizedCrop::new(224))
            .batch(4);
        let fields = pipeline.source.known_fields().expect("fields");
        let mut plan = SamplePlan::new(&pipeline, &fields.expect("known")).expect("a plan");
        let layouts = plan.for_device_by(decode, Placement::Resize, false);
        layouts.expect("images that a device resizes");
        plan
    }

    fn of(plan: &SamplePlan) -> Vec<u64> {
        (0..16_000)
            .filter(|&record| plan.is_by_device(record))
            .collect()
    }

    #[test]
    fn seed_and_record_number_alone_choose_the_device() {
        for share in 1..16 {
            let found = of(&plan(3, DecodeBy::Mix(share)));
            let wanted = 1000 * usize::from(share);
            assert!(
                found.len().abs_diff(wanted) < 250,
                "{} of {wanted}",
                found.len()
            );
            assert_eq!(found, of(&plan(3, DecodeBy::Mix(share))));
            let more = of(&plan(3, DecodeBy::Mix(share + 1)));
            assert!(
                found
                    .iter()
                    .all(|record| more.binary_search(record).is_ok())
            );
            assert_ne!(found, of(&plan(4, DecodeBy::Mix(share))));
        }
        assert_eq!(of(&plan(3, DecodeBy::Gpu)).len(), 16_000);
        assert!(of(&plan(3, DecodeBy::Auto)).is_empty());
    }

    #[test]
    fn a_record_kept_on_the_host_stays_there() {
        let plan = plan(1, DecodeBy::Gpu);
        plan.keep_on_host(7);
        assert!(!plan.is_by_device(7) && plan.is_by_device(8));
    }
}
