//! Places an image on a larger canvas.
//!
//! Source: torchvision.transforms.v2.RandomZoomOut, after Liu et al., "SSD: Single Shot MultiBox
//! Detector" (2015).

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::pad::{check_fill, push_pad};
use super::params::Check;
use super::{ChannelValues, PadMode, Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Places an image at a random position of a canvas of random size, with a given probability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomZoomOut {
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Minimum and maximum ratio of the canvas's sides to those of the image, at least 1.
    #[serde(default = "default_side_range")]
    pub side_range: [f64; 2],
    /// Probability of a change.
    #[serde(default = "one_half")]
    pub p: f64,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

fn default_side_range() -> [f64; 2] {
    [1.0, 4.0]
}

fn one_half() -> f64 {
    0.5
}

impl RandomZoomOut {
    /// Places images on a canvas with sides of up to 4 times theirs, with probability `p`.
    pub fn new(p: f64) -> RandomZoomOut {
        RandomZoomOut {
            fill: ChannelValues::default(),
            side_range: default_side_range(),
            p,
            mask_fill: ChannelValues::default(),
        }
    }
}

impl Operation for RandomZoomOut {
    fn effect(&self) -> Effect {
        Effect::Pad
    }

    fn is_random(&self) -> bool {
        true
    }

    fn has_varying_size(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_fill("RandomZoomOut", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomZoomOut");
        let [low, high] = self.side_range;
        check.holds(
            1.0 <= low && low <= high && high <= 1000.0,
            "side_range",
            [low, high],
            "[low, high] with 1 <= low <= high <= 1000",
        )?;
        check.probability(self.p)?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        if !rng.chance(self.p) {
            return Ok(());
        }
        let [low, high] = self.side_range;
        let ratio = rng.uniform(low, high);
        // The ratio is at least 1, and the casts saturate.
        let added = |side: u32| (f64::from(side) * ratio) as u32 - side;
        let (columns, rows) = (added(image.width), added(image.height));
        let mut before = |added: u32| (f64::from(added) * rng.uniform(0.0, 1.0)) as u32;
        let (left, top) = (before(columns), before(rows));
        let sides = [left, top, columns - left, rows - top];
        let step = Step::pad(sides, &self.fill, &self.mask_fill, PadMode::Constant);
        push_pad("RandomZoomOut", image, sides, step, steps).map(|_| ())
    }
}
