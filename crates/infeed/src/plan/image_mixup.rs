//! `ImageMixUp` of a pipeline, checked, and its draws: two images, each of which may be a mosaic.

use std::fmt;
use std::ops::Range;

use super::mosaic::MosaicPlan;
use crate::fields::failure::part_name;
use crate::fields::kind::PlanInput;
use crate::fields::pixels::plan::PixelPlan;
use infeed_codec::transform::{ImageMixUp, MosaicDraw, Rng, TILES};
use infeed_core::error::Error;
use infeed_core::sample::Pixels;

/// Most other records of a sample: those of two mosaics without the sample's own.
const MOST_PARTNERS: usize = 2 * TILES - 1;

/// The blended images of a pipeline.
#[derive(Debug)]
pub(crate) struct ImageMixUpPlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(super) mixup: ImageMixUp,
    /// The mosaic before it.
    pub(crate) mosaic: Option<MosaicPlan>,
}

/// Random parameters of a sample of two images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixedImages {
    /// Share of the sample's own image in each pixel, from 0 to 1.
    pub share: f64,
    /// Centre of the mosaic of each image, if it is one.
    pub centers: [Option<[u32; 2]>; 2],
    positions: [u64; MOST_PARTNERS],
}

impl MixedImages {
    /// Combines the draws of two images. `partner` is the position of the second one.
    fn new(own: Option<MosaicDraw>, share: f64, partner: u64, other: Option<MosaicDraw>) -> Self {
        let partners = |of: Option<MosaicDraw>| of.into_iter().flat_map(|of| of.partners);
        let all = partners(own).chain([partner]).chain(partners(other));
        let mut positions = [partner; MOST_PARTNERS];
        positions.iter_mut().zip(all).for_each(|(to, at)| *to = at);
        MixedImages {
            share,
            centers: [own, other].map(|of| of.map(|of| of.center)),
            positions,
        }
    }

    /// Returns the number of records of each image.
    pub(crate) fn records(&self) -> [usize; 2] {
        let count = |center: Option<_>| center.map_or(1, |_| TILES);
        self.centers.map(count)
    }

    /// Returns the positions of the other records: those of the sample's own mosaic, and then those
    /// of the second image.
    pub fn partners(&self) -> &[u64] {
        &self.positions[..self.records().iter().sum::<usize>() - 1]
    }

    pub(super) fn partners_mut(&mut self) -> &mut [u64] {
        let count = self.partners().len();
        &mut self.positions[..count]
    }
}

impl fmt::Display for MixedImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [own, _] = self.records();
        let partner = self.positions[own - 1];
        write!(f, "{:.3} x own, rest position {partner}", self.share)
    }
}

impl ImageMixUpPlan {
    /// Returns the number of records of a sample.
    pub(super) fn records(&self) -> u64 {
        self.mosaic.as_ref().map_or(2, |_| 2 * TILES as u64)
    }

    /// Draws the second image of a position. None if there is none.
    pub(super) fn draw(
        &self,
        at: u64,
        own: Option<MosaicDraw>,
        near: &Range<u64>,
        rng: &impl Fn(u64, usize) -> Rng,
    ) -> Option<MixedImages> {
        let mosaic = self.mosaic.as_ref();
        // Mosaics near each other have the same tiles.
        let window = || mosaic.map_or(near.clone(), |of| of.mosaic.window_of(at, near.clone()));
        let drawn = self
            .mixup
            .draw_partner(at, window, &mut rng(at, self.number));
        let (partner, share) = drawn?;
        let other = mosaic.and_then(|of| of.draw(partner, near, rng));
        Some(MixedImages::new(own, share, partner, other))
    }
}

impl fmt::Display for ImageMixUpPlan {
    /// Writes the lines of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mosaic) = &self.mosaic {
            writeln!(f, "{mosaic}")?;
        }
        let ImageMixUp { alpha, p } = self.mixup;
        write!(
            f,
            "mix: {p} of the images with that of another position (alpha {alpha}), decoded for it"
        )
    }
}

/// Checks that the images at the transform with this number can be blended.
pub(super) fn plan(
    input: &PlanInput<'_>,
    pixels: &[Option<PixelPlan>],
    (number, mixup): (usize, &ImageMixUp),
    mosaic: Option<MosaicPlan>,
) -> Result<ImageMixUpPlan, Error> {
    let transforms = &input.pipeline.transforms;
    let name = part_name(number, &transforms[number]);
    for plan in pixels.iter().flatten() {
        if plan.is_mask {
            let problem = format!(
                "class numbers in `{}` cannot be averaged; remove it",
                plan.name
            );
            return Err(Error::config(name, problem));
        }
        let stored = match &plan.stored {
            Pixels::Encoded => None,
            Pixels::Raw { size, .. } => Some(*size),
        };
        let mut before = transforms[..number].iter();
        let size = before.try_fold(stored, |size, transform| transform.output_size(size));
        if matches!(size, Ok(None)) {
            let problem = format!(
                "the size of `{}` differs by record; add a transform that gives one size before \
                 it, such as Resize((640, 640))",
                plan.name
            );
            return Err(Error::config(name, problem));
        }
    }
    Ok(ImageMixUpPlan {
        number,
        mixup: mixup.clone(),
        mosaic,
    })
}
