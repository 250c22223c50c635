//! `MixUp` and `CutMix` of a pipeline, checked.

use std::fmt;

use super::function;
use crate::fields::failure::part_name;
use crate::fields::kind::PlanInput;
use crate::fields::kinds::labels::{label_field, mixing_transforms};
use crate::fields::pixels::plan::PixelPlan;
use infeed_codec::transform::MixChoice;
use infeed_core::error::Error;
use infeed_core::sample::Size;

/// Mixing of a pipeline.
#[derive(Debug)]
pub(crate) struct MixPlan {
    pub(crate) choices: Vec<MixChoice>,
    /// Index of the first mixing transform; keys the draws.
    pub(crate) number: usize,
    /// Index of the label field, if there is one.
    pub(crate) label: Option<usize>,
    /// Size of the finished images, for drawing rectangles.
    pub(crate) size: Size,
}

/// Checks that finished rows can be mixed.
pub(super) fn plan(
    input: &PlanInput<'_>,
    pixels: &[Option<PixelPlan>],
) -> Result<Option<MixPlan>, Error> {
    let pipeline = input.pipeline;
    let Some((number, first, _)) = mixing_transforms(pipeline).next() else {
        return Ok(None);
    };
    let mut size = None;
    for plan in pixels.iter().flatten() {
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
    function::refuse_after_mixing(pipeline)?;
    Ok(Some(MixPlan {
        number,
        choices: mixing_transforms(pipeline)
            .map(|(_, _, of)| of.choice)
            .collect(),
        label: label_field(input)?.map(|(field, _)| field),
        size,
    }))
}

impl fmt::Display for MixPlan {
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
