//! Sizes of images that fields of a record have, for the transforms that take them.

use crate::fields::failure::{FieldError, SampleError, StageFailure, part_name};
use crate::fields::kind::PlanInput;
use crate::fields::kinds::labels::integer;
use infeed_core::error::Error;
use infeed_core::sample::{DType, FieldKind, Record, Size};

/// A field with the size of the result of a transform.
#[derive(Debug)]
pub(crate) struct RecordSize {
    /// Index of the transform.
    transform: usize,
    /// Index of the field.
    field: usize,
    name: String,
    dtype: DType,
}

/// Returns the fields with the sizes of a pipeline's transforms. Skips unknown fields if the pipeline does
/// not have all of its source yet.
pub(super) fn plan(input: &PlanInput<'_>) -> Result<Vec<RecordSize>, Error> {
    let mut planned = Vec::new();
    for (at, transform) in input.pipeline.transforms.iter().enumerate() {
        let Some(name) = transform.size_field() else {
            continue;
        };
        let wrong = |problem: String| Err(Error::config(part_name(at, transform), problem));
        let fields = input.fields;
        let Some(field) = fields.iter().position(|field| field.name == name) else {
            if !input.all {
                continue;
            }
            let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            return wrong(format!("no field `{name}`; use one of {names:?}"));
        };
        match &fields[field].kind {
            FieldKind::Tensor { dtype, shape } if dtype.is_integer() && shape[..] == [2] => {
                planned.push(RecordSize {
                    transform: at,
                    field,
                    name: name.to_owned(),
                    dtype: *dtype,
                });
            }
            _ => {
                return wrong(format!(
                    "`{name}` is no size; use a field with two integers, height and width in pixels"
                ));
            }
        }
    }
    Ok(planned)
}

impl RecordSize {
    /// Returns the index of the transform, and the size that a record has for it.
    pub(super) fn read(&self, record: &Record) -> Result<(usize, Size), StageFailure> {
        let bytes = &record.fields[self.field];
        let sides = bytes.chunks_exact(self.dtype.bytes());
        let sides: Vec<i128> = sides.filter_map(|side| integer(self.dtype, side)).collect();
        let side = |at: usize| u32::try_from(*sides.get(at)?).ok().filter(|side| *side > 0);
        match (side(0), side(1)) {
            (Some(height), Some(width)) => Ok((self.transform, Size { height, width })),
            _ => {
                let problem = format!("`{}` is {sides:?}, which is no size in pixels", self.name);
                let fix = "correct the record";
                Err(SampleError::Field(FieldError { problem, fix }).in_field(self.field))
            }
        }
    }
}
