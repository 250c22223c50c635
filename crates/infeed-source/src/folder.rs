//! A folder of image files, on a disk or in a bucket. The label is the parent folder, or comes from
//! a CSV, or there is none.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::annotations::AnnotationRoom;
use super::class_names::ClassNames;
use super::extensions::without_images;
use super::labelled_images::check_is_data;
use super::left_out::LeftOut;
use super::listing::Tree;
use super::open_file::OpenFile;
use super::paths::Paths;
use super::{Admission, Read, ReadError, Sink, Source, admit_read, fingerprint};
use infeed_core::error::{Cause, Error};
use infeed_core::printable::{excerpt, printable};
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

/// Options of a folder beyond its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderOptions {
    /// Source of the labels.
    pub labels: Labels,
    /// Names of the classes in the order of their numbers. None: the sorted names.
    pub classes: Option<ClassNames>,
    /// Whether a class folder may have no images. Always allowed with `classes`.
    pub allow_empty: bool,
    /// Whether symbolic links below the folder are followed.
    pub follow_links: bool,
}

impl FolderOptions {
    /// Creates options with a source of labels, sorted classes that all have images, and links that
    /// are followed.
    pub fn new(labels: Labels) -> FolderOptions {
        FolderOptions {
            labels,
            classes: None,
            allow_empty: false,
            follow_links: true,
        }
    }
}

impl Folder {
    /// Lists a folder, or reads its list of labels.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a folder that cannot be listed. [`Error::Config`] for a folder without
    /// images, for a class folder without images or outside `classes`, and for a CSV that is not as
    /// described or names files outside the folder.
    pub fn open(root: &Path, options: &FolderOptions) -> Result<Folder, Error> {
        let given = options.classes.as_ref().map(ClassNames::read).transpose()?;
        match &options.labels {
            Labels::Csv(csv) => {
                return Folder::from_csv(root, csv, given, options.follow_links);
            }
            Labels::None if given.is_some() => {
                let problem = "classes= needs labels; remove classes=, or set labels=\"auto\"";
                return Err(Error::config("source", problem));
            }
            Labels::Auto | Labels::None => {}
        }
        let Tree { folders, paths } = Tree::list(root, options.follow_links, None)?;
        let by_class = options.labels == Labels::Auto
            && folders
                .iter()
                .any(|f| !f.path.as_os_str().is_empty() && !f.names.is_empty());
        let mut source = Folder {
            fields: fields(by_class),
            paths,
            labels: Vec::new(),
            classes: None,
            outside_classes: None,
        };
        let mut class_folders: Vec<ClassFolder> = Vec::new();
        for folder in folders {
            let class = folder.path.iter().next().filter(|_| by_class);
            match class.map(|class| class.to_string_lossy()) {
                Some(name) if class_folders.last().is_none_or(|last| last.name != name) => {
                    class_folders.push(ClassFolder {
                        name: name.into_owned(),
                        images: 0,
                    });
                }
                None if by_class => {
                    let outside = folder.names.iter().map(|(name, _)| name);
                    source.outside_classes = outside_classes(root, outside);
                    continue;
                }
                _ => {}
            }
            source.paths.begin_folder(folder.path);
            for (name, object) in folder.names.iter() {
                source.paths.push(name, object);
            }
            if let Some(class) = class_folders.last_mut() {
                class.images += folder.names.len();
            }
        }
        source.paths.shrink();
        if source.paths.len() == 0 {
            return Err(without_images(root, source.paths.left_out()));
        }
        if by_class {
            source.number_classes(root, &class_folders, given, options.allow_empty)?;
        }
        Ok(source)
    }

    /// Sets the labels and classes of files that are sorted by class folder.
    fn number_classes(
        &mut self,
        root: &Path,
        folders: &[ClassFolder],
        given: Option<Vec<String>>,
        allow_empty: bool,
    ) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::config("source", problem));
        if let Some(empty) = folders.iter().find(|folder| folder.images == 0)
            && given.is_none()
            && !allow_empty
        {
            return wrong(format!(
                "the class folder {} holds no images; set allow_empty=True if it counts as a class, \
                 or classes= to number the classes as another folder does, such as that of training",
                root.join(&empty.name).display()
            ));
        }
        let sorted = || folders.iter().map(|folder| folder.name.clone()).collect();
        let classes: Vec<String> = given.unwrap_or_else(sorted);
        let numbers: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
        for folder in folders {
            match numbers.get(folder.name.as_str()) {
                Some(&number) => self
                    .labels
                    .extend(std::iter::repeat_n(number, folder.images)),
                None if folder.images == 0 => {}
                None => {
                    return wrong(format!(
                        "the class folder {} is none of the {} given classes; add it to classes=, or \
                         move it away",
                        root.join(&folder.name).display(),
                        classes.len()
                    ));
                }
            }
        }
        self.labels.shrink_to_fit();
        self.classes = Some(classes);
        Ok(())
    }

    fn from_csv(
        root: &Path,
        csv: &Path,
        given: Option<Vec<String>>,
        follow_links: bool,
    ) -> Result<Folder, Error> {
        let wrong =
            |problem: String| Error::config("source", format!("{}: {problem}", csv.display()));
        let list = LabelList::read(csv)?;
        let mut paths = Paths::of_names(root, &list.paths, follow_links)?;
        paths.shrink();
        let numbers: Option<Vec<i64>> = list.labels.iter().map(|text| text.parse().ok()).collect();
        let (labels, classes) = match (numbers, given) {
            (Some(labels), None) => (labels, None),
            (Some(labels), Some(classes)) => {
                let count = classes.len() as i64;
                if let Some(at) = labels.iter().position(|label| !(0..count).contains(label)) {
                    let (label, line) = (labels[at], list.lines[at]);
                    return Err(wrong(format!(
                        "label {label} in line {line} is none of the {count} given classes, which \
                         are numbered from 0"
                    )));
                }
                (labels, Some(classes))
            }
            (None, given) => {
                if let Some(problem) = mixed_numbers(&list.labels, &list.lines) {
                    return Err(wrong(problem));
                }
                let sorted = || {
                    let names: BTreeSet<&String> = list.labels.iter().collect();
                    names.into_iter().cloned().collect()
                };
                let classes: Vec<String> = given.unwrap_or_else(sorted);
                let numbers: HashMap<&str, i64> =
                    classes.iter().map(String::as_str).zip(0..).collect();
                let number = |(text, line): (&String, &u64)| {
                    numbers.get(text.as_str()).copied().ok_or_else(|| {
                        wrong(format!(
                            "label \"{}\" in line {line} is none of the {} given classes; add it to \
                             classes=",
                            excerpt(text),
                            classes.len()
                        ))
                    })
                };
                let labels = list.labels.iter().zip(&list.lines).map(number);
                (labels.collect::<Result<_, _>>()?, Some(classes))
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

/// A folder directly below the root, whose files have one label.
struct ClassFolder {
    name: String,
    images: usize,
}

/// Bytes of a row of a [`LabelList`] beyond its text: two strings with the overhead of their
/// allocations, a line, and room of growing lists.
const ROW_BYTES: usize = 2 * (size_of::<String>() + size_of::<usize>() + size_of::<String>());

/// Bytes from the beginning of a row of a list to the end of the next one. A row of empty cells takes
/// 50 times its bytes.
const ROW_TEXT_BYTES: usize = 1 << 20;

/// Text of a list, whose rows end before a limit.
struct LimitedRows<'a> {
    text: &'a [u8],
    at: usize,
    /// Byte before which the next row must end.
    row_end: &'a Cell<usize>,
}

impl io::Read for LimitedRows<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.text.len().min(self.row_end.get());
        if end <= self.at && self.at < self.text.len() {
            let problem = format!(
                "a row has more than {ROW_TEXT_BYTES} bytes; close its quotation mark, or write a line \
                 per record"
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        let read = (&self.text[self.at.min(end)..end]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

/// Rows of a CSV with the columns `path` and `label`.
struct LabelList {
    paths: Vec<String>,
    labels: Vec<String>,
    /// Line of each row, from 1.
    lines: Vec<u64>,
}

impl LabelList {
    fn read(csv: &Path) -> Result<LabelList, Error> {
        let wrong =
            |problem: String| Error::config("source", format!("{}: {problem}", csv.display()));
        let room = AnnotationRoom::new();
        let text = room.read(csv, 1)?;
        check_is_data(csv, &text)?;
        let mut held = text.len();
        let row_end = Cell::new(ROW_TEXT_BYTES);
        let mut reader = csv::Reader::from_reader(LimitedRows {
            text: &text,
            at: 0,
            row_end: &row_end,
        });
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
        let mut list = LabelList {
            paths: Vec::new(),
            labels: Vec::new(),
            lines: Vec::new(),
        };
        for row in reader.records() {
            let row = row.map_err(|error| Error::open(csv, error))?;
            let begin = row.position().map_or(0, csv::Position::byte) as usize;
            row_end.set(begin.saturating_add(ROW_TEXT_BYTES));
            let cell = |at: usize| row.get(at).map(str::trim).unwrap_or_default();
            let line = row.position().map_or(0, csv::Position::line);
            if cell(path_at).is_empty() || cell(label_at).is_empty() {
                return Err(wrong(format!("line {line} lacks its path or label")));
            }
            held += ROW_BYTES + cell(path_at).len() + cell(label_at).len();
            let fits = room.check(held as u64);
            fits.map_err(|problem| wrong(format!("it {problem}")))?;
            list.paths.push(cell(path_at).to_owned());
            list.labels.push(cell(label_at).to_owned());
            list.lines.push(line);
        }
        match list.paths.is_empty() {
            true => Err(wrong("it lists no records".to_owned())),
            false => Ok(list),
        }
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
        let text = excerpt(text);
        format!("label \"{text}\" in line {line} is not an integer of 64 bits; write 1, not 1.0")
    } else {
        let (text, number) = (excerpt(text), excerpt(number));
        format!(
            "label \"{text}\" in line {line} is a word, and label \"{number}\" is a number; use only \
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
            let found = read_files(record, &[&self.paths], 0, admit)?.map(|mut fields| {
                if let Some(label) = self.labels.get(record as usize) {
                    fields.push(Bytes::copy_from_slice(&label.to_le_bytes()));
                }
                Record {
                    index: record,
                    fields,
                }
            });
            sink(place, found);
        }
        Ok(())
    }
}

/// A file that a list or an annotation names, and that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no file {}; add it, or correct its name in the list or annotations", printable(.0))]
struct MissingFile(String);

/// Reads the complete files of a record, one of each list, after one admission for all bytes, and for
/// `more` bytes of the caller. A named file that does not exist is a bad record; any other failure is one of the storage.
pub(super) fn read_files(
    record: u64,
    lists: &[&Paths],
    more: u64,
    admit: &mut Admission<'_>,
) -> Result<Result<Vec<Bytes>, Cause>, ReadError> {
    let failed = |field: usize, error: io::Error| {
        let (paths, at) = (lists[field], record as usize);
        if paths.is_missing(&error) {
            let path = paths.path(at).display().to_string();
            return Ok(Err(Arc::new(MissingFile(path)) as Cause));
        }
        if paths.is_no_file(&error) {
            return Ok(Err(Arc::new(error) as Cause));
        }
        Err(ReadError::Io {
            record,
            field: Some(field),
            error,
        })
    };
    let mut opened = Vec::with_capacity(lists.len());
    for (at, paths) in lists.iter().enumerate() {
        match paths.open(record as usize) {
            Ok(file) => opened.push(file),
            Err(error) => return failed(at, error),
        }
    }
    let bytes = opened.iter().map(OpenFile::held_bytes);
    let bytes = bytes.fold(more, u64::saturating_add);
    admit_read(admit, record, bytes)?;
    let mut files = Vec::with_capacity(lists.len());
    for (at, file) in opened.into_iter().enumerate() {
        match file.read() {
            Ok(bytes) => files.push(bytes),
            Err(error) => return failed(at, error),
        }
    }
    Ok(Ok(files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_row_of_a_list_has_a_limit_that_is_checked_while_it_is_read() {
        let root = tempfile::tempdir().expect("a folder");
        let csv = root.path().join("list.csv");
        std::fs::write(root.path().join("a.jpg"), "pixels").expect("writes");
        let open = |text: &str| {
            std::fs::write(&csv, text).expect("writes");
            let options = FolderOptions::new(Labels::Csv(csv.clone()));
            Folder::open(root.path(), &options).map_err(|error| error.chain())
        };
        let commas = ",".repeat(ROW_TEXT_BYTES);
        let many = "a.jpg,1\n".repeat(2 * ROW_TEXT_BYTES / 8);

        let source = open(&format!("path,label\n{many}")).expect("short rows");
        assert_eq!(source.len(), 2 * ROW_TEXT_BYTES as u64 / 8);
        for text in [
            format!("path,label{commas}\na.jpg,1\n"),
            format!("path,label\na.jpg,1\na.jpg,1{commas}\n"),
            format!("path,label\n{many}\"{many}"),
        ] {
            let problem = open(&text).expect_err("a long row");
            assert!(problem.contains("list.csv"), "{problem}");
            assert!(
                problem.contains("a row has more than 1048576 bytes"),
                "{problem}"
            );
        }
    }

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

    fn folder_of(names: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for name in names {
            let path = root.path().join(name);
            let folder = if name.ends_with('/') {
                &path
            } else {
                path.parent().expect("below")
            };
            fs::create_dir_all(folder).expect("a folder");
            if folder != path {
                fs::write(path, "x").expect("writes");
            }
        }
        root
    }

    fn open_with(root: &Path, change: impl FnOnce(&mut FolderOptions)) -> Result<Folder, String> {
        let mut options = FolderOptions::new(Labels::Auto);
        change(&mut options);
        Folder::open(root, &options).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_without_one_class_keeps_the_numbers_of_another_folder() {
        let train = folder_of(&["0/a.jpg", "180/a.jpg", "270/a.jpg", "90/a.jpg"]);
        let validation = folder_of(&["0/a.jpg", "180/", "270/a.jpg", "90/b/c.jpg"]);
        let classes = ClassNames::Path(train.path().to_owned());

        let found = open_with(validation.path(), |options| options.classes = Some(classes));

        let found = found.expect("opens");
        assert_eq!(found.labels, [0, 2, 3]);
        assert_eq!(
            found.classes(),
            Some(&["0", "180", "270", "90"].map(str::to_owned)[..])
        );
    }

    #[test]
    fn an_empty_class_folder_is_an_error_unless_it_is_allowed() {
        let root = folder_of(&["a/1.jpg", "b/", "c/1.jpg"]);

        let error = open_with(root.path(), |_| {}).expect_err("empty");
        let allowed = open_with(root.path(), |options| options.allow_empty = true);

        for part in ["/b holds no images", "allow_empty=True", "classes="] {
            assert!(error.contains(part), "{error}");
        }
        let allowed = allowed.expect("opens");
        assert_eq!((&allowed.labels[..], allowed.paths.len()), (&[0, 2][..], 2));
    }

    #[test]
    fn classes_that_do_not_fit_the_folder_or_the_list_are_errors() {
        let root = folder_of(&["a/1.jpg", "b/1.jpg"]);
        let list = |text: &str| {
            let csv = root.path().join(format!("{text}.csv"));
            fs::write(&csv, format!("path,label\na/1.jpg,{text}\n")).expect("writes");
            Labels::Csv(csv)
        };
        for (labels, problem) in [
            (Labels::Auto, "/b is none of the 1 given classes"),
            (Labels::None, "classes= needs labels"),
            (
                list("b"),
                "label \"b\" in line 2 is none of the 1 given classes",
            ),
            (
                list("1"),
                "label 1 in line 2 is none of the 1 given classes",
            ),
        ] {
            let error = open_with(root.path(), |options| {
                options.labels = labels;
                options.classes = Some(ClassNames::List(vec!["a".to_owned()]));
            });

            let error = error.expect_err("a wrong class");
            assert!(error.contains(problem), "{error}");
        }
        let named = open_with(root.path(), |options| {
            options.labels = list("0");
            options.classes = Some(ClassNames::List(vec!["a".to_owned()]));
        });
        assert_eq!(named.expect("opens").classes(), Some(&["a".to_owned()][..]));
    }
}
