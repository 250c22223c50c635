//! Crops a random square whose side is drawn in pixels, and resizes it.
//!
//! Source: the crop of DETR (Carion et al., "End-to-End Object Detection with Transformers", 2020)
//! as detectors use it today: a square, which is resized to the input of the network.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Filter, Rng, Sides, Step};
use infeed_core::sample::{Region, Size};

/// Crops a square of random side at a random position, then resizes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSizedCrop {
    /// Size of the result; one number means a square.
    pub size: Sides,
    /// Shortest and longest side of the crop in pixels; each whole number between is equally
    /// likely. An image with a shorter side limits both.
    pub sides: [u32; 2],
    /// Interpolation of the crop.
    #[serde(default)]
    pub interpolation: Filter,
}

impl RandomSizedCrop {
    /// Crops sides from `sides[0]` to `sides[1]` pixels, and resizes them bilinearly.
    pub fn new(size: impl Into<Sides>, sides: [u32; 2]) -> RandomSizedCrop {
        RandomSizedCrop {
            size: size.into(),
            sides,
            interpolation: Filter::default(),
        }
    }
}

impl Operation for RandomSizedCrop {
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn is_random(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<Effect> {
        vec![Effect::Crop, Effect::Resize]
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size.square())
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomSizedCrop");
        check.size("size", self.size.square())?;
        let [low, high] = self.sides;
        check.holds(
            0 < low && low <= high && high <= 1 << 14,
            "sides",
            self.sides,
            "[low, high] with 1 <= low <= high <= 16384",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let [low, high] = self
            .sides
            .map(|side| side.min(image.height).min(image.width));
        let side = low + rng.below(high - low + 1);
        let region = Region {
            top: rng.below(image.height - side + 1),
            left: rng.below(image.width - side + 1),
            size: Sides::One(side).square(),
        };
        if region != image.whole() {
            steps.push(Step::Crop(region));
        }
        let size = self.size.square();
        if size != region.size {
            steps.push(Step::Resize {
                size,
                filter: self.interpolation,
                antialias: true,
            });
        }
        Ok(())
    }
}
