//! Flips.

use serde::{Deserialize, Serialize};

use super::operation::{Effect, Operation};
use super::params::Check;
use super::{PixelView, Rng, Step, TransformError};
use infeed_core::sample::{Image, Size};

/// Swaps left and right with a given probability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// Probability of a flip.
    #[serde(default = "one_half")]
    pub p: f64,
}

/// Swaps top and bottom with a given probability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomVerticalFlip {
    /// Probability of a flip.
    #[serde(default = "one_half")]
    pub p: f64,
}

fn one_half() -> f64 {
    0.5
}

impl RandomHorizontalFlip {
    /// Flips with probability `p`.
    pub fn new(p: f64) -> RandomHorizontalFlip {
        RandomHorizontalFlip { p }
    }
}

impl Operation for RandomHorizontalFlip {
    fn effect(&self) -> Effect {
        Effect::Flip
    }

    fn is_random(&self) -> bool {
        true
    }

    fn draw(
        &self,
        _image: Size,
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        steps.extend(rng.chance(self.p).then_some(Step::FlipX));
        Ok(())
    }

    fn validate(&self) -> Result<(), TransformError> {
        Check("RandomHorizontalFlip").probability(self.p)
    }
}

impl RandomVerticalFlip {
    /// Flips with probability `p`.
    pub fn new(p: f64) -> RandomVerticalFlip {
        RandomVerticalFlip { p }
    }
}

impl Operation for RandomVerticalFlip {
    fn effect(&self) -> Effect {
        Effect::Flip
    }

    fn is_random(&self) -> bool {
        true
    }

    fn draw(
        &self,
        _image: Size,
        rng: &mut Rng,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransformError> {
        steps.extend(rng.chance(self.p).then_some(Step::FlipY));
        Ok(())
    }

    fn validate(&self) -> Result<(), TransformError> {
        Check("RandomVerticalFlip").probability(self.p)
    }
}

/// Writes the pixels of each row in reverse.
pub(super) fn flip_x(input: PixelView<'_>, out: &mut Image) {
    out.reset(input.size(), input.channels(), input.depth());
    for y in 0..input.height() {
        // The pixel size must be a compile-time constant: copying slices of run-time length costs a
        // call per pixel.
        match input.pixel_bytes() {
            1 => reverse::<1>(input.row(y), out.row_mut(y)),
            2 => reverse::<2>(input.row(y), out.row_mut(y)),
            3 => reverse::<3>(input.row(y), out.row_mut(y)),
            4 => reverse::<4>(input.row(y), out.row_mut(y)),
            6 => reverse::<6>(input.row(y), out.row_mut(y)),
            _ => reverse::<8>(input.row(y), out.row_mut(y)),
        }
    }
}

/// Writes the rows in reverse.
pub(super) fn flip_y(input: PixelView<'_>, out: &mut Image) {
    out.reset(input.size(), input.channels(), input.depth());
    for y in 0..input.height() {
        out.row_mut(input.height() - 1 - y)
            .copy_from_slice(input.row(y));
    }
}

fn reverse<const PIXEL: usize>(from: &[u8], to: &mut [u8]) {
    let (from, _) = from.as_chunks::<PIXEL>();
    let (to, _) = to.as_chunks_mut::<PIXEL>();
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}
