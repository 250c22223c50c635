//! A transform with everything drawn: what is done to one sample, and doing it.

use super::color::{change_colors, check_color, gray};
use super::crop::copy;
use super::erase::erase;
use super::flip::{flip_x, flip_y};
use super::pad::{pad, pixel_from_values};
use super::params::MAX_PIXELS;
use super::resize::{ResizeScratch, resize};
use super::{ColorStep, Filter, PadMode, PixelView, TransformError, Values};
use crate::sample::{Image, Region, Size};

/// One operation on the pixels of a sample, with all its random parameters.
///
/// Drawn from sizes alone, before any pixel is decoded. What leaves an image as it is draws no
/// step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Keeps a part.
    Crop(Region),
    /// Brings to another size.
    Resize {
        /// The new size.
        size: Size,
        /// How images are sampled; masks are sampled nearest.
        filter: Filter,
    },
    /// Adds pixels on the sides.
    #[allow(missing_docs)]
    Pad {
        left: u32,
        top: u32,
        right: u32,
        bottom: u32,
        /// For images: one value, or one by channel.
        fill: Vec<f64>,
        /// For masks: one value, or one by channel.
        mask_fill: Vec<f64>,
        mode: PadMode,
    },
    /// Swaps left and right.
    FlipX,
    /// Swaps top and bottom.
    FlipY,
    /// Changes the colours of images, in this order.
    Color(Vec<ColorStep>),
    /// Replaces the colours of images by their luma.
    Gray {
        /// 1, or 3 that are equal.
        channels: u32,
    },
    /// Overwrites a part of images.
    Erase {
        /// The part.
        region: Region,
        /// One value or one by channel; in units of what the image holds at that point.
        value: Vec<f64>,
    },
}

/// What a worker keeps between steps, so that a step allocates next to nothing.
#[derive(Debug, Default)]
pub struct TransformScratch {
    resize: ResizeScratch,
}

impl Step {
    pub(super) fn pad(
        [left, top, right, bottom]: [u32; 4],
        fill: &Values,
        mask_fill: &Values,
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
            &Values::default(),
            &Values::default(),
            PadMode::Constant,
        )
    }

    /// Name for messages and reports: the transform that is nearest to it.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Crop(_) => "Crop",
            Step::Resize { .. } => "Resize",
            Step::Pad { .. } => "Pad",
            Step::FlipX => "RandomHorizontalFlip",
            Step::FlipY => "RandomVerticalFlip",
            Step::Color(_) => "ColorJitter",
            Step::Gray { .. } => "Grayscale",
            Step::Erase { .. } => "RandomErasing",
        }
    }

    /// Size of the result for an image of this size.
    pub fn output_size(&self, input: Size) -> Size {
        match *self {
            Step::Crop(region) => region.size,
            Step::Resize { size, .. } => size,
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
            Step::FlipX | Step::FlipY | Step::Color(_) | Step::Gray { .. } | Step::Erase { .. } => {
                input
            }
        }
    }

    /// Whether masks move along with the image. Other steps leave them as they are.
    pub fn applies_to_masks(&self) -> bool {
        match self {
            Step::Crop(_) | Step::Resize { .. } | Step::Pad { .. } | Step::FlipX | Step::FlipY => {
                true
            }
            Step::Color(_) | Step::Gray { .. } | Step::Erase { .. } => false,
        }
    }

    /// Writes `input` as it is after this step to `out`, which takes its shape.
    ///
    /// A mask is resized nearest and padded with its own fill; a step that does not apply to
    /// masks copies it.
    ///
    /// # Errors
    ///
    /// `Empty` if there are no pixels, `View` if a region does not lie within the image,
    /// `TooLarge` before an unbounded allocation, `Pixels` and `Values` if the step is not
    /// defined for these channels and this depth. `out` is unspecified after an error.
    pub fn apply(
        &self,
        input: PixelView<'_>,
        out: &mut Image,
        is_mask: bool,
        scratch: &mut TransformScratch,
    ) -> Result<(), TransformError> {
        let (channels, depth) = (input.channels(), input.depth());
        let size = self.output_size(input.size());
        if input.size().pixels() == 0 || size.pixels() == 0 {
            return Err(TransformError::Empty {
                transform: self.name(),
                found: input.size(),
            });
        }
        if size.pixels() > MAX_PIXELS {
            let (transform, found) = (self.name(), input.size());
            return Err(TransformError::TooLarge {
                transform,
                found,
                limit: MAX_PIXELS,
            });
        }
        match self {
            Step::Crop(region) => copy(input.crop(*region)?, out),
            Step::Resize { size, filter } => {
                let filter = if is_mask { Filter::Nearest } else { *filter };
                resize(input, *size, filter, out, &mut scratch.resize)?;
            }
            Step::Pad {
                left,
                top,
                right,
                bottom,
                fill,
                mask_fill,
                mode,
            } => {
                let (parameter, fill) = if is_mask {
                    ("mask_fill", mask_fill)
                } else {
                    ("fill", fill)
                };
                let fill = pixel_from_values("Pad", parameter, fill, channels, depth)?;
                pad(input, [*left, *top, *right, *bottom], &fill, *mode, out);
            }
            Step::FlipX => flip_x(input, out),
            Step::FlipY => flip_y(input, out),
            _ if is_mask => copy(input, out),
            Step::Color(steps) => {
                check_color("ColorJitter", channels, depth)?;
                copy(input, out);
                change_colors(out, steps);
            }
            Step::Gray { channels: wanted } => {
                check_color("Grayscale", channels, depth)?;
                gray(input, *wanted, out);
            }
            Step::Erase { region, value } => {
                let pixel = pixel_from_values("RandomErasing", "value", value, channels, depth)?;
                if !region.fits(input.size()) {
                    return Err(TransformError::View { size: region.size });
                }
                copy(input, out);
                erase(out, *region, &pixel);
            }
        }
        Ok(())
    }
}
