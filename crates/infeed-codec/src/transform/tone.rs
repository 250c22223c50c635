//! Changes of colours that happen with a probability: `RandomInvert`, `RandomPosterize`,
//! `RandomSolarize`, `RandomGrayscale`, `RandomAutocontrast`, `RandomEqualize`,
//! `RandomAdjustSharpness`.
//!
//! Source: torchvision.transforms.v2 on uint8 tensors.

use serde::{Deserialize, Serialize};

use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Step};
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::simd::{self, Level};

fn one_half() -> f64 {
    0.5
}

fn one_tenth() -> f64 {
    0.1
}

/// Defines transforms with the colour step that each draws with probability `p`.
macro_rules! tones {
    ($(
        $(#[$doc:meta])*
        $tone:ident {
            $($(#[$field_doc:meta])* with $field:ident: $type:ty;)?
            p = $default:tt $($valid:ident)?
        } => |$self:ident| $step:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $tone {
            $($(#[$field_doc])* pub $field: $type,)?
            /// Probability of a change.
            #[serde(default = $default)]
            pub p: f64,
        }

        impl $tone {
            /// Changes images with probability `p`.
            pub fn new($($field: $type,)? p: f64) -> $tone {
                $tone { $($field,)? p }
            }
        }

        impl Operation for $tone {
            fn effect(&self) -> Effect {
                Effect::Color
            }

            fn is_random(&self) -> bool {
                true
            }

            fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
                check_color(stringify!($tone), channels, depth)
            }

            fn validate(&self) -> Result<()> {
                let check = Check(stringify!($tone));
                $($valid(&check, self)?;)?
                check.probability(self.p)
            }

            fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
                let $self = self;
                if rng.chance(self.p) {
                    steps.push(Step::Color(vec![$step]));
                }
                Ok(())
            }
        }
    )*};
}

tones! {
    /// Replaces each value `v` by `255 - v`, with a given probability.
    RandomInvert { p = "one_half" } => |_own| ColorStep::Invert;

    /// Keeps the highest bits of each value, with a given probability.
    RandomPosterize {
        /// Number of bits to keep, 0 to 8.
        with bits: u32;
        p = "one_half" check_bits
    } => |own| ColorStep::Posterize(own.bits);

    /// Inverts values from a threshold on, with a given probability.
    RandomSolarize {
        /// Lowest value that is inverted, at most 255.
        with threshold: f64;
        p = "one_half" check_threshold
    } => |own| ColorStep::Solarize(own.threshold);

    /// Replaces colours by their luma and keeps the number of channels, with a given probability.
    RandomGrayscale { p = "one_tenth" } => |_own| ColorStep::Gray;

    /// Stretches the values of each channel to 0 to 255, with a given probability.
    RandomAutocontrast { p = "one_half" } => |_own| ColorStep::Autocontrast;

    /// Equalizes the histogram of each channel, with a given probability.
    RandomEqualize { p = "one_half" } => |_own| ColorStep::Equalize;

    /// Blurs or sharpens images, with a given probability.
    RandomAdjustSharpness {
        /// 0 blurs, 1 changes nothing, 2 doubles the sharpness.
        with sharpness_factor: f64;
        p = "one_half" check_factor
    } => |own| ColorStep::Sharpness(own.sharpness_factor);
}

fn check_bits(check: &Check, own: &RandomPosterize) -> Result<()> {
    check.holds(own.bits <= 8, "bits", own.bits, "from 0 to 8")
}

fn check_threshold(check: &Check, own: &RandomSolarize) -> Result<()> {
    let threshold = own.threshold;
    let is_valid = threshold.is_finite() && threshold <= 255.0;
    check.holds(is_valid, "threshold", threshold, "a number up to 255")
}

fn check_factor(check: &Check, own: &RandomAdjustSharpness) -> Result<()> {
    let factor = own.sharpness_factor;
    let is_valid = factor.is_finite() && factor >= 0.0;
    check.holds(is_valid, "sharpness_factor", factor, "a number not below 0")
}

/// Counts the values of each channel.
fn histograms(image: &Image) -> Vec<[u32; 256]> {
    let mut counts = vec![[0; 256]; image.channels];
    for pixel in image.data.chunks_exact(image.channels) {
        for (count, &v) in counts.iter_mut().zip(pixel) {
            count[usize::from(v)] += 1;
        }
    }
    counts
}

/// Replaces the values of each channel by the table made of its histogram.
fn map_channels(image: &mut Image, table: impl Fn(&[u32; 256]) -> [u8; 256]) {
    let tables: Vec<[u8; 256]> = histograms(image).iter().map(table).collect();
    for pixel in image.data.chunks_exact_mut(tables.len()) {
        for (v, table) in pixel.iter_mut().zip(&tables) {
            *v = table[usize::from(*v)];
        }
    }
}

/// Stretches each channel so that its lowest value becomes 0 and its highest 255.
pub(super) fn autocontrast(image: &mut Image) {
    map_channels(image, |counts| {
        let low = counts.iter().position(|&count| count > 0).unwrap_or(0);
        let high = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        if low == high {
            return std::array::from_fn(|v| v as u8);
        }
        let scale = (high - low) as f32 * (1.0 / 255.0_f64) as f32;
        std::array::from_fn(|v| ((v as f32 - low as f32) / scale) as u8)
    });
}

/// Equalizes the histogram of each channel, as Pillow does.
pub(super) fn equalize(image: &mut Image) {
    let pixels = image.size.pixels();
    map_channels(image, |counts| {
        let highest = counts.iter().rfind(|&&count| count > 0);
        let others = pixels - u64::from(highest.copied().unwrap_or(0));
        let step = others / 255;
        if step == 0 {
            return std::array::from_fn(|v| v as u8);
        }
        let mut below = 0;
        std::array::from_fn(|v| {
            let level = (below + step / 2) / step;
            below += u64::from(counts[v]);
            level.min(255) as u8
        })
    });
}

/// Blends an image of 8 bits with its mean of 3 x 3 pixels, in which the centre counts five times.
/// The outermost pixels do not change, nor do images of less than 3 pixels on a side.
pub(super) fn sharpen(image: &mut Image, factor: f64) {
    let (width, height, channels) = (image.width(), image.height(), image.channels);
    if width < 3 || height < 3 {
        return;
    }
    let other = (1.0 - factor) as f32;
    let level = Level::detect();
    let mut above = image.row(0).to_vec();
    let mut own = image.row(1).to_vec();
    for y in 1..height - 1 {
        let (_, rest) = image.data.split_at_mut(y * width * channels);
        let (row, below) = rest.split_at_mut(width * channels);
        let below = &below[..width * channels];
        simd::sharpen_row(level, [&above, &own, below], channels, other, row);
        std::mem::swap(&mut above, &mut own);
        own.copy_from_slice(below);
    }
}
