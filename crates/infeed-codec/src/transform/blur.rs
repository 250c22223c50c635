//! Blurs images with a Gaussian filter.
//!
//! Source: torchvision.transforms.v2.GaussianBlur on uint8 tensors. It applies one filter of two
//! dimensions; here columns follow rows, which gives the same up to the rounding of f32.

use serde::{Deserialize, Serialize};

use super::color::ColorStep;
use super::operation::{Effect, Operation};
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

/// Largest filter in pixels.
pub(super) const MAX_KERNEL: u32 = 1023;

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

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<(), TransformError> {
        check_bytes("GaussianBlur", channels, depth)
    }

    fn validate(&self) -> Result<(), TransformError> {
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

    fn draw(
        &self,
        image: Size,
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
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

/// Checks that samples have 8 bits.
pub(super) fn check_bytes(
    transform: &'static str,
    channels: usize,
    depth: Depth,
) -> Result<(), TransformError> {
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

/// Weights of a filter, sum 1.
pub(super) fn weights(size: u32, sigma: f64) -> Vec<f32> {
    let middle = f64::from(size / 2);
    let distances = (0..size).map(|at| (f64::from(at) - middle) / sigma);
    // libm instead of std: the last bit of the platform's exponential may differ.
    let weights: Vec<f64> = distances.map(|at| libm::exp(-0.5 * at * at)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / sum) as f32).collect()
}

/// Index in a side of the number `at` of a side with `added` more at each end, which mirror it
/// without its outermost pixel.
pub(super) fn mirrored(at: usize, added: usize, side: usize) -> usize {
    let last = side - 1;
    last - last.abs_diff(at.abs_diff(added))
}

/// Blurs an image row by row, from some row on. Each side must be longer than half the filter.
pub(super) struct RowBlur {
    along_x: Vec<f32>,
    along_y: Vec<f32>,
    channels: usize,
    /// Rows of the image.
    height: usize,
    /// One row with half the filter more at each end.
    padded: Vec<f32>,
    /// The rows around the present one, each blurred along x.
    ring: Vec<f32>,
    /// Number of the next row for the ring.
    next: usize,
    sums: Vec<f32>,
}

impl RowBlur {
    /// Blurs rows of `width` pixels, first row number `first` of an image of `height` rows.
    pub(super) fn new(
        [along_x, along_y]: [Vec<f32>; 2],
        [width, channels]: [usize; 2],
        height: usize,
        first: usize,
    ) -> RowBlur {
        let values = width * channels;
        RowBlur {
            padded: vec![0.0; (width + along_x.len() / 2 * 2) * channels],
            ring: vec![0.0; along_y.len() * values],
            next: first.saturating_sub(along_y.len() / 2),
            sums: vec![0.0; values],
            channels,
            height,
            along_x,
            along_y,
        }
    }

    /// Returns row `y`, which must be the one after the last. `read` writes a row of the image, with
    /// half the filter more at each end.
    pub(super) fn row(&mut self, y: usize, read: impl Fn(usize, &mut [f32])) -> &[f32] {
        let (values, rows, added) = (self.sums.len(), self.along_y.len(), self.along_y.len() / 2);
        let ring_row = |y: usize| {
            let at = y % rows;
            at * values..(at + 1) * values
        };
        while self.next <= (y + added).min(self.height - 1) {
            read(self.next, &mut self.padded);
            let moved = |at: usize| &self.padded[at * self.channels..][..values];
            add_weighted(&mut self.ring[ring_row(self.next)], &self.along_x, moved);
            self.next += 1;
        }
        let around = |at: usize| &self.ring[ring_row(mirrored(y + at, added, self.height))];
        add_weighted(&mut self.sums, &self.along_y, around);
        &self.sums
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
                let from = mirrored(at, added_x, width) * channels;
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

/// Sets `to` to the weighted sum of rows.
fn add_weighted<'a>(to: &mut [f32], weights: &[f32], row: impl Fn(usize) -> &'a [f32]) {
    to.fill(0.0);
    for (at, &weight) in weights.iter().enumerate() {
        simd::add_weighted(Level::detect(), to, row(at), weight);
    }
}
