//! Random choices among transforms: `RandomApply`, `RandomChoice` and `RandomOrder`.
//!
//! Source: torchvision.transforms.v2. The draws of a list follow each other in the generator of
//! the transform that has the list.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{ChannelValues, Filter, Rng, Step, Transform};
use infeed_core::sample::{Depth, Size};

/// Largest number of transforms in a list.
const MAX_CHOICES: usize = 16;

fn one_half() -> f64 {
    0.5
}

/// Draws the steps of a transform of a list for an image of this size. Returns the size after
/// them.
fn draw_one(
    transform: &Transform,
    image: Size,
    rng: &mut Rng,
    steps: &mut Vec<Step>,
) -> Result<Size> {
    let before = steps.len();
    transform.operation().draw(image, rng, steps)?;
    let drawn = steps[before..].iter();
    Ok(drawn.fold(image, |size, step| step.output_size(size)))
}

/// Checks the transforms of a list.
fn check_list(check: &Check, list: &[Transform]) -> Result<()> {
    let names: Vec<&str> = list.iter().map(Transform::name).collect();
    let is_allowed = |transform: &Transform| {
        let changes = [transform.effect()].into_iter().chain(transform.parts());
        let is_allowed = |effect| {
            matches!(
                effect,
                Effect::Color | Effect::Flip | Effect::Warp | Effect::Crop | Effect::Resize
            )
        };
        changes.into_iter().all(is_allowed)
            && !transform.needs_boxes()
            && !transform.joins_images()
            && transform.output_channels(1) == 1
            && transform.output_channels(3) == 3
    };
    check.holds(
        (1..=MAX_CHOICES).contains(&list.len()) && list.iter().all(is_allowed),
        "transforms",
        names,
        "1 to 16 transforms of colours, flips, warps, resizes and crops without padding, which \
         keep the channels",
    )?;
    list.iter().try_for_each(Transform::validate)
}

/// Defines transforms over a list, with the properties that follow from the list.
macro_rules! choices {
    ($($choice:ident repeats $times:expr, checks $check:expr, has $fixed:expr;)*) => {$(
        impl Operation for $choice {
            fn effect(&self) -> Effect {
                let effects = || self.transforms.iter().map(Transform::effect);
                let moves = effects().find(|effect| effect.is_geometric());
                moves.or(effects().next()).unwrap_or(Effect::Color)
            }

            fn is_random(&self) -> bool {
                true
            }

            fn has_varying_size(&self) -> bool {
                let mut parts = self.transforms.iter().flat_map(Transform::parts);
                let mut list = self.transforms.iter();
                parts.any(|part| matches!(part, Effect::Crop | Effect::Resize))
                    || list.any(|transform| transform.operation().has_varying_size())
            }

            fn fixed_size(&self) -> Option<Size> {
                $fixed(self)
            }

            fn parts(&self) -> Vec<Effect> {
                let list: Vec<Effect> = self.transforms.iter().flat_map(Transform::parts).collect();
                list.repeat($times(self))
            }

            fn only_moves_pixels(&self) -> bool {
                self.transforms.iter().all(Transform::only_moves_pixels)
            }

            fn filter(&self) -> Option<Filter> {
                self.transforms.iter().find_map(Transform::filter)
            }

            fn needs_at_least(&self) -> Size {
                let least = self.transforms.iter().map(Transform::needs_at_least);
                least.fold(Size { height: 1, width: 1 }, |a, b| Size {
                    height: a.height.max(b.height),
                    width: a.width.max(b.width),
                })
            }

            fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
                let mut list = self.transforms.iter();
                list.try_for_each(|transform| transform.check_pixels(channels, depth))
            }

            fn mask_fill(&self) -> Option<ChannelValues> {
                self.transforms.iter().find_map(Transform::mask_fill)
            }

            fn validate(&self) -> Result<()> {
                let check = Check(stringify!($choice));
                check_list(&check, &self.transforms)?;
                $check(&check, self)
            }

            fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
                let chosen = self.choose(rng);
                let mut size = image;
                for number in chosen {
                    size = draw_one(&self.transforms[number], size, rng, steps)?;
                }
                Ok(())
            }
        }
    )*};
}

/// Applies all transforms of a list with a given probability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    /// Transforms of colours, flips, warps, resizes and crops.
    pub transforms: Vec<Transform>,
    /// Probability that they are applied.
    #[serde(default = "one_half")]
    pub p: f64,
}

impl RandomApply {
    /// Applies these transforms with probability `p`.
    pub fn new(transforms: Vec<Transform>, p: f64) -> RandomApply {
        RandomApply { transforms, p }
    }

    fn choose(&self, rng: &mut Rng) -> Vec<usize> {
        match rng.chance(self.p) {
            true => (0..self.transforms.len()).collect(),
            false => Vec::new(),
        }
    }
}

/// Applies one transform of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomChoice {
    /// Transforms of colours, flips, warps, resizes and crops.
    pub transforms: Vec<Transform>,
    /// Weight of each transform; absent for equal weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<Vec<f64>>,
}

impl RandomChoice {
    /// Applies one of these transforms, each with equal probability.
    pub fn new(transforms: Vec<Transform>) -> RandomChoice {
        RandomChoice {
            transforms,
            p: None,
        }
    }

    fn choose(&self, rng: &mut Rng) -> Vec<usize> {
        let count = self.transforms.len();
        let Some(weights) = &self.p else {
            return vec![rng.below(count as u32) as usize];
        };
        let mut rest = rng.uniform(0.0, weights.iter().sum());
        let mut chosen = count - 1;
        for (number, weight) in weights.iter().enumerate() {
            if rest < *weight {
                chosen = number;
                break;
            }
            rest -= weight;
        }
        vec![chosen]
    }
}

/// Applies all transforms of a list in a random order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomOrder {
    /// Transforms of colours, flips, warps, resizes and crops.
    pub transforms: Vec<Transform>,
}

impl RandomOrder {
    /// Applies these transforms in a random order.
    pub fn new(transforms: Vec<Transform>) -> RandomOrder {
        RandomOrder { transforms }
    }

    fn choose(&self, rng: &mut Rng) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.transforms.len()).collect();
        rng.shuffle(&mut order);
        order
    }
}

fn check_apply(check: &Check, own: &RandomApply) -> Result<()> {
    check.probability(own.p)
}

fn check_choice(check: &Check, own: &RandomChoice) -> Result<()> {
    let Some(weights) = &own.p else {
        return Ok(());
    };
    let is_valid = |weight: &f64| weight.is_finite() && *weight >= 0.0;
    check.holds(
        weights.len() == own.transforms.len()
            && weights.iter().all(is_valid)
            && weights.iter().any(|weight| *weight > 0.0),
        "p",
        weights,
        "one weight for each transform, none below 0 and one above 0",
    )
}

/// Size of every result of a list that is always applied. None if there is no such size.
fn size_of_all(own: &RandomApply) -> Option<Size> {
    let sizes = own
        .transforms
        .iter()
        .try_fold(None, |size, transform| transform.output_size(size).ok());
    sizes.flatten().filter(|_| own.p >= 1.0)
}

/// Size of every result of each transform. None if they differ.
fn size_of_each(own: &RandomChoice) -> Option<Size> {
    let mut sizes = own
        .transforms
        .iter()
        .map(|one| one.operation().fixed_size());
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

choices! {
    RandomApply repeats |_: &RandomApply| 1, checks check_apply, has size_of_all;
    RandomChoice repeats |_: &RandomChoice| 1, checks check_choice, has size_of_each;
    // Any order of the parts is a part of as many repetitions.
    RandomOrder repeats |own: &RandomOrder| own.transforms.len(),
        checks |_: &Check, _: &RandomOrder| Ok(()),
        has |_: &RandomOrder| None;
}
