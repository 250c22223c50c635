//! Chooses the work for each field before any record is read.

use std::collections::BTreeMap;

use super::encoding::Encoding;
use super::options::PackOptions;
use super::product::Shape;
use super::shard_layout::ShardColumn;
use super::targets::{Target, either};
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed::plan::{color_mode, coordinates};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Depth, Field, FieldKind, Pixels};

/// The work for one field.
#[derive(Debug)]
pub(super) struct FieldWork {
    pub(super) name: String,
    pub(super) is_mask: bool,
    pub(super) kind: FieldKind,
    pub(super) work: Work,
    /// Name of boxes or points that refer to the pixels as stored in the files.
    pub(super) stored_coordinates: Option<String>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Copies encoded bytes after a check, or recodes them without loss. `encoding` is `Keep`,
    /// `Lossless` or `Restore`.
    Copy { mode: ColorMode, encoding: Encoding },
    /// Decodes, transforms and encodes.
    Encode {
        mode: ColorMode,
        encoding: Encoding,
        /// Whether the user chose the mode. If not, the mode follows the file if that loses less.
        named: bool,
    },
    /// Decodes and transforms.
    Pixels { mode: ColorMode, named: bool },
    /// Copies numbers of fixed shape.
    Numbers,
    /// Copies bytes of any length.
    Plain,
    /// A class number, for a list of labels.
    Label(DType),
}

impl FieldWork {
    /// Returns whether the field is an image or a mask.
    pub(super) fn is_visual(&self) -> bool {
        matches!(self.kind, FieldKind::Image(_) | FieldKind::Mask(_))
    }

    /// Returns whether the field is written as raw pixels.
    pub(super) fn is_pixels(&self) -> bool {
        matches!(self.work, Work::Pixels { .. })
    }
}

/// Chooses the work and rejects combinations that are not possible.
pub(super) fn arrange(
    pipeline: &Pipeline,
    fields: &[Field],
    options: &PackOptions,
) -> Result<Vec<FieldWork>, Error> {
    check_transforms(&options.transforms)?;
    coordinates::check(pipeline, &options.transforms, fields, true)?;
    let boxes = pipeline.declared_boxes().into_iter();
    let points = pipeline.declared_points().into_iter();
    let mut moving = boxes
        .map(|spec| ("boxes", spec.field))
        .chain(points.map(|spec| ("points", spec.field)));
    if let Some(transform) = options.transforms.first()
        && let Some((part, field)) = moving.next()
    {
        let problem = format!(
            "{} moves pixels, and packing does not move the {part} in `{field}`; leave the \
             transform to the pipeline",
            transform.name(),
        );
        return Err(Error::config(part, problem));
    }
    check_encodings(options)?;
    let works = fields.iter().map(|field| one(pipeline, field, options));
    let works: Vec<FieldWork> = works.collect::<Result<_, _>>()?;
    let visual: Vec<&str> = works
        .iter()
        .filter(|work| work.is_visual())
        .map(|work| work.name.as_str())
        .collect();
    if visual.is_empty() && !options.to.is_shards() {
        let problem = "the source has no image or mask field; there is nothing to pack";
        return Err(Error::config("source", problem));
    }
    let has_files = matches!(
        pipeline.source,
        SourceSpec::Folder { .. } | SourceSpec::Pairs { .. }
    );
    if options.to == Target::Folder
        && !has_files
        && !matches!(visual[..], ["image"] | ["image", "mask"])
    {
        let problem = format!(
            "a folder holds a field `image`, or `image` and `mask`, not {visual:?}; pack to arrays"
        );
        return Err(Error::config("source", problem));
    }
    if visual.len() > 1 && works.iter().any(|work| matches!(work.work, Work::Label(_))) {
        let problem = "a folder holds masks or labels, not both; pack to arrays";
        return Err(Error::config("source", problem));
    }
    Ok(works)
}

fn check_transforms(transforms: &[Transform]) -> Result<(), Error> {
    for (at, transform) in transforms.iter().enumerate() {
        let wrong = |problem: String| {
            let part = format!("transform {} ({})", at + 1, transform.name());
            Err(Error::config(part, problem))
        };
        let is_fixed = !transform.is_random() && transform.size_field().is_none();
        if !transform.changes_geometry() || !is_fixed {
            return wrong(
                "it is not a fixed change of geometry and cannot be done once for all epochs; \
                 leave it to the pipeline (Crop, CenterCrop, Resize, Pad and CropOrPad can be \
                 packed)"
                    .to_owned(),
            );
        }
        if let Err(error) = transform.validate() {
            return wrong(error.to_string());
        }
    }
    Ok(())
}

fn check_encodings(options: &PackOptions) -> Result<(), Error> {
    for (part, encoding) in [("image", options.image), ("mask", options.mask)] {
        match encoding {
            Encoding::Jpeg { .. } if part == "mask" => {
                let problem = "JPEG changes values, and a mask's values are classes; use png";
                return Err(Error::config(part, problem));
            }
            Encoding::Jpeg { quality } if !(1..=100).contains(&quality) => {
                let problem = format!("a JPEG's quality is 1 to 100, not {quality}");
                return Err(Error::config(part, problem));
            }
            Encoding::Keep => {}
            Encoding::WebpLossless if part == "mask" => {
                let problem = "WebP has no single channel for classes; use png";
                return Err(Error::config(part, problem));
            }
            Encoding::Raw if options.to.holds_raw_pixels() => {}
            Encoding::Raw => {
                let problem = format!(
                    "{} holds encoded images; write pixels to {}",
                    options.to.name(),
                    either(&Target::names_of(Target::holds_raw_pixels))
                );
                return Err(Error::config(part, problem));
            }
            _ if options.to.is_decoded() => {
                let name = options.to.name();
                let problem =
                    format!("{name} hold pixels that are not encoded; leave out {encoding}");
                return Err(Error::config(part, problem));
            }
            _ => {}
        }
    }
    check_restart(options)
}

fn check_restart(options: &PackOptions) -> Result<(), Error> {
    let problem = match (options.restart, options.to, options.image) {
        (None, _, _) => return Ok(()),
        (Some(0), _, _) => "a tile is 1 to 65535 MCUs wide, not 0".to_owned(),
        (_, to, _) if to.is_decoded() => {
            format!("{} hold pixels that are not encoded", to.name())
        }
        (_, _, Encoding::Keep | Encoding::Jpeg { .. }) => return Ok(()),
        (_, _, other) => {
            format!("JPEGs have restart markers, {other} has none; encode as keep or jpeg:QUALITY")
        }
    };
    Err(Error::config("restart", problem))
}

fn one(pipeline: &Pipeline, field: &Field, options: &PackOptions) -> Result<FieldWork, Error> {
    let name = &field.name;
    let refused = |what: &str, fix: &str| {
        let problem = format!("field `{name}` is {what}; {fix}");
        Err(Error::config("source", problem))
    };
    let is_mask = matches!(field.kind, FieldKind::Mask(_));
    let work = match (&field.kind, options.to) {
        (FieldKind::Image(stored) | FieldKind::Mask(stored), to) => {
            let mode = color_mode(pipeline, name, is_mask);
            let modes = pipeline.decode.as_ref().map(|decode| &decode.modes);
            let named = modes.is_some_and(|modes| modes.contains_key(name));
            let encoding = if is_mask { options.mask } else { options.image };
            let recodes = matches!(encoding, Encoding::Lossless | Encoding::Restore);
            let as_is = *stored == Pixels::Encoded
                && (encoding == Encoding::Keep || recodes)
                && options.transforms.is_empty();
            if recodes && !as_is {
                let problem = format!(
                    "`{name}` is not a file that stays whole, and {encoding} changes no pixels; \
                     leave out the transforms, or use png"
                );
                return Err(Error::config(
                    if is_mask { "mask" } else { "image" },
                    problem,
                ));
            }
            if let Encoding::Jpeg { .. } = encoding
                && let ColorMode::Rgba | ColorMode::Stored16 = mode
            {
                let problem = format!(
                    "`{name}` is decoded as {}, which JPEG cannot store; use png",
                    mode.name()
                );
                return Err(Error::config("image", problem));
            }
            let single = match stored {
                Pixels::Raw {
                    channels, depth, ..
                } => *channels == 1 || *depth == Depth::U16,
                Pixels::Encoded => matches!(mode, ColorMode::Stored | ColorMode::Stored16),
            };
            if encoding == Encoding::WebpLossless && single {
                let problem =
                    format!("`{name}` has raw samples, and WebP stores only 8-bit colour; use png");
                return Err(Error::config("image", problem));
            }
            // Raw pixels stay raw if the format supports it.
            let raw = encoding == Encoding::Raw
                || (to.has_choice_of_pixels()
                    && *stored != Pixels::Encoded
                    && encoding == Encoding::Keep);
            match to {
                _ if raw || to.is_decoded() => Work::Pixels { mode, named },
                _ if as_is => Work::Copy { mode, encoding },
                _ => {
                    if let Pixels::Raw { channels: 2, .. } = stored {
                        let raw = |to: Target| to.holds_raw_pixels() && to.batch_file().is_none();
                        let mut names = Target::names_of(raw);
                        names.sort_unstable();
                        let fix = format!("pack to {}", names.join(" or to "));
                        return refused("pixels of 2 channels", &fix);
                    }
                    Work::Encode {
                        mode,
                        encoding,
                        named,
                    }
                }
            }
        }
        (FieldKind::Tensor { dtype, shape }, Target::Folder) => {
            let is_label = name == "label" && shape.is_empty() && dtype.is_integer();
            if !is_label {
                return refused(
                    "not an integer called `label`, the only number that a folder can store",
                    "pack to arrays",
                );
            }
            Work::Label(*dtype)
        }
        (FieldKind::Tensor { .. }, _) => Work::Numbers,
        (_, to) if to.holds_any_length() => Work::Plain,
        (FieldKind::Bytes | FieldKind::Text | FieldKind::Ragged { .. }, _) => {
            let formats = either(&Target::names_of(Target::holds_any_length));
            return refused(
                "of a different length in each record, which a folder or an array cannot store",
                &format!("pack to {formats}, or leave it out of the source"),
            );
        }
    };
    Ok(FieldWork {
        name: name.clone(),
        is_mask,
        kind: field.kind.clone(),
        work,
        stored_coordinates: stored_coordinates(pipeline),
    })
}

/// Returns the first boxes or points that refer to the pixels as stored in the files.
fn stored_coordinates(pipeline: &Pipeline) -> Option<String> {
    let boxes = pipeline.declared_boxes().into_iter();
    let boxes = boxes.filter_map(|spec| (!spec.is_oriented()).then_some(spec.field));
    let points = pipeline.declared_points().into_iter();
    let points = points.filter_map(|spec| (!spec.is_oriented()).then_some(spec.field));
    boxes.chain(points).next()
}

/// Returns the bytes of a record's fields that are not separate files.
pub(super) fn inline_bytes(fields: &[FieldWork]) -> u64 {
    let bytes = fields.iter().filter_map(|field| field.kind.record_bytes());
    bytes.map(|bytes| bytes as u64).sum()
}

/// Returns the decode modes for fields that were pixels and become files.
pub(super) fn modes(fields: &[FieldWork], to: Target) -> BTreeMap<String, ColorMode> {
    let mode = |field: &FieldWork| {
        let (FieldKind::Image(stored) | FieldKind::Mask(stored)) = &field.kind else {
            return None;
        };
        let Pixels::Raw {
            channels, depth, ..
        } = stored
        else {
            return None;
        };
        let mode = match (channels, depth) {
            (1, Depth::U8) => ColorMode::Stored,
            (_, Depth::U16) => ColorMode::Stored16,
            (4, Depth::U8) => ColorMode::Rgba,
            _ => ColorMode::Rgb,
        };
        Some((field.name.clone(), mode))
    };
    let encoded = |field: &&FieldWork| !matches!(field.work, Work::Pixels { .. });
    match to.is_decoded() {
        false => fields.iter().filter(encoded).filter_map(mode).collect(),
        true => BTreeMap::new(),
    }
}

/// Returns the fields in a shard. `shapes` are the pixel shapes of one record, which all records
/// share.
pub(super) fn columns(fields: &[FieldWork], shapes: &[Option<Shape>]) -> Vec<ShardColumn> {
    let column = |(field, shape): (&FieldWork, &Option<Shape>)| {
        let numbers = match (&field.kind, shape) {
            (_, Some(shape)) => Some((shape.depth.dtype(), shape.axes())),
            (FieldKind::Tensor { dtype, shape }, None) => Some((*dtype, shape.clone())),
            (FieldKind::Ragged { dtype }, None) => Some((*dtype, Vec::new())),
            _ => None,
        };
        ShardColumn {
            name: field.name.clone(),
            kind: field.kind.clone(),
            numbers,
        }
    };
    fields.iter().zip(shapes).map(column).collect()
}
