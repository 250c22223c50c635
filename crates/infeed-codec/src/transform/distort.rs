//! Distorts colours as for the training of SSD detectors.
//!
//! Source: torchvision.transforms.v2.RandomPhotometricDistort, after Liu et al., "SSD: Single Shot
//! MultiBox Detector" (2015).

use serde::{Deserialize, Serialize};

use super::color::check_ranges;
use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::{Check, Jitter};
use super::{Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Changes brightness, contrast, saturation and hue and swaps channels, each with probability `p`.
/// Contrast comes before or after saturation and hue. Leaves masks unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomPhotometricDistort {
    /// Range of the factor.
    pub brightness: [f64; 2],
    /// Range of the factor.
    pub contrast: [f64; 2],
    /// Range of the factor.
    pub saturation: [f64; 2],
    /// Range of the turn, in shares of the circle.
    pub hue: [f64; 2],
    /// Probability of each change.
    pub p: f64,
}

impl Default for RandomPhotometricDistort {
    fn default() -> RandomPhotometricDistort {
        RandomPhotometricDistort {
            brightness: [0.875, 1.125],
            contrast: [0.5, 1.5],
            saturation: [0.5, 1.5],
            hue: [-0.05, 0.05],
            p: 0.5,
        }
    }
}

impl Operation for RandomPhotometricDistort {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_color("RandomPhotometricDistort", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomPhotometricDistort");
        let factors = [self.brightness, self.contrast, self.saturation];
        let hue = Jitter::Between(self.hue);
        check_ranges(&check, factors.map(Jitter::Between), hue)?;
        check.probability(self.p)
    }

    fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let mut factor = |[low, high]: [f64; 2]| {
            let happens = rng.chance(self.p);
            happens.then(|| rng.uniform(low, high))
        };
        let brightness = factor(self.brightness);
        let contrast = factor(self.contrast);
        let saturation = factor(self.saturation);
        let hue = factor(self.hue);
        let contrast_first = rng.chance(0.5);
        let [before, after] = match contrast_first {
            true => [contrast, None],
            false => [None, contrast],
        };
        let swap = rng.chance(self.p).then(|| {
            let mut order = [0, 1, 2];
            rng.shuffle(&mut order);
            order
        });
        let changes = [
            brightness.map(ColorStep::Brightness),
            before.map(ColorStep::Contrast),
            saturation.map(ColorStep::Saturation),
            hue.map(ColorStep::Hue),
            after.map(ColorStep::Contrast),
            swap.filter(|order| *order != [0, 1, 2])
                .map(ColorStep::Permute),
        ];
        let changes: Vec<ColorStep> = changes.into_iter().flatten().collect();
        if !changes.is_empty() {
            steps.push(Step::Color(changes));
        }
        Ok(())
    }
}
