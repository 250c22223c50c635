//! Overwrites a random rectangle of an image.
//!
//! Source: torchvision.transforms.v2.RandomErasing, after Zhong et al., "Random Erasing Data
//! Augmentation" (2017).

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::pad::fill_row;
use super::params::Check;
use super::resized_crop::round;
use super::{ChannelValues, Rng, Step};
use infeed_core::sample::{Image, Region, Size};

/// Overwrites a rectangle of random area and aspect. Leaves masks unchanged.
///
/// Before `ToFloat` or `Normalize`, the value is in units of the stored samples. After these
/// transforms, it is in units of their result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability that a rectangle is overwritten.
    pub p: f64,
    /// Minimum and maximum share of the image's area.
    pub scale: [f64; 2],
    /// Minimum and maximum ratio of height to width of the rectangle; its logarithm is uniform.
    pub ratio: [f64; 2],
    /// Value to write.
    pub value: ChannelValues,
}

impl Default for RandomErasing {
    fn default() -> RandomErasing {
        RandomErasing {
            p: 0.5,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: ChannelValues::default(),
        }
    }
}

impl RandomErasing {
    /// Writes 0 over 2 to 33 % of the area, with probability `p`.
    pub fn new(p: f64) -> RandomErasing {
        RandomErasing {
            p,
            ..RandomErasing::default()
        }
    }
}

impl Operation for RandomErasing {
    fn effect(&self) -> Effect {
        Effect::Erase
    }

    fn is_random(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomErasing");
        check.probability(self.p)?;
        check.scale(self.scale, 1.0)?;
        check.ratio(self.ratio)?;
        let value = self.value.as_slice();
        check.holds(
            (1..=4).contains(&value.len()) && value.iter().all(|v| v.is_finite()),
            "value",
            value,
            "a finite number, or one to four of them by channel",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        if !rng.chance(self.p) {
            return Ok(());
        }
        for _ in 0..10 {
            let area = image.pixels() as f64 * rng.uniform(self.scale[0], self.scale[1]);
            let ratio = rng.log_uniform(self.ratio[0], self.ratio[1]);
            let size = Size {
                height: round((area * ratio).sqrt()),
                width: round((area / ratio).sqrt()),
            };
            if size.height < image.height && size.width < image.width {
                let top = rng.below(image.height - size.height + 1);
                let left = rng.below(image.width - size.width + 1);
                if size.pixels() > 0 {
                    let region = Region { top, left, size };
                    steps.push(Step::Erase {
                        region,
                        value: self.value.as_slice().to_vec(),
                    });
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Writes `pixel` over a region within an image.
pub(super) fn erase(image: &mut Image, region: Region, pixel: &[u8]) {
    let columns = region.left as usize * pixel.len()..region.right() as usize * pixel.len();
    for y in region.top as usize..region.bottom() as usize {
        fill_row(&mut image.row_mut(y)[columns.clone()], pixel);
    }
}
