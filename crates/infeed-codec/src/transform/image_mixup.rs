//! Two images in one, for detection: the pixels are blended, and the objects of both stay.
//!
//! Source: Zhang et al., "Bag of Freebies for Training Object Detection Neural Networks" (2019), with
//! the distribution of YOLOv5 and Ultralytics.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Rng;
use super::effect::Effect;
use super::error::Result;
use super::mix::{Blend, MixChoice, Mixing, check_alpha};
use super::operation::Operation;
use super::params::Check;

/// Blends the image with that of another position, and keeps the objects of both. The transforms
/// before it apply to each image, those after it to the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageMixUp {
    /// Parameter of the symmetric beta distribution of the share of the image, from 0.001 to 1000.
    pub alpha: f64,
    /// Probability of two images.
    pub p: f64,
}

impl Default for ImageMixUp {
    fn default() -> ImageMixUp {
        ImageMixUp {
            alpha: 32.0,
            p: 1.0,
        }
    }
}

impl ImageMixUp {
    /// Draws another position among those in `near`, and the share of the sample's own image in each
    /// pixel. None if there is no other image.
    pub fn draw_partner(
        &self,
        position: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: &mut Rng,
    ) -> Option<(u64, f64)> {
        let choice = MixChoice {
            p: self.p,
            alpha: self.alpha,
            cuts: false,
        };
        match Mixing::draw(&[choice], position, near, rng)? {
            Mixing {
                partner,
                blend: Blend::Whole { share },
            } => Some((partner, share)),
            _ => None,
        }
    }
}

impl Operation for ImageMixUp {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        let check = Check("ImageMixUp");
        check_alpha(&check, self.alpha)?;
        check.probability(self.p)
    }
}
