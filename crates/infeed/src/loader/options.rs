//! Options of a loader.

use std::sync::Arc;
use std::time::Duration;

use super::cache::CacheOptions;
use super::cores::cores_for;
use super::digest::DigestScope;
use super::remote::RemoteRows;
use super::rules::OnError;
use crate::plan::device::{DecodeBy, Placement};

/// Default wait before a warning is logged: longer than a short storage delay, and soon enough to
/// help the user.
const STALL: Duration = Duration::from_secs(10);

/// Options of a loader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Worker threads. None: the loader finds the smallest number that gives the shortest steps
    /// while it runs, starting with the number of usable cores; see
    /// [`Stats::tuned`](super::Stats::tuned).
    pub workers: Option<usize>,
    /// I/O threads. None: 4, or a number that suits the source's storage.
    pub readers: Option<usize>,
    /// Memory budget in bytes for slabs, encoded records and decode scratch. None: the need of four
    /// batches, at most half of the memory that this process can still use.
    pub memory: Option<u64>,
    /// Memory, in addition to `memory`, and a folder that keep decoded records for later epochs.
    /// Loaders of this user on this machine that read the same records share one copy in memory,
    /// with the limit of the first.
    pub cache: Option<CacheOptions>,
    /// Number of records of an epoch that the program chooses with
    /// [`Loader::begin_epoch`](super::Loader::begin_epoch). None: the description has the order.
    pub epoch_records: Option<u64>,
    /// Rank of this process in the training run.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Policy for bad records.
    pub on_error: OnError,
    /// Maximum number of distinct bad records before the run stops. A record that is bad in every
    /// epoch counts once.
    pub max_bad: Option<u64>,
    /// Duration of the recorded timeline, from opening; see
    /// [`Loader::timeline`](super::Loader::timeline).
    pub timeline: Option<Duration>,
    /// Wait of the consumer after which a warning names the limiting stage.
    pub stall: Option<Duration>,
    /// Content of [`Loader::digest`](super::Loader::digest).
    pub digest: DigestScope,
    /// Other processes that make batches too. With them, `workers: None` means the number of usable
    /// cores.
    pub remote: Option<Arc<dyn RemoteRows>>,
    /// Decoder of JPEGs for batches on a device.
    pub decode: DecodeBy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: None,
            readers: None,
            memory: None,
            cache: None,
            epoch_records: None,
            rank: 0,
            world_size: 1,
            on_error: OnError::Stop,
            max_bad: None,
            timeline: None,
            stall: Some(STALL),
            digest: DigestScope::Ids,
            remote: None,
            decode: DecodeBy::Auto,
        }
    }
}

impl Options {
    /// Returns these options with the number of workers fixed if there are remote workers: tuning
    /// would attribute their batches to local workers.
    pub(crate) fn with_fixed_workers(&self) -> Options {
        let mut options = self.clone();
        if options.remote.is_some() && options.workers.is_none() {
            options.workers = Some(cores_for(options.world_size));
        }
        options
    }

    /// Returns the placement with which a run begins; `wanted` is the requested one.
    pub(crate) fn placement(&self, wanted: Placement) -> Placement {
        match wanted {
            // Remote workers learn the row layout only once. They resize on their own cores, so that
            // they send fewer bytes.
            Placement::Auto | Placement::Resize if self.remote.is_some() => Placement::Device,
            Placement::Auto if self.decode.is_by_device() => Placement::Resize,
            placement => placement,
        }
    }

    /// Number of batches that remote workers may make at once.
    pub(crate) fn remote_batches(&self) -> usize {
        let remote = self.remote.as_ref();
        remote.map_or(0, |remote| remote.in_flight_batches())
    }
}
