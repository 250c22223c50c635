//! Push-down and fusion for one sample: the drawn steps, arranged for a decoder that crops and a
//! writing pass that flips.
//!
//! Leading crops and flips move into the decoded region. Trailing flips and crops move into the
//! pass that writes the row. A step moves only if the pixels stay the same: a flip never moves past
//! a resize or a pad.

use infeed_codec::transform::Step;
use infeed_core::sample::{Region, Size};

/// Arranged steps of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldedSteps {
    /// Decoded region, in pixels of the record.
    pub region: Region,
    /// Steps that need a separate pass.
    pub middle: Vec<Step>,
    /// Written region, in pixels after `middle`.
    pub view: Region,
    /// Whether rows are mirrored.
    pub flip_x: bool,
    /// Whether the last row is written first.
    pub flip_y: bool,
}

impl FoldedSteps {
    /// Returns the remaining work if a device runs `middle`: the image of this size is written
    /// whole, with the final flips.
    pub(super) fn without_middle(&self, size: Size) -> FoldedSteps {
        FoldedSteps {
            region: self.region,
            middle: Vec::new(),
            view: size.whole(),
            flip_x: self.flip_x,
            flip_y: self.flip_y,
        }
    }
}

/// A region of an image, possibly mirrored.
#[derive(Clone, Copy, Debug)]
struct CropWindow {
    region: Region,
    flip_x: bool,
    flip_y: bool,
}

impl CropWindow {
    fn whole(size: Size) -> CropWindow {
        CropWindow {
            region: size.whole(),
            flip_x: false,
            flip_y: false,
        }
    }

    /// Includes a step if it needs no pass over the pixels.
    fn absorb(&mut self, step: &Step) -> bool {
        match step {
            Step::FlipX => self.flip_x = !self.flip_x,
            Step::FlipY => self.flip_y = !self.flip_y,
            Step::Crop(crop) => {
                let Size { height, width } = self.region.size;
                let left = if self.flip_x {
                    width - crop.left - crop.size.width
                } else {
                    crop.left
                };
                let top = if self.flip_y {
                    height - crop.top - crop.size.height
                } else {
                    crop.top
                };
                self.region = Region {
                    top: self.region.top + top,
                    left: self.region.left + left,
                    size: crop.size,
                };
            }
            _ => return false,
        }
        true
    }
}

/// Arranges `steps` for an image of `size`. Each step must be valid for the size before it.
pub fn fold(steps: &[Step], size: Size) -> FoldedSteps {
    let mut first = CropWindow::whole(size);
    let head = steps.iter().take_while(|step| first.absorb(step)).count();
    let movable = |step: &Step| matches!(step, Step::FlipX | Step::FlipY | Step::Crop(_));
    let tail = steps[head..]
        .iter()
        .rev()
        .take_while(|step| movable(step))
        .count();
    let kept = &steps[head..steps.len() - tail];
    if kept.is_empty() {
        let view = first.region.size.whole();
        let CropWindow {
            region,
            flip_x,
            flip_y,
        } = first;
        return FoldedSteps {
            region,
            middle: Vec::new(),
            view,
            flip_x,
            flip_y,
        };
    }
    let mut middle = Vec::with_capacity(kept.len() + 2);
    middle.extend(first.flip_x.then_some(Step::FlipX));
    middle.extend(first.flip_y.then_some(Step::FlipY));
    middle.extend_from_slice(kept);
    let end = middle
        .iter()
        .fold(first.region.size, |size, step| step.output_size(size));
    let mut last = CropWindow::whole(end);
    for step in &steps[steps.len() - tail..] {
        last.absorb(step);
    }
    let CropWindow {
        region: view,
        flip_x,
        flip_y,
    } = last;
    FoldedSteps {
        region: first.region,
        middle,
        view,
        flip_x,
        flip_y,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_codec::transform::Filter;

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn crop(top: u32, left: u32, height: u32, width: u32) -> Step {
        Step::Crop(Region {
            top,
            left,
            size: size(height, width),
        })
    }

    #[test]
    fn a_leading_crop_becomes_the_decoded_region_and_a_trailing_flip_the_written_order() {
        let resize = Step::Resize {
            size: size(8, 8),
            filter: Filter::Bilinear,
        };

        let folded = fold(
            &[crop(2, 3, 10, 20), resize.clone(), Step::FlipX],
            size(40, 50),
        );

        assert_eq!(
            folded.region,
            Region {
                top: 2,
                left: 3,
                size: size(10, 20)
            }
        );
        assert_eq!(folded.middle, [resize]);
        assert!(folded.flip_x && !folded.flip_y);
        assert_eq!(folded.view, size(8, 8).whole());
    }

    #[test]
    fn a_crop_after_a_flip_is_cut_from_the_other_side() {
        let folded = fold(&[Step::FlipX, crop(0, 1, 4, 3)], size(4, 10));

        assert_eq!(
            folded.region,
            Region {
                top: 0,
                left: 6,
                size: size(4, 3)
            }
        );
        assert!(folded.flip_x && folded.middle.is_empty());
    }

    #[test]
    fn a_flip_does_not_pass_a_resize() {
        let resize = Step::Resize {
            size: size(8, 8),
            filter: Filter::Bilinear,
        };

        let folded = fold(
            &[Step::FlipY, resize.clone(), crop(0, 0, 4, 4)],
            size(40, 50),
        );

        assert_eq!(folded.middle, [Step::FlipY, resize]);
        assert!(!folded.flip_y);
        assert_eq!(
            folded.view,
            Region {
                top: 0,
                left: 0,
                size: size(4, 4)
            }
        );
    }
}
