//! Random series of changes of fixed strength: `RandAugment` and `TrivialAugmentWide`.
//!
//! Source: torchvision.transforms.v2, after Cubuk et al., "RandAugment: Practical automated data
//! augmentation with a reduced search space" (2019), and Müller and Hutter, "TrivialAugment:
//! Tuning-free Yet State-of-the-Art Data Augmentation" (2021).

use serde::{Deserialize, Serialize};

use super::affine::check_filter;
use super::color::{ColorStep, check_color};
use super::operation::{Effect, Operation};
use super::params::Check;
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Rng, Step, TransformError};
use infeed_core::sample::{Depth, Size};

/// Number of changes, each with equal probability.
const CHANGES: u32 = 14;

/// Strongest changes of a transform.
struct Strengths {
    shear: f32,
    /// Shifts along x and y in pixels.
    translate: [f32; 2],
    rotate: f32,
    factor: f32,
    /// Number of bits that the strongest change removes.
    bits: f32,
}

/// Settings that the transforms share.
struct Strength<'a> {
    strongest: Strengths,
    /// Number of strengths, and the index of the drawn one.
    bins: u32,
    bin: u32,
    filter: Filter,
    fill: &'a Option<ChannelValues>,
    mask_fill: &'a ChannelValues,
}

/// Number `at` of `count` numbers in equal steps from `start` to `end`, as `torch.linspace` rounds
/// them on processors that multiply and add in one step.
pub(super) fn spaced(start: f32, end: f32, count: u32, at: u32) -> f32 {
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
        let change = rng.below(CHANGES);
        let most = &self.strongest;
        let spaced = |most: f32| f64::from(spaced(0.0, most, self.bins, self.bin));
        let mut signed = |most: f32| match rng.chance(0.5) {
            true => -spaced(most),
            false => spaced(most),
        };
        let color = |step| Some(Step::Color(vec![step]));
        match change {
            0 => None,
            1 | 2 => {
                let degrees = libm::atan(signed(most.shear)).to_degrees();
                let shear = along(change == 1, degrees);
                self.affine([0.0; 2], shear, Some([0.0; 2]), image)
            }
            3 | 4 => {
                let pixels = signed(most.translate[change as usize - 3]).trunc();
                self.affine(along(change == 3, pixels), [0.0; 2], None, image)
            }
            5 => self.warp(WarpMap::rotation(signed(most.rotate), None), image),
            6 => color(ColorStep::Brightness(1.0 + signed(most.factor))),
            7 => color(ColorStep::Saturation(1.0 + signed(most.factor))),
            8 => color(ColorStep::Contrast(1.0 + signed(most.factor))),
            9 => color(ColorStep::Sharpness(1.0 + signed(most.factor))),
            10 => {
                let unit = (self.bins.max(2) - 1) as f32 / most.bits;
                let bits = 8.0 - self.bin as f32 / unit;
                color(ColorStep::Posterize(bits.round_ties_even() as u32))
            }
            11 => {
                let level = self::spaced(1.0, 0.0, self.bins, self.bin);
                color(ColorStep::Solarize(255.0 * f64::from(level)))
            }
            12 => color(ColorStep::Autocontrast),
            _ => color(ColorStep::Equalize),
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

fn nearest() -> Filter {
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

/// Checks the parameters that both transforms have.
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
    check_filter(check, filter)?;
    if let Some(fill) = fill {
        check.fill("fill", fill)?;
    }
    check.fill("mask_fill", mask_fill)
}

/// Adds what both transforms have in common.
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
        let sides = [image.width, image.height].map(f64::from);
        let strength = Strength {
            strongest: Strengths {
                shear: 0.3,
                translate: sides.map(|side| (150.0 / 331.0 * side) as f32),
                rotate: 30.0,
                factor: 0.9,
                bits: 4.0,
            },
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
            strongest: Strengths {
                shear: 0.99,
                translate: [32.0; 2],
                rotate: 135.0,
                factor: 0.99,
                bits: 6.0,
            },
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
