//! A folder of image files, on a disk or in a bucket. The label is the parent folder, or comes from
//! a CSV, or there is none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::left_out::LeftOut;
use super::listing::{self, OpenFile, Paths, Tree};
use super::{Admission, Read, ReadError, Sink, Source, admitted, fingerprint};
use crate::store;
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record, RecordId};

/// Source of the labels of a folder's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// From class folders if there are any, as in torchvision's `ImageFolder`: the folders of the
    /// root in sorted order are classes 0, 1, …; files directly in the root are left out. Without
    /// class folders, there are no labels.
    Auto,
    /// No labels, whatever folders there are.
    None,
    /// From a CSV with the columns `path` (relative to the root) and `label`. Integers are used as
    /// they are; names are numbered in sorted order. The rows of the CSV are the records, in order.
    Csv(PathBuf),
}

/// Image files below a root.
#[derive(Debug)]
pub struct Folder {
    fields: Vec<Field>,
    paths: Paths,
    /// One label per file, or empty.
    labels: Vec<i64>,
    classes: Option<Vec<String>>,
    /// Images outside the class folders.
    outside_classes: Option<LeftOut>,
}

impl Folder {
    /// Lists a folder, or reads its list of labels. Symbolic links that lead outside the folder are
    /// left out unless `follow_links` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a folder that cannot be listed. [`Error::Config`] for a folder without
    /// images, for a class folder without images, and for a CSV that is not as described or names
    /// files outside the folder.
    pub fn open(root: &Path, labels: &Labels, follow_links: bool) -> Result<Folder, Error> {
        if let Labels::Csv(csv) = labels {
            return Folder::from_csv(root, csv);
        }
        let Tree { folders, paths } = Tree::list(root, follow_links, None)?;
        let by_class = *labels == Labels::Auto
            && folders
                .iter()
                .any(|f| !f.path.as_os_str().is_empty() && !f.names.is_empty());
        let mut source = Folder {
            fields: fields(by_class),
            paths,
            labels: Vec::new(),
            classes: by_class.then(Vec::new),
            outside_classes: None,
        };
        for folder in folders {
            if by_class {
                let Some(class) = folder.path.iter().next() else {
                    let outside = folder.names.iter().map(|(name, _)| name);
                    source.outside_classes = outside_classes(root, outside);
                    continue;
                };
                let class = class.to_string_lossy();
                let classes = source.classes.get_or_insert_default();
                if classes.last().is_none_or(|last| *last != class) {
                    source.refuse_empty_class(root)?;
                    source
                        .classes
                        .get_or_insert_default()
                        .push(class.into_owned());
                }
            }
            source.paths.begin_folder(folder.path);
            for (name, object) in folder.names.iter() {
                source.paths.push(name, object);
                if let Some(classes) = &source.classes {
                    source.labels.push(classes.len() as i64 - 1);
                }
            }
        }
        source.refuse_empty_class(root)?;
        source.paths.shrink();
        source.labels.shrink_to_fit();
        if source.paths.len() == 0 {
            let problem = format!(
                "{} holds no images (files named {})",
                root.display(),
                listing::IMAGE_EXTENSIONS.join(", ")
            );
            return Err(Error::config("source", problem));
        }
        Ok(source)
    }

    /// Rejects a class folder without images: it is nearly always a mistake.
    fn refuse_empty_class(&self, root: &Path) -> Result<(), Error> {
        let Some(class) = self.classes.as_ref().and_then(|classes| classes.last()) else {
            return Ok(());
        };
        let number = self.classes.as_ref().map_or(0, Vec::len) as i64 - 1;
        if self.labels.last() == Some(&number) {
            return Ok(());
        }
        let folder = root.join(class);
        let problem = format!(
            "the class folder {} holds no images; remove it",
            folder.display()
        );
        Err(Error::config("source", problem))
    }

    fn from_csv(root: &Path, csv: &Path) -> Result<Folder, Error> {
        let wrong =
            |problem: String| Error::config("source", format!("{}: {problem}", csv.display()));
        let text = content(csv)?;
        let mut reader = csv::Reader::from_reader(&*text);
        let headers = reader
            .headers()
            .map_err(|error| Error::open(csv, error))?
            .clone();
        let column = |name: &str| {
            let at = headers.iter().position(|header| header.trim() == name);
            at.ok_or_else(|| {
                wrong(format!(
                    "no column `{name}`; its first line must name `path` and `label`"
                ))
            })
        };
        let (path_at, label_at) = (column("path")?, column("label")?);
        let mut names = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let mut lines = Vec::new();
        for row in reader.records() {
            let row = row.map_err(|error| Error::open(csv, error))?;
            let cell = |at: usize| row.get(at).map(str::trim).unwrap_or_default();
            let line = row.position().map_or(0, csv::Position::line);
            if cell(path_at).is_empty() || cell(label_at).is_empty() {
                return Err(wrong(format!("line {line} lacks its path or label")));
            }
            names.push(cell(path_at).to_owned());
            texts.push(cell(label_at).to_owned());
            lines.push(line);
        }
        if names.is_empty() {
            return Err(wrong("it lists no records".to_owned()));
        }
        let mut paths = Tree::named(root, &names)?;
        paths.shrink();
        let numbers: Option<Vec<i64>> = texts.iter().map(|text| text.parse().ok()).collect();
        let (labels, classes) = match numbers {
            Some(labels) => (labels, None),
            None => {
                if let Some(problem) = mixed_numbers(&texts, &lines) {
                    return Err(wrong(problem));
                }
                let names: BTreeSet<&String> = texts.iter().collect();
                let names: Vec<String> = names.into_iter().cloned().collect();
                let number = |text: &String| names.binary_search(text).unwrap_or_default() as i64;
                (texts.iter().map(number).collect(), Some(names))
            }
        };
        Ok(Folder {
            fields: fields(true),
            paths,
            labels,
            classes,
            outside_classes: None,
        })
    }
}

/// Reports images that have no class because they are directly in the folder.
pub fn outside_classes<'a>(root: &Path, names: impl Iterator<Item = &'a str>) -> Option<LeftOut> {
    let mut outside = LeftOut::new(
        root.display().to_string(),
        "image outside the class folders",
    )
    .note("move such images into a class folder, or set labels=\"none\"");
    names.for_each(|name| outside.add(name));
    (outside.count > 0).then_some(outside)
}

/// Describes the label that keeps the others from being integers, where some labels are numbers.
fn mixed_numbers(texts: &[String], lines: &[u64]) -> Option<String> {
    let is_number = |text: &&String| text.parse::<f64>().is_ok_and(f64::is_finite);
    let number = texts.iter().find(is_number)?;
    let at = texts.iter().position(|text| text.parse::<i64>().is_err())?;
    let (line, text) = (lines.get(at)?, &texts[at]);
    let problem = if is_number(&text) {
        format!("label {text:?} in line {line} is not an integer of 64 bits; write 1, not 1.0")
    } else {
        format!(
            "label {text:?} in line {line} is a word, and label {number:?} is a number; use only \
             integers or only words"
        )
    };
    Some(problem)
}

fn fields(labelled: bool) -> Vec<Field> {
    let image = Field {
        name: "image".to_owned(),
        kind: FieldKind::Image(Pixels::Encoded),
    };
    let kind = FieldKind::Tensor {
        dtype: DType::Int64,
        shape: Vec::new(),
    };
    let label = Field {
        name: "label".to_owned(),
        kind,
    };
    if labelled {
        vec![image, label]
    } else {
        vec![image]
    }
}

impl Source for Folder {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        let name = self.paths.path(record as usize).display().to_string();
        RecordId {
            index: record,
            name,
        }
    }

    fn fingerprint(&self) -> u64 {
        hash(&[
            fingerprint(self.len(), &self.fields),
            self.paths.fingerprint(),
        ])
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        vec![self.paths.path(record as usize)]
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.paths.parallel_reads()
    }

    fn label(&self, record: u64) -> Option<i64> {
        self.labels.get(record as usize).copied()
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        let outside_classes = self.outside_classes.iter().cloned();
        let other_files = self.paths.left_out().iter().cloned();
        other_files.chain(outside_classes).collect()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(place, record) in &read.records {
            let mut fields = read_files(record, &[&self.paths], admit)?;
            if let Some(label) = self.labels.get(record as usize) {
                fields.push(Bytes::copy_from_slice(&label.to_le_bytes()));
            }
            let found = Record {
                index: record,
                fields,
            };
            sink(place, Ok(found));
        }
        Ok(())
    }
}

/// Reads the complete files of a record, one of each list, after one admission for all bytes.
pub(super) fn read_files(
    record: u64,
    lists: &[&Paths],
    admit: &mut Admission<'_>,
) -> Result<Vec<Bytes>, ReadError> {
    let failed = |(field, error)| ReadError::Io {
        record,
        field: Some(field),
        error,
    };
    let mut opened = Vec::with_capacity(lists.len());
    for (at, paths) in lists.iter().enumerate() {
        let file = paths.open(record as usize);
        opened.push(file.map_err(|error| failed((at, error)))?);
    }
    let bytes = opened.iter().map(OpenFile::held_bytes).sum();
    admitted(admit, record, bytes)?;
    let files = opened.into_iter().enumerate();
    files
        .map(|(at, file)| file.read().map_err(|error| failed((at, error))))
        .collect()
}

/// Returns the content of a small file, local or in a bucket.
pub(super) fn content(path: &Path) -> Result<Bytes, Error> {
    if !store::is_url(path) {
        let bytes = std::fs::read(path).map_err(|error| Error::open(path, error))?;
        return Ok(Bytes::from(bytes));
    }
    let blob = store::open(&path.to_string_lossy())?;
    let bytes = blob.read(0..blob.len());
    bytes.map_err(|error| Error::open(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_among_labels_are_integers_or_an_error_with_its_line() {
        for (labels, expected) in [
            (
                &["1.0", "2.0"][..],
                Some("\"1.0\" in line 2 is not an integer"),
            ),
            (&["10", "cat"], Some("\"cat\" in line 3 is a word")),
            (&["1", "9223372036854775808"], Some("in line 3 is not")),
            (&["dog", "cat", "nan"], None),
        ] {
            let texts: Vec<String> = labels.iter().map(ToString::to_string).collect();
            let problem = mixed_numbers(&texts, &[2, 3, 4]);
            assert_eq!(problem.is_some(), expected.is_some(), "{problem:?}");
            assert!(
                problem
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default())
            );
        }
    }
}
