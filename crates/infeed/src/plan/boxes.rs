//! Boxes in a plan: checked declarations, and the boxes of one sample.
//!
//! A sample moves its boxes by the steps that were drawn for its image. Where a step runs (in the
//! decoder, in the pass that writes the row, on a device) makes no difference.

use bytes::Bytes;

use super::failure::{SampleError, StageFailure};
use super::masks::{self, MasksPlan};
use super::moved::SampleImage;
use super::place;
use super::points::PointsPlan;
use crate::pipeline::{BoxesSpec, Pipeline};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingBox, Step};
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Size};

/// Numbers of a box.
const SIDES: usize = 4;

/// Largest plausible coordinate in units of the image's width or height. Boxes may extend over the
/// edge, but larger numbers are pixels.
const MAX_NORMALIZED: f64 = 4.0;

/// Boxes or points of a record that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct BoxesError {
    pub(super) problem: String,
    pub(super) fix: &'static str,
}

/// A declared field of boxes, and the fields with one row per box.
#[derive(Clone, Debug)]
pub(super) struct BoxesPlan {
    spec: BoxesSpec,
    field: usize,
    dtype: DType,
    /// One number per field of `spec.columns`.
    columns: Vec<BoxColumn>,
    /// The field with their masks.
    pub(super) masks: Option<MasksPlan>,
}

/// A field with one row per box.
#[derive(Clone, Debug)]
struct BoxColumn {
    field: usize,
    dtype: DType,
    /// Shape of the row of a box.
    item: Vec<usize>,
    /// Bytes of the row of a box in the source.
    row_bytes: usize,
    /// Set if the row has points, which move.
    points: Option<PointsPlan>,
}

/// Bytes of memory for a box while its sample is made: a moving box, and the corners and the number of
/// one that stays.
const BOX_BYTES: u64 = (size_of::<MovingBox>() + size_of::<[f64; 4]>() + size_of::<usize>()) as u64;

/// Boxes of a record that stay in a sample.
pub(super) struct KeptBoxes {
    /// Bytes of the columns, with the rows of all boxes.
    columns: Vec<Bytes>,
    /// Numbers of the boxes in their record.
    numbers: Vec<usize>,
    /// Left, top, right and bottom of each in pixels of the sample.
    corners: Vec<[f64; 4]>,
    /// Number of boxes of the record.
    pub(super) of: usize,
    /// Size of the sample's image.
    pub(super) size: Size,
}

impl KeptBoxes {
    /// Returns left, top, right and bottom of each box, in pixels of the sample.
    pub(super) fn corners(&self) -> &[[f64; 4]] {
        &self.corners
    }

    /// Returns the numbers of the boxes in their record.
    pub(super) fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}

/// Checks the declarations. `all` says whether `fields` are all fields of the source. Takes the
/// points in the columns of boxes from `points`, and returns the others.
pub(super) fn plans(
    pipeline: &Pipeline,
    fields: &[Field],
    mut points: Vec<PointsPlan>,
    all: bool,
) -> Result<(Vec<BoxesPlan>, Vec<PointsPlan>), Error> {
    let declared = pipeline.declared_boxes();
    let mut plans: Vec<BoxesPlan> = Vec::with_capacity(declared.len());
    for spec in &declared {
        check(pipeline, spec, fields)?;
        let mut plan = None;
        let names = std::iter::once(&spec.field).chain(&spec.columns);
        for name in names.chain(&spec.masks) {
            let wrong = |problem: String| Err(Error::config("boxes", problem));
            let Some(at) = fields.iter().position(|field| field.name == *name) else {
                if all {
                    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                    return wrong(format!("no field `{name}`; use one of {names:?}"));
                }
                continue;
            };
            let known = plans.iter().chain(&plan).flat_map(BoxesPlan::fields);
            if known.into_iter().any(|known| known == at) {
                return wrong(format!("`{name}` is declared twice; remove one"));
            }
            match &mut plan {
                None if *name != spec.field => {}
                None => match box_numbers(&fields[at]) {
                    Some(dtype) => {
                        plan = Some(BoxesPlan {
                            spec: spec.clone(),
                            field: at,
                            dtype,
                            columns: Vec::new(),
                            masks: None,
                        });
                    }
                    None => return wrong(format!("`{name}` cannot hold boxes; {BOXES}")),
                },
                Some(plan) if spec.masks.as_ref() == Some(name) => {
                    plan.masks = masks::planned(at, &fields[at], spec.is_oriented());
                    if plan.masks.is_none() {
                        return wrong(format!("`{name}` cannot hold masks; {}", masks::MASKS));
                    }
                }
                Some(plan) => match box_column(at, &fields[at], &mut points) {
                    Some(column) => plan.columns.push(column),
                    None => return wrong(format!("`{name}` cannot be in columns; {COLUMN}")),
                },
            }
        }
        plans.extend(plan);
    }
    Ok((plans, points))
}

const BOXES: &str = "use a list of numbers, four for each box, or an array [n, 4], of a type other \
                     than bool and float16";

const COLUMN: &str =
    "use a list of numbers, one for each box, or an array with one row for each box";

/// Checks what does not depend on the field.
fn check(pipeline: &Pipeline, spec: &BoxesSpec, fields: &[Field]) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::config("boxes", problem));
    let is_valid = |value: f64| value.is_finite() && value >= 0.0;
    for (name, value) in [("min_size", spec.min_size), ("min_area", spec.min_area)] {
        if !is_valid(value) {
            return wrong(format!("{name} is {value}, it must be at least 0"));
        }
    }
    if !(0.0..=1.0).contains(&spec.min_visibility) {
        let found = spec.min_visibility;
        return wrong(format!("min_visibility is {found}, it must be 0 to 1"));
    }
    check_image("boxes", pipeline, fields)
}

/// Checks that there is an image with which the boxes or points of `part` can move.
pub(super) fn check_image(
    part: &'static str,
    pipeline: &Pipeline,
    fields: &[Field],
) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::config(part, problem));
    let is_visual = |field: &Field| matches!(field.kind, FieldKind::Image(_) | FieldKind::Mask(_));
    let is_decoded = |field: &Field| match &field.kind {
        FieldKind::Image(pixels) | FieldKind::Mask(pixels) => {
            pipeline.decode.is_some() || *pixels != infeed_core::sample::Pixels::Encoded
        }
        _ => false,
    };
    if !fields.iter().any(is_visual) {
        return wrong(format!(
            "the source has no image that the {part} could belong to"
        ));
    }
    if !fields.iter().any(is_decoded) {
        return wrong(format!("{part} need the size of the image; add .decode()"));
    }
    for (at, transform) in pipeline.transforms.iter().enumerate() {
        let problem = if transform.mixes() {
            format!(
                "it mixes the pixels of two samples, and {part} would belong to one of them; remove it"
            )
        } else if transform.changes_geometry() && !transform.moves_points() {
            format!(
                "its padding repeats parts of the image, which {part} cannot follow; use \
                 padding_mode=\"constant\""
            )
        } else {
            continue;
        };
        return Err(Error::config(place(at, transform), problem));
    }
    Ok(())
}

/// Returns the type of the numbers of a field that can hold boxes.
fn box_numbers(field: &Field) -> Option<DType> {
    let dtype = match &field.kind {
        FieldKind::Ragged { dtype } => *dtype,
        FieldKind::Tensor { dtype, shape } if shape.last() == Some(&SIDES) => *dtype,
        _ => return None,
    };
    (dtype.is_integer() || matches!(dtype, DType::Float32 | DType::Float64)).then_some(dtype)
}

/// Plans a field with one row per box, which may be of points.
fn box_column(at: usize, field: &Field, points: &mut Vec<PointsPlan>) -> Option<BoxColumn> {
    if let Some(number) = points.iter().position(|points| points.field == at) {
        let points = points.remove(number);
        let item = points.item.clone();
        return Some(BoxColumn {
            field: at,
            dtype: DType::Float32,
            row_bytes: item.iter().product::<usize>() * points.dtype.bytes(),
            item,
            points: Some(points),
        });
    }
    let (dtype, item) = match &field.kind {
        FieldKind::Ragged { dtype } => (*dtype, Vec::new()),
        FieldKind::Tensor { dtype, shape } => (*dtype, shape.get(1..)?.to_vec()),
        _ => return None,
    };
    let row_bytes = item.iter().product::<usize>() * dtype.bytes();
    (row_bytes > 0).then_some(BoxColumn {
        field: at,
        dtype,
        item,
        row_bytes,
        points: None,
    })
}

impl BoxesPlan {
    /// Index of the field of boxes, then those of the fields with one row per box.
    pub(super) fn fields(&self) -> impl Iterator<Item = usize> {
        let columns = self.columns.iter().map(|column| column.field);
        let masks = self.masks.as_ref().map(|masks| masks.field);
        std::iter::once(self.field).chain(columns).chain(masks)
    }

    /// Whether the values of a field move with the image, and not only the choice of its rows.
    pub(super) fn moves(&self, field: usize) -> bool {
        let has_masks = |masks: &MasksPlan| masks.field == field;
        self.field == field || self.masks.as_ref().is_some_and(has_masks)
    }

    /// Returns the number of boxes of a record, valid or not.
    pub(super) fn count(&self, record: &[Bytes]) -> u64 {
        (record[self.field].len() / (SIDES * self.dtype.bytes())) as u64
    }

    /// Bytes of memory for the boxes of a record while its sample is made.
    pub(super) fn scratch_bytes(&self, record: &[Bytes]) -> u64 {
        let points = self.columns.iter().filter(|column| column.points.is_some());
        let points = points.map(|column| record[column.field].len() as u64);
        let moved = points.fold(0_u64, u64::saturating_add).saturating_mul(2);
        let boxes = self.count(record).saturating_mul(BOX_BYTES);
        boxes.saturating_add(moved)
    }

    /// Moves the boxes of a record by the steps of its image. Returns those that stay.
    pub(super) fn kept(
        &self,
        image: &SampleImage<'_>,
        shared: &[(usize, Step)],
    ) -> Result<KeptBoxes, StageFailure> {
        let record = &image.record.fields;
        let (boxes, size) = self.moved(image, shared)?;
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
                let error = SampleError::Boxes(BoxesError { problem, fix });
                return Err(error.in_field(column.field));
            }
            columns.push(match &column.points {
                Some(points) => {
                    points.moved(record, image.frame, image.steps.iter().chain(shared))?
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
            of: boxes.len(),
            size,
        })
    }

    /// Moves the boxes of a record by the steps of its image, and those that it shares with others.
    /// Returns them with the size of the result.
    pub(super) fn moved(
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

    /// Returns the points in the columns.
    pub(super) fn points(&self) -> impl Iterator<Item = &PointsPlan> {
        self.columns
            .iter()
            .filter_map(|column| column.points.as_ref())
    }

    /// Writes the boxes that stay of the records of a sample, with their rows of other fields.
    pub(super) fn write(&self, records: &[KeptBoxes], cells: &mut [RowCell]) {
        let count: usize = records.iter().map(|of| of.numbers.len()).sum();
        let mut values = Vec::with_capacity(count * SIDES * DType::Float32.bytes());
        for of in records {
            for &corners in &of.corners {
                let corners = match self.spec.normalized {
                    true => scaled(corners, sides(of.size).map(f64::recip)),
                    false => corners,
                };
                for value in self.spec.format.values(corners) {
                    values.extend_from_slice(&(value as f32).to_le_bytes());
                }
            }
        }
        put(&mut cells[self.field], values);
        for (at, column) in self.columns.iter().enumerate() {
            let row_bytes = column.item.iter().product::<usize>() * column.dtype.bytes();
            let mut values = Vec::with_capacity(count * row_bytes);
            for of in records {
                for number in &of.numbers {
                    let row = number * row_bytes..(number + 1) * row_bytes;
                    values.extend_from_slice(&of.columns[at][row]);
                }
            }
            put(&mut cells[column.field], values);
        }
    }

    /// Returns the boxes of a record in its decoded image.
    pub(super) fn start(
        &self,
        record: &[Bytes],
        image: ImageFrame,
    ) -> Result<Vec<MovingBox>, StageFailure> {
        let boxes = self.moving(record, image);
        boxes.map_err(|error| SampleError::Boxes(error).in_field(self.field))
    }

    /// As [`BoxesPlan::start`], with the problem of the boxes only.
    pub(super) fn moving(
        &self,
        record: &[Bytes],
        image: ImageFrame,
    ) -> Result<Vec<MovingBox>, BoxesError> {
        let bytes: &[u8] = &record[self.field];
        let name = &self.spec.field;
        let width = self.dtype.bytes();
        if !bytes.len().is_multiple_of(SIDES * width) {
            return Err(BoxesError {
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
            let corners = self.checked(values).map_err(|(problem, fix)| BoxesError {
                problem: format!("box {number} of `{name}` is {values:?}, {problem}"),
                fix,
            })?;
            let [left, top, right, bottom] = match self.spec.normalized {
                true => scaled(corners, sides(frame.stored_size())),
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
    fn checked(&self, values: [f64; 4]) -> Result<[f64; 4], (&'static str, &'static str)> {
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

fn scaled([left, top, right, bottom]: [f64; 4], [x, y]: [f64; 2]) -> [f64; 4] {
    [left * x, top * y, right * x, bottom * y]
}

/// Width and height.
pub(super) fn sides(size: Size) -> [f64; 2] {
    [size.width.into(), size.height.into()]
}

/// Reads a number in little-endian order. Numbers that no float64 holds are not finite.
pub(super) fn number_of(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::Float32 => bytes
            .try_into()
            .map_or(f64::NAN, |b| f32::from_le_bytes(b).into()),
        DType::Float64 => bytes.try_into().map_or(f64::NAN, f64::from_le_bytes),
        _ => dtype
            .integer(bytes)
            .map_or(f64::NAN, |integer| integer as f64),
    }
}

/// Fills a cell that is kept by row.
fn put(cell: &mut RowCell, values: Vec<u8>) {
    if let RowCell::Own { shape, bytes } = cell {
        shape.clear();
        *bytes = values;
    }
}

/// Returns the kind of the column that boxes write for the field of this index.
pub(super) fn kind_of(plans: &[BoxesPlan], at: usize) -> Option<ColumnKind> {
    let list = |dtype, item| ColumnKind::Ragged { dtype, item };
    plans.iter().find_map(|plan| {
        if let Some(masks) = plan.masks.as_ref().filter(|masks| masks.field == at) {
            return Some(masks.kind());
        }
        let column = plan.columns.iter().find(|column| column.field == at);
        match column {
            None if plan.field == at => Some(list(DType::Float32, vec![SIDES])),
            column => column.map(|column| list(column.dtype, column.item.clone())),
        }
    })
}
