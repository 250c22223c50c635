//! Records as image files below a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::chosen::{CLAIM, Chosen, ROOM_BYTES};
use super::entry::BAD_LIST;
use super::fields::{FieldWork, Work, bytes_beside, integer};
use super::make::Product;
use super::names::{Layout, Named, Naming, PAIRS};
use super::out::Out;
use super::run::{Moved, Writer};
use crate::error::Error;
use crate::pipeline::SourceSpec;
use crate::sample::Record;
use crate::source::walk::Claims;
use crate::source::{Found, Source, damaged};
use crate::store;

/// The list of labels of a packed folder.
const LABELS: &str = "labels.csv";

/// Writes records as files.
pub(super) struct FolderWriter<'a> {
    pub(super) out: &'a Out,
    pub(super) naming: &'a Naming<'a>,
    pub(super) source: &'a dyn Source,
    pub(super) fields: &'a [FieldWork],
    /// Labels that only records tell, by place, of those that were written by this run.
    labels: Mutex<BTreeMap<usize, i64>>,
}

impl<'a> FolderWriter<'a> {
    pub(super) fn new(
        out: &'a Out,
        naming: &'a Naming<'a>,
        source: &'a dyn Source,
        fields: &'a [FieldWork],
    ) -> FolderWriter<'a> {
        FolderWriter {
            out,
            naming,
            source,
            fields,
            labels: Mutex::default(),
        }
    }

    /// Writes the list of labels where there is one, and describes what was written.
    /// `bad` are the places that were left out.
    ///
    /// # Errors
    ///
    /// [`Error::Write`]; [`Error::Config`] if a class has nothing but bad records.
    pub(super) fn finish(
        &self,
        chosen: &Chosen,
        bad: &BTreeMap<usize, Error>,
    ) -> Result<SourceSpec, Error> {
        let out = self.out.path();
        if !bad.is_empty() && self.naming.layout == Layout::Listed {
            self.refuse_lost_class(chosen, bad)?;
        }
        Ok(match self.naming.layout {
            Layout::Listed => SourceSpec::Folder {
                path: out.to_owned(),
                labels: self.naming.labels.clone(),
                follow_links: true,
            },
            Layout::Labelled => {
                self.write_labels(chosen, bad)?;
                SourceSpec::Folder {
                    path: out.to_owned(),
                    labels: out.join(LABELS).to_string_lossy().into_owned(),
                    follow_links: true,
                }
            }
            Layout::Pairs => SourceSpec::pairs(out.join(PAIRS[0]), out.join(PAIRS[1])),
        })
    }

    /// A class without records would change the numbers of those behind it.
    fn refuse_lost_class(
        &self,
        chosen: &Chosen,
        bad: &BTreeMap<usize, Error>,
    ) -> Result<(), Error> {
        let Some(classes) = self.source.classes() else {
            return Ok(());
        };
        let mut left = vec![false; classes.len()];
        for (place, record) in chosen.iter().enumerate() {
            let label = self.source.label(record);
            let class = label.and_then(|label| left.get_mut(usize::try_from(label).ok()?));
            if let Some(class) = class.filter(|_| !bad.contains_key(&place)) {
                *class = true;
            }
        }
        let Some(lost) = left.iter().position(|&left| !left) else {
            return Ok(());
        };
        let problem = format!(
            "all records of class `{}` are bad (see {}), and without it the classes behind it \
             would change their numbers; mend one, remove the class, or pack to shards",
            classes[lost],
            self.out.path().join(BAD_LIST).display()
        );
        Err(Error::config("source", problem))
    }

    fn write_labels(&self, chosen: &Chosen, bad: &BTreeMap<usize, Error>) -> Result<(), Error> {
        let path = self.out.path().join(LABELS);
        // Names are numbered anew by whoever reads the list, so of a part the numbers are kept.
        let classes = self.source.classes().filter(|_| self.naming.is_whole);
        let labels = self.labels(chosen, bad)?;
        let mut rows = csv::Writer::from_writer(Vec::new());
        let not_written = |error: csv::Error| Error::write(&path, error.into());
        rows.write_record(["path", "label"]).map_err(not_written)?;
        for (place, record) in chosen.iter().enumerate() {
            if bad.contains_key(&place) {
                continue;
            }
            let label = match self.source.label(record) {
                Some(label) => label,
                None => labels.get(&place).copied().unwrap_or_default(),
            };
            let name = classes.and_then(|classes| classes.get(usize::try_from(label).ok()?));
            let label = name.cloned().unwrap_or_else(|| label.to_string());
            for named in self.naming.files(record) {
                let file = self.there(&named)?;
                let file = file.to_string_lossy();
                rows.write_record([&*file, &label]).map_err(not_written)?;
            }
        }
        let bytes = rows
            .into_inner()
            .map_err(|error| Error::write(&path, error.into_error()))?;
        self.out.write_durable(&path, &bytes)
    }

    /// The file of a record that was written, below the folder.
    fn there(&self, named: &Named) -> Result<PathBuf, Error> {
        let mut paths = named.paths();
        if let [only] = &mut paths[..] {
            return Ok(std::mem::take(only));
        }
        let found = paths
            .iter()
            .find(|path| self.out.path().join(path).exists());
        found.cloned().ok_or_else(|| {
            let path = self.out.path().join(named.path(&[]));
            Error::open(path, io::Error::from(io::ErrorKind::NotFound))
        })
    }

    /// The labels that only records tell, by place: those that an earlier run wrote are read again,
    /// all that lie together at once.
    fn labels(
        &self,
        chosen: &Chosen,
        bad: &BTreeMap<usize, Error>,
    ) -> Result<BTreeMap<usize, i64>, Error> {
        let mut labels =
            std::mem::take(&mut *self.labels.lock().unwrap_or_else(PoisonError::into_inner));
        let claims = Claims::of(self.source, CLAIM);
        let mut from = 0;
        while from < chosen.len() {
            let to = claims.end(from, chosen.len(), |place| chosen.at(place as usize));
            let missing = (from as usize..to as usize).filter(|place| {
                let is_known = labels.contains_key(place) || bad.contains_key(place);
                !is_known && self.source.label(chosen.at(*place)).is_none()
            });
            let missing: Vec<usize> = missing.collect();
            from = to;
            let run: Vec<u64> = missing.iter().map(|&place| chosen.at(place)).collect();
            for read in self.source.plan(&run, ROOM_BYTES) {
                let mut brought: Vec<(usize, Found)> = Vec::new();
                self.source
                    .read(&read, &mut |_| Ok(()), &mut |at, found| {
                        brought.push((at, found))
                    })
                    .map_err(|error| error.about(self.source))?;
                for (at, found) in brought {
                    let found = found.map_err(|cause| damaged(self.source, run[at], cause))?;
                    labels.insert(missing[at], self.label(&found)?);
                }
            }
        }
        Ok(labels)
    }

    /// The label in a record.
    fn label(&self, record: &Record) -> Result<i64, Error> {
        let number = |(field, bytes): (&FieldWork, &bytes::Bytes)| match field.work {
            Work::Label(dtype) => integer(dtype, bytes),
            _ => None,
        };
        let mut numbers = self.fields.iter().zip(&record.fields).filter_map(number);
        numbers.next().ok_or_else(|| {
            let problem = format!(
                "the label of {} exceeds int64",
                self.source.id(record.index, None)
            );
            Error::config("source", problem)
        })
    }
}

/// Bytes of a new file, if it is there, whole, and not older than its original. A file without
/// bytes is what some file systems leave after a power cut.
fn length(path: &Path, original: Option<&PathBuf>) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    if !found.is_file() || found.len() == 0 {
        return None;
    }
    // An object's age is not asked for: the dataset's version would have to be.
    let Some(original) = original.filter(|original| !store::is_url(original)) else {
        return Some(found.len());
    };
    let age = |of: fs::Metadata| of.modified().ok();
    let original = fs::metadata(original).ok()?;
    (age(original) <= age(found.clone())).then_some(found.len())
}

impl Writer for FolderWriter<'_> {
    fn found(&self, _place: usize, record: u64) -> Option<Moved> {
        let mut moved = Moved {
            bytes_in: bytes_beside(self.fields),
            bytes_out: 0,
        };
        for named in self.naming.files(record) {
            let original = named.original.as_ref();
            let paths = named.paths().into_iter();
            let mut lengths =
                paths.filter_map(|path| length(&self.out.path().join(path), original));
            moved.bytes_out += lengths.next()?;
            if lengths.next().is_some() {
                // Which of two is the record's is not known before it is read.
                return None;
            }
            if let Some(original) = original.filter(|original| !store::is_url(original)) {
                moved.bytes_in += fs::metadata(original).ok()?.len();
            }
        }
        Some(moved)
    }

    fn leave_out(&self, _place: usize, record: u64) -> Result<(), Error> {
        let named = self.naming.files(record).into_iter();
        named.flat_map(|named| named.paths()).try_for_each(|path| {
            let path = self.out.path().join(path);
            remove(&path)
        })
    }

    fn write(&self, place: usize, record: &Record, products: &[Product]) -> Result<u64, Error> {
        let mut bytes_out = 0;
        for named in self.naming.files(record.index) {
            let bytes = &products[named.field].bytes;
            let path = named.path(bytes);
            for other in named.paths().iter().filter(|other| **other != path) {
                remove(&self.out.path().join(other))?;
            }
            // Two records may be one file; each writes its own before it takes the name.
            let path = self.out.path().join(path);
            self.out.write(&path, &place.to_string(), bytes)?;
            bytes_out += bytes.len() as u64;
        }
        let is_labelled = self.naming.layout == Layout::Labelled;
        if is_labelled && self.source.label(record.index).is_none() {
            let label = self.label(record)?;
            let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
            labels.insert(place, label);
        }
        Ok(bytes_out)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(path, error)),
        _ => Ok(()),
    }
}
