//! Transforms of colours: `ColorJitter` and `Grayscale`, and the pixels of all changes of colours.
//!
//! Source: torchvision.transforms.v2 on uint8 tensors: f32 arithmetic, clamped to 0 to 255,
//! truncated. Products and sums are rounded one by one, never contracted.

use serde::{Deserialize, Serialize};

use super::blur::blur;
use super::color_step::{ColorStep, check_color};
use super::compress::compress;
use super::effect::Effect;
use super::error::Result;
use super::linear::change_linearly;
use super::noise::add_noise;
use super::operation::Operation;
use super::params::{Check, Jitter};
use super::tone::{autocontrast, equalize, sharpen};
use super::{PixelView, Rng, Step, TransformError};
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::simd::{self, ColorChange, Level};

/// Changes brightness, contrast, saturation and hue by random factors, in random order. Leaves
/// masks unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Factor from 1 - b to 1 + b, at least 0; or the range itself.
    pub brightness: Jitter,
    /// Factor from 1 - c to 1 + c, at least 0; or the range itself.
    pub contrast: Jitter,
    /// Factor from 1 - s to 1 + s, at least 0; or the range itself.
    pub saturation: Jitter,
    /// Turn from -h to h, at most half a circle (0.5); or the range itself.
    pub hue: Jitter,
}

impl Operation for ColorJitter {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_color("ColorJitter", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let factors = [self.brightness, self.contrast, self.saturation];
        check_ranges(&Check("ColorJitter"), factors, self.hue)
    }

    fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        let drawn = [
            self.brightness
                .draw(1.0, 0.0, rng)
                .map(ColorStep::Brightness),
            self.contrast.draw(1.0, 0.0, rng).map(ColorStep::Contrast),
            self.saturation
                .draw(1.0, 0.0, rng)
                .map(ColorStep::Saturation),
            self.hue
                .draw(0.0, f64::NEG_INFINITY, rng)
                .map(ColorStep::Hue),
        ];
        let ordered: Vec<ColorStep> = order
            .into_iter()
            .filter_map(|at: usize| drawn[at].clone())
            .collect();
        if !ordered.is_empty() {
            steps.push(Step::Color(ordered));
        }
        Ok(())
    }
}

/// Checks the ranges of the factors of brightness, contrast and saturation, and of turns of the
/// hue.
pub(super) fn check_ranges(
    check: &Check,
    factors: [Jitter; 3],
    hue: Jitter,
) -> Result<(), TransformError> {
    for (parameter, factor) in ["brightness", "contrast", "saturation"]
        .into_iter()
        .zip(factors)
    {
        let [low, high] = factor.range(1.0, 0.0);
        let allowed = ["a number not below 0", "[low, high] with 0 <= low <= high"];
        let is_valid = 0.0 <= low && low <= high && high.is_finite();
        check.jitter(is_valid, parameter, factor, allowed)?;
    }
    let [low, high] = hue.range(0.0, f64::NEG_INFINITY);
    let allowed = [
        "a number from 0 to 0.5",
        "[low, high] with -0.5 <= low <= high <= 0.5",
    ];
    let is_valid = -0.5 <= low && low <= high && high <= 0.5;
    check.jitter(is_valid, "hue", hue, allowed)
}

/// Replaces colours by their luma, 0.2989 R + 0.587 G + 0.114 B. Leaves masks unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {
    /// Channels of the result: 1, or 3 equal channels.
    #[serde(default = "one")]
    pub num_output_channels: u32,
}

fn one() -> u32 {
    1
}

impl Grayscale {
    /// Creates a transform whose result has 1 or 3 channels.
    pub fn new(num_output_channels: u32) -> Grayscale {
        Grayscale {
            num_output_channels,
        }
    }
}

impl Operation for Grayscale {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_pointwise(&self) -> bool {
        true
    }

    fn output_channels(&self, _channels: usize) -> usize {
        self.num_output_channels as usize
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_color("Grayscale", channels, depth)
    }

    fn draw(&self, _image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        steps.push(Step::Gray {
            channels: self.num_output_channels,
        });
        Ok(())
    }

    fn validate(&self) -> Result<()> {
        let channels = self.num_output_channels;
        Check("Grayscale").holds(
            channels == 1 || channels == 3,
            "num_output_channels",
            channels,
            "1 or 3",
        )
    }
}

/// Changes the colours of an image for whose pixels the steps are defined.
pub(super) fn change_colors(image: &mut Image, steps: &[ColorStep]) -> Result<()> {
    let level = Level::detect();
    for step in steps {
        match *step {
            ColorStep::Brightness(factor) => {
                simd::scale_samples(level, factor as f32, 0.0, &mut image.data);
            }
            ColorStep::Contrast(factor) => {
                let [own, other] = shares(factor);
                let gray = mean_luma(image) * other;
                simd::scale_samples(level, own, gray, &mut image.data);
            }
            ColorStep::Saturation(factor) => {
                map_colors(image, ColorChange::Saturation(shares(factor)));
            }
            ColorStep::Hue(factor) => map_colors(image, ColorChange::Hue(factor as f32)),
            ColorStep::Hsv {
                turn,
                saturation,
                value,
            } => {
                let change = [turn, saturation, value].map(|v| v as f32);
                map_colors(image, ColorChange::Hsv(change));
            }
            ColorStep::Invert => map_samples(image, |v| 255 - v),
            ColorStep::Posterize(bits) => {
                let mask = (0xff00 >> bits) as u8;
                map_samples(image, |v| v & mask);
            }
            ColorStep::Solarize(threshold) => {
                let is_inverted = |v: &u8| f32::from(*v) >= threshold as f32;
                if let Some(from) = (0..=255).find(is_inverted) {
                    map_samples(image, |v| if v >= from { 255 - v } else { v });
                }
            }
            ColorStep::Gray => map_colors(image, ColorChange::Gray),
            ColorStep::Autocontrast => autocontrast(image),
            ColorStep::Equalize => equalize(image),
            ColorStep::Sharpness(factor) => sharpen(image, factor),
            ColorStep::Permute(order) if image.channels == 3 => {
                let (pixels, _) = image.data.as_chunks_mut::<3>();
                for pixel in pixels {
                    *pixel = order.map(|from| pixel[usize::from(from % 3)]);
                }
            }
            ColorStep::Permute(_) => {}
            ColorStep::Blur { kernel, sigma } => blur(image, kernel, sigma),
            ColorStep::Noise {
                mean,
                sigma,
                clip,
                seed,
            } => add_noise(image, mean, sigma, clip, seed),
            ColorStep::Compress(quality) => compress(image, quality)?,
            ColorStep::Linear(ref steps) => change_linearly(image, steps),
        }
    }
    Ok(())
}

/// Replaces the colours of an image of 1 or 3 channels of 8 bits by their luma.
pub(super) fn gray(input: PixelView<'_>, channels: u32, out: &mut Image) {
    out.reset(input.size(), channels as usize, Depth::U8);
    let has_color = input.channels() == 3;
    let level = Level::detect();
    for y in 0..input.height() {
        let (from, to) = (input.row(y), out.row_mut(y));
        match (has_color, channels) {
            (true, 1) => simd::lumas(level, from, to),
            (true, _) => {
                to.copy_from_slice(from);
                simd::change_colors(level, ColorChange::Gray, to);
            }
            (false, 1) => to.copy_from_slice(from),
            (false, _) => {
                let (to, _) = to.as_chunks_mut::<3>();
                to.iter_mut().zip(from).for_each(|(to, &v)| *to = [v; 3]);
            }
        }
    }
}

/// Returns the weights of the two sides of a blend, rounded as in torchvision.
fn shares(factor: f64) -> [f32; 2] {
    [factor as f32, (1.0 - factor) as f32]
}

/// Mean luma of an image; the sum is exact.
fn mean_luma(image: &Image) -> f32 {
    let sum: u64 = if image.channels == 3 {
        simd::sum_lumas(Level::detect(), &image.data)
    } else {
        image.data.iter().map(|&v| u64::from(v)).sum()
    };
    (sum as f64 / image.size.pixels().max(1) as f64) as f32
}

/// Applies a change that depends only on the sample.
fn map_samples(image: &mut Image, change: impl Fn(u8) -> u8) {
    for v in &mut image.data {
        *v = change(*v);
    }
}

/// Applies a change of colours. Gray images have no colours and stay unchanged.
fn map_colors(image: &mut Image, change: ColorChange) {
    if image.channels == 3 {
        simd::change_colors(Level::detect(), change, &mut image.data);
    }
}
