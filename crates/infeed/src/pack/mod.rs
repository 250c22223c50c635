//! A dataset rewritten once into a form that is cheaper to read: image files, one `.npy` a field,
//! or shards (WebDataset, TFRecord, Arrow, Parquet, `.npz`).
//!
//! `fields` decides what becomes of each field, `make` does it to one record. `folder` and `arrays`
//! put the result where it goes, called by the threads of `run`; `form` is what the formats of
//! shards have in common, one of which a file (`forms` lists them), called by the threads of
//! `shards`. `out` keeps the folder that is written to. Nothing is ever written over or into the
//! original, and a file has its name only once it is whole, so that a run that was stopped is taken
//! up again: by file in a folder, by row in arrays, by shard elsewhere (`journal`). Many processes
//! can write the shards of one dataset (`parts`). Shards may lie in a bucket (`place`).

mod arrays;
mod arrow;
mod chosen;
mod columnar;
mod count;
mod described;
mod encode;
mod encoding;
mod entry;
mod fields;
mod folder;
mod form;
mod forms;
mod journal;
mod judge;
mod make;
mod names;
mod noted;
mod npy;
mod npz;
mod out;
mod parquet;
mod parts;
mod place;
pub mod quality;
mod restart;
mod run;
mod sequence;
mod shards;
mod tfrecord;
mod values;
mod webdataset;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::decode::ColorMode;
use crate::error::Error;
use crate::pipeline::{Handle, Pipeline, SourceSpec};
use crate::source::Source;
use crate::store;
use crate::transform::{Crop, Transform};
use chosen::Chosen;

pub use crate::pipeline::packed::MANIFEST;
pub use count::Progress;
pub use encode::encode;
pub use encoding::{Encoding, PngFilter, PngLevel, Target};
pub use entry::BAD_LIST;
pub(crate) use entry::listed_bad;
pub use judge::Fidelity;
pub use parts::{Part, Parts};
pub use restart::{TILE, with_restarts};

/// Bytes of a shard unless others are asked for: large enough that opening one costs nothing, small
/// enough that hundreds are there to be shuffled and shared out.
pub const SHARD_BYTES: u64 = 256_000_000;

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
    /// Of shards: the order of a shuffled pipeline's first epoch with this seed. None: the order of
    /// the source.
    pub shuffle: Option<u64>,
    /// Bytes at which a shard ends; one record alone may have more.
    pub shard_bytes: u64,
    /// Rows of a `.npz`. None: the batch of the pipeline, if that is more than one record.
    pub rows: Option<u64>,
    /// Bad records that are left out and listed in [`BAD_LIST`]; one more ends the run. None: any
    /// number. With 0 the first is the error.
    pub max_bad: Option<u64>,
    /// Whether images that are copied are decoded whole first, so that those are found bad of which
    /// only the pixels are.
    pub verify: bool,
}

impl PackOptions {
    /// Everything as it is: no transforms, [`Encoding::Keep`], all cores, the source's order,
    /// shards of [`SHARD_BYTES`], bad records left out.
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

    /// Rows of a file, where files are batches.
    fn rows(&self, pipeline: &Pipeline) -> Option<u64> {
        let batch = pipeline.batch.size.or(pipeline.batch.per_rank);
        // A batch of one is what a pipeline has of which nothing was said.
        let batch = batch.filter(|&rows| rows > 1);
        self.rows.or(batch).filter(|_| self.to == Target::Npz)
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
    /// Records that were bad and left out; [`BAD_LIST`] in its folder names them.
    pub bad: u64,
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
    /// How near the images are to the original, where they were encoded with loss.
    pub fidelity: Option<Fidelity>,
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
/// given; None is all. They come in the order of the original, or in that of `options.shuffle`. Of a
/// folder by classes the whole is written as folders, a part as one with labels in a CSV, so that a
/// class keeps its number.
///
/// `progress` is called a few times a second, and returns false to stop. The same call goes on with
/// what is missing. A file is done anew if its original is younger; shards take it that the source
/// is the same. `out` may be missing, empty, or of an earlier call with the same options. It holds
/// the packed pipeline too, so that [`Pipeline::load`] takes the folder. Shards may go to a bucket:
/// `out` is a URL (`s3://`, `gs://`, `az://`, `abfss://`) then, reached as URLs that are read are.
///
/// # Errors
///
/// [`Error::Config`] for options that cannot work, an `out` that is not ours or in the way of the
/// source, two files that would get one name or change places, or with
/// [`Target::Folder`] if a class has nothing but bad records; the bad record that is one too many,
/// or the first if all are bad; [`Error::Write`]; [`Error::Interrupted`] after `progress` said stop.
///
/// # Cost
///
/// Of a bucket, the temporary folder holds the shards that are under way, five at most, and memory
/// 16 MiB of each shard that is put, four parts of 8 MiB of a longer one.
///
/// Memory for 64 MiB of records that wait to be written and one record a thread, whatever the size
/// of the dataset; with [`Target::Npz`] a batch for each file under way, with Arrow and Parquet up
/// to 64 MiB of records that become a batch. Reads hold an eighth of the memory that this process
/// may use at most, but one at least: of a source that can only be read in groups, a group.
pub fn pack(
    pipeline: &Pipeline,
    handles: &[Handle],
    records: Option<&[u64]>,
    out: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(&Progress) -> bool + Sync),
) -> Result<Packed, Error> {
    let start = Instant::now();
    check(options, pipeline, out)?;
    refuse_weights(pipeline, options)?;
    out::refuse_overlap(&pipeline.source, out)?;
    pipeline.check_selection()?;
    let source = pipeline.source.open(handles)?;
    let records = select(pipeline, &*source, records)?;
    let chosen = Chosen::new(records.as_deref(), source.len())?;
    let fields = fields::arrange(pipeline, source.fields(), options)?;
    let job = Job {
        pipeline,
        chosen: &chosen,
        maker: make::Maker {
            source: &*source,
            fields: &fields,
            transforms: &options.transforms,
            decode: pipeline.decode.clone().unwrap_or_default(),
            restart: options.restart,
            unmarked: AtomicU64::new(0),
            verify: options.verify,
        },
        options,
        values: values::checksum(&*source, handles)?,
        progress,
    };
    let Written {
        out,
        source: packed,
        totals,
        entries,
    } = match options.to {
        Target::Folder => job.folder(out)?,
        Target::Arrays => job.arrays(out)?,
        _ => job.shards(out)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let fidelity = judge::judge(&job.maker, &chosen)?;
    let done = out::Done {
        totals: &totals,
        classes: source.classes(),
        shards: &entries,
    };
    let modes = fields::modes(&fields, options.to);
    let pipeline = over(pipeline, &*source, &packed, options, modes)?;
    out.finish(&pipeline, &done)?;
    Ok(Packed {
        pipeline,
        source: packed,
        records: totals.done - totals.bad,
        bad: totals.bad,
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        seconds,
        reused: totals.reused,
        // Relaxed: the threads that count have ended.
        unmarked: job.maker.unmarked.load(Ordering::Relaxed),
        fidelity,
    })
}

/// The records that are wanted of those that the pipeline selects, by their numbers in the source.
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

/// Refuses what only shards can have, and what no shards can.
fn check(options: &PackOptions, pipeline: &Pipeline, out: &Path) -> Result<(), Error> {
    let name = options.to.name();
    if !options.to.is_shards() {
        if store::is_url(out) {
            let problem = format!(
                "{name} are written to folders, and {} is a URL; pack to shards, which a bucket \
                 takes, or to a folder that is copied there",
                out.display()
            );
            return Err(Error::config("to", problem));
        }
        return match options.shuffle {
            None => Ok(()),
            Some(_) => {
                let problem = format!(
                    "{name} keep the order of the source, which a pipeline shuffles as it reads; \
                     leave the shuffle out, or pack to shards"
                );
                Err(Error::config("shuffle", problem))
            }
        };
    }
    if options.shard_bytes == 0 {
        return Err(Error::config("shard_bytes", "a shard has a byte at least"));
    }
    if options.to == Target::Npz && options.rows(pipeline).is_none() {
        let problem = "an npz file is a batch, and that of the pipeline is one record; say how many rows a file \
                       has, or give the pipeline a batch";
        return Err(Error::config("rows", problem));
    }
    // They stand in the source as a pattern.
    if out
        .to_string_lossy()
        .contains(['*', '?', '[', ']', '{', '}'])
    {
        let problem = format!(
            "{} holds one of * ? [ ] {{ }}, which mean something in the names of shards; name \
             another folder",
            out.display()
        );
        return Err(Error::config("out", problem));
    }
    Ok(())
}

/// Refuses weights that would mean nothing, or something else, over the packed dataset.
fn refuse_weights(pipeline: &Pipeline, options: &PackOptions) -> Result<(), Error> {
    let problem = match &pipeline.weights {
        Some(weights) if weights.records.is_some() => {
            "they go by numbers of records, which are others in the packed dataset; pack without \
             weights, and give the packed pipeline its own"
        }
        Some(_) if options.to != Target::Folder => {
            "they go by class, which only a packed folder knows before records are read; pack to a \
             folder, or without weights"
        }
        _ => return Ok(()),
    };
    Err(Error::config("weights", problem))
}

/// What is packed and how.
struct Job<'a> {
    pipeline: &'a Pipeline,
    chosen: &'a Chosen,
    maker: make::Maker<'a>,
    options: &'a PackOptions,
    /// What tells the source apart from others in memory.
    values: Option<String>,
    progress: &'a (dyn Fn(&Progress) -> bool + Sync),
}

/// Records that are all written.
struct Written {
    out: out::Out,
    source: SourceSpec,
    totals: count::Totals,
    entries: Vec<entry::Entry>,
}

impl Job<'_> {
    fn begin(&self, out: &Path) -> Result<out::Out, Error> {
        let values = self.values.clone();
        out::Out::begin(out, self.pipeline, self.chosen, self.options, values)
    }

    fn run(&self, writer: &dyn run::Writer) -> Result<run::Ran, Error> {
        let limits = (self.options.threads(), self.options.max_bad);
        run::run(&self.maker, self.chosen, writer, limits, self.progress)
    }

    fn folder(&self, out: &Path) -> Result<Written, Error> {
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
        Ok(Written {
            out,
            source,
            totals: ran.totals,
            entries: Vec::new(),
        })
    }

    fn arrays(&self, out: &Path) -> Result<Written, Error> {
        let out = self.begin(out)?;
        let max_bad = self.options.max_bad;
        let arrays = arrays::ArrayWriter::begin(&out, &self.maker, self.chosen, max_bad);
        let arrays = arrays.inspect_err(|_| out.abandon())?;
        let ran = self.run(&arrays).inspect_err(|error| {
            // What has no one shape never will.
            if let Error::Config { .. } = error {
                arrays.remove();
                out.abandon();
            }
        })?;
        out.list_bad(ran.bad.values())?;
        let source = arrays.finish(&ran.bad)?;
        let mut totals = ran.totals;
        totals.bytes_out = arrays.bytes(totals.done - totals.bad);
        Ok(Written {
            out,
            source,
            totals,
            entries: Vec::new(),
        })
    }

    fn shards(&self, out: &Path) -> Result<Written, Error> {
        let Shaped {
            form,
            shapes,
            first,
        } = shaped(&self.maker, self.chosen, self.pipeline, self.options)?;
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
        Ok(Written {
            out,
            source,
            totals,
            entries: written.entries,
        })
    }
}

/// What records become in the shards of a dataset.
struct Shaped {
    form: Box<dyn form::Form>,
    /// Of pixels that are not encoded.
    shapes: Vec<Option<make::Shape>>,
    /// The record that has set those.
    first: u64,
}

fn shaped(
    maker: &make::Maker<'_>,
    chosen: &Chosen,
    pipeline: &Pipeline,
    options: &PackOptions,
) -> Result<Shaped, Error> {
    let mut first = chosen.at(0);
    let mut shapes = vec![None; maker.fields.len()];
    if maker.fields.iter().any(form::is_pixels) {
        let good = arrays::first_good(maker, chosen, options.max_bad)?;
        first = good.0;
        shapes = good.1.iter().map(|product| product.shape).collect();
    }
    let columns = form::columns(maker.fields, &shapes);
    let classes = maker.source.classes();
    let rows = options.rows(pipeline).unwrap_or(1);
    if options.to == Target::Npz {
        shards::check_number(chosen.len().div_ceil(rows.max(1)), options)?;
    }
    let form = forms::form(options, columns, classes, rows)?;
    Ok(Shaped {
        form,
        shapes,
        first,
    })
}

/// The pipeline over its packed source, of which all records were selected.
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
    // One of these alone changes nothing the second time, and says what size the records have.
    let again = matches!(
        done[..],
        [] | [Transform::Crop(_) | Transform::CenterCrop(_) | Transform::CropOrPad(_)]
            | [Transform::Resize(_)]
    );
    if again {
        return Ok(pipeline);
    }
    let size = done
        .iter()
        .try_fold(None, |size, transform| transform.output_size(size));
    let size = size.ok().flatten();
    // A crop to the size that records have does nothing; it tells the planner that they have it.
    let known = size.map(|size| Transform::Crop(Crop::new(size.height, size.width)));
    pipeline.transforms.splice(..done.len(), known);
    Ok(pipeline)
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
    /// A number is over the widest of the format.
    #[error("a number in `{field}` exceeds int64, the widest that the format has")]
    WideNumber {
        /// Which field.
        field: String,
    },
    /// Bytes that should be text are none.
    #[error("field `{field}` is no UTF-8")]
    NotText {
        /// Which field.
        field: String,
    },
    /// A record is longer than the format can say.
    #[error("{bytes} bytes in one field, over the {limit} that the format holds")]
    TooLong {
        /// Bytes it has.
        bytes: u64,
        /// Bytes it may have.
        limit: u64,
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
