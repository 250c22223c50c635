//! Mirrored copies of objects on their own image, for instance segmentation.
//!
//! Source: Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance
//! Segmentation" (2021), as the mode "flip" of Ultralytics chooses and pastes objects.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::crop::copy;
use super::effect::Effect;
use super::error::Result;
use super::mirrored_copies::MirroredCopies;
use super::operation::Operation;
use super::outlines::{MovingOutlines, ObjectMap};
use super::params::Check;
use super::{PixelView, Step};
use infeed_core::sample::{Image, Size};

/// Most objects of an image that gets copies. Each copy is compared with all objects.
const MOST_OBJECTS: usize = 4096;

/// Pastes mirrored copies of objects on their own image, where they cover little of other objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MirroredPaste {
    /// Share of the fitting copies that are pasted, from 0 to 1, rounded to a whole number.
    pub share: f64,
    /// A copy fits if its box covers less than this share of the box of every object, above 0.
    pub max_overlap: f64,
}

impl Default for MirroredPaste {
    fn default() -> MirroredPaste {
        MirroredPaste {
            share: 0.5,
            max_overlap: 0.3,
        }
    }
}

/// An object of one of the images of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlinedObject {
    /// Number of the image in the sample, and of the object in the image.
    pub number: [usize; 2],
    /// Left, top, right and bottom of its visible part, in pixels.
    pub corners: [f64; 4],
    /// Corners of each polygon of its visible part.
    pub polygons: Vec<Vec<[f64; 2]>>,
}

impl MirroredPaste {
    /// Chooses copies of the objects on an image of this size: those that cover least of the box of
    /// any object. None if no copy fits, or if there are more than 4096 objects.
    pub fn choose(&self, objects: &[OutlinedObject], size: Size) -> Option<Step> {
        if objects.len() > MOST_OBJECTS {
            return None;
        }
        let width = f64::from(size.width);
        let overlap = |object: &OutlinedObject| {
            let [left, top, right, bottom] = object.corners;
            let copy = [width - right, top, width - left, bottom];
            let shares = objects
                .iter()
                .map(|other| covered_share(copy, other.corners));
            shares.fold(0.0, f64::max)
        };
        let all = objects.iter().map(|object| (overlap(object), object));
        let mut fitting: Vec<(f64, &OutlinedObject)> =
            all.filter(|(share, _)| *share < self.max_overlap).collect();
        fitting.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let count = (self.share * fitting.len() as f64).round_ties_even() as usize;
        fitting.truncate(count);
        if fitting.is_empty() {
            return None;
        }
        let mirrored = |[x, y]: &[f64; 2]| [width - x, *y];
        let outline = |object: &OutlinedObject| {
            let polygons = object.polygons.iter();
            let polygons = polygons.map(|polygon| polygon.iter().map(mirrored).collect());
            polygons.collect()
        };
        Some(Step::PasteMirrored(Arc::new(MirroredCopies {
            outlines: fitting.iter().map(|(_, object)| outline(object)).collect(),
            numbers: fitting.iter().map(|(_, object)| object.number).collect(),
        })))
    }
}

/// Copies an image, with copies of its objects on it.
pub(super) fn paste_copies(copies: &MirroredCopies, input: PixelView<'_>, out: &mut Image) {
    copy(input, out);
    let (width, pixel) = (input.width(), input.pixel_bytes());
    let map = ObjectMap::new(input.size(), 1);
    let mut scratch = Vec::new();
    for polygons in &copies.outlines {
        let mut outline = MovingOutlines::new(input.size());
        for polygon in polygons {
            outline.add_polygon(polygon.iter().copied());
        }
        outline.end_object();
        for [x, y] in outline.paint(0, map, &mut scratch).covered_pixels() {
            let from = (width - 1 - x) * pixel;
            let pixels = &input.row(y)[from..from + pixel];
            out.row_mut(y)[x * pixel..(x + 1) * pixel].copy_from_slice(pixels);
        }
    }
}

/// Returns the share of a box that another box covers.
fn covered_share(by: [f64; 4], of: [f64; 4]) -> f64 {
    let common = |low: usize| (by[low + 2].min(of[low + 2]) - by[low].max(of[low])).max(0.0);
    let area = (of[2] - of[0]) * (of[3] - of[1]);
    match area > 0.0 {
        true => common(0) * common(1) / area,
        false => 0.0,
    }
}

impl Operation for MirroredPaste {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    /// The copies depend on the objects, so pixels without their labels cannot be kept.
    fn is_random(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        let check = Check("MirroredPaste");
        check.holds(
            (0.0..=1.0).contains(&self.share),
            "share",
            self.share,
            "between 0 and 1",
        )?;
        check.holds(
            self.max_overlap > 0.0 && self.max_overlap.is_finite(),
            "max_overlap",
            self.max_overlap,
            "a number above 0",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::TransformScratch;
    use super::*;
    use infeed_core::sample::Depth;

    const SIZE: Size = Size {
        height: 8,
        width: 20,
    };

    fn square(number: usize, [left, top, right, bottom]: [f64; 4]) -> OutlinedObject {
        let polygon = vec![[left, top], [right, top], [right, bottom], [left, bottom]];
        OutlinedObject {
            number: [0, number],
            corners: [left, top, right, bottom],
            polygons: vec![polygon],
        }
    }

    fn copies(share: f64, objects: &[OutlinedObject]) -> Option<Arc<MirroredCopies>> {
        let paste = MirroredPaste {
            share,
            ..MirroredPaste::default()
        };
        match paste.choose(objects, SIZE)? {
            Step::PasteMirrored(copies) => Some(copies),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn copies_that_cover_least_are_chosen_first() {
        // The copy of 0 covers itself; that of 1 covers a quarter of 2; those of 2 and 3 nothing,
        // and a sixteenth of 1.
        let objects = [
            square(0, [8.0, 0.0, 12.0, 2.0]),
            square(1, [0.0, 4.0, 4.0, 8.0]),
            square(2, [15.0, 3.0, 17.0, 5.0]),
            square(3, [0.0, 0.0, 2.0, 2.0]),
        ];
        let numbers = |share| {
            let copies = copies(share, &objects);
            copies.map(|copies| copies.objects_of(0).collect::<Vec<usize>>())
        };

        assert_eq!(numbers(1.0), Some(vec![3, 2, 1]));
        // 1.5 and 0.9 objects, rounded.
        assert_eq!(numbers(0.5), Some(vec![3, 2]));
        assert_eq!(numbers(0.3), Some(vec![3]));
        assert_eq!(numbers(0.1), None);
        assert_eq!(copies(1.0, &objects[..1]), None);
    }

    #[test]
    fn an_image_of_many_objects_gets_no_copies() {
        let object = square(0, [1.0, 1.0, 2.0, 2.0]);
        let count = |objects: usize| {
            let objects = vec![object.clone(); objects];
            copies(1.0, &objects).map_or(0, |copies| copies.count())
        };

        assert_eq!(count(MOST_OBJECTS), MOST_OBJECTS);
        assert_eq!(count(MOST_OBJECTS + 1), 0);
    }

    #[test]
    fn pixels_of_the_mirrored_image_are_pasted_inside_the_copies() {
        let mut image = Image::default();
        image.reset(SIZE, 1, Depth::U8);
        let numbered = image.data.iter_mut().zip(0..);
        numbered.for_each(|(pixel, number)| *pixel = number);
        let step = MirroredPaste {
            share: 1.0,
            ..MirroredPaste::default()
        };
        let objects = [square(0, [1.2, 2.0, 3.5, 4.5])];
        let step = step.choose(&objects, SIZE).expect("a copy");

        let mut out = Image::default();
        let mut scratch = TransformScratch::default();
        let view = PixelView::from(&image);
        step.apply(view, &mut out, false, &mut scratch)
            .expect("applies");

        for y in 0..8 {
            for x in 0..20 {
                // The copy covers a part of each of these pixels.
                let is_copy = (16..19).contains(&x) && (2..5).contains(&y);
                let from = if is_copy { 19 - x } else { x };
                assert_eq!(out.row(y)[x], image.row(y)[from], "{x}, {y}");
            }
        }
    }
}
