//! Warnings about descriptions that run but are probably wrong, and about data that is not read. Each
//! is logged once per process.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::{coordinates, orientation};
use crate::fields::failure::part_name;
use crate::pipeline::Pipeline;
use infeed_codec::transform::Effect;
use infeed_core::sample::{Field, FieldKind};
use infeed_source::Source;
use infeed_source::left_out::LeftOut;

/// Largest plausible mean or deviation in units of 0 to 1. Those of real images are below 1; those
/// in units of 0 to 255 are far above 2.
const MAX_PLAUSIBLE: f64 = 2.0;

/// Logs probable mistakes in a description, and the parts of the dataset that the source does not
/// read. Reads the headers of some local images, once per source.
pub(crate) fn log(pipeline: &Pipeline, source: &dyn Source) {
    let fields = source.fields();
    let found = coordinates::warnings(pipeline, fields);
    for text in found.into_iter().chain(of_normalize(pipeline, fields)) {
        if is_new(&text) {
            tracing::warn!(target: "infeed::plan", "{text}");
        }
    }
    for text in source.left_out().iter().map(LeftOut::to_string) {
        if is_new(&text) {
            tracing::warn!(target: "infeed::source", "{text}");
        }
    }
    // Trials open parts of a source many times, and each part has other counts.
    if let Some(annotations) = orientation::Annotations::of(pipeline, source)
        && is_new(&format!("{:?}", pipeline.source))
        && let Some(text) = annotations.warning(source)
    {
        tracing::warn!(target: "infeed::plan", "{text}");
    }
}

/// Whether the process asks about this text, a warning or a source, for the first time.
fn is_new(text: &str) -> bool {
    static LOGGED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    logged.get_or_insert_default().insert(text.to_owned())
}

/// Finds values in the wrong unit, and a second normalization.
fn of_normalize(pipeline: &Pipeline, fields: &[Field]) -> Vec<String> {
    let mut found = Vec::new();
    for field in fields.iter().filter(|field| is_image(field)) {
        let mut first: Option<usize> = None;
        let mut is_float = false;
        for (at, transform) in pipeline.transforms.iter().enumerate() {
            let is_about = transform.field().is_none_or(|name| name == field.name);
            if !is_about {
                continue;
            }
            let Some((mean, std)) = transform.normalization() else {
                is_float |= transform.effect() == Effect::Scale;
                continue;
            };
            let text = match first {
                Some(first) => Some(twice(pipeline, first, &field.name)),
                None => wrong_unit(mean, std, is_float),
            };
            first = first.or(Some(at));
            found.extend(text.map(|text| format!("{}: {text}", part_name(at, transform))));
        }
    }
    found.dedup();
    found
}

fn twice(pipeline: &Pipeline, first: usize, field: &str) -> String {
    format!(
        "`{field}` is normalized already by {}, so its values are no longer 0 to 1; remove one of \
         them",
        part_name(first, &pipeline.transforms[first])
    )
}

/// Returns the warning about means and deviations that are not in units of 0 to 1.
fn wrong_unit(mean: &[f64], std: &[f64], is_float: bool) -> Option<String> {
    let parameters = [("mean", mean), ("std", std)];
    let too_large = |(name, values): (&'static str, &[f64])| {
        let value = values
            .iter()
            .copied()
            .find(|value| value.abs() > MAX_PLAUSIBLE)?;
        Some((name, value))
    };
    let (name, value) = parameters.into_iter().find_map(too_large)?;
    let scaled = match is_float {
        true => "ToFloat has scaled pixels to 0 to 1",
        false => "it scales pixels to 0 to 1 first",
    };
    Some(format!(
        "{name} {value} looks like a value for pixels of 0 to 255, but {scaled}; divide mean and \
         std by 255"
    ))
}

fn is_image(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Image(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use infeed_codec::transform::{Normalize, ToFloat, Transform};

    fn warnings_for(transforms: impl IntoIterator<Item = Transform>) -> Vec<String> {
        let mut pipeline = Pipeline::new(SourceSpec::folder("x")).decode();
        pipeline.transforms = transforms.into_iter().collect();
        let fields = pipeline
            .source
            .known_fields()
            .expect("fields")
            .expect("known");
        of_normalize(&pipeline, &fields)
    }

    fn normalize(mean: f64, std: f64) -> Transform {
        Normalize::new([mean; 3], [std; 3]).into()
    }

    #[test]
    fn means_in_units_of_bytes_are_probably_wrong() {
        for (transforms, parts) in [
            (
                vec![normalize(123.675, 58.395)],
                ["mean 123.675", "scales pixels to 0 to 1 first"],
            ),
            (
                vec![normalize(0.0, 255.0)],
                ["std 255", "divide mean and std by 255"],
            ),
            (
                vec![ToFloat::default().into(), normalize(127.5, 127.5)],
                [
                    "transform 2 (Normalize)",
                    "ToFloat has scaled pixels to 0 to 1",
                ],
            ),
        ] {
            let found = warnings_for(transforms);

            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                parts.iter().all(|part| found[0].contains(part)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_second_normalization_is_probably_wrong_and_the_first_is_not() {
        let twice = warnings_for([normalize(0.5, 0.5), normalize(0.4, 0.2)]);

        assert_eq!(twice.len(), 1, "{twice:?}");
        let text =
            "transform 2 (Normalize): `image` is normalized already by transform 1 (Normalize)";
        assert!(twice[0].starts_with(text), "{twice:?}");
        assert!(warnings_for([ToFloat::default().into(), normalize(0.485, 0.229)]).is_empty());
    }
}
