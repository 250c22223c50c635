//! Parts that all sessions of a feeder share: the data, the feeder jobs and the counters.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use infeed::loader::{OnError, Options};
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::connections::Connections;
use infeed_core::error::Error;
use infeed_source::Source;

use super::options::FeedOptions;
use super::queue::FeederQueue;
use crate::wire::channel::FeederKey;
use crate::wire::content_hashes::ContentHash;

/// Maximum number of connected trainers' ranks. Only trainers that proved the token count.
pub(super) const SESSIONS: usize = 256;

/// Feeder jobs by world size and whether a device expands rows.
type FeederQueues = Vec<((u64, bool), Weak<FeederQueue>)>;

pub(super) struct FeederShared {
    pub(super) pipeline: Pipeline,
    pub(super) source: Arc<dyn Source>,
    /// Hashes of some records' contents.
    pub(super) hashes: Vec<ContentHash>,
    pub(super) handles: Vec<Handle>,
    pub(super) options: FeedOptions,
    pub(super) key: FeederKey,
    /// Feeder jobs by world size and row layout, alive while a session uses them.
    pub(super) queues: Mutex<FeederQueues>,
    pub(super) closing: AtomicBool,
    /// Connections without a proved token.
    pub(super) handshakes: Connections,
    pub(super) sessions: AtomicUsize,
    /// Id of the next session.
    pub(super) next: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) cpu_ns: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) problem: Mutex<Option<String>>,
}

impl FeederShared {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queues(&self) -> MutexGuard<'_, FeederQueues> {
        // The state is consistent after every statement.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a session of a trainer that proved the token; returns false at the limit.
    pub(super) fn try_add_session(&self) -> bool {
        let more = |count| (count < SESSIONS).then_some(count + 1);
        let taken = self
            .sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    pub(super) fn remove_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the feeder job for ranks of a run of this size; opens it for the first session.
    pub(super) fn queue(
        &self,
        world_size: u64,
        for_device: bool,
    ) -> Result<Arc<FeederQueue>, Error> {
        let key = (world_size, for_device);
        let mut queues = self.queues();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        let known = queues.iter().find(|(known, _)| *known == key);
        if let Some(queue) = known.and_then(|(_, queue)| queue.upgrade()) {
            return Ok(queue);
        }
        let mut options = Options::default();
        options.workers = Some(match self.options.workers {
            Some(workers) => workers,
            None => infeed_raw::machine::usable_cores(),
        });
        options.readers = self.options.readers;
        options.memory = self.options.memory;
        options.world_size = world_size;
        // Reserve memory for substitutes; the trainer decides the policy for bad records.
        options.on_error = OnError::Substitute;
        let queue = Arc::new(FeederQueue::open(
            &self.pipeline,
            Arc::clone(&self.source),
            &self.handles,
            &self.hashes,
            &options,
            for_device,
        )?);
        queues.push((key, Arc::downgrade(&queue)));
        Ok(queue)
    }
}

impl std::fmt::Debug for FeederShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeederShared").finish_non_exhaustive()
    }
}
