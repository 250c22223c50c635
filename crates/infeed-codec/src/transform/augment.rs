//! Random series of changes of fixed strength: `RandAugment` and `TrivialAugmentWide`.
//!
//! Source: torchvision.transforms.v2, after Cubuk et al., "RandAugment: Practical automated data
//! augmentation with a reduced search space" (2019), and Müller and Hutter, "TrivialAugment:
//! Tuning-free Yet State-of-the-Art Data Augmentation" (2021).

use serde::{Deserialize, Serialize};

use super::affine::check_filter;
use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::operation::Operation;
use super::params::Check;
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Rng, Step, TransformError};
use infeed_core::sample::{Depth, Size};

/// A change of geometry or colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    Autocontrast,
    Equalize,
    Invert,
}

/// Changes of `RandAugment` and `TrivialAugmentWide`, each with equal probability.
const CHANGES: [Change; 14] = [
    Change::Identity,
    Change::ShearX,
    Change::ShearY,
    Change::TranslateX,
    Change::TranslateY,
    Change::Rotate,
    Change::Brightness,
    Change::Color,
    Change::Contrast,
    Change::Sharpness,
    Change::Posterize,
    Change::Solarize,
    Change::Autocontrast,
    Change::Equalize,
];

/// Strongest changes of a transform.
pub(super) struct Strengths {
    shear: f32,
    /// Shifts along x and y in pixels.
    translate: [f32; 2],
    rotate: f32,
    factor: f32,
    /// Number of bits that the strongest change removes.
    bits: f32,
    /// Number of bits that the weakest change keeps.
    kept_bits: f32,
}

impl Strengths {
    /// Strongest changes of `AutoAugment` and `RandAugment` for an image of this size.
    pub(super) fn of_series(image: Size) -> Strengths {
        let sides = [image.width, image.height].map(f64::from);
        Strengths {
            shear: 0.3,
            translate: sides.map(|side| (150.0 / 331.0 * side) as f32),
            rotate: 30.0,
            factor: 0.9,
            bits: 4.0,
            kept_bits: 8.0,
        }
    }

    /// Strongest changes of `TrivialAugmentWide`.
    pub(super) fn wide() -> Strengths {
        Strengths {
            shear: 0.99,
            translate: [32.0; 2],
            rotate: 135.0,
            factor: 0.99,
            bits: 6.0,
            kept_bits: 8.0,
        }
    }

    /// Strongest changes of `AugMix` for an image of this size.
    pub(super) fn of_mix(image: Size) -> Strengths {
        Strengths {
            translate: [image.width, image.height].map(|side| (f64::from(side) / 3.0) as f32),
            kept_bits: 4.0,
            ..Strengths::of_series(image)
        }
    }
}

/// Settings that the transforms share.
pub(super) struct Strength<'a> {
    pub(super) strongest: Strengths,
    /// Number of strengths, and the index of the drawn one.
    pub(super) bins: u32,
    pub(super) bin: u32,
    pub(super) filter: Filter,
    pub(super) fill: &'a Option<ChannelValues>,
    pub(super) mask_fill: &'a ChannelValues,
}

/// Number `at` of `count` numbers in equal steps from `start` to `end`, as `torch.linspace` rounds
/// them on processors that multiply and add in one step.
pub(super) fn linspace(start: f32, end: f32, count: u32, at: u32) -> f32 {
    if count < 2 {
        return start;
    }
    let step = f64::from((end - start) / (count - 1) as f32);
    // The products are exact in f64.
    let number = match at < count / 2 {
        true => f64::from(start) + step * f64::from(at),
        false => f64::from(end) - step * f64::from(count - 1 - at),
    };
    number as f32
}

/// Returns a number along x, or along y.
fn along(x: bool, number: f64) -> [f64; 2] {
    match x {
        true => [number, 0.0],
        false => [0.0, number],
    }
}

impl Strength<'_> {
    /// Draws a change and its sign. Returns its step, unless it changes nothing.
    fn draw(&self, image: Size, rng: &mut Rng) -> Option<Step> {
        let change = CHANGES[rng.below(CHANGES.len() as u32) as usize];
        self.step(change, image, rng)
    }

    /// Draws the sign of a change. Returns its step, unless it changes nothing.
    pub(super) fn step(&self, change: Change, image: Size, rng: &mut Rng) -> Option<Step> {
        let most = &self.strongest;
        let spaced = |most: f32| f64::from(linspace(0.0, most, self.bins, self.bin));
        let mut signed = |most: f32| match rng.chance(0.5) {
            true => -spaced(most),
            false => spaced(most),
        };
        let color = |step| Some(Step::Color(vec![step]));
        match change {
            Change::Identity => None,
            Change::ShearX | Change::ShearY => {
                let degrees = libm::atan(signed(most.shear)).to_degrees();
                let shear = along(change == Change::ShearX, degrees);
                self.affine([0.0; 2], shear, Some([0.0; 2]), image)
            }
            Change::TranslateX | Change::TranslateY => {
                let is_x = change == Change::TranslateX;
                let pixels = signed(most.translate[usize::from(!is_x)]).trunc();
                self.affine(along(is_x, pixels), [0.0; 2], None, image)
            }
            Change::Rotate => self.warp(WarpMap::rotation(signed(most.rotate), None), image),
            Change::Brightness => color(ColorStep::Brightness(1.0 + signed(most.factor))),
            Change::Color => color(ColorStep::Saturation(1.0 + signed(most.factor))),
            Change::Contrast => color(ColorStep::Contrast(1.0 + signed(most.factor))),
            Change::Sharpness => color(ColorStep::Sharpness(1.0 + signed(most.factor))),
            Change::Posterize => {
                let unit = (self.bins.max(2) - 1) as f32 / most.bits;
                let bits = most.kept_bits - self.bin as f32 / unit;
                color(ColorStep::Posterize(bits.round_ties_even() as u32))
            }
            Change::Solarize => {
                let level = self::linspace(1.0, 0.0, self.bins, self.bin);
                color(ColorStep::Solarize(255.0 * f64::from(level)))
            }
            Change::Autocontrast => color(ColorStep::Autocontrast),
            Change::Equalize => color(ColorStep::Equalize),
            Change::Invert => color(ColorStep::Invert),
        }
    }

    fn affine(
        &self,
        translate: [f64; 2],
        shear: [f64; 2],
        center: Option<[f64; 2]>,
        image: Size,
    ) -> Option<Step> {
        let map = WarpMap::Affine {
            angle: 0.0,
            translate,
            scale: 1.0,
            shear,
            center,
        };
        let moves = translate != [0.0; 2] || shear != [0.0; 2];
        moves.then(|| self.warp(map, image)).flatten()
    }

    fn warp(&self, map: WarpMap, image: Size) -> Option<Step> {
        let fill = self.fill.as_ref();
        let warp = Warp {
            map,
            size: image,
            filter: self.filter,
            fill: fill.map_or(Vec::new(), |fill| fill.as_slice().to_vec()),
            mask_fill: self.mask_fill.as_slice().to_vec(),
            part: None,
        };
        (map != WarpMap::rotation(0.0, None)).then_some(Step::Warp(warp))
    }
}

pub(super) fn nearest() -> Filter {
    Filter::Nearest
}

fn thirty_one() -> u32 {
    31
}

/// Applies some of 14 changes of geometry and colours, all with one strength. Masks and boxes move
/// with the image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// Number of changes.
    #[serde(default = "two")]
    pub num_ops: u32,
    /// Index of the strength, from 0.
    #[serde(default = "nine")]
    pub magnitude: u32,
    /// Number of strengths.
    #[serde(default = "thirty_one")]
    pub num_magnitude_bins: u32,
    /// Interpolation of images: `nearest` or `bilinear`.
    #[serde(default = "nearest")]
    pub interpolation: Filter,
    /// Fill for images; absent for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<ChannelValues>,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

fn two() -> u32 {
    2
}

fn nine() -> u32 {
    9
}

impl Default for RandAugment {
    fn default() -> RandAugment {
        RandAugment {
            num_ops: two(),
            magnitude: nine(),
            num_magnitude_bins: thirty_one(),
            interpolation: nearest(),
            fill: None,
            mask_fill: ChannelValues::default(),
        }
    }
}

/// Applies one of 14 changes of geometry and colours with a random strength. Masks and boxes move
/// with the image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrivialAugmentWide {
    /// Number of strengths.
    #[serde(default = "thirty_one")]
    pub num_magnitude_bins: u32,
    /// Interpolation of images: `nearest` or `bilinear`.
    #[serde(default = "nearest")]
    pub interpolation: Filter,
    /// Fill for images; absent for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<ChannelValues>,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
}

impl Default for TrivialAugmentWide {
    fn default() -> TrivialAugmentWide {
        TrivialAugmentWide {
            num_magnitude_bins: thirty_one(),
            interpolation: nearest(),
            fill: None,
            mask_fill: ChannelValues::default(),
        }
    }
}

/// Checks a number of strengths, and the other shared parameters.
fn check_shared(
    check: &Check,
    bins: u32,
    filter: Filter,
    fill: &Option<ChannelValues>,
    mask_fill: &ChannelValues,
) -> Result<(), TransformError> {
    check.holds(
        (2..=1000).contains(&bins),
        "num_magnitude_bins",
        bins,
        "from 2 to 1000",
    )?;
    check_fills(check, filter, fill, mask_fill)
}

/// Checks the parameters of warps.
pub(super) fn check_fills(
    check: &Check,
    filter: Filter,
    fill: &Option<ChannelValues>,
    mask_fill: &ChannelValues,
) -> Result<(), TransformError> {
    check_filter(check, filter)?;
    if let Some(fill) = fill {
        check.fill("fill", fill)?;
    }
    check.fill("mask_fill", mask_fill)
}

/// Adds what the transforms have in common.
macro_rules! augments {
    ($($augment:ident: $count:expr;)*) => {$(
        fn effect(&self) -> Effect {
            Effect::Warp
        }

        fn is_random(&self) -> bool {
            true
        }

        fn parts(&self) -> Vec<Effect> {
            [Effect::Color, Effect::Warp].repeat($count(self))
        }

        fn filter(&self) -> Option<Filter> {
            Some(self.interpolation)
        }

        fn check_pixels(&self, channels: usize, depth: Depth) -> Result<(), TransformError> {
            check_color(stringify!($augment), channels, depth)?;
            match &self.fill {
                Some(fill) => super::pad::check_fill(stringify!($augment), fill, channels, depth),
                None => Ok(()),
            }
        }

        fn mask_fill(&self) -> Option<ChannelValues> {
            Some(self.mask_fill.clone())
        }
    )*};
}

pub(super) use augments;

impl Operation for RandAugment {
    augments! {
        RandAugment: |own: &RandAugment| own.num_ops as usize;
    }

    fn validate(&self) -> Result<(), TransformError> {
        let check = Check("RandAugment");
        check.holds(self.num_ops <= 16, "num_ops", self.num_ops, "up to 16")?;
        check.holds(
            self.magnitude < self.num_magnitude_bins,
            "magnitude",
            self.magnitude,
            "less than num_magnitude_bins",
        )?;
        let bins = self.num_magnitude_bins;
        check_shared(
            &check,
            bins,
            self.interpolation,
            &self.fill,
            &self.mask_fill,
        )
    }

    fn draw(
        &self,
        image: Size,
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        let strength = Strength {
            strongest: Strengths::of_series(image),
            bins: self.num_magnitude_bins,
            bin: self.magnitude,
            filter: self.interpolation,
            fill: &self.fill,
            mask_fill: &self.mask_fill,
        };
        steps.extend((0..self.num_ops).filter_map(|_| strength.draw(image, rng)));
        Ok(())
    }
}

impl Operation for TrivialAugmentWide {
    augments! {
        TrivialAugmentWide: |_: &TrivialAugmentWide| 1;
    }

    fn validate(&self) -> Result<(), TransformError> {
        let check = Check("TrivialAugmentWide");
        let bins = self.num_magnitude_bins;
        check_shared(
            &check,
            bins,
            self.interpolation,
            &self.fill,
            &self.mask_fill,
        )
    }

    fn draw(
        &self,
        image: Size,
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        let strength = Strength {
            strongest: Strengths::wide(),
            bins: self.num_magnitude_bins,
            bin: rng.below(self.num_magnitude_bins),
            filter: self.interpolation,
            fill: &self.fill,
            mask_fill: &self.mask_fill,
        };
        steps.extend(strength.draw(image, rng));
        Ok(())
    }
}
