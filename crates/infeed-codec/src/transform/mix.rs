//! Mixes two samples: blends them, or copies a rectangle from one to the other. Labels are mixed in
//! the same proportion.
//!
//! Source: Zhang et al., "mixup: Beyond Empirical Risk Minimization" (ICLR 2018); Yun et al.,
//! "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features" (ICCV
//! 2019).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Rng;
use super::beta::symmetric_beta;
use super::effect::Effect;
use super::error::Result;
use super::onehot::MAX_CLASSES;
use super::operation::Operation;
use super::params::Check;
use infeed_core::sample::{Region, Size};

/// Defines a transform that mixes two samples, and whether it cuts rectangles.
macro_rules! mixing_transform {
    ($(#[$doc:meta])* $kind:ident, cuts: $cuts:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $kind {
            /// Both parameters of the beta distribution. 1 gives uniform shares. A smaller value
            /// moves the share closer to 0 or 1.
            pub alpha: f64,
            /// Probability that a sample is mixed.
            pub p: f64,
            /// Field of the labels: class numbers, or float32. None: `label`, if the source has
            /// this field.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub field: Option<String>,
            /// Number of classes. None: the number of class names of the source.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub classes: Option<u32>,
        }

        impl Default for $kind {
            fn default() -> $kind {
                $kind::new(1.0)
            }
        }

        impl $kind {
            /// Mixes every sample, with the classes of the source.
            pub fn new(alpha: f64) -> $kind {
                $kind {
                    alpha,
                    p: 1.0,
                    field: None,
                    classes: None,
                }
            }

            /// Returns the settings.
            pub(super) fn settings(&self) -> MixSettings<'_> {
                MixSettings {
                    choice: MixChoice {
                        p: self.p,
                        alpha: self.alpha,
                        cuts: $cuts,
                    },
                    field: self.field.as_deref(),
                    classes: self.classes,
                }
            }
        }

        impl Operation for $kind {
            fn effect(&self) -> Effect {
                Effect::Mix
            }

            fn is_random(&self) -> bool {
                true
            }

            fn validate(&self) -> Result<()> {
                let check = Check(stringify!($kind));
                check_alpha(&check, self.alpha)?;
                check.probability(self.p)?;
                check.holds(
                    self.classes
                        .is_none_or(|n| (1..=MAX_CLASSES as u32).contains(&n)),
                    "classes",
                    self.classes,
                    "from 1 to 65535",
                )
            }
        }
    };
}

mixing_transform! {
    /// Blends a sample with the one at another position of the epoch: `share * own + (1 - share) *
    /// partner`, where the share is from Beta(alpha, alpha). Labels become shares of classes.
    MixUp, cuts: false
}

mixing_transform! {
    /// Replaces a rectangle of a sample by the same rectangle of the sample at another position of
    /// the epoch. The sides of the rectangle are `sqrt(1 - share)` of the image's, where the share
    /// is from Beta(alpha, alpha). Its centre is uniform over the image. Labels become shares of
    /// classes, by the area of the rectangle inside the image.
    CutMix, cuts: true
}

/// Checks the parameter of a symmetric beta distribution.
pub(super) fn check_alpha(check: &Check, alpha: f64) -> Result<()> {
    check.holds(
        (0.001..=1000.0).contains(&alpha),
        "alpha",
        alpha,
        "between 0.001 and 1000",
    )
}

/// Operation that mixes two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blend {
    /// Blends all numbers.
    Whole {
        /// Weight of the sample, 0 to 1.
        share: f64,
    },
    /// Copies a rectangle of the partner.
    Rectangle {
        /// Share of the sample's area, before the rectangle is clipped at the edges.
        share: f64,
        /// Centre of the rectangle, as a fraction of the width.
        x: f64,
        /// Centre of the rectangle, as a fraction of the height.
        y: f64,
    },
}

/// Partner of a sample, and the operation that mixes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// Position of the partner in the epoch.
    pub partner: u64,
    /// Operation.
    pub blend: Blend,
}

/// A mixing transform of a pipeline. It mixes a sample with probability `p`. The probabilities of
/// all mixing transforms add up to at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixChoice {
    /// Probability.
    pub p: f64,
    /// Parameter of the beta distribution.
    pub alpha: f64,
    /// Whether the transform copies rectangles instead of blending.
    pub cuts: bool,
}

/// Settings of a mixing transform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixSettings<'a> {
    /// Its probability and its draws.
    pub choice: MixChoice,
    /// Field of the labels. None: `label`, if the source has this field.
    pub field: Option<&'a str>,
    /// Number of classes. None: the number of class names of the source.
    pub classes: Option<u32>,
}

impl MixChoice {
    /// Returns the name of the transform.
    pub fn name(&self) -> &'static str {
        match self.cuts {
            false => "MixUp",
            true => "CutMix",
        }
    }
}

/// Draws another position of `near`, each with equal probability. None if there is no other one.
pub(super) fn other_position(position: u64, near: &Range<u64>, rng: &mut Rng) -> Option<u64> {
    let others = near.end.checked_sub(near.start)?.checked_sub(1)?;
    if others == 0 || !near.contains(&position) {
        return None;
    }
    // With 2^64 values, the bias of a multiply-shift is below 2^-24 for 2^40 positions.
    let drawn = ((u128::from(rng.next_u64()) * u128::from(others)) >> 64) as u64;
    let partner = near.start + drawn;
    Some(partner + u64::from(partner >= position))
}

impl Mixing {
    /// Draws whether and how to mix the sample at `position`. The partner is uniform over the other
    /// positions of `near`. None if the sample is not mixed or there is no other position.
    pub fn draw(
        choices: &[MixChoice],
        position: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: &mut Rng,
    ) -> Option<Mixing> {
        let mut left = rng.uniform(0.0, 1.0);
        let choice = choices.iter().find(|choice| {
            let taken = left < choice.p;
            left -= choice.p;
            taken
        })?;
        let partner = other_position(position, &near(), rng)?;
        let share = symmetric_beta(choice.alpha, rng);
        let blend = match choice.cuts {
            false => Blend::Whole { share },
            true => Blend::Rectangle {
                share,
                x: rng.uniform(0.0, 1.0),
                y: rng.uniform(0.0, 1.0),
            },
        };
        Some(Mixing { partner, blend })
    }
}

impl Blend {
    /// Returns the name of the transform.
    pub fn name(&self) -> &'static str {
        match self {
            Blend::Whole { .. } => "MixUp",
            Blend::Rectangle { .. } => "CutMix",
        }
    }

    /// Returns the rectangle of the partner in images of this size. None if samples are blended.
    pub fn region(&self, size: Size) -> Option<Region> {
        let Blend::Rectangle { share, x, y } = *self else {
            return None;
        };
        let half = 0.5 * (1.0 - share).max(0.0).sqrt();
        // Extends half the length to each side of the centre, clipped to the image.
        let side = |length: u32, at: f64| {
            let (middle, half) = (
                (at * f64::from(length)) as u32,
                (half * f64::from(length)) as u32,
            );
            let begin = middle.saturating_sub(half).min(length);
            (begin, middle.saturating_add(half).min(length) - begin)
        };
        let ((left, width), (top, height)) = (side(size.width, x), side(size.height, y));
        let size = Size { height, width };
        Some(Region { top, left, size })
    }

    /// Returns the weight of the sample: of every number, or of the area of an image of this size.
    pub fn share(&self, size: Size) -> f64 {
        match (*self, self.region(size)) {
            (Blend::Whole { share }, _) => share,
            (_, Some(region)) => 1.0 - region.size.pixels() as f64 / size.pixels().max(1) as f64,
            (_, None) => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        height: 60,
        width: 100,
    };

    fn draw_all(choices: &[MixChoice], near: Range<u64>) -> Vec<Option<Mixing>> {
        near.clone()
            .map(|position| {
                let mut rng = Rng::new(1, 0, position, 0);
                Mixing::draw(choices, position, || near.clone(), &mut rng)
            })
            .collect()
    }

    fn choice(p: f64, cuts: bool) -> MixChoice {
        MixChoice {
            p,
            alpha: 1.0,
            cuts,
        }
    }

    #[test]
    fn partners_are_uniform_over_the_other_positions() {
        let mut counts = [0_u32; 8];
        for epoch in 0..4000 {
            let mut rng = Rng::new(1, epoch, 13, 0);
            let mixing = Mixing::draw(&[choice(1.0, false)], 13, || 10..18, &mut rng);
            counts[(mixing.expect("p is 1").partner - 10) as usize] += 1;
        }

        assert_eq!(counts[3], 0, "itself");
        let expected = 4000.0 / 7.0;
        let others = counts.iter().enumerate().filter(|(at, _)| *at != 3);
        let chi2: f64 = others
            .map(|(_, &n)| (f64::from(n) - expected).powi(2) / expected)
            .sum();
        assert!(chi2 < 22.5, "{counts:?}: the 0.1 % point of 6 dof is 22.5");
    }

    #[test]
    fn at_most_one_mixer_applies_and_each_with_its_probability() {
        let all = draw_all(&[choice(0.5, false), choice(0.3, true)], 0..5000);

        let share = |cuts| {
            let taken = all.iter().flatten();
            let of = taken.filter(|m| matches!(m.blend, Blend::Rectangle { .. }) == cuts);
            of.count() as f64 / 5000.0
        };
        assert!((share(false) - 0.5).abs() < 0.03, "{}", share(false));
        assert!((share(true) - 0.3).abs() < 0.03, "{}", share(true));
    }

    #[test]
    fn a_sample_without_another_position_is_not_mixed() {
        assert_eq!(draw_all(&[choice(1.0, false)], 7..8), [None]);
    }

    #[test]
    fn a_rectangle_has_its_share_of_the_area_unless_an_edge_cuts_it() {
        let at = |x, y| Blend::Rectangle { share: 0.75, x, y };

        let inside = at(0.5, 0.5);
        let region = inside.region(SIZE).expect("a rectangle");
        assert_eq!((region.top, region.left), (15, 25));
        assert_eq!((region.size.height, region.size.width), (30, 50));
        assert_eq!(inside.share(SIZE), 0.75);

        let corner = at(0.0, 0.99);
        let region = corner.region(SIZE).expect("a rectangle");
        assert_eq!((region.left, region.size.width), (0, 25));
        assert_eq!((region.top, region.size.height), (44, 16));
        assert!(region.fits(SIZE));
        assert_eq!(corner.share(SIZE), 1.0 - 25.0 * 16.0 / 6000.0);
    }

    #[test]
    fn rectangles_fit_images_of_every_size() {
        let choices = [MixChoice {
            p: 1.0,
            alpha: 0.2,
            cuts: true,
        }];
        for (height, width) in [(1, 1), (1, 9), (2, 3), (224, 224)] {
            let size = Size { height, width };
            for mixing in draw_all(&choices, 0..500).into_iter().flatten() {
                let region = mixing.blend.region(size).expect("a rectangle");
                assert!(region.fits(size), "{region:?} in {size}");
                assert!((0.0..=1.0).contains(&mixing.blend.share(size)));
            }
        }
    }
}
