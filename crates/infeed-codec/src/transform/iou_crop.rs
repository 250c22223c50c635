//! Crops around boxes.
//!
//! Source: torchvision.transforms.v2.RandomIoUCrop, after Liu et al., "SSD: Single Shot MultiBox
//! Detector" (2015).

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Step, TransformError};
use infeed_core::sample::{Region, Size};

/// Crops a random region that a box overlaps by a random minimum, and drops the boxes whose centre
/// is outside. Leaves images without boxes, and some others, as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomIoUCrop {
    /// Minimum share of the image's sides.
    pub min_scale: f64,
    /// Maximum share of the image's sides.
    pub max_scale: f64,
    /// Minimum ratio of width to height.
    pub min_aspect_ratio: f64,
    /// Maximum ratio of width to height.
    pub max_aspect_ratio: f64,
    /// Minimum overlaps (intersection over union), of which one is drawn. From 1 on, the image
    /// stays as it is.
    pub sampler_options: Vec<f64>,
    /// Number of regions that are tried before another minimum is drawn.
    pub trials: u32,
}

/// Number of minimum overlaps that are drawn before the image stays as it is. torchvision has no
/// limit, and its default stays with probability 1/7 each time.
const ROUNDS: u32 = 100;

impl Default for RandomIoUCrop {
    fn default() -> RandomIoUCrop {
        RandomIoUCrop {
            min_scale: 0.3,
            max_scale: 1.0,
            min_aspect_ratio: 0.5,
            max_aspect_ratio: 2.0,
            sampler_options: vec![0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
            trials: 40,
        }
    }
}

impl RandomIoUCrop {
    /// Draws a region with an allowed aspect.
    fn region(&self, image: Size, rng: &mut Rng) -> Option<Region> {
        let mut side = |side: u32| {
            let share = rng.uniform(self.min_scale, self.max_scale);
            (f64::from(side) * share) as u32
        };
        let (width, height) = (side(image.width), side(image.height));
        let ratio = f64::from(width) / f64::from(height);
        if !(self.min_aspect_ratio..=self.max_aspect_ratio).contains(&ratio) || height == 0 {
            return None;
        }
        let mut before = |rest: u32| (f64::from(rest) * rng.uniform(0.0, 1.0)) as u32;
        let left = before(image.width - width);
        let top = before(image.height - height);
        let size = Size { height, width };
        (size.pixels() > 0).then_some(Region { top, left, size })
    }
}

/// Whether the centre of a box is within a region.
pub(super) fn has_centre([left, top, right, bottom]: [f64; 4], region: Region) -> bool {
    let (x, y) = ((left + right) / 2.0, (top + bottom) / 2.0);
    let is_between = |at: f64, low: u32, high: u64| f64::from(low) < at && at < high as f64;
    is_between(x, region.left, region.right()) && is_between(y, region.top, region.bottom())
}

/// Intersection of a box and a region over their union.
fn overlap([left, top, right, bottom]: [f64; 4], region: Region) -> f64 {
    let width = right.min(region.right() as f64) - left.max(f64::from(region.left));
    let height = bottom.min(region.bottom() as f64) - top.max(f64::from(region.top));
    let common = width.max(0.0) * height.max(0.0);
    common / ((right - left) * (bottom - top) + region.size.pixels() as f64 - common)
}

impl Operation for RandomIoUCrop {
    fn effect(&self) -> Effect {
        Effect::Crop
    }

    fn is_random(&self) -> bool {
        true
    }

    fn has_varying_size(&self) -> bool {
        true
    }

    fn needs_boxes(&self) -> bool {
        true
    }

    fn only_moves_pixels(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomIoUCrop");
        let (low, high) = (self.min_scale, self.max_scale);
        check.holds(
            0.0 < low && low <= high && high <= 1.0,
            "min_scale and max_scale",
            [low, high],
            "0 < min_scale <= max_scale <= 1",
        )?;
        let (low, high) = (self.min_aspect_ratio, self.max_aspect_ratio);
        check.holds(
            0.0 < low && low <= high && high.is_finite(),
            "min_aspect_ratio and max_aspect_ratio",
            [low, high],
            "0 < min_aspect_ratio <= max_aspect_ratio",
        )?;
        let options = &self.sampler_options;
        check.holds(
            !options.is_empty() && options.iter().all(|v| v.is_finite() && *v >= 0.0),
            "sampler_options",
            options,
            "at least one number, none below 0",
        )?;
        check.holds(
            (1..=10_000).contains(&self.trials),
            "trials",
            self.trials,
            "from 1 to 10000",
        )
    }

    fn draw_around(
        &self,
        image: Size,
        boxes: &[[f64; 4]],
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        if boxes.is_empty() {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            let option = rng.below(self.sampler_options.len() as u32) as usize;
            let least = self.sampler_options.get(option).copied().unwrap_or(1.0);
            if least >= 1.0 {
                return Ok(());
            }
            for _ in 0..self.trials {
                let Some(region) = self.region(image, rng) else {
                    continue;
                };
                let inside = boxes.iter().filter(|corners| has_centre(**corners, region));
                let mut overlaps = inside.map(|corners| overlap(*corners, region));
                if overlaps.any(|overlap| overlap >= least) {
                    steps.push(Step::KeepCentres(region));
                    steps.push(Step::Crop(region));
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
