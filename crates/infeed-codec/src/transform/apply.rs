//! Application of steps to the pixels of images and masks.

use super::color::{change_colors, gray};
use super::color_step::check_color;
use super::crop::copy;
use super::erase::erase;
use super::error::TransformError;
use super::flip::{flip_x, flip_y};
use super::mirrored_paste::paste_copies;
use super::pad::{pad, pixel_from_values};
use super::params::{Filter, MAX_PIXELS};
use super::resize::{ResizeScratch, resize};
use super::step::Step;
use super::view::PixelView;
use super::warp_pixels::{WarpScratch, warp};
use infeed_core::sample::Image;

/// Buffers that a worker keeps between steps.
#[derive(Debug, Default)]
pub struct TransformScratch {
    resize: ResizeScratch,
    warp: WarpScratch,
}

impl Step {
    /// Applies the step to `input` and writes the result to `out`, which gets the shape of the
    /// result.
    ///
    /// Masks are resized with `Nearest` and padded with their own fill. A step that does not apply
    /// to masks copies them.
    ///
    /// # Errors
    ///
    /// `Empty` if there are no pixels; `View` if a region exceeds the image; `TooLarge` before an
    /// excessive allocation; `Pixels` or `Values` if the step does not support these channels and
    /// this depth. `out` is unspecified after an error.
    pub fn apply(
        &self,
        input: PixelView<'_>,
        out: &mut Image,
        is_mask: bool,
        scratch: &mut TransformScratch,
    ) -> Result<(), TransformError> {
        let (channels, depth) = (input.channels(), input.depth());
        let size = self.output_size(input.size());
        if input.size().pixels() == 0 || size.pixels() == 0 {
            return Err(TransformError::Empty {
                transform: self.name(),
                found: input.size(),
            });
        }
        if size.pixels() > MAX_PIXELS {
            let (transform, found) = (self.name(), input.size());
            return Err(TransformError::TooLarge {
                transform,
                found,
                limit: MAX_PIXELS,
            });
        }
        match self {
            Step::Crop(region) => copy(input.crop(*region)?, out),
            Step::Resize {
                size,
                filter,
                antialias,
            } => {
                let filter = if is_mask { Filter::Nearest } else { *filter };
                resize(input, *size, (filter, *antialias), out, &mut scratch.resize)?;
            }
            Step::Pad {
                left,
                top,
                right,
                bottom,
                fill,
                mask_fill,
                mode,
            } => {
                let (parameter, fill) = if is_mask {
                    ("mask_fill", mask_fill)
                } else {
                    ("fill", fill)
                };
                let fill = pixel_from_values("Pad", parameter, fill, channels, depth)?;
                pad(input, [*left, *top, *right, *bottom], &fill, *mode, out);
            }
            Step::Warp(drawn) => warp(input, drawn, is_mask, out, &mut scratch.warp)?,
            Step::FlipX => flip_x(input, out),
            Step::FlipY => flip_y(input, out),
            _ if is_mask => copy(input, out),
            Step::KeepCentres(_) => copy(input, out),
            Step::Color(steps) => {
                steps
                    .iter()
                    .try_for_each(|step| step.check_pixels(channels, depth))?;
                copy(input, out);
                change_colors(out, steps)?;
            }
            Step::PasteMirrored(copies) => paste_copies(copies, input, out),
            Step::Chains { own, chains } => {
                check_color("AugMix", channels, depth)?;
                mix_chains(input, *own, chains, out, scratch)?;
            }
            Step::Gray { channels: wanted } => {
                check_color("Grayscale", channels, depth)?;
                gray(input, *wanted, out);
            }
            Step::Erase { region, value } => {
                let pixel = pixel_from_values("RandomErasing", "value", value, channels, depth)?;
                if !region.fits(input.size()) {
                    return Err(TransformError::View { size: region.size });
                }
                copy(input, out);
                erase(out, *region, &pixel);
            }
        }
        Ok(())
    }
}

/// Sums an image of 8 bits and its copies after their steps, with these weights. Truncates the sums.
fn mix_chains(
    input: PixelView<'_>,
    own: f64,
    chains: &[(f64, Vec<Step>)],
    out: &mut Image,
    scratch: &mut TransformScratch,
) -> Result<(), TransformError> {
    copy(input, out);
    let weighted = |weight: f64| move |&v: &u8| f32::from(v) * weight as f32;
    let mut sums: Vec<f32> = out.data.iter().map(weighted(own)).collect();
    let (mut image, mut next) = (Image::default(), Image::default());
    for (weight, steps) in chains {
        copy(input, &mut image);
        for step in steps {
            step.apply((&image).into(), &mut next, false, scratch)?;
            std::mem::swap(&mut image, &mut next);
        }
        if image.data.len() != sums.len() {
            return Err(TransformError::View { size: image.size });
        }
        let parts = image.data.iter().map(weighted(*weight));
        sums.iter_mut().zip(parts).for_each(|(sum, v)| *sum += v);
    }
    for (to, sum) in out.data.iter_mut().zip(sums) {
        *to = sum as u8;
    }
    Ok(())
}
