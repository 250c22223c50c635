//! Crops a random region of an image and resizes it.
//!
//! Source: torchvision.transforms.v2.RandomResizedCrop, after Szegedy et al., "Going Deeper with
//! Convolutions" (2014).

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Filter, FilterChoice, Rng, Sides, Step};
use infeed_core::sample::{Region, Size};

/// Crops a region of random area and aspect at a random position, then resizes it. Pixels outside
/// the region never contribute to the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Size of the result; one number means a square.
    pub size: Sides,
    /// Minimum and maximum share of the image's area.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Minimum and maximum ratio of width to height of the region; its logarithm is uniform.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Interpolation of the region.
    #[serde(default)]
    pub interpolation: FilterChoice,
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    /// Creates the usual crop of ImageNet training: 8 to 100 % of the area, ratio from 3:4 to 4:3.
    pub fn new(size: impl Into<Sides>) -> RandomResizedCrop {
        RandomResizedCrop {
            size: size.into(),
            scale: default_scale(),
            ratio: default_ratio(),
            interpolation: FilterChoice::default(),
        }
    }

    fn region(&self, image: Size, rng: &mut Rng) -> Region {
        for _ in 0..10 {
            let area = image.pixels() as f64 * rng.uniform(self.scale[0], self.scale[1]);
            let ratio = rng.log_uniform(self.ratio[0], self.ratio[1]);
            let size = Size {
                height: round((area / ratio).sqrt()),
                width: round((area * ratio).sqrt()),
            };
            if size.pixels() > 0 && size.whole().fits(image) {
                let top = rng.below(image.height - size.height + 1);
                let left = rng.below(image.width - size.width + 1);
                return Region { top, left, size };
            }
        }
        self.middle(image)
    }

    /// Returns the whole image, or the part of its centre that the range of ratios allows.
    fn middle(&self, image: Size) -> Region {
        let ratio = f64::from(image.width) / f64::from(image.height);
        let [low, high] = self.ratio;
        let mut size = image;
        if ratio < low {
            size.height = round(f64::from(image.width) / low).clamp(1, image.height);
        } else if ratio > high {
            size.width = round(f64::from(image.height) * high).clamp(1, image.width);
        }
        Region {
            top: (image.height - size.height) / 2,
            left: (image.width - size.width) / 2,
            size,
        }
    }
}

impl Operation for RandomResizedCrop {
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
        match self.interpolation {
            FilterChoice::One(filter) => Some(filter),
            FilterChoice::Any(_) => None,
        }
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomResizedCrop");
        check.size("size", self.size.square())?;
        check.scale(self.scale, 1.0)?;
        check.ratio(self.ratio)?;
        match &self.interpolation {
            FilterChoice::Any(filters) if !(1..=4).contains(&filters.len()) => {
                let allowed = "one filter, or a list of one to four of them";
                check.holds(false, "interpolation", filters, allowed)
            }
            _ => Ok(()),
        }
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let region = self.region(image, rng);
        if region != image.whole() {
            steps.push(Step::Crop(region));
        }
        let size = self.size.square();
        let filter = match &self.interpolation {
            FilterChoice::One(filter) => *filter,
            // After the region, so that it is the same with any interpolation.
            FilterChoice::Any(filters) => {
                let drawn = rng.below(filters.len().max(1) as u32);
                filters.get(drawn as usize).copied().unwrap_or_default()
            }
        };
        if size != region.size {
            steps.push(Step::Resize {
                size,
                filter,
                antialias: true,
            });
        }
        Ok(())
    }
}

/// Rounds a non-negative number like Python's `int(round(x))`.
pub(super) fn round(x: f64) -> u32 {
    x.round_ties_even() as u32
}
