//! One kitchen and the trainers at its tables: who may have how much under way.
//!
//! A batch is admitted when there is room for it until it is sent, so a trainer that does not take
//! its batches holds its own share and no more. Those who wait are served in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Error;
use crate::loader::Options;
use crate::loader::named::{Maker, Sheet};
use crate::loader::names::Named;
use crate::pipeline::{Handle, Pipeline};
use crate::source::Source;
use crate::wire::looks::Look;

/// Batches that one trainer may have asked for and not been sent.
pub(super) const ASKED: usize = 64;

/// Between two looks at whether it is to end.
const SLICE: Duration = Duration::from_millis(50);

/// A kitchen at work. Dropping it ends its threads.
pub(super) struct Line {
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
}

struct Shared {
    maker: Maker,
    floor: Mutex<Floor>,
    changed: Condvar,
    closing: AtomicBool,
}

/// Who sits where.
#[derive(Default)]
struct Floor {
    tables: HashMap<u64, Table>,
    /// Tables with something asked for that was not admitted, in turn.
    waiting: VecDeque<u64>,
    /// Batches admitted and not sent, of all tables, of those included that are empty by now.
    admitted: usize,
    /// Why no batch will come any more.
    broken: Option<Error>,
}

/// One trainer's rank.
#[derive(Default)]
struct Table {
    asked: VecDeque<Named>,
    admitted: usize,
    made: VecDeque<Sheet>,
}

/// What somebody got who waited for a batch to send.
pub(super) enum Served {
    /// This one.
    Sheet(Box<Sheet>),
    /// None so far.
    Timeout,
    /// None will come.
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
        let shared = Arc::new(Shared {
            maker: Maker::open(pipeline, source, handles, looks, options, for_device)?,
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

    pub(super) fn maker(&self) -> &Maker {
        &self.shared.maker
    }

    /// Seats a trainer.
    pub(super) fn sit(&self, number: u64) {
        self.shared.lock().tables.insert(number, Table::default());
    }

    /// Asks for a batch; false if too many were asked for already.
    pub(super) fn ask(&self, named: Named) -> bool {
        let mut floor = self.shared.lock();
        let Some(table) = floor.tables.get_mut(&named.by) else {
            return false;
        };
        if table.asked.len() + table.admitted >= ASKED {
            return false;
        }
        table.asked.push_back(named);
        if !floor.waiting.contains(&named.by) {
            floor.waiting.push_back(named.by);
        }
        self.shared.admit(&mut floor);
        true
    }

    /// The next batch for a trainer; waits for one at most `patience`.
    pub(super) fn serve(&self, number: u64, patience: Duration) -> Served {
        let mut floor = self.shared.lock();
        let mut waited = false;
        loop {
            if let Some(error) = &floor.broken {
                return Served::Broken(error.clone());
            }
            let table = floor.tables.get_mut(&number);
            match table.and_then(|table| table.made.pop_front()) {
                Some(sheet) => return Served::Sheet(Box::new(sheet)),
                None if waited => return Served::Timeout,
                None => {}
            }
            let woken = self.shared.changed.wait_timeout(floor, patience);
            let (locked, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            (floor, waited) = (locked, timeout.timed_out());
        }
    }

    /// Enters that a batch was sent, and its memory is free.
    pub(super) fn sent(&self, number: u64) {
        let mut floor = self.shared.lock();
        floor.admitted = floor.admitted.saturating_sub(1);
        if let Some(table) = floor.tables.get_mut(&number) {
            table.admitted = table.admitted.saturating_sub(1);
        }
        self.shared.admit(&mut floor);
    }

    /// A trainer leaves. What is being made for it is dropped once it is made.
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
            // A panic was told by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Floor> {
        // What it guards is whole after every statement.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins what there is room for, a batch of each table in turn.
    fn admit(&self, floor: &mut Floor) {
        let room = self.maker.room();
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
                && let Some(named) = table.asked.pop_front()
            {
                if self.maker.ask(named) {
                    table.admitted += 1;
                    floor.admitted += 1;
                }
            }
            if !table.asked.is_empty() {
                floor.waiting.push_back(number);
            }
        }
    }

    /// Body of the thread that takes batches from the kitchen.
    fn serve(&self) {
        while !self.closing.load(Ordering::Acquire) {
            match self.maker.next(SLICE) {
                Ok(None) => {}
                Ok(Some(sheet)) => {
                    let mut floor = self.lock();
                    match floor.tables.get_mut(&sheet.named.by) {
                        Some(table) => {
                            table.made.push_back(sheet);
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
