//! Sizes for detection: `LongestMaxSize`, `RandomShortestSize` and `ScaleJitter`.
//!
//! Source: torchvision.transforms.v2 for the random sizes, albumentations for `LongestMaxSize`, whose
//! `round_up` is the rounding of Ultralytics.
//! Pixels are those of `Resize`.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::{Check, MAX_PIXELS};
use super::resize::default_antialias;
use super::{Filter, Rng, Step, TransformError};
use infeed_core::sample::Size;

/// Appends a resize of both sides by a factor, unless it changes nothing. `round` makes the sides
/// of the result integers; they are at least 1.
pub(super) fn push_scaled(
    transform: &'static str,
    image: Size,
    factor: f64,
    round: impl Fn(f64) -> f64,
    (filter, antialias): (Filter, bool),
    steps: &mut Vec<Step>,
) -> Result<()> {
    // The cast saturates.
    let side = |side: u32| (round(f64::from(side) * factor) as u32).max(1);
    let size = Size {
        height: side(image.height),
        width: side(image.width),
    };
    if size.pixels() > MAX_PIXELS {
        return Err(TransformError::TooLarge {
            transform,
            found: image,
            limit: MAX_PIXELS,
        });
    }
    if size != image {
        steps.push(Step::Resize {
            size,
            filter,
            antialias,
        });
    }
    Ok(())
}

/// Resizes so that the longer side has a given length. Keeps the aspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongestMaxSize {
    /// Length of the longer side in pixels.
    pub max_size: u32,
    /// Interpolation of images; masks use `Nearest`.
    #[serde(default)]
    pub interpolation: Filter,
    /// Whether the filter becomes wider as the image shrinks, as in [`super::Resize`].
    #[serde(default = "default_antialias", skip_serializing_if = "Clone::clone")]
    pub antialias: bool,
    /// Whether the shorter side is rounded up, as in Ultralytics, and not to the nearest integer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub round_up: bool,
}

impl LongestMaxSize {
    /// Resizes bilinearly to this longer side.
    pub fn new(max_size: u32) -> LongestMaxSize {
        LongestMaxSize {
            max_size,
            interpolation: Filter::default(),
            antialias: default_antialias(),
            round_up: false,
        }
    }
}

impl Operation for LongestMaxSize {
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn is_antialiased(&self) -> bool {
        self.antialias
    }

    fn validate(&self) -> Result<()> {
        let (height, width) = (self.max_size, self.max_size);
        Check("LongestMaxSize").size("max_size", Size { height, width })
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let factor = f64::from(self.max_size) / f64::from(image.height.max(image.width));
        let most = f64::from(self.max_size);
        let round = |side: f64| match self.round_up {
            true => side.ceil().min(most),
            false => side.round_ties_even(),
        };
        let filter = (self.interpolation, self.antialias);
        push_scaled("LongestMaxSize", image, factor, round, filter, steps)
    }
}

/// One length, or several of which one is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a whole number or a list of them")]
pub enum SideChoice {
    /// Always the same.
    One(u32),
    /// Each with equal probability.
    Any(Vec<u32>),
}

impl SideChoice {
    fn as_slice(&self) -> &[u32] {
        match self {
            SideChoice::One(side) => std::slice::from_ref(side),
            SideChoice::Any(sides) => sides,
        }
    }
}

/// Resizes so that the shorter side has a length drawn from a list. Keeps the aspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// Lengths of the shorter side in pixels.
    pub min_size: SideChoice,
    /// Maximum length of the longer side. The shorter side becomes shorter if needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// Interpolation of images; masks use `Nearest`.
    #[serde(default)]
    pub interpolation: Filter,
}

impl RandomShortestSize {
    /// Resizes bilinearly to one of these shorter sides.
    pub fn new(min_size: impl Into<Vec<u32>>) -> RandomShortestSize {
        RandomShortestSize {
            min_size: SideChoice::Any(min_size.into()),
            max_size: None,
            interpolation: Filter::default(),
        }
    }
}

impl Operation for RandomShortestSize {
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn is_random(&self) -> bool {
        true
    }

    fn has_varying_size(&self) -> bool {
        true
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomShortestSize");
        let sides = self.min_size.as_slice();
        check.holds(
            !sides.is_empty() && sides.iter().all(|side| (1..=1 << 14).contains(side)),
            "min_size",
            sides,
            "at least one length, each from 1 to 16384",
        )?;
        check.holds(
            self.max_size.is_none_or(|side| side > 0),
            "max_size",
            self.max_size,
            "at least 1",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let sides = self.min_size.as_slice();
        let side = sides.get(rng.below(sides.len() as u32) as usize).copied();
        let short = f64::from(image.height.min(image.width));
        let long = f64::from(image.height.max(image.width));
        let mut factor = f64::from(side.unwrap_or(1)) / short;
        if let Some(most) = self.max_size {
            factor = factor.min(f64::from(most) / long);
        }
        let (name, filter) = ("RandomShortestSize", (self.interpolation, true));
        push_scaled(name, image, factor, f64::trunc, filter, steps)
    }
}

/// Resizes to a random multiple of the size at which an image fits a target. Keeps the aspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// Width and height of the target, in this order, as torchvision uses its numbers.
    pub target_size: [u32; 2],
    /// Minimum and maximum factor.
    #[serde(default = "default_scale_range")]
    pub scale_range: [f64; 2],
    /// Interpolation of images; masks use `Nearest`.
    #[serde(default)]
    pub interpolation: Filter,
}

fn default_scale_range() -> [f64; 2] {
    [0.1, 2.0]
}

impl ScaleJitter {
    /// Resizes bilinearly to 0.1 to 2 times the size at which an image fits this width and height.
    pub fn new(target_size: [u32; 2]) -> ScaleJitter {
        ScaleJitter {
            target_size,
            scale_range: default_scale_range(),
            interpolation: Filter::default(),
        }
    }
}

impl Operation for ScaleJitter {
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn is_random(&self) -> bool {
        true
    }

    fn has_varying_size(&self) -> bool {
        true
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn validate(&self) -> Result<()> {
        let check = Check("ScaleJitter");
        let [width, height] = self.target_size;
        check.size("target_size", Size { height, width })?;
        let [low, high] = self.scale_range;
        check.holds(
            0.0 < low && low <= high && high <= 100.0,
            "scale_range",
            [low, high],
            "[low, high] with 0 < low <= high <= 100",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let [low, high] = self.scale_range;
        let [width, height] = self.target_size.map(f64::from);
        let fit = (height / f64::from(image.height)).min(width / f64::from(image.width));
        let factor = fit * rng.uniform(low, high);
        let (name, filter) = ("ScaleJitter", (self.interpolation, true));
        push_scaled(name, image, factor, f64::trunc, filter, steps)
    }
}
