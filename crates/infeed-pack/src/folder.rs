//! Writes records as image files below a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::fields::{FieldWork, Work, inline_bytes};
use super::names::{FolderLayout, Naming, OutputFile, PAIRS};
use super::output_folder::OutputFolder;
use super::product::Product;
use super::run::{RecordBytes, Writer};
use super::selection::{CLAIM, ROOM_BYTES, RecordSelection};
use infeed::pipeline::SourceSpec;
use infeed_core::error::Error;
use infeed_core::own_files::remove_inside;
use infeed_core::sample::Record;
use infeed_source::class_names::ClassNames;
use infeed_source::store;
use infeed_source::walk::Claims;
use infeed_source::{RecordResult, Source, damage_error};

/// File name of the list of labels.
const LABELS: &str = "labels.csv";

/// Writes records as files.
pub(super) struct FolderWriter<'a> {
    pub(super) out: &'a OutputFolder,
    pub(super) naming: &'a Naming<'a>,
    pub(super) source: &'a dyn Source,
    pub(super) fields: &'a [FieldWork],
    /// Labels of the records that this run wrote, by position, if only the records hold them.
    labels: Mutex<BTreeMap<usize, i64>>,
}

impl<'a> FolderWriter<'a> {
    pub(super) fn new(
        out: &'a OutputFolder,
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

    /// Removes the file of a record, if there is one.
    fn remove(&self, path: &Path) -> Result<(), Error> {
        remove_inside(self.out.path(), path).map_err(|error| Error::write(path, error))
    }

    /// Writes the list of labels if there is one, and describes the dataset. `bad` holds the
    /// positions that were left out.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn finish(
        &self,
        chosen: &RecordSelection,
        bad: &BTreeMap<usize, Error>,
    ) -> Result<SourceSpec, Error> {
        let out = self.out.path();
        if self.naming.layout == FolderLayout::Pairs {
            let [image_suffix, mask_suffix] = self.naming.suffixes.clone();
            return Ok(SourceSpec::Pairs {
                image: out.join(PAIRS[0]),
                mask: out.join(PAIRS[1]),
                image_suffix,
                mask_suffix,
                follow_links: true,
            });
        }
        let is_list = self.naming.layout == FolderLayout::Labelled;
        let read = match is_list {
            true => self.labels(chosen, bad)?,
            false => BTreeMap::new(),
        };
        let good = chosen.iter().enumerate();
        let good = good.filter(|(position, _)| !bad.contains_key(position));
        let labelled = good.map(|(position, record)| {
            let label = self.source.label(record);
            (record, label.or_else(|| read.get(&position).copied()))
        });
        let labelled: Vec<(u64, Option<i64>)> = labelled.collect();
        let classes = self.stated_classes(&labelled);
        let labels = match is_list {
            true => {
                self.write_labels(&labelled, classes.is_none())?;
                out.join(LABELS).to_string_lossy().into_owned()
            }
            false => self.naming.labels.clone(),
        };
        Ok(SourceSpec::Folder {
            path: out.to_owned(),
            labels,
            classes: classes.map(ClassNames::List),
            allow_empty: false,
            follow_links: true,
        })
    }

    /// Returns the classes if a reader of the files would number them otherwise: readers sort the
    /// names that occur.
    fn stated_classes(&self, labelled: &[(u64, Option<i64>)]) -> Option<Vec<String>> {
        let classes = self.source.classes()?;
        let mut occurs = vec![false; classes.len()];
        for &(_, label) in labelled {
            let class = label.and_then(|label| occurs.get_mut(usize::try_from(label).ok()?));
            if let Some(class) = class {
                *class = true;
            }
        }
        let is_read_alike = classes.is_sorted() && occurs.iter().all(|&occurs| occurs);
        (!is_read_alike).then(|| classes.to_vec())
    }

    /// Writes the list of labels, with names of classes or numbers.
    fn write_labels(&self, labelled: &[(u64, Option<i64>)], with_names: bool) -> Result<(), Error> {
        let path = self.out.path().join(LABELS);
        let classes = self.source.classes().filter(|_| with_names);
        let mut rows = csv::Writer::from_writer(Vec::new());
        let not_written = |error: csv::Error| Error::write(&path, error.into());
        rows.write_record(["path", "label"]).map_err(not_written)?;
        for &(record, label) in labelled {
            let label = label.unwrap_or_default();
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

    /// Returns the path of a written record's file, relative to the folder.
    fn there(&self, named: &OutputFile) -> Result<PathBuf, Error> {
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

    /// Returns the labels that only the records hold, by position. Records of an earlier run are
    /// read again, neighbours together.
    fn labels(
        &self,
        chosen: &RecordSelection,
        bad: &BTreeMap<usize, Error>,
    ) -> Result<BTreeMap<usize, i64>, Error> {
        let mut labels =
            std::mem::take(&mut *self.labels.lock().unwrap_or_else(PoisonError::into_inner));
        let claims = Claims::of(self.source, CLAIM);
        let mut from = 0;
        while from < chosen.len() {
            let to = claims.end(from, chosen.len(), |position| chosen.at(position as usize));
            let missing = (from as usize..to as usize).filter(|position| {
                let is_known = labels.contains_key(position) || bad.contains_key(position);
                !is_known && self.source.label(chosen.at(*position)).is_none()
            });
            let missing: Vec<usize> = missing.collect();
            from = to;
            let run: Vec<u64> = missing
                .iter()
                .map(|&position| chosen.at(position))
                .collect();
            for read in self.source.plan(&run, ROOM_BYTES) {
                let mut brought: Vec<(usize, RecordResult)> = Vec::new();
                self.source
                    .read(&read, &mut |_| Ok(()), &mut |at, found| {
                        brought.push((at, found))
                    })
                    .map_err(|error| error.about(self.source))?;
                for (at, found) in brought {
                    let found = found.map_err(|cause| damage_error(self.source, run[at], cause))?;
                    labels.insert(missing[at], self.label(&found)?);
                }
            }
        }
        Ok(labels)
    }

    /// Returns the label in a record.
    fn label(&self, record: &Record) -> Result<i64, Error> {
        let number = |(field, bytes): (&FieldWork, &bytes::Bytes)| match field.work {
            Work::Label(dtype) => dtype.integer(bytes),
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

/// Returns the bytes of a packed file if it exists and is not older than its original. Some file
/// systems leave an empty file after a power failure, so an empty file does not count.
fn length(path: &Path, original: Option<&PathBuf>) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    if !found.is_file() || found.len() == 0 {
        return None;
    }
    // The age of an object in a bucket is not checked.
    let Some(original) = original.filter(|original| !store::is_url(original)) else {
        return Some(found.len());
    };
    let age = |of: fs::Metadata| of.modified().ok();
    let original = fs::metadata(original).ok()?;
    (age(original) <= age(found.clone())).then_some(found.len())
}

impl Writer for FolderWriter<'_> {
    fn complete_record(&self, _place: usize, record: u64) -> Option<RecordBytes> {
        let mut moved = RecordBytes {
            bytes_in: inline_bytes(self.fields),
            bytes_out: 0,
        };
        for named in self.naming.files(record) {
            let original = named.original.as_ref();
            let paths = named.paths().into_iter();
            let mut lengths =
                paths.filter_map(|path| length(&self.out.path().join(path), original));
            moved.bytes_out += lengths.next()?;
            if lengths.next().is_some() {
                // Before the record is read, it is not known which of two files belongs to it.
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
            self.remove(&path)
        })
    }

    fn write(&self, position: usize, record: &Record, products: &[Product]) -> Result<u64, Error> {
        let mut bytes_out = 0;
        for named in self.naming.files(record.index) {
            let bytes = &products[named.field].bytes;
            let path = named.path(bytes);
            for other in named.paths().iter().filter(|other| **other != path) {
                self.remove(&self.out.path().join(other))?;
            }
            // Two records may share a file name. Each writes its own part before the rename.
            let path = self.out.path().join(path);
            self.out.write(&path, &format!(".{position}"), bytes)?;
            bytes_out += bytes.len() as u64;
        }
        let is_labelled = self.naming.layout == FolderLayout::Labelled;
        if is_labelled && self.source.label(record.index).is_none() {
            let label = self.label(record)?;
            let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
            labels.insert(position, label);
        }
        Ok(bytes_out)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }
}
