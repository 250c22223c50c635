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
use crate::wire::looks::Look;
use infeed::loader::Options;
use infeed::loader::remote::{BatchRequest, UnassembledBatch};
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_source::Source;

/// Maximum number of requested and unsent batches per trainer.
pub(super) const ASKED: usize = 64;

/// Interval between checks for the end.
const SLICE: Duration = Duration::from_millis(50);

/// A running feeder job. Dropping it ends its threads.
pub(super) struct Line {
    shared: Arc<LineShared>,
    serving: Option<JoinHandle<()>>,
}

struct LineShared {
    maker: RowsMaker,
    floor: Mutex<Floor>,
    changed: Condvar,
    closing: AtomicBool,
}

/// State of all trainers.
#[derive(Default)]
struct Floor {
    tables: HashMap<u64, RequestTable>,
    /// Trainers with requests that are not admitted, in turn.
    waiting: VecDeque<u64>,
    /// Admitted and unsent batches of all trainers, including disconnected ones.
    admitted: usize,
    /// The reason why no more batches will come.
    broken: Option<Error>,
}

/// Requests and batches of one trainer's rank.
#[derive(Default)]
struct RequestTable {
    asked: VecDeque<BatchRequest>,
    admitted: usize,
    made: VecDeque<UnassembledBatch>,
}

/// Result of waiting for a batch to send.
pub(super) enum Served {
    /// A batch.
    Sheet(Box<UnassembledBatch>),
    /// No batch was ready in time.
    Timeout,
    /// No batch will come.
    Broken(Error),
}

impl Line {
    pub(super) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        looks: &[Look],
        options: &Options,
        for_device: bool,
    ) -> Result<Line, Error> {
        let shared = Arc::new(LineShared {
            maker: RowsMaker::open(pipeline, source, handles, looks, options, for_device)?,
            floor: Mutex::default(),
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
        Ok(Line {
            shared,
            serving: Some(serving),
        })
    }

    pub(super) fn maker(&self) -> &RowsMaker {
        &self.shared.maker
    }

    /// Adds a trainer.
    pub(super) fn sit(&self, number: u64) {
        self.shared
            .lock()
            .tables
            .insert(number, RequestTable::default());
    }

    /// Requests a batch; returns false if too many requests are open.
    pub(super) fn ask(&self, request: BatchRequest) -> bool {
        let mut floor = self.shared.lock();
        let Some(table) = floor.tables.get_mut(&request.by) else {
            return false;
        };
        if table.asked.len() + table.admitted >= ASKED {
            return false;
        }
        let by = request.by;
        table.asked.push_back(request);
        if !floor.waiting.contains(&by) {
            floor.waiting.push_back(by);
        }
        self.shared.admit(&mut floor);
        true
    }

    /// Returns the next batch for a trainer; waits at most `timeout`.
    pub(super) fn serve(&self, number: u64, timeout: Duration) -> Served {
        let mut floor = self.shared.lock();
        let mut waited = false;
        loop {
            if let Some(error) = &floor.broken {
                return Served::Broken(error.clone());
            }
            let table = floor.tables.get_mut(&number);
            match table.and_then(|table| table.made.pop_front()) {
                Some(batch) => return Served::Sheet(Box::new(batch)),
                None if waited => return Served::Timeout,
                None => {}
            }
            let woken = self.shared.changed.wait_timeout(floor, timeout);
            let (locked, result) = woken.unwrap_or_else(PoisonError::into_inner);
            (floor, waited) = (locked, result.timed_out());
        }
    }

    /// Records that a batch was sent and its memory is free.
    pub(super) fn sent(&self, number: u64) {
        let mut floor = self.shared.lock();
        floor.admitted = floor.admitted.saturating_sub(1);
        if let Some(table) = floor.tables.get_mut(&number) {
            table.admitted = table.admitted.saturating_sub(1);
        }
        self.shared.admit(&mut floor);
    }

    /// Removes a trainer. Its unfinished batches are dropped when they are finished.
    pub(super) fn leave(&self, number: u64) {
        let mut floor = self.shared.lock();
        let table = floor.tables.remove(&number);
        floor.waiting.retain(|waiting| *waiting != number);
        let made = table.map_or(VecDeque::new(), |table| table.made);
        floor.admitted = floor.admitted.saturating_sub(made.len());
        self.shared.admit(&mut floor);
        drop(floor);
        drop(made);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        if let Some(thread) = self.serving.take() {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

impl LineShared {
    fn lock(&self) -> MutexGuard<'_, Floor> {
        // The state is consistent after every statement.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many batches as there is room for, trainer by trainer.
    fn admit(&self, floor: &mut Floor) {
        let room = self.maker.batches().room();
        let share = (room / floor.tables.len().max(1)).max(1);
        for _ in 0..floor.waiting.len() {
            if floor.admitted >= room {
                return;
            }
            let Some(number) = floor.waiting.pop_front() else {
                return;
            };
            let Some(table) = floor.tables.get_mut(&number) else {
                continue;
            };
            while table.admitted < share
                && floor.admitted < room
                && let Some(request) = table.asked.pop_front()
            {
                if self.maker.batches().ask(request) {
                    table.admitted += 1;
                    floor.admitted += 1;
                }
            }
            if !table.asked.is_empty() {
                floor.waiting.push_back(number);
            }
        }
    }

    /// Body of the thread that takes batches from the feeder job.
    fn serve(&self) {
        while !self.closing.load(Ordering::Acquire) {
            match self.maker.batches().next(SLICE) {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    let mut floor = self.lock();
                    match floor.tables.get_mut(&batch.request.by) {
                        Some(table) => {
                            table.made.push_back(batch);
                            self.changed.notify_all();
                        }
                        None => {
                            floor.admitted = floor.admitted.saturating_sub(1);
                            self.admit(&mut floor);
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
