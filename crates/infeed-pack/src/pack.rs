//! Packs a dataset with the threads of this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::arrays::NpyWriter;
use super::count::{PackProgress, Totals};
use super::entry::Entry;
use super::fields;
use super::folder::FolderWriter;
use super::input::PackInput;
use super::judge::{self, Fidelity};
use super::make::Maker;
use super::manifest::ManifestContents;
use super::names::Naming;
use super::options::PackOptions;
use super::output_folder::OutputFolder;
use super::run::{self, RunResult, Writer};
use super::selection::RecordSelection;
use super::shard_plan::ShardPlan;
use super::shards::ShardRun;
use super::targets::format::{FormatWriter, NewLayout};
use super::values;
use infeed::pipeline::{Handle, Pipeline, SourceSpec};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{Crop, Transform};
use infeed_core::error::Error;
use infeed_source::Source;

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
    /// Number of bad records that were left out. [`BAD_LIST`](super::BAD_LIST) in its folder names
    /// them.
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
/// ([`Encoding::Keep`](super::Encoding::Keep) without transforms), files are copied after the
/// checks of a loader.
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
/// size of the dataset. [`Target::Npz`](super::Target::Npz) adds a batch per file in progress,
/// Arrow and Parquet add up to 64 MiB of records for a batch. Reads hold up to an eighth of the
/// memory that this process may use, or one read if it is larger: for a source that is read in
/// groups, a group.
pub fn pack(
    pipeline: &Pipeline,
    handles: &[Handle],
    records: Option<&[u64]>,
    out: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(&PackProgress) -> bool + Sync),
) -> Result<PackedDataset, Error> {
    let start = Instant::now();
    let input = PackInput::open(pipeline, handles, records, out, options)?;
    let source = &*input.source;
    let job = PackJob {
        pipeline,
        chosen: &input.chosen,
        maker: input.maker(pipeline, options),
        options,
        values: values::checksum(source, handles)?,
        progress,
    };
    let PackOutput {
        out,
        source: packed,
        totals,
        entries,
    } = match options.to.format().writer {
        FormatWriter::Shards(new_layout) => job.shards(out, new_layout)?,
        FormatWriter::ImageFiles => job.folder(out)?,
        FormatWriter::FieldArrays => job.arrays(out)?,
    };
    job.maker.losses.log(0);
    let seconds = start.elapsed().as_secs_f64();
    let fidelity = judge::judge(&job.maker, &input.chosen)?;
    let done = ManifestContents {
        totals: &totals,
        classes: source.classes(),
        shards: &entries,
    };
    let modes = fields::modes(&input.fields, options.to);
    let pipeline = over(pipeline, source, &packed, options, modes)?;
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

/// The records to pack and the settings.
struct PackJob<'a> {
    pipeline: &'a Pipeline,
    chosen: &'a RecordSelection,
    maker: Maker<'a>,
    options: &'a PackOptions,
    /// Checksum that distinguishes the source from other sources in memory.
    values: Option<String>,
    progress: &'a (dyn Fn(&PackProgress) -> bool + Sync),
}

/// Output of a complete run.
struct PackOutput {
    out: OutputFolder,
    source: SourceSpec,
    totals: Totals,
    entries: Vec<Entry>,
}

impl PackJob<'_> {
    fn begin(&self, out: &Path) -> Result<OutputFolder, Error> {
        let values = self.values.clone();
        OutputFolder::begin(out, self.pipeline, self.chosen, self.options, values)
    }

    fn run(&self, writer: &dyn Writer) -> Result<RunResult, Error> {
        let limits = (self.options.threads(), self.options.max_bad);
        run::run(&self.maker, self.chosen, writer, limits, self.progress)
    }

    fn folder(&self, out: &Path) -> Result<PackOutput, Error> {
        let maker = &self.maker;
        let spec = &self.pipeline.source;
        let naming = Naming::new(spec, maker.source, maker.fields, self.chosen)?;
        let out = self.begin(out)?;
        let folder = FolderWriter::new(&out, &naming, maker.source, maker.fields);
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
        let arrays = NpyWriter::begin(&out, &self.maker, self.chosen, max_bad);
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

    fn shards(&self, out: &Path, new_layout: NewLayout) -> Result<PackOutput, Error> {
        let plan = ShardPlan::new(
            &self.maker,
            self.chosen,
            self.pipeline,
            self.options,
            new_layout,
        )?;
        let out = self.begin(out)?;
        let run = ShardRun {
            maker: &self.maker,
            chosen: self.chosen,
            plan: &plan,
            out: &out,
            options: self.options,
        };
        let written = run.run(self.progress).inspect_err(|_| out.abandon())?;
        let pattern = written.pattern(out.path(), plan.layout.extension());
        let source = plan.layout.source(vec![pattern], &written.extensions());
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
        weights: weights
            .map(|one| one.with_class_numbers(source))
            .transpose()?,
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
