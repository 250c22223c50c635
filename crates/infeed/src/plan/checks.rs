//! Checks of the transforms before the individual fields are planned.

use crate::fields::failure::part_name;
use crate::pipeline::Pipeline;
use infeed_codec::transform::Effect;
use infeed_core::error::Error;
use infeed_core::sample::{Field, FieldKind, Pixels};

/// Rejects calls that cannot run in the order in which they were written.
pub(super) fn check_order(pipeline: &Pipeline) -> Result<(), Error> {
    match &pipeline.misplaced {
        Some(misplaced) => Err(Error::config(misplaced.part, misplaced.problem)),
        None => Ok(()),
    }
}

/// Checks the decoding modes and the transforms, for fields of a source.
pub(super) fn check_transforms(pipeline: &Pipeline, fields: &[Field]) -> Result<(), Error> {
    let visual = |field: &&Field| matches!(field.kind, FieldKind::Image(_) | FieldKind::Mask(_));
    let names: Vec<&str> = fields
        .iter()
        .filter(visual)
        .map(|f| f.name.as_str())
        .collect();
    let encoded = fields.iter().any(|field| {
        matches!(
            field.kind,
            FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
        )
    });
    if encoded && pipeline.decode.is_none() && !pipeline.transforms.is_empty() {
        let problem = "images are not decoded yet; put .decode() before .transform(...)";
        return Err(Error::config(
            part_name(0, &pipeline.transforms[0]),
            problem,
        ));
    }
    if let Some(decode) = &pipeline.decode {
        let unknown = decode
            .modes
            .keys()
            .find(|name| !names.contains(&name.as_str()));
        if let Some(name) = unknown {
            let problem = format!("no image or mask field `{name}`; use one of {names:?}");
            return Err(Error::config("decode", problem));
        }
    }
    let (mut finished, mut erased, mut mixed) = (false, false, false);
    for (at, transform) in pipeline.transforms.iter().enumerate() {
        let wrong = |problem: String| Error::config(part_name(at, transform), problem);
        transform
            .validate()
            .map_err(|error| wrong(error.to_string()))?;
        if names.is_empty() {
            return Err(wrong(
                "the source has no image and no mask; remove the transform".to_owned(),
            ));
        }
        if transform.needs_boxes() && pipeline.declared_boxes().is_empty() {
            let problem = "it crops around boxes; declare them with .boxes(...)";
            return Err(wrong(problem.to_owned()));
        }
        if let Some(field) = transform.field()
            && !names.contains(&field)
        {
            return Err(wrong(format!(
                "no image or mask field `{field}`; use one of {names:?}"
            )));
        }
        let resamples = transform.changes_geometry() && !transform.only_moves_pixels();
        if finished && (resamples || transform.effect() == Effect::Color) {
            let problem = "this transform needs uint8 pixels; put it before ToFloat, Normalize, \
                           OneHot and ClassIndex";
            return Err(wrong(problem.to_owned()));
        }
        if erased && transform.changes_geometry() {
            return Err(wrong(
                "put it before RandomErasing, which must be last".to_owned(),
            ));
        }
        if mixed && !transform.mixes() {
            let problem = "put it before MixUp and CutMix, which mix finished samples";
            return Err(wrong(problem.to_owned()));
        }
        mixed |= transform.mixes();
        match transform.effect() {
            Effect::Scale | Effect::Classes => finished = true,
            Effect::Erase => erased = erased || finished,
            _ => {}
        }
    }
    Ok(())
}

/// Rejects transforms that are invalid for any input.
pub(super) fn check_alone(pipeline: &Pipeline) -> Result<(), Error> {
    for (at, transform) in pipeline.transforms.iter().enumerate() {
        transform
            .validate()
            .map_err(|error| Error::config(part_name(at, transform), error.to_string()))?;
    }
    Ok(())
}
