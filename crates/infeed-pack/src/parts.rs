//! Packs the shards of one dataset with many processes.
//!
//! The end of a shard depends on the records before it, so each record is made twice. The first
//! pass weighs records, in any order and in any process. The second pass writes them, once their
//! shard is known. A shard is written under a name of its writer, takes its final name when it is
//! complete, and gets a note (`note`). Two processes may write one shard at the same time, because
//! they write the same bytes. [`pack`](fn@super::pack) over the same folder uses the shards with
//! notes, makes the missing ones, and finishes the dataset. The result has the bytes that a single
//! process would write.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use serde_json::json;

use super::entry::{Entry, bad_line, shard_name};
use super::input::PackInput;
use super::journal;
use super::location::OutputLocation;
use super::make::Maker;
use super::note::{self, ShardNote};
use super::options::PackOptions;
use super::output_folder::OutputFolder;
use super::overlap::absolute;
use super::run::{CorePermits, READERS};
use super::selection::CLAIM;
use super::sequence::{PackedResult, Places, RecordsInProgress};
use super::shard::{self, FillLevel, OpenShard};
use super::shard_layout::PackedRecord;
use super::shard_plan::{ShardPlan, check_number};
use super::targets::format::FormatWriter;
use infeed::pipeline::Pipeline;
use infeed::pipeline::packed_dataset::BEGUN;
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_source::walk::Claims;

/// A dataset in progress, as seen by one of its processes.
pub struct Parts {
    pipeline: Pipeline,
    input: PackInput,
    plan: ShardPlan,
    options: PackOptions,
    location: OutputLocation,
    /// Shards of an earlier run, by number.
    done: Vec<(usize, Entry)>,
}

/// A written shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of records in it.
    pub records: u64,
    /// Number of bad records in its range, which were left out.
    pub bad: u64,
    /// Bytes of its records in the original data.
    pub bytes_in: u64,
    /// Bytes of its file.
    pub bytes_out: u64,
    /// Number of JPEGs that were copied, because restart markers are impossible without loss.
    pub unchanged: u64,
}

impl Parts {
    /// Begins to pack into a folder, or resumes, and finds the existing shards. No process may call
    /// [`pack`](fn@super::pack) on the folder until all shards exist, because `pack` removes files
    /// that it does not know.
    ///
    /// # Errors
    ///
    /// As [`pack`](fn@super::pack), and [`Error::Config`] for a format without shards or a source in
    /// memory.
    pub fn begin(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        let mut parts = Parts::open(pipeline, out, options)?;
        let out = OutputFolder::begin(
            out,
            &parts.pipeline,
            &parts.input.chosen,
            &parts.options,
            None,
        )?;
        let extension = parts.plan.layout.extension();
        let found = journal::find(&out, extension)?;
        let note = note::read_all(
            &parts.location,
            &found.files,
            extension,
            found.entries.len(),
        )?;
        let note = note.into_iter().map(|(number, note)| (number, note.entry));
        parts.done = found.entries.into_iter().enumerate().chain(note).collect();
        Ok(parts)
    }

    /// Joins a dataset that [`Parts::begin`] began, from another process on this or another
    /// machine.
    ///
    /// # Errors
    ///
    /// As [`Parts::begin`].
    pub fn join(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        let parts = Parts::open(pipeline, out, options)?;
        OutputFolder::join(
            out,
            &parts.pipeline,
            &parts.input.chosen,
            &parts.options,
            None,
        )?;
        Ok(parts)
    }

    fn open(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        let FormatWriter::Shards(new_layout) = options.to.format().writer else {
            let problem = format!(
                "{} cannot be written by several processes; pack to shards",
                options.to.name()
            );
            return Err(Error::config("to", problem));
        };
        let input = PackInput::open(pipeline, &[], None, out, options)?;
        let maker = &input.maker(pipeline, options);
        let plan = ShardPlan::new(maker, &input.chosen, pipeline, options, new_layout)?;
        Ok(Parts {
            pipeline: pipeline.clone(),
            input,
            plan,
            options: options.clone(),
            location: OutputLocation::of(out)?,
            done: Vec::new(),
        })
    }

    /// Returns the work as JSON: the number of positions in the packed order; `shard_bytes` at which
    /// a shard ends, or 0 if the number of rows ends it; the existing `shards` with `number`,
    /// `begin` and `end` positions and their contents; and the `pipeline` with absolute paths, for
    /// other processes.
    pub fn to_json(&self) -> String {
        let shard = |(number, entry): &(usize, Entry)| {
            json!({
                "number": number,
                "begin": entry.begin(),
                "end": entry.end,
                "records": entry.records,
                "bad": entry.bad,
                "bytes_in": entry.bytes_in,
                "bytes_out": entry.bytes,
            })
        };
        let mut pipeline = self.pipeline.clone();
        pipeline.source.map_paths(absolute);
        let shard_bytes = match self.options.to.batch_file() {
            None => self.options.shard_bytes,
            Some(_) => 0,
        };
        json!({
            "places": self.input.chosen.len(),
            "shard_bytes": shard_bytes,
            "shards": self.done.iter().map(shard).collect::<Vec<_>>(),
            "pipeline": pipeline,
        })
        .to_string()
    }

    /// Returns the bytes that the records at these positions take in a shard. None for a bad
    /// record.
    ///
    /// # Errors
    ///
    /// Returns the error of the storage. [`Error::Config`] if the positions do not exist, or if
    /// pixels have another shape than those of the first record.
    pub fn weigh(&self, places: Range<u64>) -> Result<Vec<Option<u64>>, Error> {
        let mut weights = Vec::new();
        self.each(places, &mut |outcome| {
            weights.push(outcome?.map(|made| self.plan.layout.weight(&made)).ok());
            Ok(())
        })?;
        Ok(weights)
    }

    /// Returns the shard ends for records of these weights, which begin with a shard. Each end is
    /// the number of records up to it. The last shard has no end yet.
    pub fn ends(&self, weights: &[Option<u64>]) -> Vec<u64> {
        let mut ends = Vec::new();
        let mut filling = FillLevel::default();
        for (position, weight) in weights.iter().enumerate() {
            let Some(weight) = *weight else { continue };
            if !filling.has_room(self.plan.limits, weight) {
                ends.push(position as u64);
                filling = FillLevel::default();
            }
            filling.add(weight);
        }
        ends
    }

    /// Writes a shard of the records at these positions, and its note.
    ///
    /// # Errors
    ///
    /// Returns the error of the storage or the disk. [`Error::Config`] as for [`Parts::weigh`], and
    /// if the positions are not a shard, for example because the source has changed.
    pub fn shard(&self, number: usize, places: Range<u64>) -> Result<Part, Error> {
        check_number(number as u64 + 1, &self.options)?;
        let tag = tag();
        let written = self.write(number, places, &tag);
        if written.is_err() {
            let extensions = [self.plan.layout.extension(), "idx", note::EXTENSION];
            let names = extensions.map(|extension| shard_name(number, extension));
            self.location.give_up(&names, &tag);
        }
        written
    }

    fn write(&self, number: usize, places: Range<u64>, tag: &str) -> Result<Part, Error> {
        let name = shard_name(number, self.plan.layout.extension());
        let mut open = OpenShard::begin(&*self.plan.layout, &self.location, number, tag)?;
        let (mut bad, mut bad_count) = (String::new(), 0);
        let end = places.end;
        let unchanged = self.each(places, &mut |outcome| {
            let made = match outcome? {
                Ok(made) => made,
                Err(error) => {
                    bad.push_str(&bad_line(&error));
                    bad_count += 1;
                    return Ok(());
                }
            };
            let weight = self.plan.layout.weight(&made);
            if !open.filling.has_room(self.plan.limits, weight) {
                return Err(self.no_shard(&name));
            }
            open.add(made, weight)
                .map_err(|error| self.location.not_made(&name, error))
        })?;
        let entry = open.entry(number, &*self.plan.layout, end, bad_count);
        if entry.records == 0 {
            return Err(self.no_shard(&name));
        }
        let entry = shard::put(&self.location, number, open.shard, entry, tag)?;
        let part = Part {
            records: entry.records,
            bad: entry.bad,
            bytes_in: entry.bytes_in,
            bytes_out: entry.bytes,
            unchanged,
        };
        // A process that was presumed lost must not write into a complete dataset.
        if self.location.has(BEGUN)? {
            note::write(&self.location, number, tag, &ShardNote { entry, bad })?;
        }
        Ok(part)
    }

    fn no_shard(&self, name: &str) -> Error {
        let problem = format!(
            "the records of {name} differ from those that were weighed: the source of {} has \
             changed since; remove it and pack again",
            self.location.path().display()
        );
        Error::config("out", problem)
    }

    /// Makes the records at these positions and passes them to `take` in order. Errors that are not
    /// about one record end the work. Returns the number of JPEGs without markers.
    fn each(
        &self,
        places: Range<u64>,
        take: &mut dyn FnMut(Result<PackedResult, Error>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let total = self.input.chosen.len();
        if places.start >= places.end || places.end > total {
            let problem = format!("positions {places:?} are empty or exceed the {total} records");
            return Err(Error::config("places", problem));
        }
        let maker = self.input.maker(&self.pipeline, &self.options);
        let order = Order::new(total, self.options.shuffle).epoch(0);
        let run = Places {
            chosen: &self.input.chosen,
            order: &order,
            claims: Claims::of(maker.source, CLAIM),
            whole: self.plan.reads_whole,
            end: places.end,
        };
        let workers = self.options.threads();
        let makers = workers + workers.min(READERS);
        let cores = CorePermits::new(workers);
        let sequence =
            RecordsInProgress::new(&maker, &*self.plan.layout, run, places.start, makers, cores);
        let taken = thread::scope(|scope| {
            let mut started = Vec::with_capacity(makers);
            let mut taken = Ok(0);
            for nth in 0..makers {
                let thread = thread::Builder::new().name(format!("infeed-pack-{nth}"));
                match thread.spawn_scoped(scope, || sequence.work()) {
                    Ok(thread) => started.push(thread),
                    Err(error) => {
                        sequence.stop();
                        taken = Err(Error::Thread {
                            source: Arc::new(error),
                        });
                    }
                }
            }
            while let (Ok(count), Some(outcome)) = (&mut taken, sequence.take()) {
                *count += 1;
                let outcome = self.separate_errors(&maker, outcome);
                if let Err(error) = take(outcome) {
                    sequence.stop();
                    taken = Err(error);
                }
            }
            for thread in started {
                thread.join().map_err(|_| Error::Panicked {
                    text: "infeed-pack".to_owned(),
                })?;
            }
            taken
        })?;
        if taken != places.end - places.start {
            return Err(Error::Panicked {
                text: format!("only {taken} of the records {places:?} were made"),
            });
        }
        maker.losses.log(0);
        // Relaxed: the threads that count have ended.
        Ok(maker.unchanged.load(Ordering::Relaxed))
    }

    /// Returns a bad record as an outcome, and any other error as an error.
    fn separate_errors(
        &self,
        maker: &Maker<'_>,
        outcome: PackedResult,
    ) -> Result<PackedResult, Error> {
        match outcome {
            Err(error) if !error.is_bad_record() => Err(error),
            Err(error) => Ok(Err(error)),
            Ok(made) => {
                self.plan.check_shape(maker, &self.options, &made)?;
                Ok(Ok::<PackedRecord, Error>(made))
            }
        }
    }
}

impl Part {
    /// Returns the part as JSON.
    pub fn to_json(&self) -> String {
        json!({
            "records": self.records,
            "bad": self.bad,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "unchanged": self.unchanged,
        })
        .to_string()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("place", &self.location.path())
            .field("places", &self.input.chosen.len())
            .finish_non_exhaustive()
    }
}

/// Returns a tag that no other writer has, not even a process that was presumed dead.
fn tag() -> String {
    // The keys of a new state are random.
    let hasher = RandomState::new().build_hasher();
    format!(".{:016x}", hasher.finish())
}
