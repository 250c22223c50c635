//! Makes a default pipeline from the fields of shards and tables.

use infeed::pipeline::{Layout as Axes, Pipeline, SourceSpec};
use infeed_codec::transform::{
    Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToFloat,
};
use infeed_core::sample::{Field, FieldKind, Pixels};

use crate::error::CliError;

/// Mean and standard deviation of ImageNet's pixels, from torchvision.
pub(crate) const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
pub(crate) const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

/// Longest side of a default crop from images with masks.
pub(crate) const CROP: u32 = 512;

/// Makes a default pipeline for a source.
///
/// # Errors
///
/// If the source does not open.
pub(crate) fn for_source(spec: SourceSpec) -> Result<Pipeline, CliError> {
    let source = spec
        .open(&[])
        .map_err(|error| CliError::from_error(&error))?;
    Ok(for_fields(Pipeline::new(spec), source.fields()))
}

fn for_fields(pipeline: Pipeline, fields: &[Field]) -> Pipeline {
    let has = |wanted: fn(&FieldKind) -> bool| fields.iter().any(|field| wanted(&field.kind));
    let encoded = has(|kind| matches!(kind, FieldKind::Image(Pixels::Encoded)));
    let masks = has(|kind| matches!(kind, FieldKind::Mask(_)));
    let pixels = has(|kind| matches!(kind, FieldKind::Image(Pixels::Raw { .. })));
    let pipeline = pipeline.shuffle(0);
    match (encoded, masks, pixels) {
        (true, false, false) => pipeline
            .decode()
            .transform(RandomResizedCrop::new(224))
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(Normalize::new(IMAGENET_MEAN, IMAGENET_STD))
            .layout(Axes::Chw)
            .batch(64),
        (true, true, _) => {
            let mut crop = RandomCrop::new(CROP);
            crop.pad_if_needed = true;
            pipeline
                .decode()
                .transform(crop)
                .transform(RandomHorizontalFlip::new(0.5))
                .transform(ToFloat { field: None })
                .batch(8)
        }
        (false, _, true) => pipeline
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(ToFloat { field: None })
            .batch(256),
        (true, false, true) => pipeline.decode().pad().batch(64),
        (false, ..) => pipeline.batch(256),
    }
}
