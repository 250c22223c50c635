//! Declared boxes, checked: their field, and the fields with one row per box.

use crate::fields::kinds::masks::{self, MasksPlan};
use crate::fields::kinds::outlines::{self, MAX_STRIDE, OutlinesPlan};
use crate::fields::kinds::points::PointsPlan;
use crate::fields::moving::check_image;
use crate::pipeline::{BoxesSpec, Pipeline};
use infeed_core::batch::ColumnKind;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind};

/// Numbers of a box.
pub(super) const SIDES: usize = 4;

/// A declared field of boxes, and the fields with one row per box.
#[derive(Clone, Debug)]
pub(crate) struct BoxesPlan {
    pub(super) spec: BoxesSpec,
    pub(super) field: usize,
    pub(super) dtype: DType,
    /// One number per field of `spec.columns`.
    pub(super) columns: Vec<BoxColumn>,
    /// The field with their masks.
    pub(crate) masks: Option<MasksPlan>,
    /// The field with their outlines.
    pub(crate) outlines: Option<OutlinesPlan>,
}

/// A field with one row per box.
#[derive(Clone, Debug)]
pub(super) struct BoxColumn {
    pub(super) field: usize,
    pub(super) dtype: DType,
    /// Shape of the row of a box.
    pub(super) item: Vec<usize>,
    /// Bytes of the row of a box in the source.
    pub(super) row_bytes: usize,
    /// Set if the row has points, which move.
    pub(super) points: Option<PointsPlan>,
}

impl BoxesPlan {
    /// Returns the index of each field, with the column that it becomes.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (usize, ColumnKind)> {
        let fields = self.fields();
        fields.filter_map(|field| Some((field, self.kind_of(field)?)))
    }

    /// Returns the kind of the column of a field; `None` if the field is not one of these boxes.
    fn kind_of(&self, field: usize) -> Option<ColumnKind> {
        let list = |dtype, item| ColumnKind::Ragged { dtype, item };
        if let Some(masks) = self.masks.as_ref().filter(|masks| masks.field == field) {
            return Some(masks.kind());
        }
        let outlines = self.outlines.as_ref();
        if let Some(outlines) = outlines.filter(|outlines| outlines.field == field) {
            return Some(outlines.kind());
        }
        let column = self.columns.iter().find(|column| column.field == field);
        match column {
            None if self.field == field => Some(list(DType::Float32, vec![SIDES])),
            column => column.map(|column| list(column.dtype, column.item.clone())),
        }
    }

    /// Index of the field of boxes, then those of the fields with one row per box.
    pub(super) fn fields(&self) -> impl Iterator<Item = usize> {
        let columns = self.columns.iter().map(|column| column.field);
        let masks = self.masks.as_ref().map(|masks| masks.field);
        let outlines = self.outlines.as_ref().map(|outlines| outlines.field);
        let polygons = masks.into_iter().chain(outlines);
        std::iter::once(self.field).chain(columns).chain(polygons)
    }

    /// Whether the values of a field move with the image, and not only the choice of its rows.
    pub(crate) fn moves(&self, field: usize) -> bool {
        let masks = self.masks.as_ref().map(|masks| masks.field);
        let outlines = self.outlines.as_ref().map(|outlines| outlines.field);
        self.field == field || [masks, outlines].contains(&Some(field))
    }

    /// Returns the points in the columns.
    pub(crate) fn points(&self) -> impl Iterator<Item = &PointsPlan> {
        self.columns
            .iter()
            .filter_map(|column| column.points.as_ref())
    }
}

/// Checks the declarations. `all` says whether `fields` are all fields of the source. Takes the
/// points in the columns of boxes from `points`, and returns the others.
pub(crate) fn plans(
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
        for name in names.chain(&spec.masks).chain(&spec.outlines) {
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
                            outlines: None,
                        });
                    }
                    None => return wrong(format!("`{name}` cannot hold boxes; {BOXES}")),
                },
                Some(plan) if spec.masks.as_ref() == Some(name) => {
                    plan.masks = masks::plan_masks(at, &fields[at], spec.is_oriented());
                    if plan.masks.is_none() {
                        return wrong(format!("`{name}` cannot hold masks; {}", masks::MASKS));
                    }
                }
                Some(plan) if spec.outlines.as_ref() == Some(name) => {
                    plan.outlines = outlines::plan_outlines(at, &fields[at], spec);
                    if plan.outlines.is_none() {
                        let fix = outlines::OUTLINES;
                        return wrong(format!("`{name}` cannot hold outlines; {fix}"));
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
    if let Some(stride) = spec.map_stride {
        if spec.outlines.is_none() {
            return wrong("map_stride needs outlines; set outlines, or remove it".to_owned());
        }
        if spec.masks.is_some() {
            let problem = "a map sorts the boxes, and masks would have another order; remove \
                           map_stride or masks";
            return wrong(problem.to_owned());
        }
        if !(1..=MAX_STRIDE).contains(&stride) {
            return wrong(format!(
                "map_stride is {stride}, it must be 1 to {MAX_STRIDE}"
            ));
        }
    }
    check_image("boxes", pipeline, fields)
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
