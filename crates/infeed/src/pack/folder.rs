//! Records as image files below a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::fields::{FieldWork, Work, bytes_beside, integer};
use super::journal::BAD_LIST;
use super::make::Product;
use super::names::{Layout, Naming, PAIRS};
use super::out::Out;
use super::run::{Chosen, Moved, Writer};
use crate::error::Error;
use crate::pipeline::SourceSpec;
use crate::sample::Record;
use crate::source::{Source, read_one};
use crate::store;

/// The list of labels of a packed folder.
const LABELS: &str = "labels.csv";

/// Writes records as files.
pub(super) struct FolderWriter<'a> {
    pub(super) out: &'a Out,
    pub(super) naming: &'a Naming<'a>,
    pub(super) source: &'a dyn Source,
    pub(super) fields: &'a [FieldWork],
}

impl FolderWriter<'_> {
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
            },
            Layout::Labelled => {
                self.write_labels(chosen, bad)?;
                SourceSpec::Folder {
                    path: out.to_owned(),
                    labels: out.join(LABELS).to_string_lossy().into_owned(),
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
        let mut rows = csv::Writer::from_writer(Vec::new());
        let not_written = |error: csv::Error| Error::write(&path, error.into());
        rows.write_record(["path", "label"]).map_err(not_written)?;
        for (place, record) in chosen.iter().enumerate() {
            if bad.contains_key(&place) {
                continue;
            }
            let label = self.label(record)?;
            let name = classes.and_then(|classes| classes.get(usize::try_from(label).ok()?));
            let label = name.cloned().unwrap_or_else(|| label.to_string());
            for (_, file, _) in self.naming.files(record) {
                let file = file.to_string_lossy();
                rows.write_record([&*file, &label]).map_err(not_written)?;
            }
        }
        let bytes = rows
            .into_inner()
            .map_err(|error| Error::write(&path, error.into_error()))?;
        self.out.write(&path, "", &bytes)
    }

    fn label(&self, record: u64) -> Result<i64, Error> {
        if let Some(label) = self.source.label(record) {
            return Ok(label);
        }
        let found = read_one(self.source, record)?;
        let number = |(field, bytes): (&FieldWork, &bytes::Bytes)| match field.work {
            Work::Label(dtype) => integer(dtype, bytes),
            _ => None,
        };
        let mut numbers = self.fields.iter().zip(&found.fields).filter_map(number);
        numbers.next().ok_or_else(|| {
            let problem = format!(
                "the label of {} exceeds int64",
                self.source.id(record, None)
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
        for (_, path, original) in self.naming.files(record) {
            moved.bytes_out += length(&self.out.path().join(path), original.as_ref())?;
            if let Some(original) = original.filter(|original| !store::is_url(original)) {
                moved.bytes_in += fs::metadata(original).ok()?.len();
            }
        }
        Some(moved)
    }

    fn leave_out(&self, _place: usize, record: u64) -> Result<(), Error> {
        for (_, path, _) in self.naming.files(record) {
            let path = self.out.path().join(path);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::write(path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, place: usize, record: &Record, products: &[Product]) -> Result<u64, Error> {
        let mut bytes_out = 0;
        for (field, path, _) in self.naming.files(record.index) {
            let bytes = &products[field].bytes;
            let path = self.out.path().join(path);
            // Two records may be one file; each writes its own before it takes the name.
            self.out.write(&path, &place.to_string(), bytes)?;
            bytes_out += bytes.len() as u64;
        }
        Ok(bytes_out)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }
}
