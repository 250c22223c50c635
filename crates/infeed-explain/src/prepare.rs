//! Prepares a remedy to run over a few hundred records or over all of them.

use std::path::Path;
use std::sync::Arc;

use super::case::Case;
use super::remedies::{Candidate, RemedyChange};
use super::stages::{StageCost, stages};
use super::trial::Variant;
use crate::feeders::Feeders;
use infeed::loader::device::Placement;
use infeed::loader::{CacheLimit, DecodeBy, DecodedCache, OnError};
use infeed::pipeline::Pipeline;
use infeed::plan::SamplePlan;
use infeed_core::error::Error;
use infeed_core::units::format_bytes;
use infeed_pack as pack;
use infeed_source::Source;
use infeed_source::repeated::RepeatedRecords;
use infeed_source::selected::SelectedRecords;
use infeed_source::subset::Subset;

/// Length of a trial's source, which repeats the chosen records. Long enough never to end.
const ENDLESS: u64 = 1 << 40;

/// Rows of a trial's batch are the samples of this time, in seconds, so that a slice has enough
/// batches.
const BATCH_S: f64 = 0.03;

/// A remedy that is ready to run.
pub(super) struct PreparedRemedy {
    pub(super) variant: Variant,
    /// The rewritten data, if the remedy rewrites data.
    pub(super) written: Option<RewriteStats>,
    /// The filled cache, if the remedy is one.
    pub(super) cached: Option<FilledCache>,
}

/// A cache that has the records of a trial, until it is dropped.
pub(super) struct FilledCache {
    _cache: Arc<DecodedCache>,
    /// Memory that all records of the dataset would take.
    pub(super) all_bytes: f64,
    /// Limit of the cache.
    pub(super) limit_bytes: f64,
    /// Processor time of a record in the epoch that filled the cache, in seconds.
    fill_cpu_s: f64,
}

impl FilledCache {
    /// Share of the records that the cache would hold.
    pub(super) fn share(&self) -> f64 {
        (self.limit_bytes / self.all_bytes.max(1.0)).min(1.0)
    }

    /// Describes what the cache would hold, and the processor time of the epoch that fills it,
    /// relative to that of these stages, which have no cache.
    pub(super) fn description(&self, now: &[StageCost]) -> String {
        format!(
            "{:.0} % of the records, which all take {}; the first epoch takes {:.2}x the \
             processor time of an epoch without the cache",
            100.0 * self.share(),
            format_bytes(self.all_bytes),
            self.fill_cpu_s / record_cpu_s(now).max(1e-9),
        )
    }
}

/// Processor time of a record that passes these stages, in seconds. The first one reads.
fn record_cpu_s(stages: &[StageCost]) -> f64 {
    let records = stages.first().map_or(0, |read| read.samples);
    let cpu_s: f64 = stages.iter().map(|stage| stage.cpu_s).sum();
    cpu_s / records.max(1) as f64
}

/// Statistics of a rewrite.
#[derive(Clone, Debug)]
pub(super) struct RewriteStats {
    pub(super) records: u64,
    /// Number of bad records that the new data lacks.
    pub(super) bad: u64,
    /// Their record numbers, in a trial.
    pub(super) left_out: Vec<u64>,
    pub(super) bytes_out: u64,
    pub(super) seconds: f64,
}

/// The records that take part.
pub(super) enum RecordSubset<'a> {
    /// These records, repeated without end, in batches that suit a trial.
    Trial {
        records: &'a [u64],
        samples_per_s: f64,
    },
    /// All records in the pipeline's own order and batches, from the planned storage.
    All,
}

impl Case {
    /// Returns the pipeline as it is.
    pub(super) fn variant(&self, subset: &RecordSubset<'_>) -> Result<Variant, Error> {
        let source = Arc::clone(&self.own);
        self.variant_over(self.pipeline.clone(), source, None, subset)
    }

    /// Returns a pipeline over a source with the records of this case, or with copies of them.
    fn variant_over(
        &self,
        mut pipeline: Pipeline,
        source: Arc<dyn Source>,
        chosen: Option<&[u64]>,
        subset: &RecordSubset<'_>,
    ) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.decode = self.decode_of(&pipeline, &*source);
        let (source, step): (Arc<dyn Source>, _) = match subset {
            RecordSubset::Trial {
                records,
                samples_per_s,
            } => {
                let rows = (samples_per_s * BATCH_S) as u64;
                pipeline.batch.size = Some(rows.clamp(1, self.rows()));
                pipeline.batch.per_rank = None;
                // A trial is one process, and it does not measure bad records.
                (options.rank, options.world_size) = (0, 1);
                // Records come from memory, and only one remedy has a cache.
                options.cache = None;
                if options.on_error == OnError::Skip {
                    options.on_error = OnError::Substitute;
                }
                let records = chosen.unwrap_or(records).to_vec();
                let chosen = match source.parallel_reads() {
                    Some(_) => RepeatedRecords::held(source, records, ENDLESS)?,
                    None => RepeatedRecords::new(source, records, ENDLESS),
                };
                (Arc::new(chosen), None)
            }
            RecordSubset::All => (self.behind(source), self.conditions.step),
        };
        Ok(Variant {
            pipeline,
            source,
            row_placement: self.row_placement(options.decode),
            options,
            step,
            cores: None,
            selects: false,
        })
    }

    /// Returns the decoder for the files of a pipeline that may differ from this case's. It is the
    /// decoder of this case if the device still has files to decode.
    fn decode_of(&self, pipeline: &Pipeline, source: &dyn Source) -> DecodeBy {
        let wanted = self.conditions.open.decode;
        let forms = SamplePlan::over(pipeline, source)
            .and_then(|mut plan| plan.for_device_by(wanted, Placement::Resize, false));
        match forms {
            Ok(_) => wanted,
            // Opening the pipeline reports any other problem.
            Err(_) => DecodeBy::Auto,
        }
    }

    /// Returns the pipeline over all records in its own order, with or without feeders. The
    /// pipeline selects the records itself, because feeders select them the same way.
    pub(super) fn whole(&self, feeders: Option<&Feeders>) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.remote = feeders.map(|feeders| Arc::new(feeders.clone()) as _);
        Ok(Variant {
            pipeline: self.pipeline.clone(),
            source: self.behind(self.pipeline.source.open(&self.handles)?),
            options,
            step: self.conditions.step,
            row_placement: self.row_placement(self.conditions.open.decode),
            cores: None,
            selects: true,
        })
    }

    /// Prepares a remedy. Rewritten data goes into `out`.
    ///
    /// # Errors
    ///
    /// Returns the error of the packer or the source.
    pub(super) fn prepare(
        &self,
        candidate: &Candidate,
        subset: &RecordSubset<'_>,
        out: &Path,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<PreparedRemedy, Error> {
        let mut variant = self.variant(subset)?;
        match &candidate.change {
            RemedyChange::Cache => return self.cached(subset, go_on),
            RemedyChange::Workers(workers) => variant.options.workers = Some(*workers),
            RemedyChange::Readers(readers) => variant.options.readers = Some(*readers),
            RemedyChange::Feeders => variant = self.whole(self.conditions.feeders.as_ref())?,
            RemedyChange::Description(pipeline) => {
                let source = Arc::clone(&self.own);
                variant = self.variant_over((**pipeline).clone(), source, None, subset)?;
            }
            RemedyChange::Pack { options } => {
                let records = match subset {
                    RecordSubset::Trial { records, .. } => Some(*records),
                    RecordSubset::All => None,
                };
                let progress = |at: &pack::PackProgress| go_on(at.done, at.total);
                let handles = &self.handles;
                let packed = pack::pack(&self.pipeline, handles, records, out, options, &progress)?;
                let source = packed.source.open(&[])?;
                let all: Vec<u64> = (0..packed.records).collect();
                variant = self.variant_over(packed.pipeline, source, Some(&all), subset)?;
                return Ok(PreparedRemedy {
                    variant,
                    cached: None,
                    written: Some(RewriteStats {
                        records: packed.records,
                        bad: packed.bad,
                        left_out: match subset {
                            RecordSubset::Trial { .. } => pack::listed_bad(out)?,
                            RecordSubset::All => Vec::new(),
                        },
                        bytes_out: packed.bytes_out,
                        seconds: packed.seconds,
                    }),
                });
            }
        }
        Ok(PreparedRemedy {
            variant,
            written: None,
            cached: None,
        })
    }

    /// Prepares the remedy of a cache: fills it in one epoch.
    fn cached(
        &self,
        subset: &RecordSubset<'_>,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<PreparedRemedy, Error> {
        let mut variant = self.variant(subset)?;
        if let RecordSubset::Trial { records, .. } = subset {
            // An endless source would need an endless table of records.
            let chosen = Subset::whole(self.own.len())
                .filtered(|_, record| records.binary_search(&record).is_ok());
            variant.source = Arc::new(SelectedRecords::new(Arc::clone(&self.own), chosen));
        }
        variant.options.cache = Some(CacheLimit::Auto.into());
        let loader = variant.open()?;
        let problem = |text: &str| Error::config("cache", text.to_owned());
        let cache = loader.decoded_cache()?;
        let cache = cache.ok_or_else(|| problem("these records cannot be cached"))?;
        if !cache.is_shared() {
            return Err(problem("it can be tried only with records in local files"));
        }
        let (mut steps, all) = (0, loader.steps()?);
        while loader.next_batch()?.is_some() {
            steps += 1;
            if !go_on(steps, all) {
                return Err(problem("stopped"));
            }
        }
        let stats = cache.stats();
        if stats.records == 0 {
            return Err(problem("no record fits into half of the free memory"));
        }
        let fill_cpu_s = record_cpu_s(&stages(&loader.stats()?));
        let each = stats.used_bytes as f64 / stats.records as f64;
        Ok(PreparedRemedy {
            variant,
            written: None,
            cached: Some(FilledCache {
                _cache: cache,
                all_bytes: each * self.own.len() as f64,
                limit_bytes: stats.limit_bytes as f64,
                fill_cpu_s,
            }),
        })
    }
}
