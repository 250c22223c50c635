//! Mirror images.

use serde::{Deserialize, Serialize};

use super::params::Check;
use super::{PixelView, TransformError};
use crate::sample::Image;

/// Swaps left and right, or not, at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// Probability of a flip.
    #[serde(default = "one_half")]
    pub p: f64,
}

/// Swaps top and bottom, or not, at random.
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

    pub(super) fn validate(&self) -> Result<(), TransformError> {
        Check("RandomHorizontalFlip").probability(self.p)
    }
}

impl RandomVerticalFlip {
    /// Flips with probability `p`.
    pub fn new(p: f64) -> RandomVerticalFlip {
        RandomVerticalFlip { p }
    }

    pub(super) fn validate(&self) -> Result<(), TransformError> {
        Check("RandomVerticalFlip").probability(self.p)
    }
}

/// Writes the pixels of each row in reverse.
pub(super) fn flip_x(input: PixelView<'_>, out: &mut Image) {
    out.reset(input.size(), input.channels(), input.depth());
    for y in 0..input.height() {
        // A pixel's size must be known when this is compiled: copied as slices of a length
        // found at run time, one pixel costs a call.
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
