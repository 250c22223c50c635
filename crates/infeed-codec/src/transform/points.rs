//! Points that move with the pixels of their image, such as the keypoints of persons.
//!
//! Source: the keypoint kernels and `SanitizeKeyPoints` of torchvision.transforms.v2. A point is the
//! column and row of a pixel, so a flip maps `x` to `width - 1 - x`. All other steps move points as
//! the corners of boxes.

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
}

impl MovingPoints<'_> {
    /// Moves the points with the pixels of an image of this size. Points outside the result become
    /// invisible for good.
    pub fn follow(&mut self, step: &Step, input: Size) {
        let output = step.output_size(input);
        for point in &mut self.points {
            let [x, y] = point.at;
            point.at = match step {
                Step::FlipX => [f64::from(input.width) - 1.0 - x, y],
                Step::FlipY => [x, f64::from(input.height) - 1.0 - y],
                _ => step.move_point(point.at, input),
            };
            point.hide_outside(output);
        }
        if matches!(step, Step::FlipX | Step::FlipY) {
            for object in self.points.chunks_exact_mut(self.per_object.max(1)) {
                for [one, other] in self.pairs {
                    object.swap(*one, *other);
                }
            }
        }
    }
}

impl MovingPoint {
    /// Makes a point outside an image of this size invisible.
    pub fn hide_outside(&mut self, image: Size) {
        let [x, y] = self.at;
        let is_inside = (0.0..f64::from(image.width)).contains(&x)
            && (0.0..f64::from(image.height)).contains(&y);
        if !is_inside {
            self.visibility = 0.0;
        }
    }
}
