//! Points that move with the pixels of their image, such as the keypoints of persons.
//!
//! Source: the keypoint kernels and `SanitizeKeyPoints` of torchvision.transforms.v2. A point is the
//! column and row of a pixel, so a flip maps `x` to `width - 1 - x`. All other steps move points as
//! the corners of boxes. Points that lie on the edges of pixels, such as the corners of rotated boxes,
//! also flip as those.

use super::Step;
use infeed_core::sample::Size;

/// A point on its way through the steps of its image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MovingPoint {
    /// Column and row, also outside the image.
    pub at: [f64; 2],
    /// Visibility of the source; 0 once the point was outside the image.
    pub visibility: f64,
}

/// The points of a sample, in objects with the same number of points.
#[derive(Clone, Debug, PartialEq)]
pub struct MovingPoints<'a> {
    /// All points, object by object.
    pub points: Vec<MovingPoint>,
    /// Points of an object.
    pub per_object: usize,
    /// Numbers of points of an object that change places when the image is mirrored, such as left
    /// and right hand.
    pub pairs: &'a [[usize; 2]],
    /// Whether points lie on the edges of pixels. Otherwise a point is a pixel.
    pub edges: bool,
}

impl MovingPoints<'_> {
    /// Moves the points with the pixels of an image of this size. Points outside the result become
    /// invisible for good.
    pub fn follow(&mut self, step: &Step, input: Size) {
        let output = step.output_size(input);
        for point in &mut self.points {
            let [x, y] = point.at;
            point.at = match step {
                Step::FlipX if !self.edges => [f64::from(input.width) - 1.0 - x, y],
                Step::FlipY if !self.edges => [x, f64::from(input.height) - 1.0 - y],
                Step::Warp(warp) if !self.edges => warp.move_pixel(point.at, input),
                _ => step.move_point(point.at, input),
            };
            point.hide_outside(output, self.edges);
        }
        let is_mirrored = match step {
            Step::FlipX | Step::FlipY => true,
            Step::Warp(warp) => warp.is_mirrored(),
            _ => false,
        };
        if is_mirrored {
            for object in self.points.chunks_exact_mut(self.per_object.max(1)) {
                for [one, other] in self.pairs {
                    object.swap(*one, *other);
                }
            }
        }
    }
}

impl MovingPoint {
    /// Makes a point outside an image of this size invisible. `edges` says whether it may lie on the
    /// last edge.
    pub fn hide_outside(&mut self, image: Size, edges: bool) {
        let is_inside = |at: f64, side: u32| {
            let side = f64::from(side);
            at >= 0.0 && (at < side || edges && at == side)
        };
        if !is_inside(self.at[0], image.width) || !is_inside(self.at[1], image.height) {
            self.visibility = 0.0;
        }
    }
}
