//! Boxes: rectangles that move with the pixels of their image.
//!
//! Source: the bounding box kernels and `SanitizeBoundingBoxes` of torchvision.transforms.v2, and
//! `min_visibility` of albumentations. Pixel `(x, y)` covers `x` to `x + 1` and `y` to `y + 1`, so a
//! flip maps `x` to `width - x`, and a resize scales coordinates by the quotient of the sizes.

use serde::{Deserialize, Serialize};

use super::iou_crop::has_centre;
use super::{OutlineExtent, Step};
use infeed_core::sample::Size;

/// Meaning of the four numbers of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height.
    Xywh,
    /// Centre, width, height.
    Cxcywh,
}

impl BoxFormat {
    /// Converts a box to left, top, right, bottom.
    pub fn corners(self, [a, b, c, d]: [f64; 4]) -> [f64; 4] {
        match self {
            BoxFormat::Xyxy => [a, b, c, d],
            BoxFormat::Xywh => [a, b, a + c, b + d],
            BoxFormat::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        }
    }

    /// Converts left, top, right, bottom to a box.
    pub fn values(self, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let (width, height) = (right - left, bottom - top);
        match self {
            BoxFormat::Xyxy => [left, top, right, bottom],
            BoxFormat::Xywh => [left, top, width, height],
            BoxFormat::Cxcywh => [(left + right) / 2.0, (top + bottom) / 2.0, width, height],
        }
    }
}

impl Step {
    /// Moves a point of an image of this size with its pixels. The result may be outside the image.
    pub fn move_point(&self, [x, y]: [f64; 2], input: Size) -> [f64; 2] {
        let (width, height) = (f64::from(input.width), f64::from(input.height));
        match *self {
            Step::Crop(region) => [x - f64::from(region.left), y - f64::from(region.top)],
            Step::Resize { size, .. } => [
                x * f64::from(size.width) / width,
                y * f64::from(size.height) / height,
            ],
            Step::Pad { left, top, .. } => [x + f64::from(left), y + f64::from(top)],
            Step::Warp(ref warp) => warp.move_point([x, y], input),
            Step::FlipX => [width - x, y],
            Step::FlipY => [x, height - y],
            Step::KeepCentres(_)
            | Step::Color(_)
            | Step::PasteMirrored(_)
            | Step::Gray { .. }
            | Step::Chains { .. }
            | Step::Erase { .. } => [x, y],
        }
    }

    /// Moves points of an image of this size, as [`Step::move_point`].
    pub fn move_points(&self, points: &mut [[f64; 2]], input: Size) {
        match self {
            Step::Warp(warp) => warp.move_points(points, input),
            _ => {
                for point in points {
                    *point = self.move_point(*point, input);
                }
            }
        }
    }
}

/// A box on its way through the steps of its image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MovingBox {
    /// Left, top, right, bottom, also where the image ends before.
    whole: [f64; 4],
    /// The part that no image on the way cut off.
    visible: [f64; 4],
    /// Whether a step dropped the box.
    is_dropped: bool,
}

impl MovingBox {
    /// Starts with the left, top, right and bottom of a box in an image of this size.
    pub fn new(corners: [f64; 4], image: Size) -> MovingBox {
        let visible = clip(corners, image);
        MovingBox {
            whole: corners,
            visible,
            is_dropped: is_outside(corners, visible, image),
        }
    }

    /// Moves the box with the pixels of an image of this size, and clips it to the result. Becomes
    /// the smallest box around the four corners.
    pub fn follow(&mut self, step: &Step, input: Size) {
        if let Step::KeepCentres(region) = step {
            self.is_dropped |= !has_centre(self.visible, *region);
        }
        let moved = |[left, top, right, bottom]: [f64; 4]| {
            let corners = [[left, top], [right, top], [right, bottom], [left, bottom]];
            let corners = corners.map(|corner| step.move_point(corner, input));
            let low = |side: usize| {
                corners
                    .map(|at| at[side])
                    .into_iter()
                    .fold(f64::INFINITY, f64::min)
            };
            let high = |side: usize| {
                corners
                    .map(|at| at[side])
                    .into_iter()
                    .fold(f64::NEG_INFINITY, f64::max)
            };
            [low(0), low(1), high(0), high(1)]
        };
        self.whole = moved(self.whole);
        let output = step.output_size(input);
        self.visible = clip(moved(self.visible), output);
        // Dropped for good, because a warp would turn the line that clipping leaves into a box.
        self.is_dropped |= is_outside(self.whole, self.visible, output);
    }

    /// Drops the box.
    pub fn drop_box(&mut self) {
        self.is_dropped = true;
    }

    /// Limits the visible part to what is left of the object: its left, top, right and bottom.
    pub fn cover(&mut self, left_over: [f64; 4]) {
        self.visible = left_over;
    }

    /// Replaces the box by that around an outline, which moved with it.
    pub fn surround(&mut self, outline: OutlineExtent) {
        let OutlineExtent { whole, visible } = outline;
        self.whole = whole;
        self.visible = visible.unwrap_or_default();
        self.is_dropped |= visible.is_none();
    }

    /// Whether no step dropped the box, and a part of it is in the image.
    pub fn is_left(&self) -> bool {
        !self.is_dropped && self.visibility() > 0.0
    }

    /// Returns left, top, right and bottom of the visible part.
    pub fn visible(&self) -> [f64; 4] {
        self.visible
    }

    /// Returns the share of the area that is visible, 0 to 1. A box without area counts as visible.
    pub fn visibility(&self) -> f64 {
        let whole = area(self.whole);
        match whole > 0.0 {
            true => area(self.visible) / whole,
            false => 1.0,
        }
    }
}

/// Conditions under which a box stays in a sample. All must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxFilter {
    /// Minimum width and height of the visible part, in pixels of the result.
    pub min_size: f64,
    /// Minimum area of the visible part, in square pixels of the result.
    pub min_area: f64,
    /// Minimum share of the area that is visible.
    pub min_visibility: f64,
}

impl BoxFilter {
    /// Whether a box stays. A box that is completely outside the image never does.
    pub fn keeps(&self, moved: &MovingBox) -> bool {
        let [left, top, right, bottom] = moved.visible;
        right - left >= self.min_size
            && bottom - top >= self.min_size
            && area(moved.visible) >= self.min_area
            && moved.is_left()
            && moved.visibility() >= self.min_visibility
    }
}

/// Whether nothing of a box is in an image of this size. A box that touches the edge is outside,
/// unless it has no width or height by itself.
fn is_outside(whole: [f64; 4], visible: [f64; 4], image: Size) -> bool {
    let sides = [f64::from(image.width), f64::from(image.height)];
    (0..2).any(|side| {
        let (low, high) = (whole[side], whole[side + 2]);
        let is_flat = visible[side + 2] <= visible[side];
        high < 0.0 || low > sides[side] || (is_flat && high > low)
    })
}

fn clip([left, top, right, bottom]: [f64; 4], image: Size) -> [f64; 4] {
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    [
        left.clamp(0.0, width),
        top.clamp(0.0, height),
        right.clamp(0.0, width),
        bottom.clamp(0.0, height),
    ]
}

fn area([left, top, right, bottom]: [f64; 4]) -> f64 {
    (right - left) * (bottom - top)
}
