//! Adds Gaussian noise to images.
//!
//! Source: torchvision.transforms.v2.GaussianNoise on uint8 tensors: noise is `mean + sigma * z` in
//! units of 0 to 1, times 255, truncated to an integer. The integers have the same distribution
//! here, drawn from a table of it.

use serde::{Deserialize, Serialize};

use super::color_step::{ColorStep, check_bytes};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Step};
use infeed_core::random::mix;
use infeed_core::sample::{Depth, Image, Size};

/// Adds Gaussian noise to each value of an image. Leaves masks unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussianNoise {
    /// Mean, in units of 0 to 1.
    pub mean: f64,
    /// Standard deviation, in units of 0 to 1.
    pub sigma: f64,
    /// Whether sums are clipped to 0 to 255. Otherwise they wrap around.
    pub clip: bool,
}

impl Default for GaussianNoise {
    fn default() -> GaussianNoise {
        GaussianNoise {
            mean: 0.0,
            sigma: 0.1,
            clip: true,
        }
    }
}

impl Operation for GaussianNoise {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_bytes("GaussianNoise", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("GaussianNoise");
        let is_valid = (-1.0..=1.0).contains(&self.mean);
        check.holds(is_valid, "mean", self.mean, "between -1 and 1")?;
        let is_valid = (0.0..=10.0).contains(&self.sigma);
        check.holds(is_valid, "sigma", self.sigma, "between 0 and 10")
    }

    fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        steps.push(Step::Color(vec![ColorStep::Noise {
            mean: self.mean,
            sigma: self.sigma,
            clip: self.clip,
            seed: rng.next_u64(),
        }]));
        Ok(())
    }
}

/// Distribution of the truncated noise, and a guide into it.
struct NoiseTable {
    /// Noise, with the upper end of its part of 2^32.
    levels: Vec<(i16, u64)>,
    /// For the upper bits of a number, the first level that it may select. Most select only one.
    guide: Vec<u16>,
}

/// Upper bits of a number in the guide.
const GUIDE_BITS: u32 = 12;

impl NoiseTable {
    fn new(mean: f64, sigma: f64, clip: bool) -> NoiseTable {
        let (mean, sigma) = (mean * 255.0, sigma * 255.0);
        // Beyond 255 every sum is clipped. Without clipping, 8 deviations hold all but 1e-15.
        let most = if clip {
            256
        } else {
            (mean.abs() + 8.0 * sigma) as i64 + 1
        };
        let below = |x: f64| match sigma > 0.0 {
            true => 0.5 * libm::erfc((mean - x) / (sigma * std::f64::consts::SQRT_2)),
            false => f64::from(u8::from(x > mean)),
        };
        let mut levels: Vec<(i16, u64)> = Vec::with_capacity(2 * most as usize + 1);
        for level in -most..=most {
            // Truncation towards 0 gives the numbers up to this one.
            let end = if level < 0 {
                level as f64
            } else {
                (level + 1) as f64
            };
            let end = match (level == most, level < 0 && sigma == 0.0) {
                (true, _) => 1.0,
                // Without deviation, the mean itself belongs to its level.
                (false, true) => f64::from(u8::from(end >= mean)),
                (false, false) => below(end),
            };
            levels.push((level as i16, (end * 4_294_967_296.0) as u64));
        }
        let mut at = 0;
        let first = |bits: u64| {
            while levels[at].1 <= bits << (32 - GUIDE_BITS) {
                at += 1;
            }
            at as u16
        };
        let guide = (0..1 << GUIDE_BITS).map(first).collect();
        NoiseTable { levels, guide }
    }

    /// Returns the noise for a random number.
    fn level(&self, random: u32) -> i16 {
        let mut at = usize::from(self.guide[(random >> (32 - GUIDE_BITS)) as usize]);
        // The last end is 2^32, above every number.
        while self.levels[at].1 <= u64::from(random) {
            at += 1;
        }
        self.levels[at].0
    }
}

/// Adds noise to an image of 8 bits. The seed decides the noise of each value.
pub(super) fn add_noise(image: &mut Image, mean: f64, sigma: f64, clip: bool, seed: u64) {
    let table = NoiseTable::new(mean, sigma, clip);
    for (number, values) in image.data.chunks_mut(2).enumerate() {
        let random = mix(seed.wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for (v, random) in values
            .iter_mut()
            .zip([random as u32, (random >> 32) as u32])
        {
            let sum = i16::from(*v) + table.level(random);
            *v = match clip {
                true => sum.clamp(0, 255) as u8,
                false => sum as u8,
            };
        }
    }
}
