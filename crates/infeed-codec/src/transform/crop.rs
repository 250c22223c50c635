//! Crops of images: `Crop`, `CenterCrop`, `RandomCrop`, `CropOrPad`, `CropOrPadTo`, and the row
//! copies that perform them.
//!
//! Source: torchvision.transforms.v2 for offsets, padding and distributions;
//! `tf.image.resize_with_crop_or_pad` for `CropOrPad`.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::pad::{check_fill, push_pad};
use super::params::Check;
use super::{ChannelValues, PadMode, Padding, PixelView, Rng, Sides, Step, TransformError};
use infeed_core::sample::{Depth, Image, Region, Size};

/// Crops a region of fixed size at a fixed position. An image that is too small is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// Height of the region in pixels.
    pub height: u32,
    /// Width of the region in pixels.
    pub width: u32,
    /// Position of the region.
    #[serde(default)]
    pub at: CropPosition,
}

/// Position of a crop of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "\"top_left\", \"top_right\", \"bottom_left\", \"bottom_right\", \"center\" or [top, left]"
)]
pub enum CropPosition {
    /// A corner or the centre.
    Named(Corner),
    /// First row and first column.
    Offset([u32; 2]),
}

impl Default for CropPosition {
    fn default() -> CropPosition {
        CropPosition::Named(Corner::Center)
    }
}

/// Named positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Corner {
    TopLeft,
    TopRight,
    BottomLeft,
    BottomRight,
    /// The centre, rounded as in `CenterCrop`.
    Center,
}

impl Crop {
    /// Crops `height` by `width` pixels from the centre.
    pub fn new(height: u32, width: u32) -> Crop {
        Crop {
            height,
            width,
            at: CropPosition::default(),
        }
    }

    pub(super) fn size(&self) -> Size {
        Size {
            height: self.height,
            width: self.width,
        }
    }

    /// Minimum size of an image.
    pub(super) fn needs(&self) -> Size {
        let [top, left] = match self.at {
            CropPosition::Named(_) => [0, 0],
            CropPosition::Offset(offset) => offset,
        };
        Size {
            height: self.height.saturating_add(top),
            width: self.width.saturating_add(left),
        }
    }
}

impl Operation for Crop {
    fn effect(&self) -> Effect {
        Effect::Crop
    }

    fn only_moves_pixels(&self) -> bool {
        true
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size())
    }

    fn needs_at_least(&self) -> Size {
        self.needs()
    }

    fn validate(&self) -> Result<()> {
        Check("Crop").size("height and width", self.size())
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let size = self.size();
        let hint = "make images larger with Resize, or use CropOrPad";
        need("Crop", image, self.needs(), hint)?;
        let bottom = image.height - size.height;
        let right = image.width - size.width;
        let (top, left) = match self.at {
            CropPosition::Offset([top, left]) => (top, left),
            CropPosition::Named(Corner::TopLeft) => (0, 0),
            CropPosition::Named(Corner::TopRight) => (0, right),
            CropPosition::Named(Corner::BottomLeft) => (bottom, 0),
            CropPosition::Named(Corner::BottomRight) => (bottom, right),
            CropPosition::Named(Corner::Center) => (half_to_even(bottom), half_to_even(right)),
        };
        steps.push(Step::Crop(Region { top, left, size }));
        Ok(())
    }
}

/// Crops the centre. If the image is smaller, pads it with 0 first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Size of the result; one number means a square.
    pub size: Sides,
}

impl CenterCrop {
    /// Crops the centre in this size.
    pub fn new(size: impl Into<Sides>) -> CenterCrop {
        CenterCrop { size: size.into() }
    }
}

impl Operation for CenterCrop {
    fn effect(&self) -> Effect {
        Effect::Crop
    }

    fn parts(&self) -> Vec<Effect> {
        vec![Effect::Pad, Effect::Crop]
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size.square())
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(ChannelValues::default())
    }

    fn validate(&self) -> Result<()> {
        Check("CenterCrop").size("size", self.size.square())
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let size = self.size.square();
        let missing_rows = size.height.saturating_sub(image.height);
        let missing_columns = size.width.saturating_sub(image.width);
        let sides = [
            missing_columns / 2,
            missing_rows / 2,
            missing_columns.div_ceil(2),
            missing_rows.div_ceil(2),
        ];
        let padded = push_pad("CenterCrop", image, sides, Step::zero_pad(sides), steps)?;
        if padded != size {
            let top = half_to_even(padded.height - size.height);
            let left = half_to_even(padded.width - size.width);
            steps.push(Step::Crop(Region { top, left, size }));
        }
        Ok(())
    }
}

/// Crops a region of fixed size at a random position, after optional padding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Size of the result; one number means a square.
    pub size: Sides,
    /// Pixels added to every image before the crop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
    /// Whether to pad an image that is too small. Both sides get the missing number of pixels.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
    /// Content of the added pixels.
    #[serde(default)]
    pub padding_mode: PadMode,
}

impl RandomCrop {
    /// Crops this size without padding.
    pub fn new(size: impl Into<Sides>) -> RandomCrop {
        RandomCrop {
            size: size.into(),
            padding: None,
            pad_if_needed: false,
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
            padding_mode: PadMode::default(),
        }
    }

    /// Minimum size of an image.
    pub(super) fn needs(&self) -> Size {
        if self.pad_if_needed {
            return Size {
                height: 1,
                width: 1,
            };
        }
        let [left, top, right, bottom] = self.padding.map_or([0; 4], Padding::sides);
        let size = self.size.square();
        Size {
            height: size
                .height
                .saturating_sub(top.saturating_add(bottom))
                .max(1),
            width: size.width.saturating_sub(left.saturating_add(right)).max(1),
        }
    }
}

impl Operation for RandomCrop {
    fn effect(&self) -> Effect {
        match self.padding {
            Some(_) => Effect::Pad,
            None => Effect::Crop,
        }
    }

    fn is_random(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<Effect> {
        match self.mask_fill() {
            Some(_) => vec![Effect::Pad, Effect::Crop],
            None => vec![Effect::Crop],
        }
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size.square())
    }

    fn needs_at_least(&self) -> Size {
        self.needs()
    }

    fn moves_points(&self) -> bool {
        self.padding_mode == PadMode::Constant || self.mask_fill().is_none()
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_fill("RandomCrop", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        let pads = self.padding.is_some() || self.pad_if_needed;
        pads.then(|| self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomCrop");
        check.size("size", self.size.square())?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let size = self.size.square();
        let hint = "set pad_if_needed, or make images larger with Resize";
        need("RandomCrop", image, self.needs(), hint)?;
        let mut sides = self.padding.map_or([0; 4], Padding::sides);
        if self.pad_if_needed {
            let [left, top, right, bottom] = &mut sides;
            let lacks = |side: u32, image: u32, before: u32, after: u32| {
                side.saturating_sub(image.saturating_add(before).saturating_add(after))
            };
            let rows = lacks(size.height, image.height, *top, *bottom);
            let columns = lacks(size.width, image.width, *left, *right);
            for (side, more) in [
                (top, rows),
                (bottom, rows),
                (left, columns),
                (right, columns),
            ] {
                *side = side.saturating_add(more);
            }
        }
        let step = Step::pad(sides, &self.fill, &self.mask_fill, self.padding_mode);
        let padded = push_pad("RandomCrop", image, sides, step, steps)?;
        let top = rng.below(padded.height - size.height + 1);
        let left = rng.below(padded.width - size.width + 1);
        if padded != size {
            steps.push(Step::Crop(Region { top, left, size }));
        }
        Ok(())
    }
}

/// Brings every image to one size without scaling. Crops the centre of a larger side, and pads both
/// ends of a smaller side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CropOrPad {
    /// Height of the result in pixels.
    pub height: u32,
    /// Width of the result in pixels.
    pub width: u32,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

impl CropOrPad {
    /// Creates a transform with a result of `height` by `width`, padded with 0.
    pub fn new(height: u32, width: u32) -> CropOrPad {
        CropOrPad {
            height,
            width,
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
        }
    }

    pub(super) fn size(&self) -> Size {
        Size {
            height: self.height,
            width: self.width,
        }
    }
}

impl Operation for CropOrPad {
    fn effect(&self) -> Effect {
        Effect::Pad
    }

    fn parts(&self) -> Vec<Effect> {
        vec![Effect::Crop, Effect::Pad]
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size())
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_fill("CropOrPad", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        let check = Check("CropOrPad");
        check.size("height and width", self.size())?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let size = self.size();
        // TensorFlow halves with floor division of the negative difference. An odd surplus
        // therefore removes one more row at the bottom than at the top. An odd shortage adds one
        // more row at the bottom.
        let kept = Size {
            height: image.height.min(size.height),
            width: image.width.min(size.width),
        };
        if kept != image {
            let top = (image.height - kept.height) / 2;
            let left = (image.width - kept.width) / 2;
            steps.push(Step::Crop(Region {
                top,
                left,
                size: kept,
            }));
        }
        let (rows, columns) = (size.height - kept.height, size.width - kept.width);
        let sides = [columns / 2, rows / 2, columns.div_ceil(2), rows.div_ceil(2)];
        let step = Step::pad(sides, &self.fill, &self.mask_fill, PadMode::Constant);
        push_pad("CropOrPad", kept, sides, step, steps).map(|_| ())
    }
}

/// Brings each image to the size that a field of its record has, as [`CropOrPad`] does.
///
/// It draws no steps, because the record has the size: see [`super::Transform::with_size`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CropOrPadTo {
    /// Name of the field: two integers, height and width of the result in pixels.
    pub size_field: String,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

impl CropOrPadTo {
    /// Creates a transform to the size in this field, padded with 0.
    pub fn new(size_field: impl Into<String>) -> CropOrPadTo {
        CropOrPadTo {
            size_field: size_field.into(),
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
        }
    }

    /// Returns the transform for a record with this size.
    pub(super) fn with_size(&self, size: Size) -> CropOrPad {
        CropOrPad {
            height: size.height,
            width: size.width,
            fill: self.fill.clone(),
            mask_fill: self.mask_fill.clone(),
        }
    }
}

impl Operation for CropOrPadTo {
    fn effect(&self) -> Effect {
        Effect::Pad
    }

    fn parts(&self) -> Vec<Effect> {
        vec![Effect::Crop, Effect::Pad]
    }

    fn has_varying_size(&self) -> bool {
        true
    }

    fn size_field(&self) -> Option<&str> {
        Some(&self.size_field)
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_fill("CropOrPadTo", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        Check("CropOrPadTo").fills(&self.fill, &self.mask_fill)
    }
}

/// Half of `n`, rounded like Python's `int(round(n / 2.0))`: ties to the even number.
fn half_to_even(n: u32) -> u32 {
    let half = n / 2;
    half + (n & half & 1)
}

fn need(transform: &'static str, found: Size, needed: Size, hint: &'static str) -> Result<()> {
    if needed.height <= found.height && needed.width <= found.width {
        return Ok(());
    }
    Err(TransformError::TooSmall {
        transform,
        found,
        needed,
        hint,
    })
}

/// Copies a view into an image.
pub(super) fn copy(input: PixelView<'_>, out: &mut Image) {
    out.reset(input.size(), input.channels(), input.depth());
    for y in 0..input.height() {
        out.row_mut(y).copy_from_slice(input.row(y));
    }
}
