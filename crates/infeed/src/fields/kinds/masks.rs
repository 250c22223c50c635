//! Masks of boxes: the checked field, and the masks of one sample.
//!
//! A sample paints the masks of the boxes that stay, eight in the bits of one plane, and moves each
//! plane by the steps of its image.

use bytes::Bytes;

use super::boxes::KeptBoxes;
use crate::fields::failure::{FieldError, PartFailure, SampleError, StageFailure};
use crate::fields::moving::{PaintedPlane, SampleImage, SampleImages};
use crate::fields::scratch::{FieldScratch, MaskScratch};
use infeed_codec::decode::ImageFrame;
use infeed_codec::instances::{self, CocoMask, OBJECTS_PER_PLANE};
use infeed_codec::transform::{MovingBox, PixelView, Step, TransformScratch};
use infeed_core::batch::{Array, ColumnKind, RowCell};
use infeed_core::parse_problem::in_words;
use infeed_core::sample::{DType, Field, FieldKind, Image, Size};

/// A field with the mask of each box.
#[derive(Clone, Debug)]
pub(crate) struct MasksPlan {
    name: String,
    pub(crate) field: usize,
    /// Whether the source has one byte per pixel, and not JSON.
    is_dense: bool,
    /// Whether the masks refer to the image in its EXIF orientation.
    is_oriented: bool,
    /// Size of every sample's image, if it is the same.
    pub(crate) size: Option<Size>,
}

/// The masks of a record.
enum RecordMasks<'a> {
    Segmentations(Vec<CocoMask>),
    /// One byte per pixel, in masks of this number of pixels.
    Dense(&'a [u8], usize),
}

pub(crate) const MASKS: &str = "use a text with a JSON list of COCO's segmentations, one for each box, \
                                or uint8 or bool numbers [n, height, width]";

/// Plans a field that can hold masks.
pub(crate) fn plan_masks(field: usize, of: &Field, is_oriented: bool) -> Option<MasksPlan> {
    let is_pixel = |dtype: DType| matches!(dtype, DType::UInt8 | DType::Bool);
    let is_dense = match &of.kind {
        FieldKind::Text | FieldKind::Bytes => false,
        FieldKind::Ragged { dtype } if is_pixel(*dtype) => true,
        FieldKind::Tensor { dtype, shape } if is_pixel(*dtype) && shape.len() == 3 => true,
        _ => return None,
    };
    Some(MasksPlan {
        name: of.name.clone(),
        field,
        is_dense,
        is_oriented,
        size: None,
    })
}

impl MasksPlan {
    /// Returns the kind of the column that the masks write.
    pub(crate) fn kind(&self) -> ColumnKind {
        let dtype = DType::UInt8;
        match self.size {
            Some(Size { height, width }) => ColumnKind::Ragged {
                dtype,
                item: vec![height as usize, width as usize],
            },
            None => ColumnKind::Padded { dtype, rank: 3 },
        }
    }

    /// Writes the masks of the boxes that stay, one byte per pixel.
    pub(crate) fn write(
        &self,
        images: SampleImages<'_>,
        kept: &[KeptBoxes],
        cells: &mut [RowCell],
        scratch: &mut FieldScratch,
    ) -> Result<(), PartFailure> {
        let mut values = Vec::new();
        self.each(images, kept, scratch, |bit, plane| {
            values.extend(plane.data.iter().map(|pixel| (pixel >> bit) & 1));
        })?;
        let side = |of: fn(&KeptBoxes) -> u32| kept.first().map_or(0, of) as usize;
        let boxes = kept.iter().map(|of| of.numbers().len()).sum();
        let shape = vec![boxes, side(|of| of.size.height), side(|of| of.size.width)];
        if let RowCell::Own { shape: of, bytes } = &mut cells[self.field] {
            (*of, *bytes) = (shape, values);
        }
        Ok(())
    }

    /// Returns the object of each pixel: 0 for none, else a number from 1 that repeats after 255.
    pub(crate) fn objects(
        &self,
        images: SampleImages<'_>,
        kept: &[KeptBoxes],
        scratch: &mut FieldScratch,
    ) -> Result<Option<Array>, PartFailure> {
        let Some(Size { height, width }) = kept.first().map(|of| of.size) else {
            return Ok(None);
        };
        let shape = vec![height as usize, width as usize];
        let mut objects = vec![0; shape.iter().product()];
        let mut number = 0;
        self.each(images, kept, scratch, |bit, plane| {
            number = number % 255 + 1;
            let pixels = objects.iter_mut().zip(&plane.data);
            let inside = pixels.filter(|(_, pixel)| (**pixel >> bit) & 1 == 1);
            inside.for_each(|(object, _)| *object = number);
        })?;
        Ok(Array::own(&objects, shape, DType::UInt8).ok())
    }

    /// Calls `each` with a bit and a plane for the mask of each box that stays, in their order.
    fn each(
        &self,
        (images, shared): SampleImages<'_>,
        kept: &[KeptBoxes],
        scratch: &mut FieldScratch,
        mut each: impl FnMut(usize, &Image),
    ) -> Result<(), PartFailure> {
        for (part, (image, kept)) in images.iter().zip(kept).enumerate() {
            let failed = |failure| PartFailure { part, failure };
            let Some(objects) = image.pasted else {
                let steps = image.steps.iter().chain(shared);
                let numbers = (kept.numbers(), kept.of);
                self.each_plane(image, numbers, steps, scratch, |numbers, plane| {
                    (0..numbers.len()).for_each(|bit| each(bit, plane));
                })
                .map_err(failed)?;
                continue;
            };
            let steps: Vec<Step> = shared.iter().filter_map(|(_, s)| s.moving_bits()).collect();
            for plane in &objects.planes {
                let numbers = plane.numbers.iter().enumerate();
                let mut bits = numbers
                    .filter(|(_, number)| kept.numbers().binary_search(number).is_ok())
                    .map(|(bit, _)| bit)
                    .peekable();
                if bits.peek().is_none() {
                    continue;
                }
                let [current, other] = &mut scratch.masks.planes;
                current.clone_from(&plane.image);
                let moved =
                    move_plane(self.field, (current, other), &steps, &mut scratch.transform);
                let moved = moved.map_err(failed)?;
                bits.for_each(|bit| each(bit, moved));
            }
        }
        Ok(())
    }

    /// Paints the masks of the boxes that are left after the steps of their image.
    pub(crate) fn paint_planes(
        &self,
        image: &SampleImage<'_>,
        boxes: &[MovingBox],
        scratch: &mut FieldScratch,
    ) -> Result<Vec<PaintedPlane>, StageFailure> {
        let left = boxes.iter().enumerate().filter(|(_, one)| one.is_left());
        let numbers: Vec<usize> = left.map(|(number, _)| number).collect();
        let mut planes = Vec::with_capacity(numbers.len().div_ceil(OBJECTS_PER_PLANE));
        let numbers = (&numbers[..], boxes.len());
        self.each_plane(image, numbers, image.steps, scratch, |numbers, plane| {
            planes.push(PaintedPlane {
                numbers: numbers.to_vec(),
                image: plane.clone(),
            });
        })?;
        Ok(planes)
    }

    /// Paints the masks of some of the boxes of an image and moves them by `steps`. Calls `each`
    /// with the numbers of up to eight boxes, and the plane with their masks in its bits.
    fn each_plane<'s>(
        &self,
        image: &SampleImage<'_>,
        (numbers, boxes): (&[usize], usize),
        steps: impl IntoIterator<Item = &'s (usize, Step)>,
        scratch: &mut FieldScratch,
        mut each: impl FnMut(&[usize], &Image),
    ) -> Result<(), StageFailure> {
        let invalid = |error| SampleError::Field(error).in_field(self.field);
        let frame = match self.is_oriented {
            true => ImageFrame::upright(image.frame.size),
            false => image.frame,
        };
        let size = frame.stored_size();
        let masks = self.read(&image.record.fields[self.field], boxes, size);
        let masks = masks.map_err(invalid)?;
        let steps = steps.into_iter();
        let steps: Vec<Step> = steps.filter_map(|(_, step)| step.moving_bits()).collect();
        let MaskScratch { planes, outline } = &mut scratch.masks;
        for numbers in numbers.chunks(OBJECTS_PER_PLANE) {
            let [first, second] = &mut *planes;
            let (mut current, mut other) = (first, second);
            instances::clear(current, size);
            for (bit, &number) in numbers.iter().enumerate() {
                masks
                    .paint(number, 1 << bit, current, outline)
                    .map_err(|(problem, fix)| FieldError {
                        problem: format!("mask {number} of `{}` {problem}", self.name),
                        fix,
                    })
                    .map_err(invalid)?;
            }
            if frame.orientation != 1 {
                frame.show(current, other);
                std::mem::swap(&mut current, &mut other);
            }
            let planes = (current, other);
            each(
                numbers,
                move_plane(self.field, planes, &steps, &mut scratch.transform)?,
            );
        }
        Ok(())
    }

    /// Returns the masks of a record with this number of boxes and an image of this size.
    fn read<'a>(
        &self,
        bytes: &'a Bytes,
        boxes: usize,
        size: Size,
    ) -> Result<RecordMasks<'a>, FieldError> {
        let name = &self.name;
        if self.is_dense {
            let pixels = size.pixels() as usize;
            if bytes.len() != pixels * boxes {
                let found = bytes.len();
                return Err(FieldError {
                    problem: format!(
                        "`{name}` has {found} numbers, which are no masks of {boxes} boxes in an \
                         image of {size} px"
                    ),
                    fix: "give each box a mask of the size of the image",
                });
            }
            return Ok(RecordMasks::Dense(bytes, pixels));
        }
        let masks: Vec<CocoMask> = serde_json::from_slice(bytes).map_err(|error| FieldError {
            problem: format!(
                "`{name}` is no JSON list of segmentations ({})",
                in_words(&error.to_string())
            ),
            fix: "write the `segmentation` of COCO for each box",
        })?;
        if masks.len() != boxes {
            let found = masks.len();
            return Err(FieldError {
                problem: format!("`{name}` has {found} masks, but there are {boxes} boxes"),
                fix: "give each box one mask",
            });
        }
        Ok(RecordMasks::Segmentations(masks))
    }
}

/// Moves a plane by steps. Returns the plane, which may be `other`.
fn move_plane<'p>(
    field: usize,
    (mut current, mut other): (&'p mut Image, &'p mut Image),
    steps: &[Step],
    scratch: &mut TransformScratch,
) -> Result<&'p Image, StageFailure> {
    for step in steps {
        step.apply(PixelView::from(&*current), other, true, scratch)
            .map_err(|error| StageFailure {
                field,
                transform: Some(step.name()),
                error: SampleError::Transform(error),
            })?;
        std::mem::swap(&mut current, &mut other);
    }
    Ok(current)
}

impl RecordMasks<'_> {
    /// Sets a bit of the pixels of a mask.
    fn paint(
        &self,
        number: usize,
        bit: u8,
        plane: &mut Image,
        outline: &mut Vec<u8>,
    ) -> Result<(), (String, &'static str)> {
        match self {
            RecordMasks::Segmentations(masks) => {
                let painted = masks[number].paint(plane, bit, outline);
                painted.map_err(|error| (error.problem, error.fix))
            }
            RecordMasks::Dense(bytes, pixels) => {
                let mask = &bytes[number * pixels..(number + 1) * pixels];
                let pixels = plane.data.iter_mut().zip(mask);
                pixels.for_each(|(to, from)| *to |= if *from == 0 { 0 } else { bit });
                Ok(())
            }
        }
    }
}
