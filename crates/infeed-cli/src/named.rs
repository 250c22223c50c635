//! Detects shards and tables by their names, and makes a default pipeline from their fields.

use std::path::Path;

use infeed::pipeline::{Layout as Axes, Pipeline, SourceSpec};
use infeed::sample::{Field, FieldKind, Pixels};
use infeed::transform::{Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToFloat};

use crate::error::CliError;

/// Mean and standard deviation of ImageNet's pixels, from torchvision.
pub(crate) const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
pub(crate) const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

/// Longest side of a default crop from images with masks.
pub(crate) const CROP: u32 = 512;

/// Returns the source for a path or pattern of shards or tables. None for other paths.
pub(crate) fn source(path: &Path) -> Option<SourceSpec> {
    let text = path.display().to_string();
    if path.join("index.json").is_file() {
        return Some(SourceSpec::mds(text));
    }
    let lower = text.to_lowercase();
    let name = lower.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.split(['?', '#']).next().unwrap_or_default();
    if [".tar", ".tar.gz", ".tgz"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return Some(SourceSpec::webdataset(text));
    }
    let records = [
        ".tfrecord",
        ".tfrecords",
        ".tfrec",
        ".tfrecord.gz",
        ".tfrecords.gz",
    ];
    // `train-00000-of-01024`, the naming of TensorFlow's scripts.
    let numbered = name.contains("-of-") && !name.contains('.') && !path.is_dir();
    if numbered || records.iter().any(|end| name.ends_with(end)) {
        return Some(SourceSpec::tfrecord(text));
    }
    let (files, fields) = (vec![text], Vec::new());
    match name.rsplit('.').next().unwrap_or_default() {
        "parquet" | "pq" => return Some(SourceSpec::Parquet { files, fields }),
        "arrow" | "feather" | "ipc" => return Some(SourceSpec::Arrow { files, fields }),
        "npz" => return Some(SourceSpec::Npz { files, fields }),
        _ => {}
    }
    match name {
        "index.json" => path
            .parent()
            .map(|folder| SourceSpec::mds(folder.display().to_string())),
        _ => None,
    }
}

/// Makes a default pipeline for a source.
///
/// # Errors
///
/// If the source does not open.
pub(crate) fn pipeline(spec: SourceSpec) -> Result<Pipeline, CliError> {
    let source = spec.open(&[]).map_err(|error| CliError::failed(&error))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_and_tables_are_detected_by_their_names() {
        for (path, kind) in [
            ("train-{0000..0009}.tar", "webdataset"),
            ("s3://bucket/train-*.TAR", "webdataset"),
            ("a/train.tar.gz", "webdataset"),
            ("a.tfrecord", "tfrecord"),
            ("a/*.tfrecords.gz", "tfrecord"),
            ("train-00000-of-01024", "tfrecord"),
            ("train/index.json", "mds"),
            ("s3://bucket/train-*.parquet", "parquet"),
            ("cache.arrow", "arrow"),
            ("a/b.NPZ", "npz"),
        ] {
            let spec = source(Path::new(path)).expect(path);
            let text = Pipeline::new(spec).to_toml().unwrap();
            assert!(
                text.contains(&format!("kind = \"{kind}\"")),
                "{path}: {text}"
            );
        }
        for path in ["photos", "pipeline.toml", "x.npy", "one-of-many/photos"] {
            assert_eq!(source(Path::new(path)), None, "{path}");
        }
    }
}
