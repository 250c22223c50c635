//! Outlines of boxes: the checked field, and the outlines of one sample.
//!
//! An outline is one polygon or several. Its corners move with the image. The box becomes the box
//! around the visible part of its outline, and a batch has the moved corners or a map of the objects.

use std::cmp::Reverse;

use super::boxes::{BoxPosition, KeptBoxes};
use crate::fields::cells::{copy, put};
use crate::fields::failure::{FieldError, PartFailure, SampleError, StageFailure};
use crate::fields::moving::{SampleImage, number_of, sides};
use crate::pipeline::BoxesSpec;
use infeed_codec::decode::ImageFrame;
use infeed_codec::instances::CocoMask;
use infeed_codec::transform::{MovingOutlines, ObjectMap, PaintedObject, Step, write_map};
use infeed_core::batch::{Array, ColumnKind, RowCell};
use infeed_core::parse_problem::in_words;
use infeed_core::sample::{DType, Field, FieldKind, Size};

/// A field with the outline of each box.
#[derive(Clone, Debug)]
pub(crate) struct OutlinesPlan {
    name: String,
    pub(crate) field: usize,
    /// Type of the numbers; `None` for a text with polygons of COCO.
    dtype: Option<DType>,
    is_normalized: bool,
    /// Whether the outlines refer to the image in its EXIF orientation.
    is_oriented: bool,
    /// Pixels of the image per pixel of the map; `None` if a batch has the corners.
    stride: Option<u32>,
    /// Size of every sample's image, if it is the same.
    pub(crate) size: Option<Size>,
}

pub(crate) const OUTLINES: &str = "use a text with a JSON list of COCO's polygons, one for each box, or \
                                   float numbers, x and y of each corner, with two NaN at the end of \
                                   each outline";

/// Most pixels of an image per pixel of the map, on each axis.
pub(crate) const MAX_STRIDE: u32 = 1 << 16;

/// Largest distance of a corner from that of the image, in pixels.
const MAX_COORDINATE: f64 = 1e6;

/// Memory per byte of a record: a number of a text has two bytes or more, and takes eight in a list
/// that grew and sixteen in a corner.
const BYTES_PER_BYTE: u64 = 16;

/// Plans a field that can hold outlines.
pub(crate) fn plan_outlines(field: usize, of: &Field, spec: &BoxesSpec) -> Option<OutlinesPlan> {
    let is_float = |dtype: DType| matches!(dtype, DType::Float32 | DType::Float64);
    let dtype = match &of.kind {
        FieldKind::Text | FieldKind::Bytes => None,
        FieldKind::Ragged { dtype } if is_float(*dtype) => Some(*dtype),
        FieldKind::Tensor { dtype, .. } if is_float(*dtype) => Some(*dtype),
        _ => return None,
    };
    Some(OutlinesPlan {
        name: of.name.clone(),
        field,
        dtype,
        is_normalized: spec.normalized,
        is_oriented: spec.is_oriented(),
        stride: spec.map_stride,
        size: None,
    })
}

impl OutlinesPlan {
    /// Returns the kind of the column: corners, or the map of a sample.
    pub(crate) fn kind(&self) -> ColumnKind {
        let dtype = DType::Int32;
        match (self.stride, self.size) {
            (None, _) => ColumnKind::Ragged {
                dtype: DType::Float32,
                item: vec![2],
            },
            (Some(_), None) => ColumnKind::Padded { dtype, rank: 2 },
            (Some(stride), Some(image)) => {
                let shape = map_shape(ObjectMap::new(image, stride));
                ColumnKind::Fixed { dtype, shape }
            }
        }
    }

    /// Upper bound of the memory for the outlines of a sample with this number of boxes. They are
    /// painted on images of up to this number of pixels, and each is kept this number of times.
    pub(crate) fn bytes(
        &self,
        images: &[SampleImage<'_>],
        copies: u64,
        boxes: u64,
        largest: u64,
    ) -> u64 {
        let records = images.iter().map(|image| &image.record.fields[self.field]);
        let stored: u64 = records.map(|bytes| bytes.len() as u64).sum();
        let stride = u64::from(self.stride.unwrap_or(MAX_STRIDE));
        let map = largest / (stride * stride);
        // The pixels of each object, the numbers of the map, and rows of one object.
        let painted = map.saturating_mul(boxes.saturating_add(4));
        let painted = painted.saturating_add(2 * largest);
        stored
            .saturating_mul(BYTES_PER_BYTE * copies)
            .saturating_add(painted)
    }

    /// Returns the outlines of an image with this number of boxes, after its steps.
    pub(crate) fn move_outlines(
        &self,
        image: &SampleImage<'_>,
        shared: &[(usize, Step)],
        boxes: usize,
    ) -> Result<MovingOutlines, StageFailure> {
        let bytes: &[u8] = &image.record.fields[self.field];
        let mut outlines = self
            .read(bytes, image.frame, boxes)
            .map_err(|error| SampleError::Field(error).in_field(self.field))?;
        let mut size = image.frame.size;
        for (_, step) in image.steps.iter().chain(shared) {
            outlines.follow(step, size);
            size = step.output_size(size);
        }
        Ok(outlines)
    }

    /// Writes the corners or the map of the boxes that stay. A map sorts the boxes: a smaller object
    /// comes later, and covers a larger one.
    pub(crate) fn write(
        &self,
        kept: &[KeptBoxes],
        order: &mut Vec<BoxPosition>,
        cells: &mut [RowCell],
        scratch: &mut Vec<u8>,
    ) -> Result<(), PartFailure> {
        let cell = &mut cells[self.field];
        let Some(stride) = self.stride else {
            put(cell, self.corner_bytes(kept, order));
            return Ok(());
        };
        let Some(image) = kept.first().map(|of| of.size) else {
            return Ok(());
        };
        let map = ObjectMap::new(image, stride);
        let numbers = paint(kept, order, map, scratch);
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let copied = copy(self.field, &bytes, cell);
        copied.map_err(|failure| PartFailure { part: 0, failure })?;
        if let RowCell::Own { shape, .. } = cell {
            *shape = map_shape(map);
        }
        Ok(())
    }

    /// Returns the object of each pixel of the image, from 1, which repeats after 255.
    pub(crate) fn objects(&self, kept: &[KeptBoxes], scratch: &mut Vec<u8>) -> Option<Array> {
        let map = ObjectMap::new(kept.first()?.size, 1);
        let numbers = paint(kept, &mut KeptBoxes::positions(kept), map, scratch);
        let repeated = |number: i32| match number {
            0 => 0,
            number => ((number - 1) % 255 + 1) as u8,
        };
        let objects: Vec<u8> = numbers.into_iter().map(repeated).collect();
        Array::own(&objects, map_shape(map), DType::UInt8).ok()
    }

    /// Returns the visible corners of the boxes that stay, in the unit of the boxes.
    fn corner_bytes(&self, kept: &[KeptBoxes], order: &[BoxPosition]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut add = |corner: [f64; 2]| {
            for value in corner {
                bytes.extend_from_slice(&(value as f32).to_le_bytes());
            }
        };
        for position in order {
            let of = &kept[position.image];
            let [width, height] = match self.is_normalized {
                true => sides(of.size),
                false => [1.0; 2],
            };
            for (number, polygon) in of.polygons(position.at).enumerate() {
                if number > 0 {
                    add(BETWEEN);
                }
                polygon
                    .iter()
                    .for_each(|[x, y]| add([x / width, y / height]));
            }
            add(END);
        }
        bytes
    }

    /// Returns the outlines of a record, in pixels of the decoded image.
    fn read(
        &self,
        bytes: &[u8],
        image: ImageFrame,
        boxes: usize,
    ) -> Result<MovingOutlines, FieldError> {
        // The size that the coordinates refer to, and its turn to the decoded image.
        let frame = match self.is_oriented {
            true => ImageFrame::upright(image.size),
            false => image,
        };
        let scale = match self.is_normalized {
            true => sides(frame.stored_size()),
            false => [1.0; 2],
        };
        let shown = |[x, y]: [f64; 2]| frame.shown_point([x * scale[0], y * scale[1]]);
        let mut outlines = MovingOutlines::new(image.size);
        match self.dtype {
            Some(dtype) => self.read_numbers(bytes, dtype, shown, &mut outlines)?,
            None => self.read_text(bytes, shown, &mut outlines)?,
        }
        if outlines.len() != boxes {
            let found = outlines.len();
            return Err(FieldError {
                problem: format!(
                    "`{}` has {found} outlines, but there are {boxes} boxes",
                    self.name
                ),
                fix: "give each box one outline",
            });
        }
        Ok(outlines)
    }

    fn read_numbers(
        &self,
        bytes: &[u8],
        dtype: DType,
        shown: impl Fn([f64; 2]) -> [f64; 2],
        outlines: &mut MovingOutlines,
    ) -> Result<(), FieldError> {
        let wrong = |problem: String| {
            Err(FieldError {
                problem: format!("`{}` {problem}", self.name),
                fix: "give each corner x and y, and end each outline with two NaN",
            })
        };
        let width = dtype.bytes();
        if !bytes.len().is_multiple_of(2 * width) {
            return wrong(format!(
                "has {} numbers, which are not x and y of corners",
                bytes.len() / width
            ));
        }
        let mut polygon = Vec::new();
        for (at, bytes) in bytes.chunks_exact(2 * width).enumerate() {
            let (x, y) = bytes.split_at(width);
            let corner = [number_of(dtype, x), number_of(dtype, y)];
            let is_end = corner.iter().all(|value| value.is_nan());
            if is_end || corner == BETWEEN {
                if polygon.is_empty() {
                    return wrong(format!(
                        "has a polygon without corners, which ends at corner {at}"
                    ));
                }
                outlines.add_polygon(polygon.drain(..));
                if is_end {
                    outlines.end_object();
                }
                continue;
            }
            let corner = shown(corner);
            let is_near = |value: &f64| (0.0..=MAX_COORDINATE).contains(&value.abs());
            if !corner.iter().all(is_near) {
                return wrong(format!(
                    "has corner {at} at {corner:?} px, which is no number or far outside any image"
                ));
            }
            polygon.push(corner);
        }
        match polygon.is_empty() {
            true => Ok(()),
            false => wrong("has an outline that does not end".to_owned()),
        }
    }

    fn read_text(
        &self,
        bytes: &[u8],
        shown: impl Fn([f64; 2]) -> [f64; 2],
        outlines: &mut MovingOutlines,
    ) -> Result<(), FieldError> {
        let name = &self.name;
        let masks: Vec<CocoMask> = serde_json::from_slice(bytes).map_err(|error| FieldError {
            problem: format!(
                "`{name}` is no JSON list of segmentations ({})",
                in_words(&error.to_string())
            ),
            fix: "write the polygons of COCO for each box",
        })?;
        for (number, mask) in masks.iter().enumerate() {
            mask.check().map_err(|error| FieldError {
                problem: format!("outline {number} of `{name}` {}", error.problem),
                fix: error.fix,
            })?;
            let CocoMask::Polygons(polygons) = mask else {
                return Err(FieldError {
                    problem: format!(
                        "outline {number} of `{name}` is run lengths, which have no corners"
                    ),
                    fix: "declare the field with masks=, or remove the annotation",
                });
            };
            for polygon in polygons {
                let corners = polygon.chunks_exact(2);
                outlines.add_polygon(corners.map(|corner| shown([corner[0], corner[1]])));
            }
            outlines.end_object();
        }
        Ok(())
    }
}

/// Stands between two polygons of one outline.
const BETWEEN: [f64; 2] = [f64::INFINITY; 2];
/// Ends an outline.
const END: [f64; 2] = [f64::NAN; 2];

/// Sorts the boxes that stay by the pixels of their objects, most first. Returns a map of them, with
/// their numbers in this order from 1.
fn paint(
    kept: &[KeptBoxes],
    order: &mut Vec<BoxPosition>,
    map: ObjectMap,
    scratch: &mut Vec<u8>,
) -> Vec<i32> {
    let mut painted = |position: BoxPosition| {
        let object = kept[position.image].paint(position.at, map, scratch);
        (position, object)
    };
    let mut objects: Vec<(BoxPosition, PaintedObject)> =
        order.drain(..).map(&mut painted).collect();
    objects.sort_by_key(|(_, object)| Reverse(object.area()));
    order.extend(objects.iter().map(|(position, _)| position));
    let mut numbers = vec![0; map.size.pixels() as usize];
    let objects = objects.iter().map(|(_, object)| object);
    write_map(objects, map.size.width, &mut numbers);
    numbers
}

fn map_shape(map: ObjectMap) -> Vec<usize> {
    vec![map.size.height as usize, map.size.width as usize]
}
