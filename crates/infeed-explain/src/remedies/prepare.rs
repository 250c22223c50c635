//! Prepares a remedy to run over a few hundred records or over all of them.

use std::path::Path;
use std::sync::Arc;

use super::candidate::{Candidate, RemedyChange};
use crate::case::Case;
use crate::measure::variant::{RecordSubset, Variant};
use crate::model::stages::{StageCost, stage_costs};
use infeed::loader::{CacheLimit, DecodedCache};
use infeed_core::error::Error;
use infeed_core::units::{format_bytes, format_factor, format_percent};
use infeed_pack as pack;
use infeed_source::selected_records::SelectedRecords;
use infeed_source::subset::Subset;

/// A remedy that is ready to run.
pub(crate) struct PreparedRemedy {
    pub(crate) variant: Variant,
    /// The rewritten data, if the remedy rewrites data.
    pub(crate) written: Option<RewriteStats>,
    /// The filled cache, if the remedy is one.
    pub(crate) cached: Option<FilledCache>,
}

/// A cache that has the records of a trial, until it is dropped.
pub(crate) struct FilledCache {
    _cache: Arc<DecodedCache>,
    /// Memory that all records of the dataset would take.
    pub(crate) all_bytes: f64,
    /// Limit of the cache.
    pub(crate) limit_bytes: f64,
    /// Processor time of a record in the epoch that filled the cache, in seconds.
    fill_cpu_s: f64,
}

impl FilledCache {
    /// Share of the records that the cache would hold.
    pub(crate) fn share(&self) -> f64 {
        (self.limit_bytes / self.all_bytes.max(1.0)).min(1.0)
    }

    /// Describes what the cache would hold, and the processor time of the epoch that fills it,
    /// relative to that of these stages, which have no cache.
    pub(crate) fn description(&self, now: &[StageCost]) -> String {
        format!(
            "{} of the records, which all take {}; the first epoch takes {} the \
             processor time of an epoch without the cache",
            format_percent(self.share()),
            format_bytes(self.all_bytes),
            format_factor(self.fill_cpu_s / record_cpu_s(now).max(1e-9)),
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
pub(crate) struct RewriteStats {
    pub(crate) records: u64,
    /// Number of bad records that the new data lacks.
    pub(crate) bad: u64,
    /// Their record numbers, in a trial.
    pub(crate) left_out: Vec<u64>,
    pub(crate) bytes_out: u64,
    pub(crate) seconds: f64,
}

impl Case {
    /// Prepares a remedy. Rewritten data goes into `out`.
    ///
    /// # Errors
    ///
    /// Returns the error of the packer or the source.
    pub(crate) fn prepare(
        &self,
        candidate: &Candidate,
        subset: &RecordSubset<'_>,
        out: &Path,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<PreparedRemedy, Error> {
        let mut variant = self.variant(subset)?;
        match &candidate.change {
            RemedyChange::Cache => return self.fill_cache(subset, go_on),
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
    fn fill_cache(
        &self,
        subset: &RecordSubset<'_>,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<PreparedRemedy, Error> {
        let mut variant = self.variant(subset)?;
        if let RecordSubset::Trial { records, .. } = subset {
            // An endless source would need an endless table of records.
            let chosen = Subset::whole(self.own.len())
                .filter(|_, record| records.binary_search(&record).is_ok());
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
        let fill_cpu_s = record_cpu_s(&stage_costs(&loader.stats()?));
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
