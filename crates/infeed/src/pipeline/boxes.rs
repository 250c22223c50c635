//! Declarations of boxes, which move with their image.

use serde::{Deserialize, Serialize};

use infeed_codec::transform::{BoxFilter, BoxFormat};

/// Declares that a field contains boxes of the image: four numbers per box, and any number of
/// boxes per record. Geometric transforms then move the boxes with the pixels by the same draw and
/// clip them to the image. Boxes that are too small afterwards are dropped, with their rows in the
/// fields of `columns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxesSpec {
    /// Name of the field: a list of numbers, or an array with four numbers per row.
    pub field: String,
    /// Meaning of the four numbers, in the source and in batches.
    #[serde(default)]
    pub format: BoxFormat,
    /// Whether coordinates are shares of the image's width and height, 0 to 1, in the source and
    /// in batches. Otherwise they are pixels.
    #[serde(default)]
    pub normalized: bool,
    /// Whether coordinates refer to the image in its EXIF orientation. Otherwise they refer to the
    /// stored pixels, and [`Decode::orient`](super::Decode::orient) moves them. Absent: as the source
    /// declares this field, and false if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oriented: Option<bool>,
    /// Fields with one value, or one row of values, per box, such as labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Field with the mask of each box, which moves with the image: a JSON list of COCO's
    /// segmentations, or one number per pixel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masks: Option<String>,
    /// Field with the outline of each box, whose corners move with the image: a JSON list of COCO's
    /// polygons, or x and y of each corner in the unit of the boxes, with two NaN after each outline
    /// and twice infinity between the polygons of one. The box becomes the box around the visible
    /// part of its outline. Batches have the corners of this part, float32, in the second form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlines: Option<String>,
    /// Pixels of the image per pixel of a map, on each axis. Batches then have, instead of corners,
    /// the number of the box of each pixel from 1, and 0 where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_stride: Option<u32>,
    /// Minimum width and height of a box in the result, in pixels.
    #[serde(default = "one")]
    pub min_size: f64,
    /// Minimum area of a box in the result, in square pixels.
    #[serde(default = "one")]
    pub min_area: f64,
    /// Minimum share of the area of a box that is still in the image.
    #[serde(default)]
    pub min_visibility: f64,
}

fn one() -> f64 {
    1.0
}

impl BoxesSpec {
    /// Declares boxes in pixels. Drops those with a side below 1 px or an area below 1 px².
    pub fn new(field: impl Into<String>, format: BoxFormat) -> BoxesSpec {
        BoxesSpec {
            field: field.into(),
            format,
            normalized: false,
            oriented: None,
            columns: Vec::new(),
            masks: None,
            outlines: None,
            map_stride: None,
            min_size: one(),
            min_area: one(),
            min_visibility: 0.0,
        }
    }

    /// Adds fields with one value or row per box.
    #[must_use]
    pub fn columns<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> BoxesSpec {
        self.columns.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the field with the mask of each box.
    #[must_use]
    pub fn masks(mut self, name: impl Into<String>) -> BoxesSpec {
        self.masks = Some(name.into());
        self
    }

    /// Sets the field with the outline of each box, and the stride of a map of the boxes.
    #[must_use]
    pub fn outlines(mut self, name: impl Into<String>, map_stride: Option<u32>) -> BoxesSpec {
        self.outlines = Some(name.into());
        self.map_stride = map_stride;
        self
    }

    /// Whether coordinates refer to the image in its EXIF orientation.
    pub fn is_oriented(&self) -> bool {
        self.oriented.unwrap_or(false)
    }

    /// Whether the values of a field move with the image.
    pub fn moves(&self, field: &str) -> bool {
        let fields = [&self.masks, &self.outlines].map(Option::as_deref);
        self.field == field || fields.contains(&Some(field))
    }

    /// Returns the conditions under which a box stays.
    pub fn filter(&self) -> BoxFilter {
        BoxFilter {
            min_size: self.min_size,
            min_area: self.min_area,
            min_visibility: self.min_visibility,
        }
    }
}
