//! A dataset rewritten once into a form that is cheaper to read: image files, or one `.npy` a
//! field.
//!
//! `fields` decides what becomes of each field, `make` does it to one record, `folder` and `arrays`
//! put the result where it goes, `out` keeps the folder that is written to, `run` has the threads.
//! Nothing is ever written over or into the original, and a file has its name only once it is
//! whole, so that a run that was stopped is taken up again.

mod arrays;
mod encode;
mod encoding;
mod fields;
mod folder;
mod make;
mod names;
mod npy;
mod out;
pub mod quality;
mod restart;
mod run;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::decode::ColorMode;
use crate::error::Error;
use crate::pipeline::{Handle, Pipeline, SourceSpec};
use crate::transform::{Crop, Transform};

pub use encode::encode;
pub use encoding::{Encoding, PngFilter, PngLevel, Target};
pub use restart::{TILE, with_restarts};

/// Name of the file that marks a packed dataset as complete and says how it was made.
pub const MANIFEST: &str = "infeed-pack.json";

/// How a dataset is rewritten.
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// What is written.
    pub to: Target,
    /// Done to every record: fixed changes of geometry only (`Crop`, `CenterCrop`, `Resize`,
    /// `Pad`, `CropOrPad`). Masks are resized nearest, whatever the filter.
    pub transforms: Vec<Transform>,
    /// How image fields are encoded in files.
    pub image: Encoding,
    /// How mask fields are encoded in files; never with loss.
    pub mask: Encoding,
    /// JPEGs get restart markers, so that regions are decoded from the tiles they need: the width
    /// of a tile in MCUs, [`TILE`] being a good one. Those that would be copied are rewritten with
    /// the same coefficients and metadata.
    pub restart: Option<u16>,
    /// Threads that decode and encode. None: as many as cores this process may use.
    pub workers: Option<usize>,
}

impl PackOptions {
    /// Everything as it is: no transforms, [`Encoding::Keep`], all cores.
    pub fn new(to: Target) -> PackOptions {
        PackOptions {
            to,
            transforms: Vec::new(),
            image: Encoding::Keep,
            mask: Encoding::Keep,
            restart: None,
            workers: None,
        }
    }
}

/// A dataset that was rewritten.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// The packed dataset.
    pub source: SourceSpec,
    /// The pipeline that was given, over the packed dataset: transforms that were done are left
    /// out where doing them again would change pixels, and `decode` knows layouts that changed.
    pub pipeline: Pipeline,
    /// Records in it.
    pub records: u64,
    /// Bytes of the original records: encoded files, or values in memory.
    pub bytes_in: u64,
    /// Bytes of the files that hold them now.
    pub bytes_out: u64,
    /// Time this run took.
    pub seconds: f64,
    /// Records that were complete before this run.
    pub reused: u64,
    /// JPEGs of this run that were to get restart markers, cannot without loss, and were copied.
    pub unmarked: u64,
}

/// Rewrites the records of a pipeline's source below `out`.
///
/// Of the pipeline, the source and the decoding are used: fields are stored as the pipeline would
/// see them. Masks keep the numbers in their files, 16-bit ones and the palette beside them too; an
/// image without colours stays gray; alpha is dropped unless the field is decoded as RGBA. After a
/// transform every value of a mask must have been in it before, or be a fill. Where pixels are not
/// encoded anew ([`Encoding::Keep`] without transforms), files are copied after the check that a
/// loader would make.
///
/// `records` are the numbers of those wanted, in ascending order and once each however they are
/// given; None is all. They come in the order of the original. Of a folder by classes the whole is
/// written as folders, a part as one with labels in a CSV, so that a class keeps its number.
///
/// `progress` is given records done and wanted, a few times a second, and returns false to stop.
/// The same call goes on with what is missing. A file is done anew if its original is younger.
/// `out` may be missing, empty, or of an earlier call with the same options.
///
/// # Errors
///
/// [`Error::Config`] for options that cannot work, an `out` that is not ours or in the way of the
/// source, two files that would get one name or change places; the bad record that comes first,
/// as a loader tells it; [`Error::Write`]; [`Error::Interrupted`] after `progress` said stop.
pub fn pack(
    pipeline: &Pipeline,
    handles: &[Handle],
    records: Option<&[u64]>,
    out: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(u64, u64) -> bool + Sync),
) -> Result<Packed, Error> {
    let start = Instant::now();
    out::refuse_overlap(&pipeline.source, out)?;
    let source = pipeline.source.open(handles)?;
    let chosen = run::Chosen::new(records, source.len())?;
    let fields = fields::arrange(pipeline, source.fields(), options)?;
    let maker = make::Maker {
        source: &*source,
        fields: &fields,
        transforms: &options.transforms,
        decode: pipeline.decode.clone().unwrap_or_default(),
        restart: options.restart,
        unmarked: AtomicU64::new(0),
    };
    let written = match options.to {
        Target::Folder => {
            let naming = names::Naming::new(&pipeline.source, &*source, &fields, &chosen)?;
            let out = out::Out::begin(out, pipeline, &chosen, options)?;
            let folder = folder::FolderWriter {
                out: &out,
                naming: &naming,
                source: &*source,
                fields: &fields,
            };
            let written = run::run(&maker, &chosen, &folder, options.workers, progress);
            let totals = written.inspect_err(|_| out.abandon())?;
            let source = folder.finish(&chosen)?;
            out.finish(chosen.len(), &totals)?;
            (source, totals)
        }
        Target::Arrays => {
            let out = out::Out::begin(out, pipeline, &chosen, options)?;
            let arrays = arrays::ArrayWriter::begin(&out, &maker, &chosen);
            let arrays = arrays.inspect_err(|_| out.abandon())?;
            let written = run::run(&maker, &chosen, &arrays, options.workers, progress);
            let mut totals = written.inspect_err(|error| {
                // What has no one shape never will.
                if let Error::Config { .. } = error {
                    arrays.remove();
                    out.abandon();
                }
            })?;
            let source = arrays.finish()?;
            totals.bytes_out = arrays.bytes();
            out.finish(chosen.len(), &totals)?;
            (source, totals)
        }
    };
    let (packed, totals) = written;
    Ok(Packed {
        pipeline: over(
            pipeline,
            &packed,
            options,
            fields::modes(&fields, options.to),
        ),
        source: packed,
        records: chosen.len(),
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        seconds: start.elapsed().as_secs_f64(),
        reused: totals.reused,
        // Relaxed: the threads that count have ended.
        unmarked: maker.unmarked.load(Ordering::Relaxed),
    })
}

/// The pipeline over its packed source.
fn over(
    pipeline: &Pipeline,
    packed: &SourceSpec,
    options: &PackOptions,
    modes: BTreeMap<String, ColorMode>,
) -> Pipeline {
    let mut pipeline = Pipeline {
        source: packed.clone(),
        ..pipeline.clone()
    };
    if !modes.is_empty() {
        let decode = pipeline.decode.get_or_insert_default();
        decode.modes.extend(modes);
    }
    let done = &options.transforms;
    if !pipeline.transforms.starts_with(done) {
        return pipeline;
    }
    // One of these alone changes nothing the second time, and says what size the records have.
    let again = matches!(
        done[..],
        [] | [Transform::Crop(_) | Transform::CenterCrop(_) | Transform::CropOrPad(_)]
            | [Transform::Resize(_)]
    );
    if again {
        return pipeline;
    }
    let size = done
        .iter()
        .try_fold(None, |size, transform| transform.output_size(size));
    let size = size.ok().flatten();
    // A crop to the size that records have does nothing; it tells the planner that they have it.
    let known = size.map(|size| Transform::Crop(Crop::new(size.height, size.width)));
    pipeline.transforms.splice(..done.len(), known);
    pipeline
}

/// Why pixels cannot be written, though they were read well. The record's name is around it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A transform brought values into a mask.
    #[error("{new} values are not among those of the mask before")]
    NewValues {
        /// How many.
        new: usize,
    },
    /// A JPEG does not hold these pixels.
    #[error("a JPEG holds 1 or 3 channels of 8 bits, not {channels} of {bits}; choose png")]
    NotJpeg {
        /// Channels of the image.
        channels: usize,
        /// Bits of a sample.
        bits: usize,
    },
    /// A WebP does not hold these pixels.
    #[error("a WebP holds 1 to 4 channels of 8 bits, not {channels} of {bits}; choose png")]
    NotWebp {
        /// Channels of the image.
        channels: usize,
        /// Bits of a sample.
        bits: usize,
    },
    /// The JPEG library refused.
    #[error(transparent)]
    Jpeg(#[from] infeed_raw::jpeg_encode::EncodeError),
    /// The PNG library refused.
    #[error(transparent)]
    Png(#[from] png::EncodingError),
    /// The WebP library refused.
    #[error(transparent)]
    Webp(#[from] image_webp::EncodingError),
}
