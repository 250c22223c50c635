//! Steps: transforms with drawn parameters.

use std::sync::Arc;

use super::color_step::ColorStep;
use super::effect::Effect;
use super::mirrored_copies::MirroredCopies;
use super::params::{ChannelValues, Filter, PadMode};
use super::warp::Warp;
use infeed_core::sample::{Region, Size};

/// An operation on the pixels of a sample, with all its random parameters.
///
/// A transform draws steps from sizes alone, before any pixel is decoded. It draws no step that
/// would leave an image unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Keeps a region.
    Crop(Region),
    /// Drops the boxes whose centre is outside this region; pixels stay as they are.
    KeepCentres(Region),
    /// Resizes to another size.
    Resize {
        /// The new size.
        size: Size,
        /// Interpolation of images; masks use `Nearest`.
        filter: Filter,
        /// Whether the filter becomes wider as the image shrinks.
        antialias: bool,
    },
    /// Adds pixels on the sides.
    #[allow(missing_docs)]
    Pad {
        left: u32,
        top: u32,
        right: u32,
        bottom: u32,
        /// For images: one value, or one per channel.
        fill: Vec<f64>,
        /// For masks: one value, or one per channel.
        mask_fill: Vec<f64>,
        mode: PadMode,
    },
    /// Resamples along a map of positions.
    Warp(Warp),
    /// Swaps left and right.
    FlipX,
    /// Swaps top and bottom.
    FlipY,
    /// Changes the colours of images, in this order.
    Color(Vec<ColorStep>),
    /// Pastes mirrored copies of objects on their image.
    PasteMirrored(Arc<MirroredCopies>),
    /// Replaces the colours of images by their luma.
    Gray {
        /// 1, or 3 equal channels.
        channels: u32,
    },
    /// Replaces images by a weighted sum of them and their copies after other steps.
    Chains {
        /// Weight of the image.
        own: f64,
        /// Weights of the copies, and their steps, which keep the size.
        chains: Vec<(f64, Vec<Step>)>,
    },
    /// Overwrites a region of images.
    Erase {
        /// The region.
        region: Region,
        /// One value, or one per channel, in units of the image at that step.
        value: Vec<f64>,
    },
}

impl Step {
    pub(super) fn pad(
        [left, top, right, bottom]: [u32; 4],
        fill: &ChannelValues,
        mask_fill: &ChannelValues,
        mode: PadMode,
    ) -> Step {
        let [fill, mask_fill] = [fill, mask_fill].map(|values| values.as_slice().to_vec());
        Step::Pad {
            left,
            top,
            right,
            bottom,
            fill,
            mask_fill,
            mode,
        }
    }

    pub(super) fn zero_pad(sides: [u32; 4]) -> Step {
        Step::pad(
            sides,
            &ChannelValues::default(),
            &ChannelValues::default(),
            PadMode::Constant,
        )
    }

    /// Returns the name of the most similar transform, for messages and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Crop(_) => "Crop",
            Step::KeepCentres(_) => "RandomIoUCrop",
            Step::Resize { .. } => "Resize",
            Step::Pad { .. } => "Pad",
            Step::Warp(warp) => warp.map.name(),
            Step::FlipX => "RandomHorizontalFlip",
            Step::FlipY => "RandomVerticalFlip",
            Step::Color(steps) => steps.first().map_or("ColorJitter", ColorStep::name),
            Step::PasteMirrored(_) => "MirroredPaste",
            Step::Gray { .. } => "Grayscale",
            Step::Chains { .. } => "AugMix",
            Step::Erase { .. } => "RandomErasing",
        }
    }

    /// Returns the size of the result for an image of this size.
    pub fn output_size(&self, input: Size) -> Size {
        match *self {
            Step::Crop(region) => region.size,
            Step::Resize { size, .. } => size,
            Step::Warp(ref warp) => warp.computed_region().size,
            Step::Pad {
                left,
                top,
                right,
                bottom,
                ..
            } => Size {
                height: input.height.saturating_add(top).saturating_add(bottom),
                width: input.width.saturating_add(left).saturating_add(right),
            },
            Step::KeepCentres(_)
            | Step::FlipX
            | Step::FlipY
            | Step::Color(_)
            | Step::PasteMirrored(_)
            | Step::Gray { .. }
            | Step::Chains { .. }
            | Step::Erase { .. } => input,
        }
    }

    /// Whether the step changes masks together with the image. Other steps leave masks unchanged.
    pub fn applies_to_masks(&self) -> bool {
        self.effect().is_geometric()
    }

    /// Returns the step for masks of objects with one bit each, which are 0 outside the image. None
    /// if it leaves them unchanged.
    pub fn moving_bits(&self) -> Option<Step> {
        let mut own = self.applies_to_masks().then(|| self.clone())?;
        if let Step::Pad { mask_fill, .. } | Step::Warp(Warp { mask_fill, .. }) = &mut own {
            *mask_fill = vec![0.0];
        }
        Some(own)
    }

    /// Returns the change that the step makes, one of its transform's parts.
    pub fn effect(&self) -> Effect {
        match self {
            Step::Crop(_) => Effect::Crop,
            Step::KeepCentres(_) => Effect::Boxes,
            Step::Resize { .. } => Effect::Resize,
            Step::Pad { .. } => Effect::Pad,
            Step::Warp(_) => Effect::Warp,
            Step::FlipX | Step::FlipY => Effect::Flip,
            Step::Color(_) | Step::PasteMirrored(_) | Step::Gray { .. } | Step::Chains { .. } => {
                Effect::Color
            }
            Step::Erase { .. } => Effect::Erase,
        }
    }
}
