//! Tables as datasets: Parquet, Arrow and NumPy archives, and a sensible pipeline for what is in
//! them.

use std::path::Path;

use infeed::Pipeline;
use infeed::pipeline::SourceSpec;
use infeed::sample::{FieldKind, Pixels};
use infeed::transform::{RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToFloat};

use crate::error::CliError;

/// Side of a default crop.
const CROP: u32 = 224;

/// The source that a name of files stands for by its ending, such as `train-*.parquet`.
pub(crate) fn source(name: &Path) -> Option<SourceSpec> {
    let files = vec![name.to_str()?.to_owned()];
    let fields = Vec::new();
    match name.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "parquet" | "pq" => Some(SourceSpec::Parquet { files, fields }),
        "arrow" | "feather" | "ipc" => Some(SourceSpec::Arrow { files, fields }),
        "npz" => Some(SourceSpec::Npz { files, fields }),
        _ => None,
    }
}

/// A pipeline for the fields that a source turns out to have.
///
/// # Errors
///
/// What the source says.
pub(crate) fn pipeline(spec: SourceSpec) -> Result<Pipeline, CliError> {
    let source = spec.open(&[]).map_err(|error| CliError::failed(&error))?;
    let is = |pick: fn(&FieldKind) -> bool| source.fields().iter().any(|field| pick(&field.kind));
    let encoded = is(|kind| {
        matches!(
            kind,
            FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
        )
    });
    let images = is(|kind| matches!(kind, FieldKind::Image(_)));
    let masks = is(|kind| matches!(kind, FieldKind::Mask(_)));
    let mut pipeline = Pipeline::new(spec).shuffle(0);
    if encoded {
        pipeline = pipeline.decode();
        pipeline = match masks {
            true => {
                let mut crop = RandomCrop::new(CROP);
                crop.pad_if_needed = true;
                pipeline.transform(crop)
            }
            false => pipeline.transform(RandomResizedCrop::new(CROP)),
        };
    }
    if images || masks {
        pipeline = pipeline.transform(RandomHorizontalFlip::new(0.5));
    }
    for field in source.fields() {
        if matches!(field.kind, FieldKind::Image(_)) {
            pipeline = pipeline.transform(ToFloat::of(&field.name));
        }
    }
    Ok(pipeline.batch(64))
}
