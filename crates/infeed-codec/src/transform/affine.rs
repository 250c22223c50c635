//! Random affine maps of an image: `RandomAffine` and `RandomRotation`.
//!
//! Source: torchvision.transforms.v2 for parameters, distributions and signs.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::{Check, MAX_PIXELS};
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Jitter, Rng, Step, TransformError};
use infeed_core::sample::{Depth, Size};

/// Rotates, moves, scales and shears by random amounts, around a centre. Keeps the size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Degrees of the rotation, clockwise: from -d to d, or the range itself.
    pub degrees: Jitter,
    /// Maximum shift along x and y, as a share of width and height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<[f64; 2]>,
    /// Range of the factor of lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// Degrees of the shear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shear: Option<Shear>,
    /// Maximum tilt of the image plane around its centre along x and y, up to 0.01: lengths at a
    /// distance of `d` pixels from the centre are divided by `1 + t * d`, where `t` is drawn from
    /// minus this number to this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perspective: Option<f64>,
    /// Interpolation of images: `nearest` or `bilinear`.
    #[serde(default = "nearest")]
    pub interpolation: Filter,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
    /// x and y of the centre in pixels; absent for the centre of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
}

/// Ranges of a shear in degrees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a number, [low, high] along x, or [low, high, low, high] along x and y"
)]
pub enum Shear {
    /// Along x, from -s to s.
    By(f64),
    /// Range along x.
    X([f64; 2]),
    /// Range along x, then along y.
    Both([f64; 4]),
}

impl Shear {
    /// Returns the range along x, and that along y.
    fn ranges(self) -> ([f64; 2], Option<[f64; 2]>) {
        match self {
            Shear::By(by) => ([-by, by], None),
            Shear::X(range) => (range, None),
            Shear::Both([a, b, c, d]) => ([a, b], Some([c, d])),
        }
    }
}

fn nearest() -> Filter {
    Filter::Nearest
}

impl RandomAffine {
    /// Rotates by up to this many degrees in both directions.
    pub fn new(degrees: f64) -> RandomAffine {
        RandomAffine {
            degrees: Jitter::By(degrees),
            translate: None,
            scale: None,
            shear: None,
            perspective: None,
            interpolation: Filter::Nearest,
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
            center: None,
        }
    }

    fn map(&self, image: Size, rng: &mut Rng) -> WarpMap {
        let [low, high] = self.degrees.range(0.0, f64::NEG_INFINITY);
        let angle = rng.uniform(low, high);
        let translate = self.translate.map_or([0.0; 2], |[x, y]| {
            let most = [x * f64::from(image.width), y * f64::from(image.height)];
            most.map(|most| rng.uniform(-most, most).round_ties_even())
        });
        let scale = self.scale.map_or(1.0, |[low, high]| rng.uniform(low, high));
        let shear = self.shear.map_or([0.0; 2], |shear| {
            let (x, y) = shear.ranges();
            let x = rng.uniform(x[0], x[1]);
            [x, y.map_or(0.0, |[low, high]| rng.uniform(low, high))]
        });
        let affine = WarpMap::Affine {
            angle,
            translate,
            scale,
            shear,
            center: self.center,
        };
        match self.perspective {
            Some(most) if most > 0.0 => {
                affine.tilt([(); 2].map(|()| rng.uniform(-most, most)), image)
            }
            _ => affine,
        }
    }
}

/// Checks the degrees of a rotation.
fn check_degrees(check: &Check, degrees: Jitter) -> Result<()> {
    let [low, high] = degrees.range(0.0, f64::NEG_INFINITY);
    let is_valid = low <= high && low.is_finite() && high.is_finite();
    let allowed = ["a number not below 0", "[low, high] with low <= high"];
    check.jitter(is_valid, "degrees", degrees, allowed)
}

/// Checks that a warp can use this interpolation.
pub(super) fn check_filter(check: &Check, filter: Filter) -> Result<()> {
    check.holds(
        matches!(filter, Filter::Nearest | Filter::Bilinear),
        "interpolation",
        filter,
        "nearest or bilinear",
    )
}

fn check_center(check: &Check, center: Option<[f64; 2]>) -> Result<(), TransformError> {
    let is_valid = |center: [f64; 2]| center.iter().all(|v| v.abs() <= MAX_PIXELS as f64);
    check.holds(
        center.is_none_or(is_valid),
        "center",
        center.unwrap_or_default(),
        "[x, y] in pixels",
    )
}

/// Appends a warp unless it changes nothing.
fn push(warp: Warp, steps: &mut Vec<Step>) {
    if warp.map != WarpMap::rotation(0.0, None) {
        steps.push(Step::Warp(warp));
    }
}

/// Properties of a transform that draws a warp.
macro_rules! warp_properties {
    ($kind:ident) => {
        fn effect(&self) -> Effect {
            Effect::Warp
        }

        fn is_random(&self) -> bool {
            true
        }

        fn filter(&self) -> Option<Filter> {
            Some(self.interpolation)
        }

        fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
            super::pad::check_fill(stringify!($kind), &self.fill, channels, depth)
        }

        fn mask_fill(&self) -> Option<ChannelValues> {
            Some(self.mask_fill.clone())
        }
    };
}

/// Creates the warp of a transform from its map and the size of its result.
macro_rules! drawn_warp {
    ($transform:expr, $map:expr, $size:expr) => {
        Warp {
            map: $map,
            size: $size,
            filter: $transform.interpolation,
            fill: $transform.fill.as_slice().to_vec(),
            mask_fill: $transform.mask_fill.as_slice().to_vec(),
            part: None,
        }
    };
}

pub(super) use {drawn_warp, warp_properties};

impl Operation for RandomAffine {
    warp_properties!(RandomAffine);

    fn validate(&self) -> Result<()> {
        let check = Check("RandomAffine");
        check_degrees(&check, self.degrees)?;
        let shares = self.translate.unwrap_or_default();
        check.holds(
            shares.iter().all(|share| (0.0..=1.0).contains(share)),
            "translate",
            shares,
            "[x, y], both between 0 and 1",
        )?;
        let [low, high] = self.scale.unwrap_or([1.0; 2]);
        check.holds(
            1e-6 <= low && low <= high && high <= 1e6,
            "scale",
            [low, high],
            "[low, high] with 0 < low <= high, from 1e-6 to 1e6",
        )?;
        let (x, y) = self.shear.unwrap_or(Shear::By(0.0)).ranges();
        let is_valid = |[low, high]: [f64; 2]| -90.0 < low && low <= high && high < 90.0;
        check.holds(
            is_valid(x) && y.is_none_or(is_valid),
            "shear",
            self.shear,
            "a number below 90, [low, high] or [low, high, low, high], between -90 and 90",
        )?;
        let perspective = self.perspective.unwrap_or_default();
        check.holds(
            (0.0..=0.01).contains(&perspective),
            "perspective",
            perspective,
            "between 0 and 0.01",
        )?;
        check_filter(&check, self.interpolation)?;
        check_center(&check, self.center)?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        push(drawn_warp!(self, self.map(image, rng), image), steps);
        Ok(())
    }
}

/// Rotates by a random angle, around a centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Degrees, counter-clockwise: from -d to d, or the range itself.
    pub degrees: Jitter,
    /// Interpolation of images: `nearest` or `bilinear`.
    #[serde(default = "nearest")]
    pub interpolation: Filter,
    /// Whether the result is as large as needed to hold the whole image. Otherwise it has the size
    /// of the image.
    #[serde(default)]
    pub expand: bool,
    /// x and y of the centre in pixels; absent for the centre of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

impl RandomRotation {
    /// Rotates by up to this many degrees in both directions.
    pub fn new(degrees: f64) -> RandomRotation {
        RandomRotation {
            degrees: Jitter::By(degrees),
            interpolation: Filter::Nearest,
            expand: false,
            center: None,
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
        }
    }
}

impl Operation for RandomRotation {
    warp_properties!(RandomRotation);

    fn has_varying_size(&self) -> bool {
        self.expand
    }

    fn validate(&self) -> Result<()> {
        let check = Check("RandomRotation");
        check_degrees(&check, self.degrees)?;
        check_filter(&check, self.interpolation)?;
        check_center(&check, self.center)?;
        check.holds(
            !self.expand || self.center.is_none(),
            "center",
            self.center.unwrap_or_default(),
            "absent with expand, which rotates around the centre of the image",
        )?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let [low, high] = self.degrees.range(0.0, f64::NEG_INFINITY);
        let map = WarpMap::rotation(rng.uniform(low, high), self.center);
        let size = match self.expand {
            false => image,
            true => map.expanded_size(image).ok_or(TransformError::TooLarge {
                transform: "RandomRotation",
                found: image,
                limit: MAX_PIXELS,
            })?,
        };
        push(drawn_warp!(self, map, size), steps);
        Ok(())
    }
}
