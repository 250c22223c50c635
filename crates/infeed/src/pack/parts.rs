//! One dataset whose shards many processes write.
//!
//! Where a shard ends depends on the records before it, so records are made twice: once to be
//! weighed, in any runs and by anybody, and once to be written, when it is known which of them a
//! shard has. A shard is written under a name of its writer's, takes its final one when it is whole,
//! and gets a note beside it (`noted`). Two processes may write one shard at a time: they write the
//! same bytes. [`pack`](super::pack) over the same folder takes the shards that were noted, makes
//! what is missing, and finishes the dataset, whose bytes are those that one process would write.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;

use super::chosen::{CLAIM, Chosen};
use super::entry::{Entry, bad_line, shard_name};
use super::fields::{self, FieldWork};
use super::form::{Form, Made};
use super::make::{Maker, Shape};
use super::noted::{self, Noted};
use super::out::{self, Out};
use super::place::Place;
use super::run::{Cores, READERS};
use super::sequence::{Outcome, Places, Sequence};
use super::shards::{self, Filling, Most, Open};
use super::{PackOptions, check, journal, refuse_weights, select};
use crate::error::Error;
use crate::order::Order;
use crate::pipeline::Pipeline;
use crate::pipeline::packed::BEGUN;
use crate::source::Source;
use crate::source::walk::Claims;

/// A dataset that is being packed, as one of its processes sees it.
pub struct Parts {
    pipeline: Pipeline,
    source: Arc<dyn Source>,
    chosen: Chosen,
    fields: Vec<FieldWork>,
    form: Box<dyn Form>,
    /// Shapes of pixels that are not encoded, and the record that set them.
    shapes: (Vec<Option<Shape>>, u64),
    options: PackOptions,
    place: Place,
    /// Those of an earlier run, by number.
    done: Vec<(usize, Entry)>,
}

/// A shard that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Records in it.
    pub records: u64,
    /// Records of its places that are bad and were left out.
    pub bad: u64,
    /// Bytes of its records in the original.
    pub bytes_in: u64,
    /// Bytes of its file.
    pub bytes_out: u64,
    /// JPEGs that were to get restart markers, cannot without loss, and were copied.
    pub unmarked: u64,
}

impl Parts {
    /// Begins to pack into a folder, or takes up what was begun there, and looks for the shards that
    /// are there already. Nobody else should call [`pack`](super::pack) on it until all are: it
    /// removes what it does not know.
    ///
    /// # Errors
    ///
    /// As [`pack`](super::pack), and [`Error::Config`] for what is no shards, or lies in memory.
    pub fn begin(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        let mut parts = Parts::open(pipeline, out, options)?;
        let out = Out::begin(out, &parts.pipeline, &parts.chosen, &parts.options, None)?;
        let extension = parts.form.extension();
        let found = journal::find(&out, extension)?;
        let noted = noted::read_all(&parts.place, &found.files, extension, found.entries.len())?;
        let noted = noted
            .into_iter()
            .map(|(number, noted)| (number, noted.entry));
        parts.done = found.entries.into_iter().enumerate().chain(noted).collect();
        Ok(parts)
    }

    /// The same in another process, on this machine or another one, of what was begun.
    ///
    /// # Errors
    ///
    /// As [`Parts::begin`].
    pub fn join(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        let parts = Parts::open(pipeline, out, options)?;
        Out::join(out, &parts.pipeline, &parts.chosen, &parts.options, None)?;
        Ok(parts)
    }

    fn open(pipeline: &Pipeline, out: &Path, options: &PackOptions) -> Result<Parts, Error> {
        if !options.to.is_shards() {
            let problem = format!(
                "{} are not written by many processes; pack to shards",
                options.to.name()
            );
            return Err(Error::config("to", problem));
        }
        check(options, pipeline, out)?;
        refuse_weights(pipeline, options)?;
        out::refuse_overlap(&pipeline.source, out)?;
        pipeline.check_selection()?;
        let source = pipeline.source.open(&[])?;
        let records = select(pipeline, &*source, None)?;
        let chosen = Chosen::new(records.as_deref(), source.len())?;
        let fields = fields::arrange(pipeline, source.fields(), options)?;
        let maker = maker(pipeline, &*source, &fields, options);
        let shaped = super::shaped(&maker, &chosen, pipeline, options)?;
        shards::reads_whole(&maker, options)?;
        Ok(Parts {
            pipeline: pipeline.clone(),
            source,
            chosen,
            fields,
            form: shaped.form,
            shapes: (shaped.shapes, shaped.first),
            options: options.clone(),
            place: Place::of(out)?,
            done: Vec::new(),
        })
    }

    /// What there is to do, as JSON: how many places the packed order has; `shards` that are there,
    /// with `number`, `begin` and `end` places, and what is in them; and the `pipeline`, its paths
    /// absolute, for other processes.
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
        pipeline.source.map_paths(out::absolute);
        json!({
            "places": self.chosen.len(),
            "shards": self.done.iter().map(shard).collect::<Vec<_>>(),
            "pipeline": pipeline,
        })
        .to_string()
    }

    /// What the records at some places take in a shard, in bytes; None of a bad one.
    ///
    /// # Errors
    ///
    /// What the storage says; [`Error::Config`] for places that there are not, or pixels of another
    /// shape than those of the first record.
    pub fn weigh(&self, places: Range<u64>) -> Result<Vec<Option<u64>>, Error> {
        let mut weights = Vec::new();
        self.each(places, &mut |outcome| {
            weights.push(outcome?.map(|made| self.form.weight(&made)).ok());
            Ok(())
        })?;
        Ok(weights)
    }

    /// Where shards end, of records of these weights from the beginning of a shard on: how many
    /// records are in all shards up to each end. The last shard has no end yet.
    pub fn ends(&self, weights: &[Option<u64>]) -> Vec<u64> {
        let mut ends = Vec::new();
        let mut filling = Filling::default();
        for (place, weight) in weights.iter().enumerate() {
            let Some(weight) = *weight else { continue };
            if !filling.has_room(self.most(), weight) {
                ends.push(place as u64);
                filling = Filling::default();
            }
            filling.add(weight);
        }
        ends
    }

    /// Writes the shard of a number, of the records at these places, and notes it.
    ///
    /// # Errors
    ///
    /// What the storage or the disk says; [`Error::Config`] as [`Parts::weigh`], and for places that
    /// are no shard, which the records are not any more if the source has changed.
    pub fn shard(&self, number: usize, places: Range<u64>) -> Result<Part, Error> {
        shards::check_number(number as u64 + 1, &self.options)?;
        let tag = tag();
        let written = self.write(number, places, &tag);
        if written.is_err() {
            let extensions = [self.form.extension(), "idx", noted::EXTENSION];
            let names = extensions.map(|extension| shard_name(number, extension));
            self.place.give_up(&names, &tag);
        }
        written
    }

    fn write(&self, number: usize, places: Range<u64>, tag: &str) -> Result<Part, Error> {
        let name = shard_name(number, self.form.extension());
        let mut open = Open::begin(&*self.form, &self.place, number, tag)?;
        let (mut bad, mut bad_count) = (String::new(), 0);
        let end = places.end;
        let unmarked = self.each(places, &mut |outcome| {
            let made = match outcome? {
                Ok(made) => made,
                Err(error) => {
                    bad.push_str(&bad_line(&error));
                    bad_count += 1;
                    return Ok(());
                }
            };
            let weight = self.form.weight(&made);
            if !open.filling.has_room(self.most(), weight) {
                return Err(self.no_shard(&name));
            }
            open.add(made, weight)
                .map_err(|error| self.place.not_made(&name, error))
        })?;
        let entry = open.entry(number, &*self.form, end, bad_count);
        if entry.records == 0 {
            return Err(self.no_shard(&name));
        }
        let entry = shards::put(&self.place, number, open.shard, entry, tag)?;
        let part = Part {
            records: entry.records,
            bad: entry.bad,
            bytes_in: entry.bytes_in,
            bytes_out: entry.bytes,
            unmarked,
        };
        // Somebody who was thought lost must leave nothing in a dataset that is complete.
        if self.place.has(BEGUN)? {
            noted::write(&self.place, number, tag, &Noted { entry, bad })?;
        }
        Ok(part)
    }

    fn no_shard(&self, name: &str) -> Error {
        let problem = format!(
            "the records of {name} are not those that were weighed; the source of {} has changed \
             since, so remove it and pack anew",
            self.place.path().display()
        );
        Error::config("out", problem)
    }

    fn most(&self) -> Most {
        Most {
            records: self.form.most_records(),
            bytes: self.options.shard_bytes,
        }
    }

    /// Makes the records at some places and hands them over in order; what is handed over is an
    /// error where not the record but all of it failed. Gives the number of JPEGs that were not
    /// marked.
    fn each(
        &self,
        places: Range<u64>,
        take: &mut dyn FnMut(Result<Outcome, Error>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let total = self.chosen.len();
        if places.start >= places.end || places.end > total {
            let problem = format!("there are no places {places:?} among {total}");
            return Err(Error::config("places", problem));
        }
        let maker = maker(&self.pipeline, &*self.source, &self.fields, &self.options);
        let order = Order::new(total, self.options.shuffle).epoch(0);
        let run = Places {
            chosen: &self.chosen,
            order: &order,
            claims: Claims::of(maker.source, CLAIM),
            whole: shards::reads_whole(&maker, &self.options)?,
            end: places.end,
        };
        let workers = self.options.threads();
        let makers = workers + workers.min(READERS);
        let cores = Cores::new(workers);
        let sequence = Sequence::new(&maker, &*self.form, run, places.start, makers, cores);
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
                let outcome = self.sorted(&maker, outcome);
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
                text: format!("{taken} records were made of {places:?}"),
            });
        }
        // Relaxed: the threads that count have ended.
        Ok(maker.unmarked.load(Ordering::Relaxed))
    }

    /// A record that is bad alone, or an error that is none of a record.
    fn sorted(&self, maker: &Maker<'_>, outcome: Outcome) -> Result<Outcome, Error> {
        match outcome {
            Err(error) if !error.is_bad_record() => Err(error),
            Err(error) => Ok(Err(error)),
            Ok(made) => {
                let (shapes, first) = &self.shapes;
                shards::same_shape(maker, &self.options, (shapes, *first), &made)?;
                Ok(Ok::<Made, Error>(made))
            }
        }
    }
}

impl Part {
    /// All of it as JSON.
    pub fn to_json(&self) -> String {
        json!({
            "records": self.records,
            "bad": self.bad,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "unmarked": self.unmarked,
        })
        .to_string()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("place", &self.place.path())
            .field("places", &self.chosen.len())
            .finish_non_exhaustive()
    }
}

fn maker<'a>(
    pipeline: &Pipeline,
    source: &'a dyn Source,
    fields: &'a [FieldWork],
    options: &'a PackOptions,
) -> Maker<'a> {
    Maker {
        source,
        fields,
        transforms: &options.transforms,
        decode: pipeline.decode.clone().unwrap_or_default(),
        restart: options.restart,
        unmarked: AtomicU64::new(0),
        verify: options.verify,
    }
}

/// What no other writer has: of a process that was thought dead neither.
fn tag() -> String {
    // Keys of a fresh state are random.
    let hasher = RandomState::new().build_hasher();
    format!(".{:016x}", hasher.finish())
}
