//! A feeder job and its trainers, with the limits on their in-flight batches.
//!
//! A batch is admitted if it has room until it is sent. So a trainer that takes no batches keeps
//! only its own share. Waiting trainers are served in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::batches::RowsMaker;
use crate::wire::content_hashes::ContentHash;
use infeed::loader::Options;
use infeed::loader::remote::{BatchRequest, UnassembledBatch};
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_source::Source;

/// Maximum number of requested and unsent batches per trainer.
pub(super) const MAX_REQUESTS: usize = 64;

/// Interval between checks for the end.
const SLICE: Duration = Duration::from_millis(50);

/// A running feeder job. Dropping it ends its threads.
pub(super) struct FeederQueue {
    shared: Arc<QueueShared>,
    serving: Option<JoinHandle<()>>,
}

struct QueueShared {
    maker: RowsMaker,
    state: Mutex<QueueState>,
    changed: Condvar,
    closing: AtomicBool,
}

/// State of all trainers.
#[derive(Default)]
struct QueueState {
    trainers: HashMap<u64, TrainerQueue>,
    /// Trainers with requests that are not admitted, in turn.
    waiting: VecDeque<u64>,
    /// Admitted and unsent batches of all trainers, including disconnected ones.
    admitted: usize,
    /// The reason why no more batches will come.
    broken: Option<Error>,
}

/// Requests and batches of one trainer's rank.
#[derive(Default)]
struct TrainerQueue {
    requests: VecDeque<BatchRequest>,
    admitted: usize,
    made: VecDeque<UnassembledBatch>,
}

/// Result of waiting for a batch to send.
pub(super) enum ServeOutcome {
    /// A batch.
    Batch(Box<UnassembledBatch>),
    /// No batch was ready in time.
    Timeout,
    /// No batch will come.
    Broken(Error),
}

impl FeederQueue {
    pub(super) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        hashes: &[ContentHash],
        options: &Options,
        for_device: bool,
    ) -> Result<FeederQueue, Error> {
        let shared = Arc::new(QueueShared {
            maker: RowsMaker::open(pipeline, source, handles, hashes, options, for_device)?,
            state: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
        });
        let serving = std::thread::Builder::new()
            .name("infeed-serve".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.serve()
            })
            .map_err(|source| Error::Thread {
                source: Arc::new(source),
            })?;
        Ok(FeederQueue {
            shared,
            serving: Some(serving),
        })
    }

    pub(super) fn maker(&self) -> &RowsMaker {
        &self.shared.maker
    }

    /// Adds a trainer.
    pub(super) fn add_trainer(&self, number: u64) {
        self.shared
            .lock()
            .trainers
            .insert(number, TrainerQueue::default());
    }

    /// Requests a batch; returns false if too many requests are open.
    pub(super) fn request(&self, request: BatchRequest) -> bool {
        let mut state = self.shared.lock();
        let Some(trainer) = state.trainers.get_mut(&request.by) else {
            return false;
        };
        if trainer.requests.len() + trainer.admitted >= MAX_REQUESTS {
            return false;
        }
        let by = request.by;
        trainer.requests.push_back(request);
        if !state.waiting.contains(&by) {
            state.waiting.push_back(by);
        }
        self.shared.admit(&mut state);
        true
    }

    /// Returns the next batch for a trainer; waits at most `timeout`.
    pub(super) fn next_batch(&self, number: u64, timeout: Duration) -> ServeOutcome {
        let mut state = self.shared.lock();
        let mut waited = false;
        loop {
            if let Some(error) = &state.broken {
                return ServeOutcome::Broken(error.clone());
            }
            let trainer = state.trainers.get_mut(&number);
            match trainer.and_then(|trainer| trainer.made.pop_front()) {
                Some(batch) => return ServeOutcome::Batch(Box::new(batch)),
                None if waited => return ServeOutcome::Timeout,
                None => {}
            }
            let woken = self.shared.changed.wait_timeout(state, timeout);
            let (locked, result) = woken.unwrap_or_else(PoisonError::into_inner);
            (state, waited) = (locked, result.timed_out());
        }
    }

    /// Records that a batch was sent and its memory is free.
    pub(super) fn mark_sent(&self, number: u64) {
        let mut state = self.shared.lock();
        state.admitted = state.admitted.saturating_sub(1);
        if let Some(trainer) = state.trainers.get_mut(&number) {
            trainer.admitted = trainer.admitted.saturating_sub(1);
        }
        self.shared.admit(&mut state);
    }

    /// Removes a trainer. Its unfinished batches are dropped when they are finished.
    pub(super) fn remove_trainer(&self, number: u64) {
        let mut state = self.shared.lock();
        let trainer = state.trainers.remove(&number);
        state.waiting.retain(|waiting| *waiting != number);
        let made = trainer.map_or(VecDeque::new(), |trainer| trainer.made);
        state.admitted = state.admitted.saturating_sub(made.len());
        self.shared.admit(&mut state);
        drop(state);
        drop(made);
    }
}

impl Drop for FeederQueue {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        if let Some(thread) = self.serving.take() {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

impl QueueShared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // The state is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many batches as there is room for, trainer by trainer.
    fn admit(&self, state: &mut QueueState) {
        let room = self.maker.batches().room();
        let share = (room / state.trainers.len().max(1)).max(1);
        for _ in 0..state.waiting.len() {
            if state.admitted >= room {
                return;
            }
            let Some(number) = state.waiting.pop_front() else {
                return;
            };
            let Some(trainer) = state.trainers.get_mut(&number) else {
                continue;
            };
            while trainer.admitted < share
                && state.admitted < room
                && let Some(request) = trainer.requests.pop_front()
            {
                if self.maker.batches().ask(request) {
                    trainer.admitted += 1;
                    state.admitted += 1;
                }
            }
            if !trainer.requests.is_empty() {
                state.waiting.push_back(number);
            }
        }
    }

    /// Body of the thread that takes batches from the feeder job.
    fn serve(&self) {
        while !self.closing.load(Ordering::Acquire) {
            match self.maker.batches().next(SLICE) {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    let mut state = self.lock();
                    match state.trainers.get_mut(&batch.request.by) {
                        Some(trainer) => {
                            trainer.made.push_back(batch);
                            self.changed.notify_all();
                        }
                        None => {
                            state.admitted = state.admitted.saturating_sub(1);
                            self.admit(&mut state);
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(target: "infeed::feed", "{}", error.chain());
                    self.lock().broken = Some(error);
                    self.changed.notify_all();
                    return;
                }
            }
        }
    }
}
