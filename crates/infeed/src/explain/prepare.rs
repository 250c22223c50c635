//! A remedy made ready to run: the same change, over a few hundred records or over all of them.

use std::path::Path;
use std::sync::Arc;

use super::case::Case;
use super::remedies::{Candidate, Change};
use super::trial::Variant;
use crate::error::Error;
use crate::loader::ahead::Placement;
use crate::loader::feeders::Feeders;
use crate::loader::{DecodeBy, OnError};
use crate::pack;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::source::Source;
use crate::source::chosen::Chosen;

/// Records of a trial before they repeat themselves without end.
const ENDLESS: u64 = 1 << 40;

/// Rows of a trial's batch are as many as pass in this time, so that a slice has a good number of
/// batches.
const BATCH_S: f64 = 0.03;

/// A remedy that can be run.
pub(super) struct Prepared {
    pub(super) variant: Variant,
    /// What was written, if anything was.
    pub(super) written: Option<Written>,
}

/// What a rewrite took.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) records: u64,
    /// Bad records that are not in it.
    pub(super) bad: u64,
    /// Their numbers, in a trial.
    pub(super) left_out: Vec<u64>,
    pub(super) bytes_out: u64,
    pub(super) seconds: f64,
}

/// Which records take part.
pub(super) enum Among<'a> {
    /// These, again and again, with batches that suit a trial.
    Trial {
        records: &'a [u64],
        samples_per_s: f64,
    },
    /// All, in the pipeline's own order and batches, behind the storage that stands in.
    All,
}

impl Case {
    /// The pipeline as it is.
    pub(super) fn variant(&self, among: &Among<'_>) -> Result<Variant, Error> {
        let source = Arc::clone(&self.own);
        self.variant_over(self.pipeline.clone(), source, None, among)
    }

    /// A pipeline over a source whose records are, or are chosen from, those of this case.
    fn variant_over(
        &self,
        mut pipeline: Pipeline,
        source: Arc<dyn Source>,
        chosen: Option<&[u64]>,
        among: &Among<'_>,
    ) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.decode = self.decode_of(&pipeline, &*source);
        let (source, step): (Arc<dyn Source>, _) = match among {
            Among::Trial {
                records,
                samples_per_s,
            } => {
                let rows = (samples_per_s * BATCH_S) as u64;
                pipeline.batch.size = Some(rows.clamp(1, self.rows()));
                pipeline.batch.per_rank = None;
                // A trial is one process, and bad records are not what it is about.
                (options.rank, options.world_size) = (0, 1);
                if options.on_error == OnError::Skip {
                    options.on_error = OnError::Substitute;
                }
                let records = chosen.unwrap_or(records).to_vec();
                let chosen = match source.parallel_reads() {
                    Some(_) => Chosen::held(source, records, ENDLESS)?,
                    None => Chosen::new(source, records, ENDLESS),
                };
                (Arc::new(chosen), None)
            }
            Among::All => (self.behind(source), self.conditions.step),
        };
        Ok(Variant {
            pipeline,
            source,
            aim: self.aim(options.decode),
            options,
            step,
            selects: false,
        })
    }

    /// Who decodes the files of a pipeline, which may be another than that of this case: whoever is wanted
    /// here, if there are files left that a device decodes.
    fn decode_of(&self, pipeline: &Pipeline, source: &dyn Source) -> DecodeBy {
        let wanted = self.conditions.open.decode;
        let forms = Plan::over(pipeline, source)
            .and_then(|mut plan| plan.for_device_by(wanted, Placement::Resize, false));
        match forms {
            Ok(_) => wanted,
            // It says what is wrong when it is opened, if anything else is.
            Err(_) => DecodeBy::Auto,
        }
    }

    /// All records in the pipeline's own order, selected by it as feeders select them, with feeders or
    /// without.
    pub(super) fn whole(&self, feeders: Option<&Feeders>) -> Result<Variant, Error> {
        let mut options = self.conditions.open.clone();
        options.timeline = None;
        options.feeders = feeders.cloned();
        Ok(Variant {
            pipeline: self.pipeline.clone(),
            source: self.behind(self.pipeline.source.open(&self.handles)?),
            options,
            step: self.conditions.step,
            aim: self.aim(self.conditions.open.decode),
            selects: true,
        })
    }

    /// Makes a remedy ready; what it rewrites goes below `out`.
    ///
    /// # Errors
    ///
    /// What the packer or the source says.
    pub(super) fn prepare(
        &self,
        candidate: &Candidate,
        among: &Among<'_>,
        out: &Path,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<Prepared, Error> {
        let mut variant = self.variant(among)?;
        match &candidate.change {
            Change::Workers(workers) => variant.options.workers = Some(*workers),
            Change::Readers(readers) => variant.options.readers = Some(*readers),
            Change::Feeders => variant = self.whole(self.conditions.feeders.as_ref())?,
            Change::Description(pipeline) => {
                let source = Arc::clone(&self.own);
                variant = self.variant_over((**pipeline).clone(), source, None, among)?;
            }
            Change::Pack { options } => {
                let records = match among {
                    Among::Trial { records, .. } => Some(*records),
                    Among::All => None,
                };
                let progress = |at: &pack::Progress| go_on(at.done, at.total);
                let handles = &self.handles;
                let packed = pack::pack(&self.pipeline, handles, records, out, options, &progress)?;
                let source = packed.source.open(&[])?;
                let all: Vec<u64> = (0..packed.records).collect();
                variant = self.variant_over(packed.pipeline, source, Some(&all), among)?;
                return Ok(Prepared {
                    variant,
                    written: Some(Written {
                        records: packed.records,
                        bad: packed.bad,
                        left_out: match among {
                            Among::Trial { .. } => pack::listed_bad(out)?,
                            Among::All => Vec::new(),
                        },
                        bytes_out: packed.bytes_out,
                        seconds: packed.seconds,
                    }),
                });
            }
        }
        Ok(Prepared {
            variant,
            written: None,
        })
    }
}
