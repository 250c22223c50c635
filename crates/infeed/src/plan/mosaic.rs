//! `Mosaic` of a pipeline, and its draws.

use std::fmt;
use std::ops::Range;

use infeed_codec::transform::{Mosaic, MosaicDraw, Rng};

/// The mosaic of a pipeline.
#[derive(Debug)]
pub(crate) struct MosaicPlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) mosaic: Mosaic,
}

impl MosaicPlan {
    /// Draws the other images of a position.
    pub(super) fn draw(
        &self,
        at: u64,
        near: &Range<u64>,
        rng: &impl Fn(u64, usize) -> Rng,
    ) -> Option<MosaicDraw> {
        let mut rng = rng(at, self.number);
        self.mosaic.draw_partners(at, || near.clone(), &mut rng)
    }
}

impl fmt::Display for MosaicPlan {
    /// Writes the line of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.mosaic.window;
        write!(
            f,
            "mosaic: with three images of the {window} positions before, each decoded once for the \
             mosaics that show it"
        )
    }
}
