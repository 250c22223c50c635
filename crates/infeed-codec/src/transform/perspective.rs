//! Moves the corners of an image at random.
//!
//! Source: torchvision.transforms.v2.RandomPerspective.

use serde::{Deserialize, Serialize};

use super::affine::{check_filter, drawn_warp, warp_properties};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::warp::{Warp, WarpMap};
use super::{ChannelValues, Filter, Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Moves each corner inwards by a random number of pixels, with a given probability. Keeps the
/// size. Leaves an image as it is if its side is one pixel, or if the corners end up on a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomPerspective {
    /// Maximum shift of a corner, as a share of half the width and half the height.
    pub distortion_scale: f64,
    /// Probability of a change.
    pub p: f64,
    /// Interpolation of images: `nearest` or `bilinear`.
    pub interpolation: Filter,
    /// Fill for images.
    pub fill: ChannelValues,
    /// Fill for masks.
    pub mask_fill: ChannelValues,
}

impl Default for RandomPerspective {
    fn default() -> RandomPerspective {
        RandomPerspective {
            distortion_scale: 0.5,
            p: 0.5,
            interpolation: Filter::default(),
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
        }
    }
}

impl RandomPerspective {
    /// Moves corners by up to half the way to the centre, with probability `p`.
    pub fn new(p: f64) -> RandomPerspective {
        RandomPerspective {
            p,
            ..RandomPerspective::default()
        }
    }

    fn map(&self, image: Size, rng: &mut Rng) -> WarpMap {
        let bound = |side: u32| (self.distortion_scale * f64::from(side / 2)) as u32 + 1;
        let (width, height) = (bound(image.width), bound(image.height));
        let mut inwards = |bound: u32| f64::from(rng.below(bound));
        let (last_x, last_y) = (f64::from(image.width - 1), f64::from(image.height - 1));
        let corners = [
            [inwards(width), inwards(height)],
            [last_x - inwards(width), inwards(height)],
            [last_x - inwards(width), last_y - inwards(height)],
            [inwards(width), last_y - inwards(height)],
        ];
        WarpMap::Perspective { corners }
    }
}

impl Operation for RandomPerspective {
    warp_properties!(RandomPerspective);

    fn validate(&self) -> Result<()> {
        let check = Check("RandomPerspective");
        check.holds(
            (0.0..=1.0).contains(&self.distortion_scale),
            "distortion_scale",
            self.distortion_scale,
            "between 0 and 1",
        )?;
        check.probability(self.p)?;
        check_filter(&check, self.interpolation)?;
        check.fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        if !rng.chance(self.p) {
            return Ok(());
        }
        let map = self.map(image, rng);
        let (x, y) = (f64::from(image.width - 1), f64::from(image.height - 1));
        let corners = [[0.0, 0.0], [x, 0.0], [x, y], [0.0, y]];
        if map != (WarpMap::Perspective { corners }) && map.is_regular(image) {
            steps.push(Step::Warp(drawn_warp!(self, map, image)));
        }
        Ok(())
    }
}
