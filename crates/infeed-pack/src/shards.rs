//! Writes a dataset as shards: records in the packed order, with a new shard when one is full.
//!
//! Threads make the records (`sequence`), and one thread writes them in order to the current shard.
//! Other threads finish shards: the rest of the file, `fsync` or the upload to a bucket, the final
//! name, and a line in the `journal`. The end of a shard depends only on the records before it, so
//! its bytes are the same with any number of threads and after an interruption. A run resumes by
//! shard: unfinished shards are discarded.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::count::{PackProgress, RunningTotals, Totals};
use super::entry::{BAD_LIST, Entry, bad_line, shard_name};
use super::journal::Journal;
use super::location::OutputLocation;
use super::make::Maker;
use super::note::{self, ShardNote};
use super::options::PackOptions;
use super::output_folder::OutputFolder;
use super::run::{CorePermits, READERS};
use super::selection::{CLAIM, RecordSelection};
use super::sequence::{Places, RecordsInProgress};
use super::shapes::none_left;
use super::shard::{self, OpenShard};
use super::shard_layout::{Extensions, ShardWriter};
use super::shard_plan::{ShardPlan, check_number};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_source::walk::Claims;

/// Maximum number of shards that are finished at the same time. Each waits for the disk.
const FINISHERS: usize = 4;

/// Time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);

/// Input and output of a run.
pub(super) struct ShardRun<'a> {
    pub(super) maker: &'a Maker<'a>,
    pub(super) chosen: &'a RecordSelection,
    pub(super) plan: &'a ShardPlan,
    pub(super) out: &'a OutputFolder,
    pub(super) options: &'a PackOptions,
}

/// A shard with all its records.
struct FullShard {
    number: usize,
    shard: Box<dyn ShardWriter>,
    entry: Entry,
    /// Lines for the list of bad records.
    bad: String,
}

/// State shared by all threads.
struct SharedShards<'a> {
    run: &'a ShardRun<'a>,
    sequence: RecordsInProgress<'a>,
    journal: Mutex<Journal>,
    counted: Mutex<RunningTotals>,
    failed: Mutex<Option<Error>>,
    first_bad: Mutex<Option<Error>>,
}

/// Result of a run.
pub(super) struct ShardSet {
    pub(super) totals: Totals,
    pub(super) entries: Vec<Entry>,
}

impl ShardSet {
    /// Returns the names of the shards as one pattern.
    pub(super) fn pattern(&self, folder: &Path, extension: &str) -> String {
        let last = self.entries.len().saturating_sub(1);
        let name = match last {
            0 => shard_name(0, extension),
            last => format!("shard-{{{:06}..{last:06}}}.{extension}", 0),
        };
        folder.join(name).to_string_lossy().into_owned()
    }

    /// Returns all file extensions, by field.
    pub(super) fn extensions(&self) -> Extensions {
        let mut all = Extensions::new();
        for (field, found) in self.entries.iter().flat_map(|entry| &entry.extensions) {
            all.entry(field.clone())
                .or_default()
                .extend(found.iter().cloned());
        }
        all
    }
}

impl ShardRun<'_> {
    /// Writes all missing shards.
    ///
    /// # Errors
    ///
    /// Returns the error of the storage or the disk; the error of the bad record that exceeds
    /// `max_bad`, or of the first if all are bad; [`Error::Interrupted`].
    pub(super) fn run(
        &self,
        progress: &(dyn Fn(&PackProgress) -> bool + Sync),
    ) -> Result<ShardSet, Error> {
        let journal = Journal::open(self.out, self.plan.layout.extension())?;
        let total = self.chosen.len();
        let (from, number) = (journal.end(), journal.entries().len());
        let counted = RunningTotals::taken_up(journal.entries(), from);
        self.check_left_out(&counted)?;
        let order = Order::new(total, self.options.shuffle);
        let order = order.epoch(0);
        let places = Places {
            chosen: self.chosen,
            order: &order,
            claims: Claims::of(self.maker.source, CLAIM),
            whole: self.plan.reads_whole,
            end: total,
        };
        let workers = self.options.threads();
        let makers = workers + workers.min(READERS);
        let cores = CorePermits::new(workers);
        let shared = SharedShards {
            run: self,
            sequence: RecordsInProgress::new(
                self.maker,
                &*self.plan.layout,
                places,
                from,
                makers,
                cores,
            ),
            journal: Mutex::new(journal),
            counted: Mutex::new(counted),
            failed: Mutex::new(None),
            first_bad: Mutex::new(None),
        };
        if !progress(&shared.progress(total)) {
            return Err(Error::Interrupted { done: from, total });
        }
        let bad = shared.threads(number, makers, workers.min(FINISHERS), total, progress)?;
        let mut journal = shared
            .journal
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = shared
            .failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
        {
            return Err(error);
        }
        let Some(bad) = bad else {
            let done = journal.end();
            return Err(Error::Interrupted { done, total });
        };
        if journal.entries().is_empty() {
            let first = shared.first_bad.into_inner();
            let first = first.unwrap_or_else(PoisonError::into_inner);
            return Err(first.unwrap_or_else(none_left));
        }
        journal.finish(&bad)?;
        let totals = shared
            .counted
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .totals;
        Ok(ShardSet {
            totals,
            entries: journal.entries().to_vec(),
        })
    }

    /// Rejects the bad records of an earlier run if they exceed the present `max_bad`.
    fn check_left_out(&self, counted: &RunningTotals) -> Result<(), Error> {
        let bad = counted.totals.bad;
        match self.options.max_bad {
            Some(limit) if bad > limit => {
                let problem = format!(
                    "an earlier run left {bad} bad records out of {}, over max_bad={limit}; \
                     {BAD_LIST} there lists them",
                    self.out.path().display()
                );
                Err(Error::config("max_bad", problem))
            }
            _ => Ok(()),
        }
    }
}

impl SharedShards<'_> {
    /// Runs all threads. Returns the bad records after the last shard, or None after a stop.
    fn threads(
        &self,
        number: usize,
        makers: usize,
        finishers: usize,
        total: u64,
        progress: &(dyn Fn(&PackProgress) -> bool + Sync),
    ) -> Result<Option<String>, Error> {
        let (full, finished) = sync_channel::<FullShard>(0);
        let finished = Mutex::new(finished);
        let (done, ended) = sync_channel::<()>(1);
        let joined = thread::scope(|scope| {
            let makers = (0..makers).map(|nth| {
                let body: Box<dyn FnOnce() + Send + '_> = Box::new(|| self.sequence.work());
                (format!("infeed-pack-{nth}"), body)
            });
            let finishers = (0..finishers).map(|nth| {
                let body: Box<dyn FnOnce() + Send + '_> = Box::new(|| self.finish_all(&finished));
                (format!("infeed-pack-finish-{nth}"), body)
            });
            let mut started = Vec::new();
            for (name, body) in makers.chain(finishers) {
                match thread::Builder::new().name(name).spawn_scoped(scope, body) {
                    Ok(thread) => started.push(thread),
                    Err(error) => self.fail(Error::Thread {
                        source: Arc::new(error),
                    }),
                }
            }
            let writer = thread::Builder::new().name("infeed-pack-write".to_owned());
            let writer = writer.spawn_scoped(scope, move || {
                // Dropped with this thread, so that the finishers end and the caller wakes up.
                let (full, _done) = (full, done);
                self.write_all(number, &full)
            });
            let writer = match writer {
                Ok(writer) => Some(writer),
                Err(error) => {
                    self.fail(Error::Thread {
                        source: Arc::new(error),
                    });
                    None
                }
            };
            while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                if !progress(&self.progress(total)) {
                    self.sequence.stop();
                }
            }
            let panicked = |_| Error::Panicked {
                text: "infeed-pack".to_owned(),
            };
            let bad = writer.map(|writer| writer.join().map_err(panicked));
            for thread in started {
                thread.join().map_err(panicked)?;
            }
            bad.transpose()
        })?;
        progress(&self.progress(total));
        Ok(joined.flatten())
    }

    fn progress(&self, total: u64) -> PackProgress {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.progress(total)
    }

    /// Keeps the first failure and ends all threads.
    fn fail(&self, error: Error) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
        drop(failed);
        self.sequence.stop();
    }

    /// Writes the records in order. None after a stop or a failure.
    fn write_all(&self, number: usize, full: &SyncSender<FullShard>) -> Option<String> {
        match self.write(number, full) {
            Ok(bad) => bad,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn write(
        &self,
        mut number: usize,
        full: &SyncSender<FullShard>,
    ) -> Result<Option<String>, Error> {
        let run = self.run;
        let mut open: Option<OpenShard> = None;
        let mut bad = String::new();
        let mut bad_count = 0;
        let mut position = {
            let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.end()
        };
        while let Some(outcome) = self.sequence.take() {
            let made = match outcome {
                Ok(made) => made,
                Err(error) if error.is_bad_record() => {
                    bad.push_str(&bad_line(&error));
                    bad_count += 1;
                    position += 1;
                    self.count_bad(&error)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            run.plan.check_shape(run.maker, run.options, &made)?;
            let weight = run.plan.layout.weight(&made);
            let limits = run.plan.limits;
            if let Some(last) = open.take_if(|open| !open.filling.has_room(limits, weight)) {
                let entry = last.entry(
                    number,
                    &*run.plan.layout,
                    position,
                    std::mem::take(&mut bad_count),
                );
                let done = FullShard {
                    number,
                    shard: last.shard,
                    entry,
                    bad: std::mem::take(&mut bad),
                };
                if full.send(done).is_err() {
                    return Ok(None);
                }
                number += 1;
            }
            let shard = match &mut open {
                Some(shard) => shard,
                None => {
                    check_number(number as u64 + 1, run.options)?;
                    open.insert(OpenShard::begin(
                        &*run.plan.layout,
                        run.out.location(),
                        number,
                        "",
                    )?)
                }
            };
            position += 1;
            let bytes_in = made.bytes_in;
            shard.add(made, weight).map_err(|error| {
                let name = shard_name(number, run.plan.layout.extension());
                run.out.location().not_made(&name, error)
            })?;
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.one(bytes_in, weight);
        }
        if position < run.chosen.len() {
            return Ok(None);
        }
        if let Some(last) = open {
            let entry = last.entry(number, &*run.plan.layout, position, bad_count);
            let bad = std::mem::take(&mut bad);
            let shard = last.shard;
            let done = FullShard {
                number,
                shard,
                entry,
                bad,
            };
            if full.send(done).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(bad))
    }

    /// Counts a bad record, and rejects the one that exceeds the limit.
    fn count_bad(&self, error: &Error) -> Result<(), Error> {
        let mut first = self
            .first_bad
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.clone());
        drop(first);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.bad(error, self.run.options.max_bad)
    }

    /// Finishes shards until there are no more.
    fn finish_all(&self, full: &Mutex<Receiver<FullShard>>) {
        loop {
            let next = full.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(next) = next else { return };
            if let Err(error) = self.finish(next) {
                self.fail(error);
                // The writer must not block on a full channel.
                while full
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .recv()
                    .is_ok()
                {}
                return;
            }
        }
    }

    fn finish(&self, full: FullShard) -> Result<(), Error> {
        let location = self.run.out.location();
        let entry = shard::put(location, full.number, full.shard, full.entry, "")?;
        let (number, note) = (
            full.number,
            ShardNote {
                entry,
                bad: full.bad,
            },
        );
        if let OutputLocation::Bucket(_) = location {
            // The journal is in memory and ends with this process.
            note::write(location, number, "", &note)?;
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.note(number, note.entry, note.bad)
    }
}
