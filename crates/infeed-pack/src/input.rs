//! The input of a run: the open source, the records to pack, and the work for each field. Rejects
//! options that do not fit the pipeline before any record is read.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::fields::{self, FieldWork};
use super::make::Maker;
use super::options::PackOptions;
use super::overlap::check_overlap;
use super::selection::RecordSelection;
use super::targets::Target;
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_source::{Source, store};

/// The source of a run and what it packs.
pub(super) struct PackInput {
    pub(super) source: Arc<dyn Source>,
    pub(super) chosen: RecordSelection,
    pub(super) fields: Vec<FieldWork>,
}

impl PackInput {
    /// Opens the source of a pipeline. `records` are as for [`pack`](fn@super::pack).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for options that do not fit the pipeline or the source, and the errors of
    /// opening the source.
    pub(super) fn open(
        pipeline: &Pipeline,
        handles: &[Handle],
        records: Option<&[u64]>,
        out: &Path,
        options: &PackOptions,
    ) -> Result<PackInput, Error> {
        check(options, pipeline, out)?;
        check_weights(pipeline, options)?;
        check_overlap(&pipeline.source, out)?;
        pipeline.check_selection()?;
        let source = pipeline.source.open(handles)?;
        check_shares(&*source)?;
        let records = select(pipeline, &*source, records)?;
        let chosen = RecordSelection::new(records.as_deref(), source.len())?;
        let fields = fields::arrange(pipeline, source.fields(), options)?;
        Ok(PackInput {
            source,
            chosen,
            fields,
        })
    }

    /// Returns the maker of records for a run.
    pub(super) fn maker<'a>(&'a self, pipeline: &Pipeline, options: &'a PackOptions) -> Maker<'a> {
        Maker::new(&*self.source, &self.fields, pipeline, options)
    }
}

/// Returns the records to pack among those that the pipeline selects, by their numbers in the
/// source.
fn select<'a>(
    pipeline: &Pipeline,
    source: &dyn Source,
    wanted: Option<&'a [u64]>,
) -> Result<Option<Cow<'a, [u64]>>, Error> {
    let subset = pipeline.selected_records(source)?;
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
fn check_shares(source: &dyn Source) -> Result<(), Error> {
    if source.weighted_parts().is_none() {
        return Ok(());
    }
    let problem = "a packed dataset keeps neither the weights nor the epoch of a mix; pack each \
                   source alone, and mix the packed ones";
    Err(Error::config("source", problem))
}

/// Rejects weights and groups that would have no meaning, or another one, for the packed dataset.
fn check_weights(pipeline: &Pipeline, options: &PackOptions) -> Result<(), Error> {
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
