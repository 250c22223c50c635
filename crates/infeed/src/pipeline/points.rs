//! Declarations of points, which move with their image.

use serde::{Deserialize, Serialize};

/// Declares that a field contains points of the image, such as keypoints: column and row of a pixel,
/// and a visibility. Geometric transforms then move the points with the pixels by the same draw.
/// Points that leave the image become invisible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointsSpec {
    /// Name of the field: a list of numbers, or an array with the numbers of a point in each row.
    pub field: String,
    /// Points of an object. Absent: the second last dimension of an array, or 1 for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Whether each point has a third number, its visibility: 0 for points that are invisible.
    #[serde(default = "yes")]
    pub visibility: bool,
    /// Whether coordinates are shares of the image's width and height, 0 to 1, in the source and
    /// in batches. Otherwise they are pixels.
    #[serde(default)]
    pub normalized: bool,
    /// Whether points lie on the edges of pixels, as the corners of boxes do: the right edge of an
    /// image is at its width. Otherwise a point is the column and row of a pixel.
    #[serde(default)]
    pub edges: bool,
    /// Whether coordinates refer to the image in its EXIF orientation. Otherwise they refer to the
    /// stored pixels, and [`Decode::orient`](super::Decode::orient) moves them. Absent: as the source
    /// declares this field, and false if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oriented: Option<bool>,
    /// Numbers of points of an object, from 0, that change places when the image is mirrored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<[usize; 2]>,
}

fn yes() -> bool {
    true
}

impl PointsSpec {
    /// Declares points in pixels, with a visibility each.
    pub fn new(field: impl Into<String>) -> PointsSpec {
        PointsSpec {
            field: field.into(),
            count: None,
            visibility: true,
            normalized: false,
            edges: false,
            oriented: None,
            pairs: Vec::new(),
        }
    }

    /// Whether coordinates refer to the image in its EXIF orientation.
    pub fn is_oriented(&self) -> bool {
        self.oriented.unwrap_or(false)
    }

    /// Sets the number of points of an object.
    #[must_use]
    pub fn count(self, count: usize) -> PointsSpec {
        let count = Some(count);
        PointsSpec { count, ..self }
    }
}
