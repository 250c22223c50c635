//! Changes of colours with drawn parameters, and the pixels for which they are defined.

use super::error::{Result, TransformError};
use infeed_core::sample::Depth;

/// A change of the colours of an image, with its factor.
#[derive(Clone, Debug, PartialEq)]
pub enum ColorStep {
    /// Blends with black.
    Brightness(f64),
    /// Blends with the mean luma of the image.
    Contrast(f64),
    /// Blends with the luma of each pixel.
    Saturation(f64),
    /// Turns the hue by this share of the circle.
    Hue(f64),
    /// Turns the hue and multiplies saturation and value in HSV.
    Hsv {
        /// Turn, in shares of the circle.
        turn: f64,
        /// Factor of the saturation, at least 0.
        saturation: f64,
        /// Factor of the value, at least 0.
        value: f64,
    },
    /// Replaces `v` by `255 - v`.
    Invert,
    /// Keeps this number of the highest bits, 0 to 8.
    Posterize(u32),
    /// Inverts values from this one on.
    Solarize(f64),
    /// Replaces colours by their luma, in equal channels.
    Gray,
    /// Stretches each channel to 0 to 255.
    Autocontrast,
    /// Equalizes the histogram of each channel.
    Equalize,
    /// Blends with the blurred image.
    Sharpness(f64),
    /// Takes each channel from the channel of this number.
    Permute([u8; 3]),
    /// Blurs with a Gaussian filter.
    Blur {
        /// Pixels of the filter along x and y, odd.
        kernel: [u32; 2],
        /// Standard deviation in pixels.
        sigma: f64,
    },
    /// Adds Gaussian noise.
    Noise {
        /// Mean, in units of 0 to 1.
        mean: f64,
        /// Standard deviation, in units of 0 to 1.
        sigma: f64,
        /// Whether sums are clipped, or wrap around.
        clip: bool,
        /// Decides the noise.
        seed: u64,
    },
    /// Compresses as JPEG with this quality, 1 to 100.
    Compress(u8),
    /// Makes several changes in one pass, and rounds and clips only their result.
    Linear(Vec<ColorStep>),
}

impl ColorStep {
    /// Returns the name of the most similar transform.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ColorStep::Brightness(_)
            | ColorStep::Contrast(_)
            | ColorStep::Saturation(_)
            | ColorStep::Hue(_) => "ColorJitter",
            ColorStep::Hsv { .. } => "RandomHSV",
            ColorStep::Invert => "RandomInvert",
            ColorStep::Posterize(_) => "RandomPosterize",
            ColorStep::Solarize(_) => "RandomSolarize",
            ColorStep::Gray => "RandomGrayscale",
            ColorStep::Autocontrast => "RandomAutocontrast",
            ColorStep::Equalize => "RandomEqualize",
            ColorStep::Sharpness(_) => "RandomAdjustSharpness",
            ColorStep::Permute(_) => "RandomPhotometricDistort",
            ColorStep::Blur { .. } => "GaussianBlur",
            ColorStep::Noise { .. } => "GaussianNoise",
            ColorStep::Compress(_) => "JPEG",
            ColorStep::Linear(steps) => steps.first().map_or("ColorJitter", ColorStep::name),
        }
    }

    /// Whether each value of the result is a weighted sum of the pixel's values, the means of the
    /// image and a number, rounded and clipped.
    pub(super) fn is_linear(&self) -> bool {
        matches!(
            self,
            ColorStep::Brightness(_)
                | ColorStep::Contrast(_)
                | ColorStep::Saturation(_)
                | ColorStep::Invert
                | ColorStep::Gray
                | ColorStep::Permute(_)
        )
    }

    /// Checks that the change is defined for these pixels.
    pub(super) fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        match self {
            ColorStep::Blur { .. } | ColorStep::Noise { .. } => {
                check_bytes(self.name(), channels, depth)
            }
            _ => check_color(self.name(), channels, depth),
        }
    }
}

/// Checks that the image has colours: gray or RGB of 8 bits.
pub(super) fn check_color(transform: &'static str, channels: usize, depth: Depth) -> Result<()> {
    if depth == Depth::U8 && (channels == 1 || channels == 3) {
        return Ok(());
    }
    let allowed = "1 or 3 channels of 8 bits";
    Err(TransformError::Pixels {
        transform,
        channels,
        depth,
        allowed,
    })
}

/// Checks that samples have 8 bits.
pub(super) fn check_bytes(transform: &'static str, channels: usize, depth: Depth) -> Result<()> {
    match depth {
        Depth::U8 => Ok(()),
        Depth::U16 => Err(TransformError::Pixels {
            transform,
            channels,
            depth,
            allowed: "channels of 8 bits",
        }),
    }
}
