//! Objects of one image on another, for instance segmentation.
//!
//! Source: Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance
//! Segmentation" (2021), with the choice of objects and the mask of torchvision's reference training
//! for detection.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::mix::other_position;
use super::operation::Operation;
use super::params::Check;
use super::{Filter, Rng};
use infeed_core::sample::Image;

/// Pixels by which `blending` extends pasted objects on each side: half of a kernel of 5.
const BLENDING: usize = 2;

/// Pastes objects of the image at another position of the epoch on the image: a random choice of the
/// boxes with masks that are left of it. That image is resized to the size of this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyPaste {
    /// Probability of pasting.
    pub p: f64,
    /// Whether pixels up to two pixels around the objects are pasted too.
    pub blending: bool,
    /// Interpolation of the other image; masks use `Nearest`.
    pub interpolation: Filter,
}

impl Default for CopyPaste {
    fn default() -> CopyPaste {
        CopyPaste {
            p: 1.0,
            blending: true,
            interpolation: Filter::default(),
        }
    }
}

/// Random parameters of a paste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPasteDraw {
    /// Position of the other image.
    pub partner: u64,
    /// Seed of the choice of its objects.
    pub seed: u64,
}

impl CopyPasteDraw {
    /// Chooses among `count` objects: each of `count` draws with replacement adds one. Returns their
    /// numbers in increasing order.
    pub fn choose(&self, count: usize) -> Vec<usize> {
        let mut rng = Rng::new(self.seed, 0, 0, 0);
        let most = u32::try_from(count).unwrap_or(u32::MAX);
        let mut chosen: Vec<usize> = (0..most).map(|_| rng.below(most) as usize).collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}

impl CopyPaste {
    /// Draws the other position for the sample at `position`, uniform over `near`, its own aside.
    /// None if nothing is pasted.
    pub fn draw_partner(
        &self,
        position: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: &mut Rng,
    ) -> Option<CopyPasteDraw> {
        if !rng.chance(self.p) {
            return None;
        }
        let partner = other_position(position, &near(), rng).unwrap_or(position);
        let seed = rng.next_u64();
        Some(CopyPasteDraw { partner, seed })
    }

    /// Extends the pixels of a mask that are not 0 if `blending` is set. `other` is a buffer.
    pub fn blend(&self, mask: &mut Image, other: &mut Vec<u8>) {
        let width = mask.width();
        if !self.blending || width == 0 {
            return;
        }
        other.clear();
        other.resize(mask.data.len(), 0);
        for (from, to) in mask.data.chunks(width).zip(other.chunks_mut(width)) {
            for (at, _) in from.iter().enumerate().filter(|(_, pixel)| **pixel != 0) {
                to[at.saturating_sub(BLENDING)..(at + BLENDING + 1).min(width)].fill(1);
            }
        }
        mask.data.fill(0);
        let height = mask.height();
        for (y, from) in other.chunks(width).enumerate() {
            for row in y.saturating_sub(BLENDING)..(y + BLENDING + 1).min(height) {
                let to = mask.row_mut(row).iter_mut().zip(from);
                to.for_each(|(to, from)| *to |= from);
            }
        }
    }
}

impl Operation for CopyPaste {
    /// The other image is resized.
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn is_random(&self) -> bool {
        true
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn validate(&self) -> Result<()> {
        Check("CopyPaste").probability(self.p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::sample::{Depth, Size};

    fn plane(rows: &[&[u8]]) -> Image {
        let mut image = Image::default();
        let size = Size {
            height: rows.len() as u32,
            width: rows[0].len() as u32,
        };
        image.reset(size, 1, Depth::U8);
        image.data = rows.concat();
        image
    }

    #[test]
    fn objects_are_drawn_with_replacement() {
        let (mut sizes, mut each) = ([0; 5], [0; 4]);
        for seed in 0..4000 {
            let draw = CopyPasteDraw { partner: 1, seed };
            let chosen = draw.choose(4);
            assert!(chosen.is_sorted() && chosen.len() <= 4);
            sizes[chosen.len()] += 1;
            chosen.iter().for_each(|object| each[*object] += 1);
        }
        // Of 4^4 equally likely draws, 4, 84, 144 and 24 have 1 to 4 different objects.
        for (found, draws) in sizes.into_iter().zip([0, 4, 84, 144, 24]) {
            let expected = 4000 * draws / 256;
            assert!(i32::abs(found - expected) < 130, "{sizes:?}");
        }
        assert!(each.iter().all(|n| (2600..2870).contains(n)), "{each:?}");
        let none = CopyPasteDraw {
            partner: 0,
            seed: 0,
        };
        assert!(none.choose(0).is_empty() && none.choose(1) == [0]);
    }

    #[test]
    fn blending_extends_masks_by_two_pixels() {
        let mut mask = plane(&[&[0; 7], &[0, 0, 0, 0, 0, 0, 4], &[0; 7], &[0; 7], &[0; 7]]);
        let before = mask.clone();
        let mut other = vec![9];
        CopyPaste::default().blend(&mut mask, &mut other);
        let near: &[u8] = &[0, 0, 0, 0, 1, 1, 1];
        assert_eq!(mask.data, plane(&[near, near, near, near, &[0; 7]]).data);
        mask.clone_from(&before);
        let hard = CopyPaste {
            blending: false,
            ..CopyPaste::default()
        };
        hard.blend(&mut mask, &mut other);
        assert_eq!(mask.data, before.data);
    }
}
