//! The properties that every transform declares.

use super::effect::Effect;
use super::error::{Result, TransformError};
use super::params::{ChannelValues, Filter};
use super::rng::Rng;
use super::step::Step;
use infeed_core::sample::{Depth, Size};

/// The properties of a transform. The planner, the packer and the remedies ask for these and not
/// for names, so a new transform is a file with an implementation, a line in the list of
/// [`super::Transform`], and its Python dataclass.
pub(super) trait Operation {
    /// Returns the changes that the transform makes.
    fn effect(&self) -> Effect;

    /// Checks the parameters, as far as possible without an image.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Appends the steps for one sample whose image and masks have this size, which is not empty.
    fn draw(&self, _image: Size, _rng: &mut Rng, _steps: &mut Vec<Step>) -> Result<()> {
        Ok(())
    }

    /// As [`Operation::draw`], given left, top, right and bottom of the boxes of the sample.
    fn draw_around(
        &self,
        image: Size,
        _boxes: &[[f64; 4]],
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        self.draw(image, rng, steps)
    }

    /// Whether the draw depends on the boxes of the sample.
    fn needs_boxes(&self) -> bool {
        false
    }

    /// Whether the result depends on the random generator.
    fn is_random(&self) -> bool {
        false
    }

    /// Effects of the steps on pixels that `draw` may append, in their order. A transform with
    /// [`Effect::Crop`] pads only images that are too small for it.
    fn parts(&self) -> Vec<Effect> {
        vec![self.effect()]
    }

    /// Whether every pixel of the result is a pixel of the image.
    fn only_moves_pixels(&self) -> bool {
        self.effect() == Effect::Flip
    }

    /// Whether boxes and points can move with the pixels. False if a part of the image occurs twice
    /// in the result.
    fn moves_points(&self) -> bool {
        self.effect().is_geometric()
    }

    /// Whether each pixel of the result depends only on the same pixel of the image.
    fn is_pointwise(&self) -> bool {
        matches!(self.effect(), Effect::Scale | Effect::Classes)
    }

    /// Whether the size of the result depends on the draw or the record.
    fn has_varying_size(&self) -> bool {
        false
    }

    /// Size of every result, whatever the size of the image. None if there is no such size.
    fn fixed_size(&self) -> Option<Size> {
        None
    }

    /// Name of the field of a record with the size of its result: height and width in pixels.
    fn size_field(&self) -> Option<&str> {
        None
    }

    /// Interpolation of images, if the transform resamples them and does not draw it.
    fn filter(&self) -> Option<Filter> {
        None
    }

    /// Whether the interpolation is widened when it shrinks images.
    fn is_antialiased(&self) -> bool {
        true
    }

    /// Minimum size of an image for which `draw` succeeds.
    fn needs_at_least(&self) -> Size {
        Size {
            height: 1,
            width: 1,
        }
    }

    /// Channels of the result for an image with `channels` channels.
    fn output_channels(&self, channels: usize) -> usize {
        channels
    }

    /// Checks that the transform supports images with these channels and this depth.
    fn check_pixels(&self, _channels: usize, _depth: Depth) -> Result<()> {
        Ok(())
    }

    /// Mean and standard deviation by channel of a normalization, in units of 0 to 1.
    fn normalization(&self) -> Option<(&[f64], &[f64])> {
        None
    }

    /// Fill for pixels that the transform adds to a mask. None if it adds no pixels.
    fn mask_fill(&self) -> Option<ChannelValues> {
        None
    }

    /// Path of the palette of a mask.
    fn palette(&self) -> Option<&str> {
        None
    }

    /// Name of the image or mask field that the transform applies to, if it names one.
    fn field(&self) -> Option<&str> {
        None
    }
}
