//! Class numbers that become soft labels, for mixing.

use crate::fields::cells::bytes_of;
use crate::fields::failure::{PartFailure, SampleError, part_name};
use crate::fields::kind::{DrawnSample, KindPlan, PlanInput, own_bytes};
use crate::fields::scratch::FieldScratch;
use crate::pipeline::Pipeline;
use infeed_codec::transform::{MixSettings, Transform};
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{DType, FieldKind};

/// Plans the class numbers that a pipeline mixes.
pub(super) fn plan(
    input: &PlanInput<'_>,
    is_free: &dyn Fn(usize) -> bool,
) -> Result<Vec<Box<dyn KindPlan>>, Error> {
    Ok(match label_field(input)? {
        Some((field, Some(soft))) if is_free(field) => vec![Box::new(LabelPlan { field, soft })],
        _ => Vec::new(),
    })
}

/// Class numbers of a field, written as soft labels.
#[derive(Debug)]
struct LabelPlan {
    field: usize,
    soft: SoftLabel,
}

impl KindPlan for LabelPlan {
    fn columns(&self) -> Vec<(usize, ColumnKind)> {
        vec![(self.field, self.soft.column())]
    }

    fn describe(&self, _: usize) -> &'static str {
        "soft labels"
    }

    fn row_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        own_bytes(sample.record, &self.columns())
    }

    fn write(
        &self,
        sample: &DrawnSample<'_>,
        cells: &mut [RowCell],
        _: &mut FieldScratch,
    ) -> Result<(), PartFailure> {
        let number = &sample.record.fields[self.field];
        let written = self.soft.write(number, &mut cells[self.field]);
        Ok(written.map_err(|error| error.in_field(self.field))?)
    }
}

/// Conversion of class numbers to soft labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftLabel {
    pub(crate) dtype: DType,
    pub(crate) classes: usize,
}

impl SoftLabel {
    /// Returns the column of soft labels.
    pub(crate) fn column(&self) -> ColumnKind {
        ColumnKind::Fixed {
            dtype: DType::Float32,
            shape: vec![self.classes],
        }
    }

    /// Writes a class number as a soft label with all weight on that class.
    pub(crate) fn write(&self, number: &[u8], cell: &mut RowCell) -> Result<(), SampleError> {
        let class = integer(self.dtype, number);
        let Some(class) = class
            .and_then(|class| usize::try_from(class).ok())
            .filter(|&class| class < self.classes)
        else {
            return Err(SampleError::Shape {
                found: match class {
                    Some(class) => format!("label {class}"),
                    None => format!("{} bytes", number.len()),
                },
                expected: format!("labels of {} classes, from 0", self.classes),
                fix: "set the number of classes of MixUp and CutMix, as in classes=1000",
            });
        };
        if let RowCell::Own { bytes, .. } = cell {
            bytes.resize(self.classes * 4, 0);
        }
        let out = bytes_of(cell);
        out.fill(0);
        if let Some(share) = out.get_mut(class * 4..class * 4 + 4) {
            share.copy_from_slice(&1.0_f32.to_ne_bytes());
        }
        Ok(())
    }
}

/// Reads an integer of a type from its bytes.
pub(crate) fn integer(dtype: DType, bytes: &[u8]) -> Option<i128> {
    macro_rules! read {
        ($of:ty) => {
            <$of>::from_le_bytes(bytes.try_into().ok()?).into()
        };
    }
    Some(match dtype {
        DType::UInt8 => read!(u8),
        DType::UInt16 => read!(u16),
        DType::UInt32 => read!(u32),
        DType::UInt64 => read!(u64),
        DType::Int8 => read!(i8),
        DType::Int16 => read!(i16),
        DType::Int32 => read!(i32),
        DType::Int64 => read!(i64),
        _ => return None,
    })
}

/// Field of the labels if the transform names none.
pub(crate) const DEFAULT_LABEL: &str = "label";

/// Returns the mixing transforms with their indices.
pub(crate) fn mixing_transforms(
    pipeline: &Pipeline,
) -> impl Iterator<Item = (usize, &Transform, MixSettings<'_>)> {
    let all = pipeline.transforms.iter().enumerate();
    all.filter_map(|(at, transform)| Some((at, transform, transform.mixing()?)))
}

/// Returns the label field of a mixing pipeline, and the conversion of its class numbers to soft
/// labels. Without a source, accepts what only the source could check.
pub(crate) fn label_field(
    input: &PlanInput<'_>,
) -> Result<Option<(usize, Option<SoftLabel>)>, Error> {
    let PlanInput {
        pipeline,
        fields,
        source,
        ..
    } = *input;
    let Some((at, transform, first)) = mixing_transforms(pipeline).next() else {
        return Ok(None);
    };
    let wrong = |problem: String| Err(Error::config(part_name(at, transform), problem));
    let mut whole = 0.0;
    for (at, transform, other) in mixing_transforms(pipeline) {
        whole += other.choice.p;
        if (other.field, other.classes) != (first.field, first.classes) {
            return wrong(format!(
                "its field and classes differ from those of {}; use the same for both",
                part_name(at, transform)
            ));
        }
    }
    if whole > 1.0 + 1e-9 {
        return wrong(format!(
            "the p of MixUp and CutMix add up to {whole}, more than 1; a sample gets at most one \
             of them: lower p, such as p=0.5"
        ));
    }
    let name = first.field.unwrap_or(DEFAULT_LABEL);
    let Some(at) = fields.iter().position(|field| field.name == name) else {
        let masks = fields
            .iter()
            .any(|field| matches!(field.kind, FieldKind::Mask(_)));
        if source.is_none() || (masks && first.field.is_none()) {
            return Ok(None);
        }
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        return wrong(format!(
            "no label field `{name}`; set the label field, as in field=\"...\" (fields: {names:?})"
        ));
    };
    let kind = &fields[at].kind;
    match kind {
        FieldKind::Tensor { dtype, shape } if shape.is_empty() && dtype.is_integer() => {
            let named = source.and_then(|source| source.classes()).map(<[_]>::len);
            let classes = first.classes.map(|n| n as usize).or(named);
            match classes {
                Some(classes) => Ok(Some((
                    at,
                    Some(SoftLabel {
                        dtype: *dtype,
                        classes,
                    }),
                ))),
                None if source.is_none() => Ok(None),
                None => wrong(format!(
                    "the number of classes of `{name}` is unknown; set it, as in classes=10"
                )),
            }
        }
        FieldKind::Tensor {
            dtype: DType::Float32,
            ..
        } if first.classes.is_none() => Ok(Some((at, None))),
        FieldKind::Tensor {
            dtype: DType::Float32,
            ..
        } => wrong(format!(
            "`{name}` is float32, which needs no classes; remove classes"
        )),
        _ => wrong(format!(
            "`{name}` is neither a class number nor float32, so it cannot be mixed; set another \
             label field, as in field=\"...\""
        )),
    }
}
