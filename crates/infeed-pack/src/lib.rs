//! Rewrites a dataset once into a format that is cheaper to read: image files, one `.npy` file per
//! field, or shards (WebDataset, TFRecord, Arrow, Parquet, `.npz`).
//!
//! `fields` chooses the work for each field, and `make` does it for one record. The threads of
//! `run` write the results with `folder` and `arrays`. The threads of `shards` use `form`, the
//! common traits of the shard formats (`targets` lists them, one per file). `out` owns the output
//! folder. Nothing is written over or into the original. A file gets its name only when it is
//! complete, so a stopped run can resume: by file in a folder, by row in arrays, by shard in other
//! formats (`journal`). Many processes can write the shards of one dataset (`parts`). Shards may go
//! to a bucket (`location`).
#![forbid(unsafe_code)]

mod arrays;
mod columnar;
mod count;
mod encode;
mod encoding;
mod entry;
mod fields;
mod folder;
mod form;
mod journal;
mod judge;
mod location;
mod make;
mod names;
mod note;
mod npy;
mod options_json;
mod output_folder;
mod parts;
mod product;
mod restart;
mod run;
mod selection;
mod sequence;
mod shards;
mod targets;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use infeed::loader::losses::LossLog;
use infeed::pipeline::{Handle, Pipeline, SourceSpec};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{Crop, Transform};
use infeed_core::error::Error;
use infeed_source::Source;
use infeed_source::store;
use selection::RecordSelection;
use targets::format::{FormatWriter, NewForm};

pub use count::PackProgress;
pub use encode::encode;
pub use encoding::{Encoding, PngFilter, PngLevel};
pub use entry::BAD_LIST;
pub use entry::listed_bad;
pub use infeed::pipeline::packed::MANIFEST;
pub use judge::Fidelity;
pub use parts::{Part, Parts};
pub use restart::{TILE, with_restarts};
pub use targets::Target;

/// Default bytes of a shard. Large enough that opening one costs nothing, small enough that there
/// are hundreds to shuffle and distribute.
pub const SHARD_BYTES: u64 = 256_000_000;

/// Options of [`pack`].
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// Output format.
    pub to: Target,
    /// Transforms for every record: only fixed changes of geometry (`Crop`, `CenterCrop`, `Resize`,
    /// `Pad`, `CropOrPad`). Masks are resized with the nearest filter.
    pub transforms: Vec<Transform>,
    /// Encoding of image fields in files.
    pub image: Encoding,
    /// Encoding of mask fields in files. Must be lossless.
    pub mask: Encoding,
    /// Width of a tile in MCUs for restart markers in JPEGs, which let readers decode a region from
    /// few tiles. [`TILE`] is a good width. JPEGs that would be copied are rewritten with the same
    /// coefficients and metadata. None: no markers.
    pub restart: Option<u16>,
    /// Threads that decode and encode. None: the number of cores that this process may use.
    pub workers: Option<usize>,
    /// For shards: seed of the order, which is the first epoch of a pipeline shuffled with this
    /// seed. None: the order of the source.
    pub shuffle: Option<u64>,
    /// Bytes at which a shard ends. A single record may have more.
    pub shard_bytes: u64,
    /// Rows of a `.npz` file. None: the batch size of the pipeline, if that is more than 1.
    pub rows: Option<u64>,
    /// Maximum number of bad records, which are left out and listed in [`BAD_LIST`]. One more ends
    /// the run. None: any number. 0: the first bad record ends the run.
    pub max_bad: Option<u64>,
    /// Whether copied images are decoded completely first, to find files whose header is valid and
    /// whose pixels are not.
    pub verify: bool,
}

impl PackOptions {
    /// Copies everything: no transforms, [`Encoding::Keep`], all cores, the source's order, shards
    /// of [`SHARD_BYTES`], bad records left out.
    pub fn new(to: Target) -> PackOptions {
        PackOptions {
            to,
            transforms: Vec::new(),
            image: Encoding::Keep,
            mask: Encoding::Keep,
            restart: None,
            workers: None,
            shuffle: None,
            shard_bytes: SHARD_BYTES,
            rows: None,
            max_bad: None,
            verify: false,
        }
    }

    fn threads(&self) -> usize {
        let workers = self.workers;
        workers
            .unwrap_or_else(infeed_raw::machine::usable_cores)
            .max(1)
    }

    /// Returns the rows of a file, if a file is a batch.
    fn rows(&self, pipeline: &Pipeline) -> Option<u64> {
        let batch = pipeline.batch.size.or(pipeline.batch.per_rank);
        // A batch size of 1 is the default, so the user did not choose it.
        let batch = batch.filter(|&rows| rows > 1);
        let rows = self.rows.or(batch);
        rows.filter(|_| self.to.batch_file().is_some())
    }
}

/// A packed dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedDataset {
    /// Source of the packed dataset.
    pub source: SourceSpec,
    /// The given pipeline over the packed dataset. It lacks the applied transforms if applying them
    /// again would change pixels, and `decode` matches changed layouts.
    pub pipeline: Pipeline,
    /// Number of records in the dataset.
    pub records: u64,
    /// Number of bad records that were left out. [`BAD_LIST`] in its folder names them.
    pub bad: u64,
    /// Bytes of the original records: encoded files, or values in memory.
    pub bytes_in: u64,
    /// Bytes of the new files.
    pub bytes_out: u64,
    /// Duration of this run in seconds.
    pub seconds: f64,
    /// Number of records that were complete before this run.
    pub reused: u64,
    /// Number of JPEGs of this run that were copied, because restart markers are impossible without
    /// loss.
    pub unchanged: u64,
    /// Similarity of the images to the original, if they were encoded with loss.
    pub fidelity: Option<Fidelity>,
}

/// Rewrites the records of a pipeline's source into the folder `out`.
///
/// Uses the source and the decoding of the pipeline: fields are stored as the pipeline would see
/// them. Masks keep the numbers in their files, also 16-bit numbers and palettes. A gray image
/// stays gray. Alpha is dropped unless the field is decoded as RGBA. After a transform, a mask may
/// only have values that it had before, and the fill value. If pixels are not encoded again
/// ([`Encoding::Keep`] without transforms), files are copied after the checks of a loader.
///
/// `records` are the numbers of the records to pack. They are sorted and duplicates are removed.
/// None: all. The output has the order of the source or of `options.shuffle`. A complete folder of
/// classes is written as class folders. A part of one is written as a folder with labels in a CSV
/// file. If a reader of the files alone would number the classes otherwise, the packed pipeline
/// states them.
///
/// Calls `progress` a few times per second, which returns false to stop. The same call resumes a
/// stopped run. A file is written again if its original is newer. For shards, the source must be
/// unchanged. `out` must be missing, empty, or from an earlier call with the same options. It also
/// holds the packed pipeline, so [`Pipeline::load`] accepts the folder. For shards, `out` may be a
/// URL of a bucket (`s3://`, `gs://`, `az://`, `abfss://`), with the same settings as URLs for
/// reading.
///
/// # Errors
///
/// [`Error::Config`] for invalid options, for an `out` that is not from this function or overlaps
/// the source, and for two files that would get one name or change their order. The error of the
/// bad record that exceeds `max_bad`, or of the first if all are bad. [`Error::Write`].
/// [`Error::Interrupted`] after `progress` returned false.
///
/// # Cost
///
/// For a bucket, the temporary folder holds up to five shards in progress. Memory holds 16 MiB per
/// shard that is uploaded, or four parts of 8 MiB for a longer shard.
///
/// Memory holds 64 MiB of records that wait to be written and one record per thread, whatever the
/// size of the dataset. [`Target::Npz`] adds a batch per file in progress, Arrow and Parquet add up
/// to 64 MiB of records for a batch. Reads hold up to an eighth of the memory that this process may
/// use, or one read if it is larger: for a source that is read in groups, a group.
pub fn pack(
    pipeline: &Pipeline,
    handles: &[Handle],
    records: Option<&[u64]>,
    out: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(&PackProgress) -> bool + Sync),
) -> Result<PackedDataset, Error> {
    let start = Instant::now();
    check(options, pipeline, out)?;
    refuse_weights(pipeline, options)?;
    output_folder::refuse_overlap(&pipeline.source, out)?;
    pipeline.check_selection()?;
    let source = pipeline.source.open(handles)?;
    refuse_shares(&*source)?;
    let records = select(pipeline, &*source, records)?;
    let chosen = RecordSelection::new(records.as_deref(), source.len())?;
    let fields = fields::arrange(pipeline, source.fields(), options)?;
    let job = PackJob {
        pipeline,
        chosen: &chosen,
        maker: make::Maker {
            source: &*source,
            fields: &fields,
            transforms: &options.transforms,
            decode: pipeline.decode.clone().unwrap_or_default(),
            restart: options.restart,
            unchanged: AtomicU64::new(0),
            verify: options.verify,
            losses: LossLog::default(),
            has_lost_turn: AtomicBool::new(false),
        },
        options,
        values: values::checksum(&*source, handles)?,
        progress,
    };
    let PackOutput {
        out,
        source: packed,
        totals,
        entries,
    } = match options.to.format().writer {
        FormatWriter::Shards(new_form) => job.shards(out, new_form)?,
        FormatWriter::ImageFiles => job.folder(out)?,
        FormatWriter::FieldArrays => job.arrays(out)?,
    };
    job.maker.losses.log(0);
    let seconds = start.elapsed().as_secs_f64();
    let fidelity = judge::judge(&job.maker, &chosen)?;
    let done = output_folder::ManifestContents {
        totals: &totals,
        classes: source.classes(),
        shards: &entries,
    };
    let modes = fields::modes(&fields, options.to);
    let pipeline = over(pipeline, &*source, &packed, options, modes)?;
    out.finish(&pipeline, &done)?;
    Ok(PackedDataset {
        pipeline,
        source: packed,
        records: totals.done - totals.bad,
        bad: totals.bad,
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        seconds,
        reused: totals.reused,
        // Relaxed: the threads that count have ended.
        unchanged: job.maker.unchanged.load(Ordering::Relaxed),
        fidelity,
    })
}

/// Returns the records to pack among those that the pipeline selects, by their numbers in the
/// source.
fn select<'a>(
    pipeline: &Pipeline,
    source: &dyn Source,
    wanted: Option<&'a [u64]>,
) -> Result<Option<Cow<'a, [u64]>>, Error> {
    let subset = pipeline.selected(source)?;
    let Some(subset) = subset.filter(|subset| !subset.is_whole()) else {
        return Ok(wanted.map(Cow::Borrowed));
    };
    let Some(wanted) = wanted else {
        return Ok(Some(subset.numbers().collect()));
    };
    if let Some(record) = wanted.iter().find(|&&record| record >= subset.len()) {
        let problem = format!("there is no record {record} of {} selected", subset.len());
        return Err(Error::config("records", problem));
    }
    let numbers = wanted.iter().map(|&record| subset.number(record));
    Ok(Some(numbers.collect()))
}

/// Rejects options that apply only to shards, or never to shards.
fn check(options: &PackOptions, pipeline: &Pipeline, out: &Path) -> Result<(), Error> {
    let name = options.to.name();
    if !options.to.is_shards() {
        if store::is_url(out) {
            let problem = format!(
                "{name} are written to folders, and {} is a URL; pack to shards, which a bucket \
                 can hold, or pack to a local folder and copy it",
                out.display()
            );
            return Err(Error::config("to", problem));
        }
        return match options.shuffle {
            None => Ok(()),
            Some(_) => {
                let problem = format!(
                    "{name} keeps the order of the source, and the pipeline shuffles as it reads; \
                     pack without a shuffle, or pack to shards"
                );
                Err(Error::config("shuffle", problem))
            }
        };
    }
    if options.shard_bytes == 0 {
        return Err(Error::config("shard_bytes", "a shard has at least 1 byte"));
    }
    if let Some(file) = options.to.batch_file()
        && options.rows(pipeline).is_none()
    {
        let problem = format!(
            "{file} holds one batch, and the pipeline's batch is one record; set `rows`, or a \
             batch size in the pipeline"
        );
        return Err(Error::config("rows", problem));
    }
    // The pipeline would name shards by a pattern with these characters. On a disk, they are part of
    // the name of a folder that exists.
    let is_special = |name: &str| name.contains(['*', '?', '[', ']', '{', '}']);
    if store::is_url(out) && is_special(&out.to_string_lossy()) {
        let problem = format!(
            "{} contains one of * ? [ ] {{ }}, which are patterns in names of shards; use another \
             folder",
            out.display()
        );
        return Err(Error::config("out", problem));
    }
    Ok(())
}

/// Rejects a source whose shares and epoch the packed dataset would lose.
fn refuse_shares(source: &dyn Source) -> Result<(), Error> {
    if source.mixed().is_none() {
        return Ok(());
    }
    let problem = "a packed dataset keeps neither the weights nor the epoch of a mix; pack each \
                   source alone, and mix the packed ones";
    Err(Error::config("source", problem))
}

/// Rejects weights and groups that would have no meaning, or another one, for the packed dataset.
fn refuse_weights(pipeline: &Pipeline, options: &PackOptions) -> Result<(), Error> {
    if pipeline.batch_groups.is_some() {
        let problem = "groups by record number do not fit the packed dataset, whose numbers differ; \
                       pack without groups, and set them on the packed pipeline";
        return Err(Error::config("batch_groups", problem));
    }
    if pipeline.batch_lengths.is_some() {
        let problem = "lengths by record number do not fit the packed dataset, whose numbers differ; \
                       pack without max_tokens, and set it on the packed pipeline";
        return Err(Error::config("batch_lengths", problem));
    }
    let problem = match &pipeline.weights {
        Some(weights) if weights.records.is_some() => {
            "weights by record number do not fit the packed dataset, whose numbers differ; pack \
             without weights, and set them on the packed pipeline"
        }
        Some(_) if options.to != Target::Folder => {
            "weights by class need the classes before records are read, and only a packed folder \
             has them; pack to a folder, or without weights"
        }
        _ => return Ok(()),
    };
    Err(Error::config("weights", problem))
}

/// The records to pack and the settings.
struct PackJob<'a> {
    pipeline: &'a Pipeline,
    chosen: &'a RecordSelection,
    maker: make::Maker<'a>,
    options: &'a PackOptions,
    /// Checksum that distinguishes the source from other sources in memory.
    values: Option<String>,
    progress: &'a (dyn Fn(&PackProgress) -> bool + Sync),
}

/// Output of a complete run.
struct PackOutput {
    out: output_folder::OutputFolder,
    source: SourceSpec,
    totals: count::Totals,
    entries: Vec<entry::Entry>,
}

impl PackJob<'_> {
    fn begin(&self, out: &Path) -> Result<output_folder::OutputFolder, Error> {
        let values = self.values.clone();
        output_folder::OutputFolder::begin(out, self.pipeline, self.chosen, self.options, values)
    }

    fn run(&self, writer: &dyn run::Writer) -> Result<run::RunResult, Error> {
        let limits = (self.options.threads(), self.options.max_bad);
        run::run(&self.maker, self.chosen, writer, limits, self.progress)
    }

    fn folder(&self, out: &Path) -> Result<PackOutput, Error> {
        let maker = &self.maker;
        let spec = &self.pipeline.source;
        let naming = names::Naming::new(spec, maker.source, maker.fields, self.chosen)?;
        let out = self.begin(out)?;
        let folder = folder::FolderWriter::new(&out, &naming, maker.source, maker.fields);
        let mut ran = self.run(&folder).inspect_err(|_| out.abandon())?;
        if ran.bad.len() as u64 == self.chosen.len()
            && let Some((_, first)) = ran.bad.pop_first()
        {
            out.abandon();
            return Err(first);
        }
        out.list_bad(ran.bad.values())?;
        let source = folder.finish(self.chosen, &ran.bad)?;
        Ok(PackOutput {
            out,
            source,
            totals: ran.totals,
            entries: Vec::new(),
        })
    }

    fn arrays(&self, out: &Path) -> Result<PackOutput, Error> {
        let out = self.begin(out)?;
        let max_bad = self.options.max_bad;
        let arrays = arrays::NpyWriter::begin(&out, &self.maker, self.chosen, max_bad);
        let arrays = arrays.inspect_err(|_| out.abandon())?;
        let ran = self.run(&arrays).inspect_err(|error| {
            // Records that differ in shape will differ in every run.
            if let Error::Config { .. } = error {
                arrays.remove();
                out.abandon();
            }
        })?;
        out.list_bad(ran.bad.values())?;
        let source = arrays.finish(&ran.bad)?;
        let mut totals = ran.totals;
        totals.bytes_out = arrays.bytes(totals.done - totals.bad);
        Ok(PackOutput {
            out,
            source,
            totals,
            entries: Vec::new(),
        })
    }

    fn shards(&self, out: &Path, new_form: NewForm) -> Result<PackOutput, Error> {
        let ShardLayout {
            form,
            shapes,
            first,
        } = shaped(
            &self.maker,
            self.chosen,
            self.pipeline,
            self.options,
            new_form,
        )?;
        let out = self.begin(out)?;
        let run = shards::ShardRun {
            maker: &self.maker,
            chosen: self.chosen,
            form: &*form,
            out: &out,
            options: self.options,
            shapes: &shapes,
            first,
        };
        let written = run.run(self.progress).inspect_err(|_| out.abandon())?;
        let pattern = written.pattern(out.path(), form.extension());
        let source = form.source(vec![pattern], &written.extensions());
        let mut totals = written.totals;
        totals.bytes_out = written.entries.iter().map(|entry| entry.bytes).sum();
        Ok(PackOutput {
            out,
            source,
            totals,
            entries: written.entries,
        })
    }
}

/// The format and shapes of a dataset's shards.
struct ShardLayout {
    form: Box<dyn form::Form>,
    /// Shapes of raw pixels.
    shapes: Vec<Option<product::Shape>>,
    /// The record that determined them.
    first: u64,
}

fn shaped(
    maker: &make::Maker<'_>,
    chosen: &RecordSelection,
    pipeline: &Pipeline,
    options: &PackOptions,
    new_form: NewForm,
) -> Result<ShardLayout, Error> {
    let mut first = chosen.at(0);
    let mut shapes = vec![None; maker.fields.len()];
    if maker.fields.iter().any(fields::FieldWork::is_pixels) {
        let good = arrays::first_good(maker, chosen, options.max_bad)?;
        first = good.0;
        shapes = good.1.iter().map(|product| product.shape).collect();
    }
    let columns = fields::columns(maker.fields, &shapes);
    let classes = maker.source.classes();
    let rows = options.rows(pipeline).unwrap_or(1);
    if options.to.batch_file().is_some() {
        shards::check_number(chosen.len().div_ceil(rows.max(1)), options)?;
    }
    let form = new_form(columns, classes, rows)?;
    Ok(ShardLayout {
        form,
        shapes,
        first,
    })
}

/// Returns the pipeline over its packed source with all records selected.
fn over(
    pipeline: &Pipeline,
    source: &dyn Source,
    packed: &SourceSpec,
    options: &PackOptions,
    modes: BTreeMap<String, ColorMode>,
) -> Result<Pipeline, Error> {
    let weights = pipeline.weights.as_ref();
    let mut pipeline = Pipeline {
        weights: weights.map(|one| one.numbered(source)).transpose()?,
        repeat: pipeline.repeat,
        // The packed source does not know its boxes.
        boxes: pipeline.declared_boxes(),
        points: pipeline.declared_points(),
        source: packed.clone(),
        ..pipeline.plain()
    };
    if !modes.is_empty() {
        let decode = pipeline.decode.get_or_insert_default();
        decode.modes.extend(modes);
    }
    let done = &options.transforms;
    if !pipeline.transforms.starts_with(done) {
        return Ok(pipeline);
    }
    // Applied a second time, one of these alone changes nothing, and it states the size of the
    // records.
    if done.len() < 2 && done.iter().all(Transform::is_idempotent) {
        return Ok(pipeline);
    }
    let size = done
        .iter()
        .try_fold(None, |size, transform| transform.output_size(size));
    let size = size.ok().flatten();
    // A crop to the present size changes nothing, and it gives the planner that size.
    let known = size.map(|size| Crop::new(size.height, size.width).into());
    pipeline.transforms.splice(..done.len(), known);
    Ok(pipeline)
}

/// The reason why pixels cannot be written although they were read. The caller adds the record's
/// name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A transform produced new values in a mask.
    #[error("{new} values are not among the values of the original mask")]
    NewValues {
        /// Number of new values.
        new: usize,
    },
    /// JPEG does not support these pixels.
    #[error("a JPEG holds 1 or 3 channels of 8 bits, not {channels} of {bits}; use png")]
    NotJpeg {
        /// Channels of the image.
        channels: usize,
        /// Bits per sample.
        bits: usize,
    },
    /// WebP does not support these pixels.
    #[error("a WebP holds 1 to 4 channels of 8 bits, not {channels} of {bits}; use png")]
    NotWebp {
        /// Channels of the image.
        channels: usize,
        /// Bits per sample.
        bits: usize,
    },
    /// A number exceeds the widest type of the format.
    #[error("a number in `{field}` exceeds int64, the widest type of the format")]
    WideNumber {
        /// Name of the field.
        field: String,
    },
    /// Bytes of a text field are not UTF-8.
    #[error("field `{field}` is not UTF-8")]
    NotText {
        /// Name of the field.
        field: String,
    },
    /// A field is longer than the format supports.
    #[error("{bytes} bytes in one field exceed the {limit} of the format")]
    TooLong {
        /// Bytes of the field.
        bytes: u64,
        /// Maximum bytes.
        limit: u64,
    },
    /// Error of the JPEG library.
    #[error(transparent)]
    Jpeg(#[from] infeed_raw::jpeg_encode::EncodeError),
    /// Error of the PNG library.
    #[error(transparent)]
    Png(#[from] png::EncodingError),
    /// Error of the WebP library.
    #[error(transparent)]
    Webp(#[from] image_webp::EncodingError),
}
