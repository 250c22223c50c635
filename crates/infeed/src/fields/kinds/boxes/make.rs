//! The boxes of one sample.
//!
//! A sample moves its boxes by the steps that were drawn for its image. Where a step runs (in the
//! decoder, in the pass that writes the row, on a device) makes no difference.

use bytes::Bytes;

use super::kept_boxes::{BoxPosition, KeptBoxes};
use super::plan::{BoxesPlan, SIDES};
use crate::fields::cells::put;
use crate::fields::failure::{FieldError, SampleError, StageFailure};
use crate::fields::moving::{SampleImage, number_of, sides};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingBox, Step};
use infeed_core::batch::RowCell;
use infeed_core::sample::{DType, Size};

/// Largest plausible coordinate in units of the image's width or height. Boxes may extend over the
/// edge, but larger numbers are pixels.
const MAX_NORMALIZED: f64 = 4.0;

/// Bytes of memory for a box while its sample is made: a moving box, and the corners and the number of
/// one that stays.
const BOX_BYTES: u64 = (size_of::<MovingBox>() + size_of::<[f64; 4]>() + size_of::<usize>()) as u64;

impl BoxesPlan {
    /// Returns the number of boxes of a record, valid or not.
    pub(crate) fn count(&self, record: &[Bytes]) -> u64 {
        (record[self.field].len() / (SIDES * self.dtype.bytes())) as u64
    }

    /// Bytes of memory for the boxes of a record while its sample is made.
    pub(crate) fn scratch_bytes(&self, record: &[Bytes]) -> u64 {
        let points = self.columns.iter().filter(|column| column.points.is_some());
        let points = points.map(|column| record[column.field].len() as u64);
        let moved = points.fold(0_u64, u64::saturating_add).saturating_mul(2);
        let boxes = self.count(record).saturating_mul(BOX_BYTES);
        boxes.saturating_add(moved)
    }

    /// Moves the boxes of a record by the steps of its image. Returns those that stay.
    pub(crate) fn remaining_boxes(
        &self,
        image: &SampleImage<'_>,
        shared: &[(usize, Step)],
    ) -> Result<KeptBoxes, StageFailure> {
        let record = &image.record.fields;
        let (mut boxes, size) = self.move_boxes(image, shared)?;
        let mut outlines = None;
        if let Some(plan) = &self.outlines {
            let moved = plan.move_outlines(image, shared, boxes.len())?;
            for (number, moving) in boxes.iter_mut().enumerate() {
                moving.surround(moved.extent(number));
            }
            outlines = Some(moved);
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for (column, name) in self.columns.iter().zip(&self.spec.columns) {
            let found = record[column.field].len();
            if found != boxes.len() * column.row_bytes {
                let problem = format!(
                    "`{name}` has {} rows, but `{}` has {} boxes",
                    found / column.row_bytes,
                    self.spec.field,
                    boxes.len()
                );
                let fix = "give each box one row, or leave the field out of columns";
                let error = SampleError::Field(FieldError { problem, fix });
                return Err(error.in_field(column.field));
            }
            columns.push(match &column.points {
                Some(points) => {
                    points.move_points(record, image.frame, image.steps.iter().chain(shared))?
                }
                None => record[column.field].clone(),
            });
        }
        let filter = self.spec.filter();
        let kept = boxes.iter().enumerate();
        let kept = kept.filter(|(_, moving)| filter.keeps(moving));
        // Growing lists would take twice the memory.
        let count = kept.clone().count();
        let (mut numbers, mut corners) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (number, moving) in kept {
            numbers.push(number);
            corners.push(moving.visible());
        }
        Ok(KeptBoxes {
            columns,
            numbers,
            corners,
            outlines,
            of: boxes.len(),
            size,
        })
    }

    /// Moves the boxes of a record by the steps of its image, and those that it shares with others.
    /// Returns them with the size of the result.
    pub(crate) fn move_boxes(
        &self,
        image: &SampleImage<'_>,
        shared: &[(usize, Step)],
    ) -> Result<(Vec<MovingBox>, Size), StageFailure> {
        let mut size = image.frame.size;
        let mut follow = |boxes: &mut [MovingBox], steps: &[(usize, Step)]| {
            for (_, step) in steps {
                boxes
                    .iter_mut()
                    .for_each(|moving| moving.follow(step, size));
                size = step.output_size(size);
            }
        };
        let mut boxes = match image.pasted {
            Some(objects) => {
                follow(&mut [], image.steps);
                objects.boxes.clone()
            }
            None => {
                let mut boxes = self.start(&image.record.fields, image.frame)?;
                follow(&mut boxes, image.steps);
                boxes
            }
        };
        follow(&mut boxes, shared);
        Ok((boxes, size))
    }

    /// Writes the boxes that stay of the records of a sample, in this order, with their rows of other
    /// fields.
    pub(crate) fn write(
        &self,
        records: &[KeptBoxes],
        order: &[BoxPosition],
        cells: &mut [RowCell],
    ) {
        let mut values = Vec::with_capacity(order.len() * SIDES * DType::Float32.bytes());
        for &BoxPosition { image, at } in order {
            let (corners, size) = (records[image].corners[at], records[image].size);
            let corners = match self.spec.normalized {
                true => scale(corners, sides(size).map(f64::recip)),
                false => corners,
            };
            for value in self.spec.format.values(corners) {
                values.extend_from_slice(&(value as f32).to_le_bytes());
            }
        }
        put(&mut cells[self.field], values);
        for (number, column) in self.columns.iter().enumerate() {
            let row_bytes = column.item.iter().product::<usize>() * column.dtype.bytes();
            let mut values = Vec::with_capacity(order.len() * row_bytes);
            for &BoxPosition { image, at } in order {
                let begin = records[image].numbers[at] * row_bytes;
                let column = &records[image].columns[number];
                values.extend_from_slice(&column[begin..begin + row_bytes]);
            }
            put(&mut cells[column.field], values);
        }
    }

    /// Returns the boxes of a record in its decoded image.
    pub(crate) fn start(
        &self,
        record: &[Bytes],
        image: ImageFrame,
    ) -> Result<Vec<MovingBox>, StageFailure> {
        let boxes = self.moving(record, image);
        boxes.map_err(|error| SampleError::Field(error).in_field(self.field))
    }

    /// As [`BoxesPlan::start`], with the problem of the boxes only.
    pub(crate) fn moving(
        &self,
        record: &[Bytes],
        image: ImageFrame,
    ) -> Result<Vec<MovingBox>, FieldError> {
        let bytes: &[u8] = &record[self.field];
        let name = &self.spec.field;
        let width = self.dtype.bytes();
        if !bytes.len().is_multiple_of(SIDES * width) {
            return Err(FieldError {
                problem: format!(
                    "`{name}` has {} numbers, which are no boxes",
                    bytes.len() / width
                ),
                fix: "give each box four numbers",
            });
        }
        // The size that the coordinates refer to, and its turn to the decoded image.
        let frame = match self.spec.is_oriented() {
            true => ImageFrame::upright(image.size),
            false => image,
        };
        let mut boxes = Vec::with_capacity(bytes.len() / (SIDES * width));
        for (number, bytes) in bytes.chunks_exact(SIDES * width).enumerate() {
            let mut values = [0.0; SIDES];
            for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(width)) {
                *value = number_of(self.dtype, bytes);
            }
            let corners = self
                .valid_corners(values)
                .map_err(|(problem, fix)| FieldError {
                    problem: format!("box {number} of `{name}` is {values:?}, {problem}"),
                    fix,
                })?;
            let [left, top, right, bottom] = match self.spec.normalized {
                true => scale(corners, sides(frame.stored_size())),
                false => corners,
            };
            let [x1, y1] = frame.shown_point([left, top]);
            let [x2, y2] = frame.shown_point([right, bottom]);
            let corners = [x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2)];
            boxes.push(MovingBox::new(corners, image.size));
        }
        Ok(boxes)
    }

    /// Returns the corners of a valid box, in the unit of the field; else the problem and its fix.
    fn valid_corners(&self, values: [f64; 4]) -> Result<[f64; 4], (&'static str, &'static str)> {
        if values.iter().any(|value| !value.is_finite()) {
            return Err(("which are not finite numbers", "correct the record"));
        }
        let corners = self.spec.format.corners(values);
        let [left, top, right, bottom] = corners;
        if right < left || bottom < top {
            let fix = "correct the record, or declare the format of its boxes";
            return Err(("which has a negative width or height", fix));
        }
        if self.spec.normalized && corners.iter().any(|value| value.abs() > MAX_NORMALIZED) {
            let problem = "which is far outside the image in units of its width and height";
            return Err((
                problem,
                "correct the record, or set normalized=False for pixels",
            ));
        }
        Ok(corners)
    }
}

fn scale([left, top, right, bottom]: [f64; 4], [x, y]: [f64; 2]) -> [f64; 4] {
    [left * x, top * y, right * x, bottom * y]
}
