//! `MixUp` and `CutMix` of a pipeline: their checks, and the labels that they need.

use std::fmt;

use crate::fields::failure::part_name;
use crate::fields::field::FieldPlan;
use crate::fields::labels::{DEFAULT_LABEL, SoftLabel};
use crate::pipeline::Pipeline;
use infeed_codec::transform::{MixChoice, MixSettings, Transform};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Size};
use infeed_source::Source;

/// Mixing of a pipeline.
#[derive(Debug)]
pub(crate) struct Mixer {
    pub(crate) choices: Vec<MixChoice>,
    /// Index of the first mixing transform; keys the draws.
    pub(crate) number: usize,
    /// Index of the label field, if there is one.
    pub(crate) label: Option<usize>,
    /// Size of the finished images, for drawing rectangles.
    pub(crate) size: Size,
}

/// Returns the mixing transforms with their indices.
fn mixing_transforms(
    pipeline: &Pipeline,
) -> impl Iterator<Item = (usize, &Transform, MixSettings<'_>)> {
    let all = pipeline.transforms.iter().enumerate();
    all.filter_map(|(at, transform)| Some((at, transform, transform.mixing()?)))
}

/// Returns the label field of a mixing pipeline, and the conversion of its class numbers to soft
/// labels. Without a source, accepts what only the source could check.
pub(crate) fn labels(
    pipeline: &Pipeline,
    fields: &[Field],
    source: Option<&dyn Source>,
) -> Result<Option<(usize, Option<SoftLabel>)>, Error> {
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

/// Checks that finished rows can be mixed.
pub(crate) fn mixer(
    pipeline: &Pipeline,
    plans: &[FieldPlan],
    label: Option<usize>,
) -> Result<Option<Mixer>, Error> {
    let Some((number, first, _)) = mixing_transforms(pipeline).next() else {
        return Ok(None);
    };
    let pixels = plans.iter().filter_map(FieldPlan::pixels);
    let mut size = None;
    for plan in pixels {
        let wrong = |problem| Err(Error::config(part_name(number, first), problem));
        let Some(own) = plan.size else {
            return wrong(format!(
                "the size of `{}` differs by record; add a transform that gives one size before it, \
                 such as RandomResizedCrop(224)",
                plan.name
            ));
        };
        size = size.or(Some(own));
        let blended = mixing_transforms(pipeline).find(|(_, _, settings)| !settings.choice.cuts);
        if let Some((at, transform, _)) = blended
            && plan.is_mask
            && !plan.is_shares()
        {
            let problem = format!(
                "class numbers in `{}` cannot be averaged; add OneHot(\"{}\", ...) with a float \
                 dtype before it, or use CutMix",
                plan.name, plan.name
            );
            return Err(Error::config(part_name(at, transform), problem));
        }
    }
    let Some(size) = size else {
        return Ok(None);
    };
    Ok(Some(Mixer {
        number,
        choices: mixing_transforms(pipeline)
            .map(|(_, _, of)| of.choice)
            .collect(),
        label,
        size,
    }))
}

impl fmt::Display for Mixer {
    /// Writes the line of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = self.choices.iter().map(|choice| {
            let name = choice.name();
            let often = match choice.p {
                p if p < 1.0 => format!(", {p} of the samples"),
                _ => String::new(),
            };
            format!("{name} (alpha {}{often})", choice.alpha)
        });
        let choices: Vec<String> = choices.collect();
        write!(
            f,
            "mix: {}, with the sample of another position, decoded for it",
            choices.join(" or ")
        )
    }
}
