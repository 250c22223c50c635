//! Moves pixels along a smooth field of random shifts.
//!
//! Source: torchvision.transforms.v2.ElasticTransform, after Simard, Steinkraus and Platt, "Best
//! Practices for Convolutional Neural Networks Applied to Visual Document Analysis" (2003): noise
//! from -1 to 1 by pixel, blurred with a Gaussian filter of `8 * sigma + 1` pixels.

use serde::{Deserialize, Serialize};

use super::affine::{check_filter, drawn_warp, warp_properties};
use super::effect::Effect;
use super::elastic_field::{ElasticField, kernel, min_size};
use super::error::Result;
use super::gaussian::MAX_KERNEL;
use super::operation::Operation;
use super::params::Check;
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Rng, Step, ValuePair};
use infeed_core::sample::{Depth, Size};

/// Moves each pixel by a random shift that changes smoothly over the image. Keeps the size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElasticTransform {
    /// Twice the shift in pixels that noise of 1 everywhere would give: one number, or those along x
    /// and y.
    pub alpha: ValuePair<f64>,
    /// Standard deviation of the filter in pixels: one number, or those along x and y.
    pub sigma: ValuePair<f64>,
    /// Interpolation of images: `nearest` or `bilinear`.
    pub interpolation: Filter,
    /// Fill for images.
    pub fill: ChannelValues,
    /// Fill for masks.
    pub mask_fill: ChannelValues,
}

impl Default for ElasticTransform {
    fn default() -> ElasticTransform {
        ElasticTransform {
            alpha: ValuePair::Both(50.0),
            sigma: ValuePair::Both(5.0),
            interpolation: Filter::default(),
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
        }
    }
}

impl Operation for ElasticTransform {
    warp_properties!(ElasticTransform);

    fn needs_at_least(&self) -> Size {
        min_size(self.sigma.values())
    }

    fn validate(&self) -> Result<()> {
        let check = Check("ElasticTransform");
        let alpha = self.alpha.values();
        check.holds(
            alpha.iter().all(|v| (0.0..=1e6).contains(v)),
            "alpha",
            alpha,
            "a number from 0 to 1e6, or [x, y]",
        )?;
        let sigma = self.sigma.values();
        let is_valid = |v: &f64| 0.0 < *v && kernel(*v) <= MAX_KERNEL;
        check.holds(
            sigma == [0.0; 2] || sigma.iter().all(is_valid),
            "sigma",
            sigma,
            "a number above 0 and up to 127, [x, y], or 0 for shifts without a filter",
        )?;
        check_filter(&check, self.interpolation)?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let field = ElasticField {
            alpha: self.alpha.values(),
            sigma: self.sigma.values(),
            seed: rng.next_u64(),
        };
        field.check(image)?;
        if field.alpha != [0.0; 2] {
            steps.push(Step::Warp(drawn_warp!(
                self,
                WarpMap::Elastic(field),
                image
            )));
        }
        Ok(())
    }
}
