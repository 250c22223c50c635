//! Points: checked declarations, and the points of one sample.
//!
//! Points move as boxes do, by the steps that were drawn for the image. A field of points may also
//! be in the columns of boxes: then each box has the points of one object.

use bytes::Bytes;

use crate::fields::failure::{FieldError, SampleError, StageFailure};
use crate::fields::moving::{SampleImage, check_image, number_of, sides};
use crate::pipeline::{Pipeline, PointsSpec};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingPoint, MovingPoints, Step, Transform};
use infeed_core::batch::ColumnKind;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Size};

/// Most points of an object.
const MAX_POINTS: usize = 1 << 16;

/// A declared field of points.
#[derive(Clone, Debug)]
pub(crate) struct PointsPlan {
    spec: PointsSpec,
    pub(crate) field: usize,
    /// Type of the numbers in the source.
    pub(crate) dtype: DType,
    /// Points of an object.
    per_object: usize,
    /// Shape of a record or, in lists and columns of boxes, of an object.
    pub(crate) item: Vec<usize>,
    /// Shape of a record; `None` for lists.
    shape: Option<Vec<usize>>,
}

/// Checks the declarations. `all` says whether `fields` are all fields of the source.
pub(crate) fn plans(
    pipeline: &Pipeline,
    fields: &[Field],
    all: bool,
) -> Result<Vec<PointsPlan>, Error> {
    let declared = pipeline.declared_points();
    let boxes = pipeline.declared_boxes();
    let mut plans: Vec<PointsPlan> = Vec::with_capacity(declared.len());
    for spec in &declared {
        let (name, wrong) = (&spec.field, |problem: String| {
            Err(Error::config("points", problem))
        });
        check_image("points", pipeline, fields)?;
        let Some(field) = fields.iter().position(|field| field.name == *name) else {
            if all {
                let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                return wrong(format!("no field `{name}`; use one of {names:?}"));
            }
            continue;
        };
        let is_twice = plans.iter().any(|plan| plan.field == field)
            || boxes.iter().any(|boxes| boxes.field == *name);
        if is_twice {
            return wrong(format!("`{name}` is declared twice; remove one"));
        }
        let is_column = boxes.iter().any(|boxes| boxes.columns.contains(name));
        let Some(plan) = plan_points(spec, field, &fields[field], is_column) else {
            return wrong(format!(
                "`{name}` cannot hold points; use a list of numbers, {} for each point, or an array \
                 [n, {}], of a type other than bool and float16",
                numbers(spec),
                numbers(spec)
            ));
        };
        if !(1..=MAX_POINTS).contains(&plan.per_object) {
            let found = plan.per_object;
            return wrong(format!("count is {found}, it must be 1 to {MAX_POINTS}"));
        }
        let mut paired = vec![false; plan.per_object];
        for number in spec.pairs.as_flattened() {
            match paired.get_mut(*number) {
                Some(is_paired) if !*is_paired => *is_paired = true,
                Some(_) => return wrong(format!("point {number} is in two pairs; remove one")),
                None => {
                    return wrong(format!(
                        "pairs have point {number}, but an object of `{name}` has {} points, from \
                         0; set count to the points of an object",
                        plan.per_object
                    ));
                }
            }
        }
        let adds = |one: &&Transform| one.mosaic().is_some() || one.image_mixup().is_some();
        if let Some(joins) = pipeline.transforms.iter().find(adds)
            && plan.shape.is_some()
            && !is_column
        {
            let joins = joins.name();
            return wrong(format!(
                "`{name}` has the same number of points in every record, and {joins} adds those of \
                 others; use lists, or columns=({name:?},) of boxes"
            ));
        }
        plans.push(plan);
    }
    Ok(plans)
}

/// Numbers of a point.
fn numbers(spec: &PointsSpec) -> usize {
    2 + usize::from(spec.visibility)
}

/// Plans a field that can hold points. `is_column` says whether each row belongs to a box.
fn plan_points(spec: &PointsSpec, field: usize, of: &Field, is_column: bool) -> Option<PointsPlan> {
    let numbers = numbers(spec);
    let (dtype, shape) = match &of.kind {
        FieldKind::Ragged { dtype } => (*dtype, None),
        FieldKind::Tensor { dtype, shape } => (*dtype, Some(shape)),
        _ => return None,
    };
    let is_number = dtype.is_integer() || matches!(dtype, DType::Float32 | DType::Float64);
    let item: Vec<usize> = match shape {
        Some(shape) if is_column => shape.get(1..)?.to_vec(),
        Some(shape) => shape.clone(),
        None => spec.count.into_iter().chain([numbers]).collect(),
    };
    let of_item = item.len().checked_sub(2).map_or(1, |at| item[at]);
    (is_number && item.last() == Some(&numbers)).then(|| PointsPlan {
        spec: spec.clone(),
        field,
        dtype,
        per_object: spec.count.unwrap_or(of_item),
        item,
        shape: shape.cloned(),
    })
}

impl PointsPlan {
    /// Returns the kind of the column that the points write.
    pub(crate) fn kind(&self) -> ColumnKind {
        let dtype = DType::Float32;
        match &self.shape {
            Some(shape) => ColumnKind::Fixed {
                dtype,
                shape: shape.clone(),
            },
            None => ColumnKind::Ragged {
                dtype,
                item: self.item.clone(),
            },
        }
    }

    /// Moves the points of a record by the steps of its image. Returns their float32 numbers.
    pub(crate) fn move_points<'s>(
        &self,
        record: &[Bytes],
        image: ImageFrame,
        drawn: impl IntoIterator<Item = &'s (usize, Step)>,
    ) -> Result<Bytes, StageFailure> {
        let (points, size) = self.follow(record, image, drawn)?;
        let [width, height] = match self.spec.normalized {
            true => sides(size),
            false => [1.0; 2],
        };
        let mut bytes = Vec::with_capacity(points.len() * numbers(&self.spec) * 4);
        for MovingPoint {
            at: [x, y],
            visibility,
        } in points
        {
            let values = match self.spec.visibility && visibility == 0.0 {
                true => [0.0; 3],
                false => [x / width, y / height, visibility],
            };
            for value in &values[..numbers(&self.spec)] {
                bytes.extend_from_slice(&(*value as f32).to_le_bytes());
            }
        }
        Ok(bytes.into())
    }

    /// Moves the points of a record by the steps of its image. Returns them with the size of the
    /// result.
    fn follow<'s>(
        &self,
        record: &[Bytes],
        image: ImageFrame,
        drawn: impl IntoIterator<Item = &'s (usize, Step)>,
    ) -> Result<(Vec<MovingPoint>, Size), StageFailure> {
        let points = self.read(&record[self.field], image);
        let points = points.map_err(|error| SampleError::Field(error).in_field(self.field))?;
        let mut moving = MovingPoints {
            points,
            per_object: self.per_object,
            pairs: &self.spec.pairs,
            edges: self.spec.edges,
        };
        let mut size = image.size;
        for (_, step) in drawn {
            moving.follow(step, size);
            size = step.output_size(size);
        }
        Ok((moving.points, size))
    }

    /// Returns column and row of the visible points of some objects, or of all.
    pub(crate) fn visible(
        &self,
        image: &SampleImage<'_>,
        shared: &[(usize, Step)],
        objects: Option<&[usize]>,
    ) -> Result<Vec<[f64; 2]>, StageFailure> {
        let steps = image.steps.iter().chain(shared);
        let (mut points, size) = self.follow(&image.record.fields, image.frame, steps)?;
        let numbers = points.chunks_mut(self.per_object).enumerate();
        let chosen = numbers.filter(|(number, _)| {
            objects.is_none_or(|objects| objects.binary_search(number).is_ok())
        });
        let [width, height] = sides(size);
        let is_visible = |point: &&MovingPoint| {
            let [x, y] = point.at;
            let is_inside = (-0.5..width - 0.5).contains(&x) && (-0.5..height - 0.5).contains(&y);
            point.visibility > 0.0 && is_inside
        };
        let points = chosen.flat_map(|(_, points)| &*points).filter(is_visible);
        Ok(points.map(|point| point.at).collect())
    }

    /// Returns the name of the field.
    pub(crate) fn name(&self) -> &str {
        &self.spec.field
    }

    /// Returns the points in pixels of the decoded image.
    fn read(&self, bytes: &[u8], image: ImageFrame) -> Result<Vec<MovingPoint>, FieldError> {
        let (name, width) = (&self.spec.field, self.dtype.bytes());
        let numbers = numbers(&self.spec);
        let object = self.per_object * numbers;
        if !bytes.len().is_multiple_of(object * width) {
            return Err(FieldError {
                problem: format!(
                    "`{name}` has {} numbers, which are no objects of {} points",
                    bytes.len() / width,
                    self.per_object
                ),
                fix: "give each point its numbers, and each object the same number of points",
            });
        }
        // The size that the coordinates refer to, and its turn to the decoded image.
        let frame = match self.spec.is_oriented() {
            true => ImageFrame::upright(image.size),
            false => image,
        };
        let scale = sides(frame.stored_size());
        let mut points = Vec::with_capacity(bytes.len() / (numbers * width));
        for (number, bytes) in bytes.chunks_exact(numbers * width).enumerate() {
            // Points without a visibility are visible.
            let mut values = [0.0, 0.0, 1.0];
            for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(width)) {
                *value = number_of(self.dtype, bytes);
            }
            let [x, y, visibility] = values;
            if values.iter().any(|value| !value.is_finite()) || visibility < 0.0 {
                return Err(FieldError {
                    problem: format!(
                        "point {number} of `{name}` is {:?}, which are not finite numbers with a \
                         visibility of at least 0",
                        &values[..numbers]
                    ),
                    fix: "correct the record",
                });
            }
            let [x, y] = match self.spec.normalized {
                true => [x * scale[0], y * scale[1]].map(whole),
                false => [x, y],
            };
            // Pixels turn around their centres.
            let half = if self.spec.edges { 0.0 } else { 0.5 };
            let [x, y] = frame.shown_point([x + half, y + half]);
            let mut point = MovingPoint {
                at: [x - half, y - half],
                visibility,
            };
            point.hide_outside(image.size, self.spec.edges);
            points.push(point);
        }
        Ok(points)
    }
}

/// Rounds a coordinate to 1/1024 px. Shares in float32 are less exact, and a pixel at the edge must
/// not be outside the image because of that.
fn whole(pixels: f64) -> f64 {
    (pixels * 1024.0).round() / 1024.0
}
