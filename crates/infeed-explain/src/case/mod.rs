//! The subject of an explanation: a pipeline with its source, the consumer's step, and the profile
//! of another machine, if the user named one.

#[cfg(not(feature = "feed"))]
mod absent_feeders;
mod device;
pub(crate) mod what_if;

use std::sync::Arc;
use std::time::Duration;

use what_if::WhatIf;

#[cfg(not(feature = "feed"))]
pub use absent_feeders::AbsentFeeders as Feeders;
#[cfg(feature = "feed")]
pub use infeed_feed::Feeders;

use infeed::loader::Options;
use infeed::pipeline::{Decode, Handle, Pipeline};
use infeed::plan::SamplePlan;
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::window::Groups;
use infeed_core::sample::FieldKind;
use infeed_device::AnyDevice;
use infeed_raw::machine::last_level_cache_bytes;
use infeed_source::Source;
use infeed_source::store::Cache;
use infeed_source::throttle::{Throttle, ThrottledSource};

/// Maximum number of records in a trial. A few hundred are enough to tell two means apart within a
/// few percent, because both variants read the same records.
const SAMPLE: u64 = 256;

/// Maximum bytes of a trial's records, because trials encode them several times. [`MIN_SAMPLE`]
/// records are used even if they are larger.
const SAMPLE_BYTES: f64 = 40e6;

/// Minimum number of records in a trial, if the source has that many.
const MIN_SAMPLE: u64 = 32;

/// Maximum number of records in a trial whose records are small.
const MAX_SAMPLE: u64 = 4096;

/// A trial uses at least this multiple of the last-level cache before a record comes again, if the
/// source has that much. The cache then does not answer for memory.
const CACHES: f64 = 2.0;

/// Smallest share of the present row that a remedy writes: uint8 instead of float32.
const SMALLEST_ROW: f64 = 0.25;

/// Number of records read to measure the storage.
const COLD_SAMPLE: u64 = 400;

/// Number of groups that trial records come from, in sources that read only whole groups.
const SAMPLED_GROUPS: u64 = 2;

/// Seed of the random choice of records.
const CHOICE: u64 = 0x1f_eed;

/// Storage and bus of another machine.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedMachine {
    /// Name of the machine's profile.
    pub name: String,
    /// Its storage. Reads are delayed to take as long as on that storage.
    pub storage: Option<Throttle>,
    /// Its bus to the device, in bytes per second.
    pub bus_bytes_per_s: Option<f64>,
    /// Rate at which its device reads and writes its own memory, in bytes per second.
    pub device_bytes_per_s: Option<f64>,
    /// Number of devices that share its cores and storage.
    pub devices: u32,
}

/// Settings of an explanation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conditions {
    /// Options of the loader.
    pub open: Options,
    /// Time of one step of the consumer. None: the consumer takes batches as fast as they arrive.
    pub step: Option<Duration>,
    /// Length of the plain run in seconds. A value below 1 shortens trials by the same factor; below
    /// 0.1, trials also have fewer turns.
    pub seconds: f64,
    /// Machine to plan for. None: this machine.
    pub planned_machine: Option<PlannedMachine>,
    /// Device that batches go to. None: batches stay on the host.
    pub device: Option<AnyDevice>,
    /// Whether to try remedies.
    pub try_remedies: bool,
    /// Whether remedies that change pixels are ranked by their gain alone. Otherwise they come
    /// after those that gain and change no pixel.
    pub lossy: bool,
    /// Feeders to measure next to this machine's cores. All other parts of the explanation cover
    /// this machine alone.
    pub feeders: Option<Feeders>,
    /// Cores of each planned feeder. None: the number of workers on this machine.
    pub feeder_cores: Option<usize>,
    /// Bytes of batches per second that the network to feeders carries. None: unknown.
    pub network: Option<f64>,
    /// Changes of cores, memory, storage or batches to predict.
    pub what_if: WhatIf,
    /// Maximum time to wait until other programs leave the cores. Plain runs that are shorter than
    /// 1 s do not wait.
    pub wait: Duration,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            open: Options::default(),
            step: None,
            seconds: 6.0,
            planned_machine: None,
            device: None,
            try_remedies: true,
            lossy: false,
            feeders: None,
            feeder_cores: None,
            network: None,
            what_if: WhatIf::default(),
            wait: Duration::ZERO,
        }
    }
}

/// A pipeline, its data, and the settings of the explanation.
#[derive(Debug)]
pub struct Case {
    /// The folder or file as the user named it.
    pub name: String,
    pub(crate) pipeline: Pipeline,
    pub(crate) handles: Vec<Handle>,
    pub(crate) conditions: Conditions,
    /// The records as this machine reads them.
    pub(crate) own: Arc<dyn Source>,
    /// The records as the planned machine would read them.
    pub(crate) source: Arc<dyn Source>,
}

impl Case {
    /// Returns whether records have a mask.
    pub(crate) fn has_masks(&self) -> bool {
        let mut fields = self.own.fields().iter();
        fields.any(|field| matches!(field.kind, FieldKind::Mask(_)))
    }

    /// Returns the decode settings.
    pub(crate) fn decode(&self) -> Decode {
        self.pipeline.decode.clone().unwrap_or_default()
    }

    /// Opens the source of a pipeline.
    ///
    /// # Errors
    ///
    /// As [`infeed::pipeline::SourceSpec::open`].
    pub fn new(
        name: impl Into<String>,
        pipeline: &Pipeline,
        handles: &[Handle],
        conditions: Conditions,
    ) -> Result<Case, Error> {
        let source = pipeline.open_source(handles)?;
        Case::over(name, pipeline, handles, source, conditions)
    }

    /// As [`Case::new`], over an open source that holds the selected records only. Remedies that
    /// rewrite data read the source of the description.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the source has no records.
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
            pipeline: pipeline.resolve_functions(&*source, handles, ranks)?,
            handles: handles.to_vec(),
            conditions,
            own,
            source,
        };
        case.source = case.behind(Arc::clone(&case.own));
        Ok(case)
    }

    /// Returns the pipeline to explain.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Wraps a source so that reads take as long as on the planned machine.
    pub(crate) fn behind(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        match self.throttle() {
            Some(throttle) => Arc::new(ThrottledSource::new(source, throttle)),
            None => source,
        }
    }

    pub(crate) fn throttle(&self) -> Option<Throttle> {
        self.conditions
            .planned_machine
            .as_ref()
            .and_then(|machine| machine.storage)
    }

    pub(crate) fn workers(&self) -> usize {
        self.conditions
            .open
            .workers
            .unwrap_or_else(infeed_raw::machine::usable_cores)
    }

    pub(crate) fn readers(&self) -> usize {
        let wanted = self.conditions.open.readers;
        wanted.or(self.own.parallel_reads()).unwrap_or(4)
    }

    /// Returns whether records come over a network, which bypasses the page cache, with no profile
    /// in place of the storage.
    pub(crate) fn is_far(&self) -> bool {
        self.throttle().is_none() && self.own.parallel_reads().is_some()
    }

    /// Size limit in bytes of this process's cache for bucket objects. 0 without a cache.
    pub(crate) fn cache_bytes(&self) -> u64 {
        // Opening the source already reported invalid cache settings.
        let cache = Cache::of_process().ok().flatten();
        cache.map_or(0, |cache| cache.limit_bytes())
    }

    /// Returns the bytes of one sample in a batch. None if samples differ in size.
    pub(crate) fn row_bytes(&self, pipeline: &Pipeline) -> Option<f64> {
        let plan = SamplePlan::over(pipeline, &*self.own).ok()?;
        let rows = plan
            .delivered_columns()
            .iter()
            .map(|column| column.kind.row_bytes());
        Some(rows.sum::<Option<usize>>()? as f64)
    }

    /// Bus of the planned machine, in bytes per second.
    pub(crate) fn bus(&self) -> Option<f64> {
        self.conditions.planned_machine.as_ref()?.bus_bytes_per_s
    }

    /// Turns of each variant of a trial.
    ///
    /// Below 0.1 s, a turn is about as long as its one batch, so only fewer turns make it shorter.
    pub(crate) fn rounds(&self) -> usize {
        match self.conditions.seconds < 0.1 {
            true => 3,
            false => 5,
        }
    }

    /// Length of a trial's turn. It is shorter than `usual` if the plain run is shorter than 1 s,
    /// because such a short run asks for speed, not for exact numbers.
    pub(crate) fn turn(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.conditions.seconds.clamp(0.0, 1.0))
    }

    /// Maximum time to wait for a quiet machine.
    pub(crate) fn longest_wait(&self) -> Duration {
        match self.conditions.seconds < 1.0 {
            true => Duration::ZERO,
            false => self.conditions.wait,
        }
    }

    /// Rows per batch of this process.
    pub(crate) fn rows(&self) -> u64 {
        let batch = self.pipeline.batch;
        let ranks = self.conditions.open.world_size.max(1);
        batch
            .per_rank
            .or(batch.size.map(|size| size / ranks))
            .unwrap_or(1)
            .max(1)
    }

    /// Picks random records for trials.
    pub(crate) fn sample(&self, record_bytes: f64) -> Vec<u64> {
        let row_bytes = self.row_bytes(&self.pipeline).unwrap_or(0.0);
        let count = sample_count(record_bytes, row_bytes, last_level_cache_bytes());
        match self.own.groups().filter(|groups| groups.whole) {
            Some(groups) => pick_groups(&groups, count),
            None => pick(self.own.len(), count, 0),
        }
    }

    /// Picks records to measure the storage. They differ from the first `taken` ones, which trials
    /// use, if there are enough.
    pub(crate) fn cold_sample(&self, taken: u64) -> Vec<u64> {
        let len = self.own.len();
        let skip = if len >= taken + COLD_SAMPLE { taken } else { 0 };
        pick(len, COLD_SAMPLE, skip)
    }
}

/// Returns the number of records of a trial: those that [`SAMPLE_BYTES`] hold, and at least those that
/// use [`CACHES`] times the last-level cache, encoded and as rows.
fn sample_count(record_bytes: f64, row_bytes: f64, cache_bytes: u64) -> u64 {
    let by_bytes = (SAMPLE_BYTES / record_bytes.max(1.0)) as u64;
    let used = (record_bytes + SMALLEST_ROW * row_bytes).max(1.0);
    let uncached = (CACHES * cache_bytes as f64 / used).ceil() as u64;
    by_bytes
        .clamp(MIN_SAMPLE, SAMPLE)
        .max(uncached.min(MAX_SAMPLE))
}

/// Picks up to `count` records from up to [`SAMPLED_GROUPS`] random groups. The records of a group
/// are neighbours, because the source reads each group as a whole.
fn pick_groups(groups: &Groups, count: u64) -> Vec<u64> {
    let share = count.div_ceil(SAMPLED_GROUPS);
    let order = Order::new(groups.ends.len() as u64, Some(CHOICE)).epoch(0);
    let records = (0..groups.ends.len() as u64).flat_map(|at| {
        let group = order.get(at) as usize;
        (groups.first(group)..groups.ends[group]).take(share as usize)
    });
    records.take(count as usize).collect()
}

/// Picks up to `count` different random records after the first `skip` of the random order.
fn pick(len: u64, count: u64, skip: u64) -> Vec<u64> {
    let order = Order::new(len, Some(CHOICE)).epoch(0);
    (skip..len)
        .take(count as usize)
        .map(|at| order.get(at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_make_a_trial_larger_than_the_cache() {
        let cache = 32 << 20;
        let used = |record: f64, row: f64| {
            sample_count(record, row, cache) as f64 * (record + SMALLEST_ROW * row)
        };
        for (record, row) in [(94e3, 602e3), (15e3, 602e3), (20e3, 150e3), (1e6, 3.4e6)] {
            assert!(
                used(record, row) >= CACHES * f64::from(cache as u32),
                "{record}"
            );
        }
    }

    #[test]
    fn the_size_of_a_trial_is_limited() {
        assert_eq!(sample_count(100.0, 100.0, 1 << 30), MAX_SAMPLE);
        assert_eq!(sample_count(1e9, 0.0, 1 << 20), MIN_SAMPLE);
        assert_eq!(sample_count(100e3, 0.0, 0), SAMPLE);
    }
}
