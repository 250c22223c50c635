//! Transforms pixels to pixels; one operation per file.
//!
//! A [`Transform`] is the user's description. For each sample, it draws [`Step`]s from the size of
//! the image alone, before the image is decoded, so that the planner can move a crop into the
//! decoder. A step has no random parameters left; [`Step::apply`] applies it to images and masks.
//!
//! Names, parameters and distributions follow torchvision.transforms.v2. The random generator is
//! infeed's [`Rng`]: a function of seed, epoch, position and transform.

use serde::{Deserialize, Serialize};

mod affine;
mod apply;
mod aug_mix;
mod augment;
mod auto_augment;
mod beta;
mod blur;
mod boxes;
mod choices;
mod color;
mod color_step;
mod compress;
mod copy_paste;
mod crop;
mod distort;
mod effect;
mod elastic;
mod elastic_field;
mod erase;
mod error;
mod flip;
mod fuse;
mod gaussian;
mod hsv;
mod image_mixup;
mod iou_crop;
mod linear;
mod mirrored_copies;
mod mirrored_paste;
mod mix;
mod mosaic;
mod noise;
mod normalize;
mod onehot;
mod operation;
mod outlines;
mod pad;
mod palette;
mod params;
mod perspective;
mod points;
mod resize;
mod resized_crop;
mod rng;
mod scale;
mod sized_crop;
mod step;
mod tone;
mod view;
mod warp;
mod warp_pixels;
mod words;
mod zoom_out;

#[cfg(test)]
mod tests;

pub use affine::{RandomAffine, RandomRotation, Shear};
pub use apply::TransformScratch;
pub use aug_mix::AugMix;
pub use augment::{RandAugment, TrivialAugmentWide};
pub use auto_augment::{AugmentPolicy, AutoAugment};
pub use blur::GaussianBlur;
pub use boxes::{BoxFilter, BoxFormat, MovingBox};
pub use choices::{RandomApply, RandomChoice, RandomOrder};
pub use color::{ColorJitter, Grayscale};
pub use color_step::ColorStep;
pub use compress::JPEG;
pub use copy_paste::{CopyPaste, CopyPasteDraw};
pub use crop::{CenterCrop, Corner, Crop, CropOrPad, CropOrPadTo, CropPosition, RandomCrop};
pub use distort::RandomPhotometricDistort;
pub use effect::Effect;
pub use elastic::ElasticTransform;
pub use elastic_field::ElasticField;
pub use erase::RandomErasing;
pub use error::{PaletteError, TransformError};
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use fuse::fuse;
pub use hsv::RandomHSV;
pub use image_mixup::ImageMixUp;
pub use iou_crop::RandomIoUCrop;
pub use mirrored_copies::MirroredCopies;
pub use mirrored_paste::{MirroredPaste, OutlinedObject};
pub use mix::{Blend, CutMix, MixChoice, MixSettings, MixUp, Mixing};
pub use mosaic::{Mosaic, MosaicDraw, MosaicTile, TILES};
pub use noise::GaussianNoise;
pub use normalize::{Affine, Normalize, ToFloat};
pub use onehot::{AcceptedPixels, MaskClasses, MaskContent};
pub use onehot::{ClassIndex, DEFAULT_IGNORE_INDEX, MAX_CLASSES, OneHot, Unknown};
pub use outlines::{MovingOutlines, ObjectMap, OutlineExtent, PaintedObject, write_map};
pub use pad::Pad;
pub use palette::Palette;
pub use params::{
    ChannelValues, Filter, FilterChoice, Jitter, MAX_PIXELS, PadMode, Padding, Sides, ValuePair,
};
pub use perspective::RandomPerspective;
pub use points::{MovingPoint, MovingPoints};
pub use resize::Resize;
pub use resized_crop::RandomResizedCrop;
pub use rng::Rng;
pub use scale::{LongestMaxSize, RandomShortestSize, ScaleJitter, SideChoice};
pub use sized_crop::RandomSizedCrop;
pub use step::Step;
pub use tone::{RandomAdjustSharpness, RandomAutocontrast, RandomEqualize, RandomGrayscale};
pub use tone::{RandomInvert, RandomPosterize, RandomSolarize};
pub use view::PixelView;
pub use warp::{Warp, WarpMap};
pub use zoom_out::RandomZoomOut;

use infeed_core::sample::{Depth, Size};
use operation::Operation;

/// Defines [`Transform`] with one variant per listed struct, and what all variants have in common.
macro_rules! transforms {
    ($($kind:ident),* $(,)?) => {
        /// The transforms, without their settings and steps.
        pub mod list {
            pub use super::{$($kind),*};
        }

        /// A transform of a pipeline, as the user describes it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[allow(missing_docs)]
        pub enum Transform {
            $($kind($kind),)*
        }

        impl Transform {
            /// Names of all transforms in descriptions.
            #[cfg(test)]
            const NAMES: &'static [&'static str] = &[$(stringify!($kind)),*];

            /// Returns the name in descriptions.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Transform::$kind(_) => stringify!($kind),)*
                }
            }

            fn operation(&self) -> &dyn Operation {
                match self {
                    $(Transform::$kind(transform) => transform,)*
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

transforms!(
    Crop,
    CenterCrop,
    RandomCrop,
    RandomResizedCrop,
    RandomSizedCrop,
    Resize,
    LongestMaxSize,
    RandomShortestSize,
    ScaleJitter,
    Pad,
    CropOrPad,
    CropOrPadTo,
    RandomZoomOut,
    RandomIoUCrop,
    Mosaic,
    CopyPaste,
    MirroredPaste,
    ImageMixUp,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    RandomAffine,
    RandomRotation,
    RandomPerspective,
    ElasticTransform,
    ColorJitter,
    Grayscale,
    RandomPhotometricDistort,
    RandomHSV,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    RandomGrayscale,
    RandomAutocontrast,
    RandomEqualize,
    RandomAdjustSharpness,
    GaussianBlur,
    GaussianNoise,
    JPEG,
    AutoAugment,
    RandAugment,
    TrivialAugmentWide,
    AugMix,
    RandomApply,
    RandomChoice,
    RandomOrder,
    RandomErasing,
    ToFloat,
    Normalize,
    OneHot,
    ClassIndex,
    MixUp,
    CutMix,
);

impl Transform {
    /// Checks the parameters, as far as possible without an image.
    ///
    /// # Errors
    ///
    /// `Parameter`, with its value and the allowed values.
    pub fn validate(&self) -> Result<(), TransformError> {
        self.operation().validate()
    }

    /// Draws the steps for one sample without boxes: see [`Transform::draw_around`].
    ///
    /// # Errors
    ///
    /// As [`Transform::draw_around`].
    pub fn draw(&self, size: Size, rng: &mut Rng) -> Result<Vec<Step>, TransformError> {
        self.draw_around(size, &[], rng)
    }

    /// Draws the steps for one sample whose image and masks have this size, and whose boxes have
    /// these left, top, right and bottom sides in pixels.
    ///
    /// `ToFloat`, `Normalize`, `OneHot` and `ClassIndex` draw no steps, because they change the
    /// values when they are written into the batch. `MixUp` and `CutMix` draw no steps either,
    /// because they need two samples: see [`Mixing::draw`]. `CropOrPadTo` draws none, because it
    /// needs a record: see [`Transform::with_size`].
    ///
    /// # Errors
    ///
    /// `TooSmall` if the image is smaller than the crop, `TooLarge` if the result would exceed
    /// [`MAX_PIXELS`], `Empty` if the image has no pixels.
    pub fn draw_around(
        &self,
        size: Size,
        boxes: &[[f64; 4]],
        rng: &mut Rng,
    ) -> Result<Vec<Step>, TransformError> {
        let mut steps = Vec::new();
        if size.pixels() == 0 {
            return Err(TransformError::Empty {
                transform: self.name(),
                found: size,
            });
        }
        self.operation().draw_around(size, boxes, rng, &mut steps)?;
        Ok(steps)
    }

    /// Returns the size of every result, given the size of every image. None if the size differs by
    /// record or by draw.
    ///
    /// # Errors
    ///
    /// Like [`Transform::draw`], if the size of the images is known.
    pub fn output_size(&self, input: Option<Size>) -> Result<Option<Size>, TransformError> {
        if let Some(size) = input
            && !self.operation().has_varying_size()
        {
            // The size of the result does not depend on the draw, so any draw is correct.
            let steps = self.draw(size, &mut Rng::new(0, 0, 0, 0))?;
            return Ok(Some(
                steps.iter().fold(size, |size, step| step.output_size(size)),
            ));
        }
        Ok(self.operation().fixed_size())
    }

    /// Returns the channels of the result for an image with `channels` channels. Masks keep their
    /// channels.
    pub fn output_channels(&self, channels: usize) -> usize {
        self.operation().output_channels(channels)
    }

    /// Checks that the transform supports images with these channels and this depth.
    ///
    /// # Errors
    ///
    /// `Pixels` if it does not support them; `Values` if a list by channel has the wrong length.
    pub fn check_pixels(&self, channels: usize, depth: Depth) -> Result<(), TransformError> {
        self.operation().check_pixels(channels, depth)
    }

    /// Adds the scale and offset of a transform with [`Effect::Scale`]; others change nothing.
    ///
    /// # Errors
    ///
    /// `Values` if a list by channel has the wrong length.
    pub fn scale(&self, affine: &mut Affine) -> Result<(), TransformError> {
        match self {
            Transform::ToFloat(_) => affine.to_float(),
            Transform::Normalize(normalize) => affine.normalize(normalize)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the minimum size of an image for which `draw` succeeds.
    pub fn needs_at_least(&self) -> Size {
        self.operation().needs_at_least()
    }

    /// Returns what the transform changes.
    pub fn effect(&self) -> Effect {
        self.operation().effect()
    }

    /// Whether the result depends on the random generator.
    pub fn is_random(&self) -> bool {
        self.operation().is_random()
    }

    /// Returns the effects of the steps that the transform may draw, in their order; its own effect
    /// if it draws none. A transform with [`Effect::Crop`] pads only images that are too small.
    pub fn parts(&self) -> Vec<Effect> {
        self.operation().parts()
    }

    /// Whether every pixel of the result is a pixel of the image.
    pub fn only_moves_pixels(&self) -> bool {
        self.operation().only_moves_pixels()
    }

    /// Returns the interpolation of images, if the transform resamples them and does not draw it.
    pub fn filter(&self) -> Option<Filter> {
        self.operation().filter()
    }

    /// Whether the interpolation is widened when it shrinks images.
    pub fn is_antialiased(&self) -> bool {
        self.operation().is_antialiased()
    }

    /// Whether the transform moves pixels or changes the size, in images and masks alike.
    pub fn changes_geometry(&self) -> bool {
        self.effect().is_geometric()
    }

    /// Whether boxes and points can move with the pixels: it changes geometry, and no part of the
    /// image occurs twice in the result.
    pub fn moves_points(&self) -> bool {
        self.operation().moves_points()
    }

    /// Whether the draw depends on the boxes of the sample.
    pub fn needs_boxes(&self) -> bool {
        self.operation().needs_boxes()
    }

    /// Whether each pixel of the result depends only on the same pixel of the image. `ColorJitter`
    /// is not pointwise: contrast uses the mean of the image.
    pub fn is_pointwise(&self) -> bool {
        self.operation().is_pointwise()
    }

    /// Whether the transform changes masks: geometric transforms change them together with the
    /// image, `OneHot` and `ClassIndex` change only masks.
    pub fn applies_to_masks(&self) -> bool {
        self.changes_geometry() || self.effect() == Effect::Classes
    }

    /// Whether the transform changes images.
    pub fn applies_to_images(&self) -> bool {
        self.effect() != Effect::Classes
    }

    /// Whether the transform mixes a sample with another one, after both are finished.
    pub fn mixes(&self) -> bool {
        self.effect() == Effect::Mix
    }

    /// Returns mean and standard deviation of a normalization, in units of 0 to 1: one number per
    /// channel, or one for all.
    pub fn normalization(&self) -> Option<(&[f64], &[f64])> {
        self.operation().normalization()
    }

    /// Returns the settings of a transform that replaces masks by classes.
    pub fn classes(&self) -> Option<MaskClasses<'_>> {
        match self {
            Transform::OneHot(one) => Some(one.mask_classes()),
            Transform::ClassIndex(one) => Some(one.mask_classes()),
            _ => None,
        }
    }

    /// Returns the transform to one index per pixel that replaces a transform to one channel per
    /// class of a palette.
    pub fn class_index(&self) -> Option<Transform> {
        match self {
            Transform::OneHot(one) => one.class_index().map(Transform::from),
            _ => None,
        }
    }

    /// Returns the settings of a transform that mixes samples.
    pub fn mixing(&self) -> Option<MixSettings<'_>> {
        match self {
            Transform::MixUp(mix) => Some(mix.settings()),
            Transform::CutMix(mix) => Some(mix.settings()),
            _ => None,
        }
    }

    /// Whether the transform makes an image of those of several positions, or of one and its mirror
    /// image.
    pub fn joins_images(&self) -> bool {
        self.mosaic().is_some()
            || self.copy_paste().is_some()
            || self.mirrored_paste().is_some()
            || self.image_mixup().is_some()
    }

    /// Returns the transform if it places the images of other positions next to the sample's own.
    pub fn mosaic(&self) -> Option<&Mosaic> {
        match self {
            Transform::Mosaic(mosaic) => Some(mosaic),
            _ => None,
        }
    }

    /// Returns the transform if it pastes objects of another position's image.
    pub fn copy_paste(&self) -> Option<&CopyPaste> {
        match self {
            Transform::CopyPaste(paste) => Some(paste),
            _ => None,
        }
    }

    /// Returns the transform if it pastes copies of objects on their own image.
    pub fn mirrored_paste(&self) -> Option<&MirroredPaste> {
        match self {
            Transform::MirroredPaste(paste) => Some(paste),
            _ => None,
        }
    }

    /// Returns the transform if it blends the image with that of another position.
    pub fn image_mixup(&self) -> Option<&ImageMixUp> {
        match self {
            Transform::ImageMixUp(mixup) => Some(mixup),
            _ => None,
        }
    }

    /// Whether a second application changes nothing.
    pub fn is_idempotent(&self) -> bool {
        let gives_size = match self.operation().fixed_size() {
            Some(size) => self.needs_at_least().whole().fits(size),
            None => self.effect() == Effect::Resize,
        };
        gives_size && !self.is_random()
    }

    /// Returns the fill for pixels that the transform adds to a mask. None if it adds no pixels.
    pub fn mask_fill(&self) -> Option<ChannelValues> {
        self.operation().mask_fill()
    }

    /// Returns the name of the field with the size of the result, height and width in pixels, if each
    /// record has its own.
    pub fn size_field(&self) -> Option<&str> {
        self.operation().size_field()
    }

    /// Returns the transform for a record whose [`Transform::size_field`] has this size. None if the
    /// transform needs no such field.
    pub fn with_size(&self, size: Size) -> Option<Transform> {
        match self {
            Transform::CropOrPadTo(to) => Some(to.with_size(size).into()),
            _ => None,
        }
    }

    /// Returns the path of the palette of a mask, if the transform has one.
    pub fn palette(&self) -> Option<&str> {
        self.operation().palette()
    }

    /// Returns the path of the palette of a mask, to change it.
    pub fn palette_mut(&mut self) -> Option<&mut String> {
        match self {
            Transform::OneHot(one) => one.palette.as_mut(),
            Transform::ClassIndex(one) => one.palette.as_mut(),
            _ => None,
        }
    }

    /// Returns the name of the image or mask field that the transform applies to, if it names one.
    pub fn field(&self) -> Option<&str> {
        self.operation().field()
    }
}
