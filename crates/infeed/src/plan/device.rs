//! What of the pass that writes a row a device does instead: what makes rows larger goes behind the
//! copy, so that pixels and class numbers cross the bus as bytes, and never floats or one-hot masks.
//!
//! The device's kernels have the host's formulas, so a batch has the same bits either way.

use std::str::FromStr;

use infeed_raw::kernel::{Integer, Kernel};
use infeed_raw::simd;

use super::classes::ClassMap;
use super::devices::Devices;
use super::write::simd_layout;
use super::{FieldPlan, Finish, PixelPlan, Plan, Planned};
use crate::batch::{ColumnKind, ColumnSpec};
use crate::decode::ColorMode;
use crate::device::ring::{Route, Upload, crops};
use crate::error::Error;
use crate::pipeline::Layout;
use crate::sample::{DType, Depth, Pixels, Size};
use crate::transform::{Filter, Transform};

/// Where the part of the work is done that can be done on either side of the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// All on the host: finished rows cross the bus.
    Host,
    /// What makes rows larger on the device: bytes cross the bus. Same bits.
    Device,
    /// As `Device`, and images are resized there, too: crops of any size cross the bus. Same bits.
    Resize,
    /// Whichever makes the run's own steps shortest: the others are tried in turn while it runs.
    #[default]
    Auto,
}

impl Placement {
    /// As users name it.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Host => "host",
            Placement::Device => "device",
            Placement::Resize => "device-resize",
            Placement::Auto => "auto",
        }
    }
}

/// Who decodes JPEGs that a device may decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeBy {
    /// Whoever gives the host's pixels, so that it changes no bit: the host.
    #[default]
    Auto,
    /// The host.
    Cpu,
    /// The device, whose pixels are near the host's and not the same.
    Gpu,
    /// The device for so many records of 16, and the host for the others: which those are, a hash of
    /// seed and record says.
    Mix(u8),
}

const NO_RESIZE: &str = "since no uint8 image has a bilinear resize that only flips follow";

/// Parts that a share is given in.
const PARTS: u8 = 16;

impl DecodeBy {
    /// Records that are the device's, of 16.
    pub(crate) fn share(self) -> u8 {
        match self {
            DecodeBy::Auto | DecodeBy::Cpu => 0,
            DecodeBy::Gpu => PARTS,
            DecodeBy::Mix(share) => share.min(PARTS),
        }
    }

    /// Whether some files are the device's.
    pub(crate) fn is_by_device(self) -> bool {
        self.share() > 0
    }

    /// Who decodes where the device has such a share, as users name it.
    pub(crate) fn told(share: u8) -> String {
        match share {
            0 => "cpu".to_owned(),
            PARTS => "gpu".to_owned(),
            share => format!("{share}/{PARTS} gpu"),
        }
    }
}

impl FromStr for DecodeBy {
    type Err = String;

    /// `auto`, `cpu`, `gpu`, or the device's share: sixteenths, as `5/16`, or a number between 0 and 1,
    /// which is rounded to them.
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
                "{text:?} decodes nothing; there are \"auto\", \"cpu\", \"gpu\", and the device's \
                 share, a number between 0 and 1 or sixteenths such as 5/16"
            )),
        }
    }
}

/// The forms that batches may have on their way to a device: one, or one of several that are tried.
#[derive(Debug)]
pub(crate) struct Forms {
    /// Who does what of the work on rows, and how the columns that are delivered get to the device. Where
    /// there are several, batches are begun in the first, and a device that resizes comes last.
    pub(crate) each: Vec<(Placement, Vec<Route>)>,
    /// Why there is one, as the end of a sentence that says which.
    pub(crate) only: &'static str,
    /// What would have been tried, too, and why it is not.
    pub(crate) left_out: Option<(Placement, &'static str)>,
}

impl Forms {
    fn one(placement: Placement, routes: Vec<Route>, only: &'static str) -> Forms {
        let (each, left_out) = (vec![(placement, routes)], None);
        Forms {
            each,
            only,
            left_out,
        }
    }
}

/// One of the ways in which rows can be made.
struct Way {
    placement: Placement,
    fields: Vec<FieldPlan>,
    columns: Vec<ColumnSpec>,
    routes: Vec<Route>,
}

impl Plan {
    /// Leaves to a device what it can make larger by itself, as far as that is wanted: from here on
    /// the host makes smaller rows, or rows of several forms. `by_bytes` says that something looks at the
    /// bytes of finished rows.
    ///
    /// Columns that functions of the user's or mixing look at stay as they are described: those see
    /// finished rows.
    pub(crate) fn for_device(&mut self, wanted: Placement, by_bytes: bool) -> Forms {
        let whole: Vec<Route> = self.delivered().iter().map(unchanged).collect();
        let only = match wanted {
            Placement::Host => Some("as asked"),
            _ => self.why_finished(by_bytes),
        };
        if let Some(only) = only {
            return Forms::one(Placement::Host, whole, only);
        }
        let device = self.left_to_device(false, &whole);
        let resizes = |route: &Route| matches!(route.upload, Upload::Resize(_) | Upload::Decode(_));
        let resize = self.left_to_device(true, &whole);
        let resize = resize.filter(|way| way.routes.iter().any(resizes));
        let (ways, only) = match (wanted, device, resize) {
            (_, None, None) => {
                let only = "since no column is one that a device makes larger";
                return Forms::one(Placement::Host, whole, only);
            }
            (Placement::Auto, device, resize) => {
                let host = Way {
                    placement: Placement::Host,
                    fields: self.fields.clone(),
                    columns: self.columns.clone(),
                    routes: whole,
                };
                let ways = [device, Some(host), resize].into_iter().flatten();
                (ways.collect(), "")
            }
            (Placement::Resize, _, Some(resize)) => {
                let only = match self.devices {
                    Some(_) => "since it decodes",
                    None => "as asked",
                };
                (vec![resize], only)
            }
            (Placement::Resize, Some(device), None) => (vec![device], NO_RESIZE),
            (_, Some(device), _) => (vec![device], "as asked"),
            (_, None, Some(_)) => {
                let only = "since no column is one that a device makes larger but by its resize";
                return Forms::one(Placement::Host, whole, only);
            }
        };
        self.begin_as(ways, only)
    }

    /// Lets rows be made in the first of these ways, or in the others.
    fn begin_as(&mut self, ways: Vec<Way>, only: &'static str) -> Forms {
        let mut each = Vec::with_capacity(ways.len());
        self.others.clear();
        for (at, way) in ways.into_iter().enumerate() {
            match at {
                0 => (self.fields, self.columns) = (way.fields, way.columns),
                _ => self.others.push((way.fields, way.columns)),
            }
            each.push((way.placement, way.routes));
        }
        Forms {
            each,
            only,
            left_out: None,
        }
    }

    /// Leaves out the way in which a device resizes, where it is one of several.
    pub(crate) fn leave_out_resize(&mut self, forms: &mut Forms, why: &'static str) {
        let is_last = matches!(forms.each.last(), Some((Placement::Resize, _)));
        if is_last && self.others.pop().is_some() {
            forms.each.pop();
            forms.left_out = Some((Placement::Resize, why));
        }
    }

    /// As [`Plan::for_device`], with files left to a device that is to decode.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is none that it could decode.
    pub(crate) fn for_device_by(
        &mut self,
        decode: DecodeBy,
        wanted: Placement,
        by_bytes: bool,
    ) -> Result<Forms, Error> {
        self.devices = decode
            .is_by_device()
            .then(|| Devices::with_share(decode.share()));
        let forms = self.for_device(wanted, by_bytes);
        let decodes = |route: &Route| matches!(route.upload, Upload::Decode(_));
        let routes = forms.each.iter().flat_map(|(_, routes)| routes);
        if decode.is_by_device() && !routes.into_iter().any(decodes) {
            let why = match (self.why_finished(by_bytes), forms.each.first()) {
                (Some(why), _) => why,
                (None, Some((Placement::Resize, _))) => {
                    "since no image is a file that becomes \"rgb\""
                }
                (None, _) => NO_RESIZE,
            };
            let problem = format!(
                "\"gpu\" leaves JPEGs to the device together with their resize, and here there is \
                 nothing to leave to it, {why}; use decode=\"cpu\""
            );
            return Err(Error::config("decode", problem));
        }
        Ok(forms)
    }

    /// Why rows have to be finished on the host, if they have to.
    fn why_finished(&self, by_bytes: bool) -> Option<&'static str> {
        if !self.calls.is_empty() {
            Some("since functions look at finished rows")
        } else if self.mixer.is_some() {
            Some("since MixUp and CutMix mix finished rows")
        } else if self.columns.len() > self.fields.len() {
            // Rows of padding are zeros, which an image expanded from zeros is not.
            Some("since tail=\"pad\" fills up with rows of zeros")
        } else if by_bytes {
            Some("since digest=\"pixels\" is taken of finished rows")
        } else {
            None
        }
    }

    /// What remains of the passes that write rows without what a device makes larger, and the columns'
    /// ways; None if all stays as it is in `whole`.
    fn left_to_device(&self, resizes: bool, whole: &[Route]) -> Option<Way> {
        let erased = self.transforms.iter().any(|planned| {
            matches!(planned.transform, Transform::RandomErasing(_)) && planned.finished
        });
        let (mut fields, mut columns) = (self.fields.clone(), self.columns.clone());
        let mut routes = Vec::with_capacity(columns.len());
        let resizes = resizes && resizes_last(&self.transforms);
        let decodes = self.devices.is_some();
        for (at, column) in columns.iter_mut().enumerate() {
            let route = if resizes
                && let Some(FieldPlan::Pixels(plan)) = fields.get_mut(at)
                && let Some((kernel, layout)) = plan.leave_resize()
            {
                let device = column.clone();
                plan.on_device = Some((layout, device.kind.clone()));
                column.kind = plan.kind();
                plan.leaves_files = decodes && plan.is_file_of_colours();
                match plan.leaves_files {
                    true => Route::decode(column.clone(), kernel, device),
                    false => Route::resize(column.clone(), kernel, device),
                }
            } else if let Some(FieldPlan::Pixels(plan)) = fields.get_mut(at)
                && (!erased || plan.is_mask)
                && let Some((kernel, layout)) = plan.leave_to_device()
            {
                let device = column.clone();
                plan.on_device = Some((layout, device.kind.clone()));
                column.kind = plan.kind();
                Route::expand(column.clone(), kernel, device)
            } else {
                unchanged(column)
            };
            routes.push(route);
        }
        let placement = match resizes {
            true => Placement::Resize,
            false => Placement::Device,
        };
        (routes != whole).then_some(Way {
            placement,
            fields,
            columns,
            routes,
        })
    }
}

/// Whether images are brought to their size by one bilinear filter, of a part of the stored image, and
/// only mirrored, cast and scaled after that.
fn resizes_last(transforms: &[Planned]) -> bool {
    let mut resized = false;
    for Planned { transform, .. } in transforms {
        match transform {
            Transform::OneHot(_) | Transform::ClassIndex(_) => {}
            Transform::ToFloat(_) | Transform::Normalize(_) => {}
            Transform::Crop(_) | Transform::CenterCrop(_) if !resized => {}
            Transform::RandomHorizontalFlip(_) | Transform::RandomVerticalFlip(_) if resized => {}
            Transform::RandomResizedCrop(t) if !resized && t.interpolation == Filter::Bilinear => {
                resized = true;
            }
            Transform::Resize(t) if !resized && t.interpolation == Filter::Bilinear => {
                resized = true;
            }
            _ => return false,
        }
    }
    resized
}

/// The way of a column that no kernel changes.
fn unchanged(column: &ColumnSpec) -> Route {
    match column.kind.row_bytes() {
        Some(1..) => Route::copy(column.clone()),
        // Kept by row, or nothing to copy.
        _ => Route::stay(column.clone()),
    }
}

impl PixelPlan {
    /// What a device has to do so that the host may write bytes; None where that gains nothing or
    /// there is no kernel for it.
    fn leave_to_device(&mut self) -> Option<(Kernel, Layout)> {
        let Size { height, width } = self.size?;
        let (height, width) = (height as usize, width as usize);
        let (kernel, layout, finish) = match &self.finish {
            Finish::Convert {
                dtype: dtype @ (DType::Float32 | DType::Float16 | DType::BFloat16),
                layout,
                scale,
                bias,
            } if self.depth == Depth::U8 => {
                let kernel = Kernel::Expand {
                    height,
                    width,
                    channels: self.out_channels,
                    dtype: element(*dtype)?,
                    layout: simd_layout(*layout),
                    scale: *scale,
                    bias: *bias,
                };
                let bytes = Finish::Convert {
                    dtype: DType::UInt8,
                    layout: Layout::Hwc,
                    scale: [1.0; 4],
                    bias: [0.0; 4],
                };
                (kernel, *layout, bytes)
            }
            // The number 255 is no class then, and becomes zeros.
            Finish::OneHot {
                classes,
                dtype,
                layout,
            } if classes.count() <= 255 => {
                let kernel = Kernel::OneHot {
                    height,
                    width,
                    classes: classes.count(),
                    dtype: element(*dtype)?,
                    layout: simd_layout(*layout),
                };
                (kernel, *layout, class_bytes(classes))
            }
            // Bytes tell as many classes apart, and 255 that there is none.
            Finish::Classes {
                classes,
                dtype: DType::Int64,
                none,
            } if classes.count() <= 255 => {
                let kernel = Kernel::Widen {
                    height,
                    width,
                    dtype: Integer::I64,
                    unknown: *none,
                };
                (kernel, Layout::Hwc, class_bytes(classes))
            }
            _ => return None,
        };
        self.finish = finish;
        Some((kernel, layout))
    }

    /// What a device has to do so that the host need not resize; None where there is no kernel for it.
    fn leave_resize(&mut self) -> Option<(Kernel, Layout)> {
        let to = self.size?;
        let Finish::Convert {
            dtype,
            layout,
            scale,
            bias,
        } = &self.finish
        else {
            return None;
        };
        let channels = self.channels;
        let is_plain = self.depth == Depth::U8 && self.out_channels == channels && channels <= 4;
        if self.is_mask || !is_plain {
            return None;
        }
        let kernel = Kernel::Resize {
            height: to.height as usize,
            width: to.width as usize,
            channels,
            dtype: element(*dtype)?,
            layout: simd_layout(*layout),
            scale: *scale,
            bias: *bias,
        };
        let layout = *layout;
        self.crop_bytes = Some(crops::row_bytes(to, channels)?);
        self.finish = Finish::Convert {
            dtype: DType::UInt8,
            layout: Layout::Hwc,
            scale: [1.0; 4],
            bias: [0.0; 4],
        };
        Some((kernel, layout))
    }

    /// Whether records hold files that become what a device's decoder gives.
    fn is_file_of_colours(&self) -> bool {
        self.stored == Pixels::Encoded && self.mode == ColorMode::Rgb
    }

    /// The column of rows of its size.
    fn kind(&self) -> ColumnKind {
        let dtype = self.dtype();
        if let Some(bytes) = self.crop_bytes {
            let shape = vec![bytes];
            return ColumnKind::Fixed { dtype, shape };
        }
        match self.size {
            Some(size) => ColumnKind::Fixed {
                dtype,
                shape: self.shape(size),
            },
            None => ColumnKind::Padded {
                dtype,
                rank: self.rank(),
            },
        }
    }
}

/// Class numbers of a byte each, 255 for pixels of no class.
fn class_bytes(classes: &ClassMap) -> Finish {
    Finish::Classes {
        classes: classes.clone(),
        dtype: DType::UInt8,
        none: i64::from(u8::MAX),
    }
}

/// Element types that kernels write.
fn element(dtype: DType) -> Option<simd::Dtype> {
    match dtype {
        DType::UInt8 => Some(simd::Dtype::U8),
        DType::Float32 => Some(simd::Dtype::F32),
        DType::Float16 => Some(simd::Dtype::F16),
        DType::BFloat16 => Some(simd::Dtype::BF16),
        _ => None,
    }
}
