//! What is to be explained: a pipeline over its source, the consumer's step, and the machine that
//! stands in for this one, if one was named.

use std::sync::Arc;
use std::time::Duration;

use crate::device::Any;
use crate::error::Error;
use crate::loader::Options;
use crate::loader::feeders::Feeders;
use crate::order::Order;
use crate::order::window::Groups;
use crate::pipeline::{Decode, Handle, Pipeline};
use crate::plan::Plan;
use crate::sample::FieldKind;
use crate::source::Source;
use crate::source::throttled::{Throttle, Throttled};
use crate::store::Cache;

/// Records that trials run on at most; a few hundred tell a mean apart from another within a few
/// percent, since both see the same ones.
const SAMPLE: u64 = 256;

/// Bytes that the records of a trial have at most together, unless that would be under
/// [`LEAST_SAMPLE`]: they are re-encoded several times.
const SAMPLE_BYTES: f64 = 40e6;

/// Records that trials run on at least, where there are so many.
const LEAST_SAMPLE: u64 = 32;

/// Records read to measure the storage.
const COLD_SAMPLE: u64 = 400;

/// Groups that can only be read whole that records for trials come from.
const SAMPLED_GROUPS: u64 = 2;

/// Seed of the choice of records.
const CHOICE: u64 = 0x1f_eed;

/// Another machine's storage and bus.
#[derive(Clone, Debug, PartialEq)]
pub struct Stand {
    /// Name of the profile.
    pub name: String,
    /// Its storage; reads take as long as there.
    pub storage: Option<Throttle>,
    /// Its bus to the device.
    pub bus_bytes_per_s: Option<f64>,
    /// Rate at which its device reads and writes its own memory.
    pub device_bytes_per_s: Option<f64>,
    /// Devices that share its cores and storage.
    pub devices: u32,
}

/// How something is explained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conditions {
    /// How the loader is opened.
    pub open: Options,
    /// Time that a step of the consumer takes. None: it takes batches as fast as they come.
    pub step: Option<Duration>,
    /// Length of the plain run. Less than one makes trials as much shorter.
    pub seconds: f64,
    /// The machine to plan for. None: this one.
    pub stand: Option<Stand>,
    /// Where batches go. None: they stay on the host.
    pub device: Option<Any>,
    /// Whether remedies are tried.
    pub try_remedies: bool,
    /// Feeders to measure beside this machine's cores. The rest of an explanation is about this machine
    /// alone.
    pub feeders: Option<Feeders>,
    /// Cores of the feeders that are planned for. None: as many as work here.
    pub feeder_cores: Option<usize>,
    /// Bytes of batches a second that the network to feeders carries. None: not known.
    pub network: Option<f64>,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            open: Options::default(),
            step: None,
            seconds: 6.0,
            stand: None,
            device: None,
            try_remedies: true,
            feeders: None,
            feeder_cores: None,
            network: None,
        }
    }
}

/// A pipeline, its data, and how it is explained.
#[derive(Debug)]
pub struct Case {
    /// The folder or file as the user named it.
    pub name: String,
    pub(super) pipeline: Pipeline,
    pub(super) handles: Vec<Handle>,
    pub(super) conditions: Conditions,
    /// The records as this machine reads them.
    pub(super) own: Arc<dyn Source>,
    /// The records as the machine that is planned for would read them.
    pub(super) source: Arc<dyn Source>,
}

impl Case {
    /// Whether records have a mask.
    pub(super) fn has_masks(&self) -> bool {
        let mut fields = self.own.fields().iter();
        fields.any(|field| matches!(field.kind, FieldKind::Mask(_)))
    }

    /// How records are decoded.
    pub(super) fn decode(&self) -> Decode {
        self.pipeline.decode.clone().unwrap_or_default()
    }

    /// Opens the source of a pipeline.
    ///
    /// # Errors
    ///
    /// As [`crate::pipeline::SourceSpec::open`].
    pub fn new(
        name: impl Into<String>,
        pipeline: &Pipeline,
        handles: &[Handle],
        conditions: Conditions,
    ) -> Result<Case, Error> {
        let source = pipeline.open_source(handles)?;
        Case::over(name, pipeline, handles, source, conditions)
    }

    /// As [`Case::new`] over a source of one's own, the selected records alone. Remedies that rewrite data read the source
    /// that the description names.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a source without records.
    pub fn over(
        name: impl Into<String>,
        pipeline: &Pipeline,
        handles: &[Handle],
        source: Arc<dyn Source>,
        conditions: Conditions,
    ) -> Result<Case, Error> {
        let name = name.into();
        if source.is_empty() {
            let problem = format!("{name} holds no records; there is nothing to explain");
            return Err(Error::config("source", problem));
        }
        let own = Arc::clone(&source);
        let ranks = conditions.open.world_size;
        let mut case = Case {
            name,
            pipeline: pipeline.settled(&*source, handles, ranks)?,
            handles: handles.to_vec(),
            conditions,
            own,
            source,
        };
        case.source = case.behind(Arc::clone(&case.own));
        Ok(case)
    }

    /// The pipeline that is explained.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// A source as the machine that is planned for would read it.
    pub(super) fn behind(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        match self.throttle() {
            Some(throttle) => Arc::new(Throttled::new(source, throttle)),
            None => source,
        }
    }

    pub(super) fn throttle(&self) -> Option<Throttle> {
        self.conditions
            .stand
            .as_ref()
            .and_then(|stand| stand.storage)
    }

    pub(super) fn workers(&self) -> usize {
        self.conditions
            .open
            .workers
            .unwrap_or_else(infeed_raw::machine::usable_cores)
    }

    pub(super) fn readers(&self) -> usize {
        let wanted = self.conditions.open.readers;
        wanted.or(self.own.parallel_reads()).unwrap_or(4)
    }

    /// Whether records come over a network, past the memory that keeps files of this machine, and no
    /// storage stands in for it.
    pub(super) fn is_far(&self) -> bool {
        self.throttle().is_none() && self.own.parallel_reads().is_some()
    }

    /// Bytes that the cache of this process keeps of what comes from buckets; 0 without one.
    pub(super) fn cache_bytes(&self) -> u64 {
        // What is wrong with its settings was told when the source was opened.
        let cache = Cache::of_process().ok().flatten();
        cache.map_or(0, |cache| cache.limit_bytes())
    }

    /// Bytes of one sample in a batch of this pipeline; None where they differ from sample to
    /// sample.
    pub(super) fn row_bytes(&self, pipeline: &Pipeline) -> Option<f64> {
        let plan = Plan::over(pipeline, &*self.own).ok()?;
        let rows = plan
            .delivered()
            .iter()
            .map(|column| column.kind.row_bytes());
        Some(rows.sum::<Option<usize>>()? as f64)
    }

    /// The bus of the machine that is planned for.
    pub(super) fn bus(&self) -> Option<f64> {
        self.conditions.stand.as_ref()?.bus_bytes_per_s
    }

    /// Length of a trial's turn: shorter than usual where the plain run is shorter than a second,
    /// since whoever asks for that wants no exact numbers.
    pub(super) fn turn(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.conditions.seconds.clamp(0.0, 1.0))
    }

    /// Rows of this process's batch.
    pub(super) fn rows(&self) -> u64 {
        let batch = self.pipeline.batch;
        let ranks = self.conditions.open.world_size.max(1);
        batch
            .per_rank
            .or(batch.size.map(|size| size / ranks))
            .unwrap_or(1)
            .max(1)
    }

    /// Records for trials, picked at random: as many as hold a certain number of bytes.
    pub(super) fn sample(&self, record_bytes: f64) -> Vec<u64> {
        let by_bytes = (SAMPLE_BYTES / record_bytes.max(1.0)) as u64;
        let count = by_bytes.clamp(LEAST_SAMPLE, SAMPLE);
        match self.own.groups().filter(|groups| groups.whole) {
            Some(groups) => pick_groups(&groups, count),
            None => pick(self.own.len(), count, 0),
        }
    }

    /// Records to measure the storage with, others than those of the trials where there are
    /// enough.
    pub(super) fn cold_sample(&self) -> Vec<u64> {
        let len = self.own.len();
        let skip = if len >= SAMPLE + COLD_SAMPLE {
            SAMPLE
        } else {
            0
        };
        pick(len, COLD_SAMPLE, skip)
    }
}

/// Up to `count` records of groups at random: neighbours, since each group is read whole, of
/// [`SAMPLED_GROUPS`] groups where there are so many.
fn pick_groups(groups: &Groups, count: u64) -> Vec<u64> {
    let share = count.div_ceil(SAMPLED_GROUPS);
    let order = Order::new(groups.ends.len() as u64, Some(CHOICE)).epoch(0);
    let records = (0..groups.ends.len() as u64).flat_map(|at| {
        let group = order.get(at) as usize;
        (groups.first(group)..groups.ends[group]).take(share as usize)
    });
    records.take(count as usize).collect()
}

/// Up to `count` different records, at random, leaving out the first `skip` that would be picked.
fn pick(len: u64, count: u64, skip: u64) -> Vec<u64> {
    let order = Order::new(len, Some(CHOICE)).epoch(0);
    (skip..len)
        .take(count as usize)
        .map(|at| order.get(at))
        .collect()
}
