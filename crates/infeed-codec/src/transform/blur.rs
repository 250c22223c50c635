//! Blurs images with a Gaussian filter.
//!
//! Source: torchvision.transforms.v2.GaussianBlur on uint8 tensors. It applies one filter of two
//! dimensions; here columns follow rows, which gives the same up to the rounding of f32.

use serde::{Deserialize, Serialize};

use super::color_step::{ColorStep, check_bytes};
use super::effect::Effect;
use super::error::Result;
use super::gaussian::{MAX_KERNEL, RowBlur, mirror_index, weights};
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Sides, Step, TransformError, ValuePair};
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::simd::{self, Level};

/// Blurs images with a Gaussian filter of random width. Leaves masks unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Pixels of the filter: one odd number, or those along x and y.
    pub kernel_size: Sides,
    /// Standard deviation in pixels, or its range.
    #[serde(default = "default_sigma")]
    pub sigma: ValuePair<f64>,
}

fn default_sigma() -> ValuePair<f64> {
    ValuePair::Each([0.1, 2.0])
}

impl GaussianBlur {
    /// Blurs with a filter of this many pixels and a standard deviation of 0.1 to 2 pixels.
    pub fn new(kernel_size: impl Into<Sides>) -> GaussianBlur {
        GaussianBlur {
            kernel_size: kernel_size.into(),
            sigma: default_sigma(),
        }
    }

    /// Pixels along x and along y.
    fn kernel(&self) -> [u32; 2] {
        match self.kernel_size {
            Sides::One(side) => [side; 2],
            Sides::Both(sides) => sides,
        }
    }
}

impl Operation for GaussianBlur {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        let [low, high] = self.sigma.values();
        low != high
    }

    fn needs_at_least(&self) -> Size {
        let [x, y] = self.kernel();
        Size {
            height: y / 2 + 1,
            width: x / 2 + 1,
        }
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_bytes("GaussianBlur", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("GaussianBlur");
        let is_valid = |side: &u32| side % 2 == 1 && *side <= MAX_KERNEL;
        check.holds(
            self.kernel().iter().all(is_valid),
            "kernel_size",
            self.kernel(),
            "odd numbers from 1 to 1023",
        )?;
        let [low, high] = self.sigma.values();
        check.holds(
            0.0 < low && low <= high && high.is_finite(),
            "sigma",
            [low, high],
            "a number above 0, or [low, high] with 0 < low <= high",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let needed = self.needs_at_least();
        if image.height < needed.height || image.width < needed.width {
            return Err(TransformError::TooSmall {
                transform: "GaussianBlur",
                found: image,
                needed,
                hint: "set a smaller kernel_size, or make images larger with Resize",
            });
        }
        let [low, high] = self.sigma.values();
        steps.push(Step::Color(vec![ColorStep::Blur {
            kernel: self.kernel(),
            sigma: rng.uniform(low, high),
        }]));
        Ok(())
    }
}

/// Blurs an image of 8 bits. Leaves it as it is unless each side is longer than half the filter.
pub(super) fn blur(image: &mut Image, [kernel_x, kernel_y]: [u32; 2], sigma: f64) {
    let filters = [weights(kernel_x, sigma), weights(kernel_y, sigma)];
    let (width, height, channels) = (image.width(), image.height(), image.channels);
    let [added_x, added_y] = [&filters[0], &filters[1]].map(|filter| filter.len() / 2);
    if width <= added_x || height <= added_y {
        return;
    }
    let level = Level::detect();
    let mut blurred = RowBlur::new(filters, [width, channels], height, 0);
    for y in 0..height {
        let read = |y: usize, padded: &mut [f32]| {
            let row = image.row(y);
            for (to, &v) in padded[added_x * channels..].iter_mut().zip(row) {
                *to = f32::from(v);
            }
            let sides = (0..added_x).chain(added_x + width..2 * added_x + width);
            for at in sides {
                let from = mirror_index(at, added_x, width) * channels;
                let to = &mut padded[at * channels..][..channels];
                for (to, &v) in to.iter_mut().zip(&row[from..from + channels]) {
                    *to = f32::from(v);
                }
            }
        };
        let sums = blurred.row(y, read);
        simd::round_samples(level, sums, image.row_mut(y));
    }
}
