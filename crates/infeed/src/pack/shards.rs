//! A dataset as shards: records in the packed order, cut where a shard has its bytes.
//!
//! Threads make the records (`sequence`), one thread writes them in order to the shard of the
//! moment, and others finish shards: the rest of the file, `fsync` or the way to a bucket, the final
//! name, a line of the `journal`. Where a shard ends depends on the records before it alone, so its bytes are the same
//! whatever the number of threads, and after an interruption. A shard is the unit of going on: of
//! one that was not finished nothing is kept.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::chosen::{CLAIM, Chosen};
use super::count::{Counted, Progress, Totals};
use super::encoding::Target;
use super::entry::{BAD_LIST, Entry, bad_line, shard_name};
use super::form::{Extensions, Form, Made, Shard, Sink};
use super::journal::Journal;
use super::make::{Maker, Shape};
use super::noted::{self, Noted};
use super::out::Out;
use super::place::Place;
use super::run::{Cores, READERS};
use super::sequence::{Places, Sequence};
use super::{PackOptions, arrays};
use crate::error::Error;
use crate::order::Order;
use crate::source::walk::Claims;
use crate::store::MOST_NAMES;

/// Shards that are being finished at a time, at most: each waits for the disk.
const FINISHERS: usize = 4;

/// Time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);

/// What is written where.
pub(super) struct ShardRun<'a> {
    pub(super) maker: &'a Maker<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) form: &'a dyn Form,
    pub(super) out: &'a Out,
    pub(super) options: &'a PackOptions,
    /// Shapes of pixels that are not encoded, and the record that set them.
    pub(super) shapes: &'a [Option<Shape>],
    pub(super) first: u64,
}

/// A shard whose records are all there.
struct Full {
    number: usize,
    shard: Box<dyn Shard>,
    entry: Entry,
    /// Lines for the list of bad records.
    bad: String,
}

/// What all threads see.
struct Shared<'a> {
    run: &'a ShardRun<'a>,
    sequence: Sequence<'a>,
    journal: Mutex<Journal>,
    counted: Mutex<Counted>,
    failed: Mutex<Option<Error>>,
    first_bad: Mutex<Option<Error>>,
}

/// What was written.
pub(super) struct Written {
    pub(super) totals: Totals,
    pub(super) entries: Vec<Entry>,
}

impl Written {
    /// Names of the shards, as one pattern.
    pub(super) fn pattern(&self, folder: &Path, extension: &str) -> String {
        let last = self.entries.len().saturating_sub(1);
        let name = match last {
            0 => shard_name(0, extension),
            last => format!("shard-{{{:06}..{last:06}}}.{extension}", 0),
        };
        folder.join(name).to_string_lossy().into_owned()
    }

    /// Extensions that were met, by field.
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
    /// Writes all shards that are not there yet.
    ///
    /// # Errors
    ///
    /// What the storage or the disk said; the bad record that was one too many, or the first if all
    /// are;
    /// [`Error::Interrupted`].
    pub(super) fn run(
        &self,
        progress: &(dyn Fn(&Progress) -> bool + Sync),
    ) -> Result<Written, Error> {
        let journal = Journal::open(self.out, self.form.extension())?;
        let total = self.chosen.len();
        let (from, number) = (journal.end(), journal.entries().len());
        let counted = Counted::taken_up(journal.entries(), from);
        self.check_left_out(&counted)?;
        let order = Order::new(total, self.options.shuffle);
        let order = order.epoch(0);
        let places = Places {
            chosen: self.chosen,
            order: &order,
            claims: Claims::of(self.maker.source, CLAIM),
            whole: reads_whole(self.maker, self.options)?,
            end: total,
        };
        let workers = self.options.threads();
        let makers = workers + workers.min(READERS);
        let cores = Cores::new(workers);
        let shared = Shared {
            run: self,
            sequence: Sequence::new(self.maker, self.form, places, from, makers, cores),
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
            return Err(first.unwrap_or_else(arrays::none_left));
        }
        journal.finish(&bad)?;
        let totals = shared
            .counted
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .totals;
        Ok(Written {
            totals,
            entries: journal.entries().to_vec(),
        })
    }

    fn most(&self) -> Most {
        Most {
            records: self.form.most_records(),
            bytes: self.options.shard_bytes,
        }
    }

    fn same_shape(&self, made: &Made) -> Result<(), Error> {
        same_shape(self.maker, self.options, (self.shapes, self.first), made)
    }

    /// Refuses what an earlier run left out, if it is more than may be bad now.
    fn check_left_out(&self, counted: &Counted) -> Result<(), Error> {
        let bad = counted.totals.bad;
        match self.options.max_bad {
            Some(limit) if bad > limit => {
                let problem = format!(
                    "{bad} bad records were left out of {} by an earlier run, over max_bad={limit}; \
                     {BAD_LIST} there names them",
                    self.out.path().display()
                );
                Err(Error::config("max_bad", problem))
            }
            _ => Ok(()),
        }
    }
}

impl Shared<'_> {
    /// Runs all threads; gives the bad records behind the last shard, or None if it was stopped.
    fn threads(
        &self,
        number: usize,
        makers: usize,
        finishers: usize,
        total: u64,
        progress: &(dyn Fn(&Progress) -> bool + Sync),
    ) -> Result<Option<String>, Error> {
        let (full, finished) = sync_channel::<Full>(0);
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
                // Dropped with this thread: the finishers end, and the caller wakes up.
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

    fn progress(&self, total: u64) -> Progress {
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

    /// Writes the records in order. None if it was stopped or failed.
    fn write_all(&self, number: usize, full: &SyncSender<Full>) -> Option<String> {
        match self.write(number, full) {
            Ok(bad) => bad,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn write(&self, mut number: usize, full: &SyncSender<Full>) -> Result<Option<String>, Error> {
        let run = self.run;
        let mut open: Option<Open> = None;
        let mut bad = String::new();
        let mut bad_count = 0;
        let mut place = {
            let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.end()
        };
        while let Some(outcome) = self.sequence.take() {
            let made = match outcome {
                Ok(made) => made,
                Err(error) if error.is_bad_record() => {
                    bad.push_str(&bad_line(&error));
                    bad_count += 1;
                    place += 1;
                    self.count_bad(&error)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            run.same_shape(&made)?;
            let weight = run.form.weight(&made);
            let most = run.most();
            if let Some(last) = open.take_if(|open| !open.filling.has_room(most, weight)) {
                let entry = last.entry(number, run.form, place, std::mem::take(&mut bad_count));
                let done = Full {
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
                    open.insert(Open::begin(run.form, run.out.place(), number, "")?)
                }
            };
            place += 1;
            let bytes_in = made.bytes_in;
            shard.add(made, weight).map_err(|error| {
                let name = shard_name(number, run.form.extension());
                run.out.place().not_made(&name, error)
            })?;
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.one(bytes_in, weight);
        }
        if place < run.chosen.len() {
            return Ok(None);
        }
        if let Some(last) = open {
            let entry = last.entry(number, run.form, place, bad_count);
            let bad = std::mem::take(&mut bad);
            let shard = last.shard;
            let done = Full {
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

    /// Counts a bad record, and refuses the one that is too many.
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
    fn finish_all(&self, full: &Mutex<Receiver<Full>>) {
        loop {
            let next = full.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(next) = next else { return };
            if let Err(error) = self.finish(next) {
                self.fail(error);
                // The writer must not wait for somebody to take the next one.
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

    fn finish(&self, full: Full) -> Result<(), Error> {
        let place = self.run.out.place();
        let entry = put(place, full.number, full.shard, full.entry, "")?;
        let (number, noted) = (
            full.number,
            Noted {
                entry,
                bad: full.bad,
            },
        );
        if let Place::Bucket(_) = place {
            // The journal is this machine's, and ends with it.
            noted::write(place, number, "", &noted)?;
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.note(number, noted.entry, noted.bad)
    }
}

/// Gives a shard its bytes, its index and its name, in that order. `tag` is that of [`Open::begin`].
pub(super) fn put(
    place: &Place,
    number: usize,
    shard: Box<dyn Shard>,
    mut entry: Entry,
    tag: &str,
) -> Result<Entry, Error> {
    let not_made = |error| place.not_made(&entry.file, error);
    let finished = shard.finish().map_err(not_made)?;
    let file = finished.out.into_file().map_err(not_made)?;
    if let Some(index) = finished.index {
        place.write_new(&shard_name(number, "idx"), tag, &index.into())?;
    }
    entry.bytes = place.finish(&entry.file, tag, &file)?;
    entry.extensions = finished.extensions;
    Ok(entry)
}

/// Whether the source is read in whole groups, which a shuffle would read again and again.
pub(super) fn reads_whole(maker: &Maker<'_>, options: &PackOptions) -> Result<bool, Error> {
    let groups = maker.source.groups();
    let whole = groups.is_some_and(|groups| groups.whole);
    if whole && options.shuffle.is_some() {
        let problem = "the source can only be read in whole groups (Parquet, and what is \
                       compressed: Arrow, npz, shards); pack it without a shuffle first, then \
                       shuffle the result";
        return Err(Error::config("shuffle", problem));
    }
    Ok(whole)
}

/// Refuses pixels of another shape than those of the first record.
pub(super) fn same_shape(
    maker: &Maker<'_>,
    options: &PackOptions,
    (shapes, first): (&[Option<Shape>], u64),
    made: &Made,
) -> Result<(), Error> {
    for (at, (product, expected)) in made.products.iter().zip(shapes).enumerate() {
        if product.shape != *expected {
            return Err(arrays::differs(
                options.to,
                &maker.fields[at].name,
                (*expected, maker.source.id(first, Some(at))),
                (product.shape, maker.source.id(made.record, Some(at))),
            ));
        }
    }
    Ok(())
}

/// Refuses more shards than the pattern that names them can stand for.
pub(super) fn check_number(shards: u64, options: &PackOptions) -> Result<(), Error> {
    if shards <= MOST_NAMES as u64 {
        return Ok(());
    }
    let (part, mend) = match options.to {
        Target::Npz => ("rows", "give each file more rows"),
        _ => ("shard_bytes", "make them larger"),
    };
    let problem = format!("these are over {MOST_NAMES} files, which no pattern names; {mend}");
    Err(Error::config(part, problem))
}

/// What a shard may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// How full a shard is: the one place that says where shards end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    records: u64,
    bytes: u64,
}

impl Filling {
    /// Whether a record more belongs to it; one alone always does.
    pub(super) fn has_room(&self, most: Most, weight: u64) -> bool {
        self.records == 0
            || (self.records < most.records && self.bytes.saturating_add(weight) <= most.bytes)
    }

    pub(super) fn add(&mut self, weight: u64) {
        self.records += 1;
        self.bytes = self.bytes.saturating_add(weight);
    }
}

/// The shard of the moment.
pub(super) struct Open {
    pub(super) shard: Box<dyn Shard>,
    pub(super) filling: Filling,
    bytes_in: u64,
}

impl Open {
    /// Begins a shard in a file that has not its name yet.
    pub(super) fn begin(
        form: &dyn Form,
        place: &Place,
        number: usize,
        tag: &str,
    ) -> Result<Open, Error> {
        let name = shard_name(number, form.extension());
        let begin = || form.begin(Sink::new(place.begin(&name, tag)?));
        Ok(Open {
            shard: begin().map_err(|error| place.not_made(&name, error))?,
            filling: Filling::default(),
            bytes_in: 0,
        })
    }

    pub(super) fn add(&mut self, made: Made, weight: u64) -> std::io::Result<()> {
        self.filling.add(weight);
        self.bytes_in += made.bytes_in;
        self.shard.add(made)
    }

    /// Its line in the journal; what only its finished file tells is added later.
    pub(super) fn entry(&self, number: usize, form: &dyn Form, end: u64, bad: u64) -> Entry {
        Entry {
            file: shard_name(number, form.extension()),
            end,
            records: self.filling.records,
            bytes: 0,
            bytes_in: self.bytes_in,
            bad,
            listed_bytes: 0,
            extensions: Extensions::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_shards_are_begun_than_a_pattern_can_name() {
        let options = PackOptions::new(Target::WebDataset);
        assert!(check_number(1_000_000, &options).is_ok());

        let refused = check_number(1_000_001, &options).expect_err("too many");

        assert!(
            refused.to_string().contains("make them larger"),
            "{refused}"
        );
    }
}
