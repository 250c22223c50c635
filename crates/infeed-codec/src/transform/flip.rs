//! Flips.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{PixelView, Rng, Step};
use infeed_core::sample::{Image, Size};

fn one_half() -> f64 {
    0.5
}

/// Defines flips with the step that each draws.
macro_rules! flips {
    ($($(#[$doc:meta])* $flip:ident => $step:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $flip {
            /// Probability of a flip.
            #[serde(default = "one_half")]
            pub p: f64,
        }

        impl $flip {
            /// Flips with probability `p`.
            pub fn new(p: f64) -> $flip {
                $flip { p }
            }
        }

        impl Operation for $flip {
            fn effect(&self) -> Effect {
                Effect::Flip
            }

            fn is_random(&self) -> bool {
                true
            }

            fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
                steps.extend(rng.chance(self.p).then_some($step));
                Ok(())
            }

            fn validate(&self) -> Result<()> {
                Check(stringify!($flip)).probability(self.p)
            }
        }
    )*};
}

flips! {
    /// Swaps left and right with a given probability.
    RandomHorizontalFlip => Step::FlipX;
    /// Swaps top and bottom with a given probability.
    RandomVerticalFlip => Step::FlipY;
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
