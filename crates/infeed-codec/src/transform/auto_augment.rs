//! Learned pairs of changes: `AutoAugment`.
//!
//! Source: torchvision.transforms.v2, with the policies of Cubuk et al., "AutoAugment: Learning
//! Augmentation Policies from Data" (2018).

use serde::{Deserialize, Serialize};

use super::augment::Change::{
    self, Autocontrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate,
    Sharpness, ShearX, ShearY, Solarize, TranslateX, TranslateY,
};
use super::augment::{Strength, Strengths, augment, check_colors, check_fills};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{ChannelValues, Filter, Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Number of strengths.
const BINS: u32 = 10;

/// Two changes, each with its probability and the index of its strength.
type ChangePair = [(Change, f64, u32); 2];

#[rustfmt::skip]
const IMAGENET: [ChangePair; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (Autocontrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (Autocontrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

#[rustfmt::skip]
const CIFAR10: [ChangePair; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(Autocontrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (Autocontrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (Autocontrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(Autocontrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (Autocontrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(Autocontrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (Autocontrast, 0.9, 0)],
];

#[rustfmt::skip]
const SVHN: [ChangePair; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Autocontrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (Autocontrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (Autocontrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];

/// The dataset for which the pairs were learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AugmentPolicy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

impl AugmentPolicy {
    fn pairs(self) -> &'static [ChangePair] {
        match self {
            AugmentPolicy::Imagenet => &IMAGENET,
            AugmentPolicy::Cifar10 => &CIFAR10,
            AugmentPolicy::Svhn => &SVHN,
        }
    }
}

augment! {
    /// Applies one of 25 pairs of changes of geometry and colours, each with its learned probability
    /// and strength. Masks and boxes move with the image.
    AutoAugment {
        /// The dataset for which the pairs were learned: `imagenet`, `cifar10` or `svhn`.
        policy: AugmentPolicy = AugmentPolicy::default(),
    }
    up to |_own| 2
}

impl AutoAugment {
    fn check_own(&self, _check: &Check) -> Result<()> {
        Ok(())
    }

    fn draw_changes(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) {
        let pairs = self.policy.pairs();
        for (change, probability, bin) in pairs[rng.below(pairs.len() as u32) as usize] {
            if rng.chance(probability) {
                let strength = self.strength(Strengths::of_series(image), BINS, bin);
                steps.extend(strength.step(change, image, rng));
            }
        }
    }
}
