//! Pixels to pixels, one operation a file.
//!
//! A [`Transform`] is what the user asked for. For each sample it draws [`Step`]s: from the size
//! of the image alone, before anything is decoded, so that a planner can push a crop into the
//! decoder. A step has no randomness left, and [`Step::apply`] does it to images and masks alike.
//!
//! Names, parameters and distributions are those of torchvision.transforms.v2, the generator is
//! our own ([`Rng`]): a function of seed, epoch, position and transform.

use serde::{Deserialize, Serialize};

mod beta;
mod color;
mod crop;
mod erase;
mod error;
mod flip;
mod mix;
mod normalize;
mod onehot;
mod pad;
mod palette;
mod params;
mod resize;
mod resized_crop;
mod rng;
mod step;
mod view;
mod words;

#[cfg(test)]
mod tests;

pub use color::{ColorJitter, ColorStep, Grayscale, Jitter};
pub use crop::{CenterCrop, Corner, Crop, CropOrPad, Place, RandomCrop};
pub use erase::RandomErasing;
pub use error::TransformError;
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use mix::{Blend, CutMix, MixUp, Mixing, Way};
pub use normalize::{Affine, Normalize, ToFloat};
pub(crate) use onehot::{Accepted, MaskContent};
pub use onehot::{ClassIndex, DEFAULT_IGNORE_INDEX, MAX_CLASSES, OneHot, Unknown};
pub use pad::Pad;
pub use palette::{Palette, PaletteError};
pub use params::{Filter, MAX_PIXELS, PadMode, Padding, Sides, Values};
pub use resize::Resize;
pub use resized_crop::RandomResizedCrop;
pub use rng::Rng;
pub use step::{Step, TransformScratch};
pub use view::PixelView;

use crate::sample::{Depth, Size};

/// One transform of a pipeline, as the user describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
#[allow(missing_docs)]
pub enum Transform {
    Crop(Crop),
    CenterCrop(CenterCrop),
    RandomCrop(RandomCrop),
    RandomResizedCrop(RandomResizedCrop),
    Resize(Resize),
    Pad(Pad),
    CropOrPad(CropOrPad),
    RandomHorizontalFlip(RandomHorizontalFlip),
    RandomVerticalFlip(RandomVerticalFlip),
    ColorJitter(ColorJitter),
    Grayscale(Grayscale),
    RandomErasing(RandomErasing),
    ToFloat(ToFloat),
    Normalize(Normalize),
    OneHot(OneHot),
    ClassIndex(ClassIndex),
    MixUp(MixUp),
    CutMix(CutMix),
}

/// Implements what is the same for every variant: the name, validation, and `From` its struct.
macro_rules! each_transform {
    ($($kind:ident),*) => {
        impl Transform {
            /// The name by which descriptions call it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Transform::$kind(_) => stringify!($kind),)*
                }
            }

            /// Checks parameters, as far as that is possible without an image.
            ///
            /// # Errors
            ///
            /// `Parameter`, with what it was and what it may be.
            pub fn validate(&self) -> Result<(), TransformError> {
                match self {
                    $(Transform::$kind(transform) => transform.validate(),)*
                }
            }
        }

        $(impl From<$kind> for Transform {
            fn from(transform: $kind) -> Transform {
                Transform::$kind(transform)
            }
        })*
    };
}

each_transform!(
    Crop,
    CenterCrop,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Pad,
    CropOrPad,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    ColorJitter,
    Grayscale,
    RandomErasing,
    ToFloat,
    Normalize,
    OneHot,
    ClassIndex,
    MixUp,
    CutMix
);

impl Transform {
    /// Draws what is done to one sample, whose image and masks have this size.
    ///
    /// `ToFloat`, `Normalize`, `OneHot` and `ClassIndex` have no steps: they say what is written
    /// into the batch. Nor have `MixUp` and `CutMix`, which are about two samples: [`Mixing::draw`].
    ///
    /// # Errors
    ///
    /// `TooSmall` if the image lacks pixels that are to be cut out, `TooLarge` if the result
    /// would exceed [`MAX_PIXELS`], `Empty` if the image has none.
    pub fn draw(&self, size: Size, rng: &mut Rng) -> Result<Vec<Step>, TransformError> {
        let mut steps = Vec::new();
        if size.pixels() == 0 {
            return Err(TransformError::Empty {
                transform: self.name(),
                found: size,
            });
        }
        match self {
            Transform::Crop(t) => t.draw(size, &mut steps)?,
            Transform::CenterCrop(t) => t.draw(size, &mut steps)?,
            Transform::RandomCrop(t) => t.draw(size, rng, &mut steps)?,
            Transform::RandomResizedCrop(t) => t.draw(size, rng, &mut steps),
            Transform::Resize(t) => t.draw(size, &mut steps)?,
            Transform::Pad(t) => t.draw(size, &mut steps)?,
            Transform::CropOrPad(t) => t.draw(size, &mut steps)?,
            Transform::RandomHorizontalFlip(t) => {
                steps.extend(rng.chance(t.p).then_some(Step::FlipX));
            }
            Transform::RandomVerticalFlip(t) => {
                steps.extend(rng.chance(t.p).then_some(Step::FlipY));
            }
            Transform::ColorJitter(t) => t.draw(rng, &mut steps),
            Transform::Grayscale(t) => steps.push(Step::Gray {
                channels: t.num_output_channels,
            }),
            Transform::RandomErasing(t) => t.draw(size, rng, &mut steps),
            Transform::ToFloat(_)
            | Transform::Normalize(_)
            | Transform::OneHot(_)
            | Transform::ClassIndex(_)
            | Transform::MixUp(_)
            | Transform::CutMix(_) => {}
        }
        Ok(steps)
    }

    /// Size of every result, given the size of every image; none where it differs by record.
    ///
    /// # Errors
    ///
    /// As [`Transform::draw`], where the size of the images is known.
    pub fn output_size(&self, input: Option<Size>) -> Result<Option<Size>, TransformError> {
        if let Some(size) = input {
            // Nothing that is drawn changes the size of the result, so any draw tells it.
            let steps = self.draw(size, &mut Rng::new(0, 0, 0, 0))?;
            return Ok(Some(
                steps.iter().fold(size, |size, step| step.output_size(size)),
            ));
        }
        Ok(match self {
            Transform::Crop(t) => Some(t.size()),
            Transform::CenterCrop(t) => Some(t.size.square()),
            Transform::RandomCrop(t) => Some(t.size.square()),
            Transform::RandomResizedCrop(t) => Some(t.size.square()),
            Transform::CropOrPad(t) => Some(t.size()),
            Transform::Resize(t) => match t.size {
                Sides::Both(_) => Some(t.size.square()),
                Sides::One(_) => None,
            },
            _ => None,
        })
    }

    /// Channels of the resulting image, given those of the image. Masks keep theirs.
    pub fn output_channels(&self, channels: usize) -> usize {
        match self {
            Transform::Grayscale(t) => t.num_output_channels as usize,
            _ => channels,
        }
    }

    /// Checks that the transform is defined for images of this many channels and this depth.
    ///
    /// # Errors
    ///
    /// `Pixels` if it is not, `Values` if a list by channel has another length.
    pub fn check_pixels(&self, channels: usize, depth: Depth) -> Result<(), TransformError> {
        let name = self.name();
        let fill = |parameter, values: &Values| {
            pad::pixel_from_values(name, parameter, values.as_slice(), channels, depth).map(|_| ())
        };
        match self {
            Transform::RandomCrop(t) => fill("fill", &t.fill),
            Transform::Pad(t) => fill("fill", &t.fill),
            Transform::CropOrPad(t) => fill("fill", &t.fill),
            Transform::ColorJitter(_) | Transform::Grayscale(_) => {
                color::check_color(name, channels, depth)
            }
            Transform::Normalize(t) => Affine::identity(channels, depth).normalize(t),
            _ => Ok(()),
        }
    }

    /// The least size an image must have for `draw` to succeed.
    pub fn needs_at_least(&self) -> Size {
        match self {
            Transform::Crop(t) => t.needs(),
            Transform::RandomCrop(t) => t.needs(),
            _ => Size {
                height: 1,
                width: 1,
            },
        }
    }

    /// Whether pixels move or the size changes, for images and masks alike.
    pub fn changes_geometry(&self) -> bool {
        match self {
            Transform::Crop(_)
            | Transform::CenterCrop(_)
            | Transform::RandomCrop(_)
            | Transform::RandomResizedCrop(_)
            | Transform::Resize(_)
            | Transform::Pad(_)
            | Transform::CropOrPad(_)
            | Transform::RandomHorizontalFlip(_)
            | Transform::RandomVerticalFlip(_) => true,
            Transform::ColorJitter(_)
            | Transform::Grayscale(_)
            | Transform::RandomErasing(_)
            | Transform::ToFloat(_)
            | Transform::Normalize(_)
            | Transform::OneHot(_)
            | Transform::ClassIndex(_)
            | Transform::MixUp(_)
            | Transform::CutMix(_) => false,
        }
    }

    /// Whether each pixel of the result depends on the same pixel of the image and on nothing
    /// else. `ColorJitter` is not: contrast is about the mean of the image.
    pub fn is_pointwise(&self) -> bool {
        matches!(
            self,
            Transform::Grayscale(_)
                | Transform::ToFloat(_)
                | Transform::Normalize(_)
                | Transform::OneHot(_)
                | Transform::ClassIndex(_)
        )
    }

    /// Whether masks are changed: by geometry together with the image, by `OneHot` and
    /// `ClassIndex` alone.
    pub fn applies_to_masks(&self) -> bool {
        self.changes_geometry() || matches!(self, Transform::OneHot(_) | Transform::ClassIndex(_))
    }

    /// Whether images are changed.
    pub fn applies_to_images(&self) -> bool {
        !matches!(self, Transform::OneHot(_) | Transform::ClassIndex(_))
    }

    /// Whether a sample is mixed with another's, once both are finished.
    pub fn mixes(&self) -> bool {
        matches!(self, Transform::MixUp(_) | Transform::CutMix(_))
    }

    /// What it writes where it adds pixels to a mask; None where it adds none.
    pub(crate) fn mask_fill(&self) -> Option<Values> {
        match self {
            Transform::CenterCrop(_) => Some(Values::default()),
            Transform::Pad(t) => Some(t.mask_fill.clone()),
            Transform::CropOrPad(t) => Some(t.mask_fill.clone()),
            Transform::RandomCrop(t) if t.padding.is_some() || t.pad_if_needed => {
                Some(t.mask_fill.clone())
            }
            _ => None,
        }
    }

    /// Path of the palette of a mask, where it has one.
    pub fn palette(&self) -> Option<&str> {
        match self {
            Transform::OneHot(t) => t.palette.as_deref(),
            Transform::ClassIndex(t) => t.palette.as_deref(),
            _ => None,
        }
    }

    /// The one image or mask it is about, where it names one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Transform::ToFloat(t) => t.field.as_deref(),
            Transform::Normalize(t) => t.field.as_deref(),
            Transform::OneHot(t) => Some(&t.field),
            Transform::ClassIndex(t) => Some(&t.field),
            _ => None,
        }
    }
}

impl ToFloat {
    fn validate(&self) -> Result<(), TransformError> {
        Ok(())
    }
}
