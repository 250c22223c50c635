//! Blends of an image with several randomly changed copies: `AugMix`.
//!
//! Source: torchvision.transforms.v2.AugMix, after Hendrycks et al., "AugMix: A Simple Data
//! Processing Method to Improve Robustness and Uncertainty" (2019).

use serde::{Deserialize, Serialize};

use super::augment::Change::{
    self, Autocontrast, Brightness, Color, Contrast, Equalize, Posterize, Rotate, Sharpness,
    ShearX, ShearY, Solarize, TranslateX, TranslateY,
};
use super::augment::{Strength, Strengths, check_colors, check_fills};
use super::beta::{symmetric_beta, symmetric_dirichlet};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{ChannelValues, Filter, Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Number of strengths.
const BINS: u32 = 10;

/// Largest number of copies, and of changes of a copy.
const MAX_COUNT: u32 = 16;

/// The changes of a copy, each with equal probability. Without `all_ops`, only the first nine.
const CHANGES: [Change; 13] = [
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Posterize,
    Solarize,
    Autocontrast,
    Equalize,
    Brightness,
    Color,
    Contrast,
    Sharpness,
];

/// Blends an image with copies of it, each after a series of random changes of geometry and colours,
/// with random weights. Leaves masks and boxes unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugMix {
    /// Number of strengths that are drawn, from the weakest on, of 10.
    pub severity: u32,
    /// Number of copies.
    pub mixture_width: u32,
    /// Number of changes of a copy; absent for 1 to 3, drawn for each copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_depth: Option<u32>,
    /// Parameter of the distributions of the weights: all are alike if it is large.
    pub alpha: f64,
    /// Whether brightness, colour, contrast and sharpness are changed too.
    pub all_ops: bool,
    /// Interpolation of changes of geometry: `nearest` or `bilinear`.
    pub interpolation: Filter,
    /// Fill of changes of geometry; absent for 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<ChannelValues>,
}

impl Default for AugMix {
    fn default() -> AugMix {
        AugMix {
            severity: 3,
            mixture_width: 3,
            chain_depth: None,
            alpha: 1.0,
            all_ops: true,
            interpolation: Filter::default(),
            fill: None,
        }
    }
}

impl AugMix {
    /// Draws the changes of one copy.
    fn chain(&self, image: Size, rng: &mut Rng) -> Vec<Step> {
        let depth = self.chain_depth.unwrap_or_else(|| 1 + rng.below(3));
        let changes = if self.all_ops {
            &CHANGES[..]
        } else {
            &CHANGES[..9]
        };
        let drawn = (0..depth).filter_map(|_| {
            let change = changes[rng.below(changes.len() as u32) as usize];
            let strength = Strength {
                strongest: Strengths::of_mix(image),
                bins: BINS,
                bin: rng.below(self.severity),
                filter: self.interpolation,
                fill: &self.fill,
                mask_fill: &ChannelValues::All(0.0),
            };
            strength.step(change, image, rng)
        });
        drawn.collect()
    }
}

impl Operation for AugMix {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_colors("AugMix", &self.fill, channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("AugMix");
        let is_count = |count: u32| (1..=MAX_COUNT).contains(&count);
        check.holds(
            (1..=BINS).contains(&self.severity),
            "severity",
            self.severity,
            "from 1 to 10",
        )?;
        check.holds(
            is_count(self.mixture_width),
            "mixture_width",
            self.mixture_width,
            "from 1 to 16",
        )?;
        check.holds(
            self.chain_depth.is_none_or(is_count),
            "chain_depth",
            self.chain_depth,
            "from 1 to 16, or absent for 1 to 3",
        )?;
        check.holds(
            self.alpha > 0.0 && self.alpha.is_finite(),
            "alpha",
            self.alpha,
            "a number above 0",
        )?;
        check_fills(
            &check,
            self.interpolation,
            &self.fill,
            &ChannelValues::default(),
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let own = symmetric_beta(self.alpha, rng);
        let shares = symmetric_dirichlet(self.alpha, self.mixture_width as usize, rng);
        let chain = |share: f64| (share * (1.0 - own), self.chain(image, rng));
        steps.push(Step::Chains {
            own,
            chains: shares.into_iter().map(chain).collect(),
        });
        Ok(())
    }
}
