//! Random series of changes of fixed strength: `RandAugment` and `TrivialAugmentWide`.
//!
//! Source: torchvision.transforms.v2, after Cubuk et al., "RandAugment: Practical automated data
//! augmentation with a reduced search space" (2019), and Müller and Hutter, "TrivialAugment:
//! Tuning-free Yet State-of-the-Art Data Augmentation" (2021).

use serde::{Deserialize, Serialize};

use super::affine::check_filter;
use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::pad::check_fill;
use super::params::Check;
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Rng, Step};
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

/// A strength of changes, and the settings of their warps.
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

/// Defines a transform that applies changes: the struct with its own fields and those that all
/// have, and its properties. `up to` is the largest number of changes. Its methods `check_own`, for
/// its own fields, and `draw_changes` are written by hand.
macro_rules! augment {
    (
        $(#[$doc:meta])*
        $augment:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)*
        }
        up to |$own:ident| $count:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $augment {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Interpolation of images: `nearest` or `bilinear`.
            pub interpolation: Filter,
            /// Fill for images; absent for 0.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub fill: Option<ChannelValues>,
            /// Fill for masks.
            pub mask_fill: ChannelValues,
        }

        impl Default for $augment {
            fn default() -> $augment {
                $augment {
                    $($field: $default,)*
                    interpolation: Filter::Nearest,
                    fill: None,
                    mask_fill: ChannelValues::default(),
                }
            }
        }

        impl $augment {
            fn strength(&self, strongest: Strengths, bins: u32, bin: u32) -> Strength<'_> {
                Strength {
                    strongest,
                    bins,
                    bin,
                    filter: self.interpolation,
                    fill: &self.fill,
                    mask_fill: &self.mask_fill,
                }
            }
        }

        impl Operation for $augment {
            fn effect(&self) -> Effect {
                Effect::Warp
            }

            fn is_random(&self) -> bool {
                true
            }

            fn parts(&self) -> Vec<Effect> {
                let $own = self;
                [Effect::Color, Effect::Warp].repeat($count)
            }

            fn filter(&self) -> Option<Filter> {
                Some(self.interpolation)
            }

            fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
                check_colors(stringify!($augment), &self.fill, channels, depth)
            }

            fn mask_fill(&self) -> Option<ChannelValues> {
                Some(self.mask_fill.clone())
            }

            fn validate(&self) -> Result<()> {
                let check = Check(stringify!($augment));
                self.check_own(&check)?;
                check_fills(&check, self.interpolation, &self.fill, &self.mask_fill)
            }

            fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
                self.draw_changes(image, rng, steps);
                Ok(())
            }
        }
    };
}

pub(super) use augment;

/// Checks the parameters of warps.
pub(super) fn check_fills(
    check: &Check,
    filter: Filter,
    fill: &Option<ChannelValues>,
    mask_fill: &ChannelValues,
) -> Result<()> {
    check_filter(check, filter)?;
    if let Some(fill) = fill {
        check.fill("fill", fill)?;
    }
    check.fill("mask_fill", mask_fill)
}

/// Checks that changes are defined for images with these channels and this depth.
pub(super) fn check_colors(
    transform: &'static str,
    fill: &Option<ChannelValues>,
    channels: usize,
    depth: Depth,
) -> Result<()> {
    check_color(transform, channels, depth)?;
    match fill {
        Some(fill) => check_fill(transform, fill, channels, depth),
        None => Ok(()),
    }
}

fn check_bins(check: &Check, bins: u32) -> Result<()> {
    check.holds(
        (2..=1000).contains(&bins),
        "num_magnitude_bins",
        bins,
        "from 2 to 1000",
    )
}

augment! {
    /// Applies some of 14 changes of geometry and colours, all with one strength. Masks and boxes
    /// move with the image.
    RandAugment {
        /// Number of changes.
        num_ops: u32 = 2,
        /// Index of the strength, from 0.
        magnitude: u32 = 9,
        /// Number of strengths.
        num_magnitude_bins: u32 = 31,
    }
    up to |own| own.num_ops as usize
}

augment! {
    /// Applies one of 14 changes of geometry and colours with a random strength. Masks and boxes
    /// move with the image.
    TrivialAugmentWide {
        /// Number of strengths.
        num_magnitude_bins: u32 = 31,
    }
    up to |_own| 1
}

impl RandAugment {
    fn check_own(&self, check: &Check) -> Result<()> {
        check.holds(self.num_ops <= 16, "num_ops", self.num_ops, "up to 16")?;
        check.holds(
            self.magnitude < self.num_magnitude_bins,
            "magnitude",
            self.magnitude,
            "less than num_magnitude_bins",
        )?;
        check_bins(check, self.num_magnitude_bins)
    }

    fn draw_changes(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) {
        let strongest = Strengths::of_series(image);
        let strength = self.strength(strongest, self.num_magnitude_bins, self.magnitude);
        steps.extend((0..self.num_ops).filter_map(|_| strength.draw(image, rng)));
    }
}

impl TrivialAugmentWide {
    fn check_own(&self, check: &Check) -> Result<()> {
        check_bins(check, self.num_magnitude_bins)
    }

    fn draw_changes(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) {
        let bins = self.num_magnitude_bins;
        let strength = self.strength(Strengths::wide(), bins, rng.below(bins));
        steps.extend(strength.draw(image, rng));
    }
}
