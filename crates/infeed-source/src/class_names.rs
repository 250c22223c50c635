//! Names of classes in the order of their numbers: a list, a text file, or the class folders of
//! another folder.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::annotations::AnnotationRoom;
use super::{data_yaml, labelled_images, listing};
use crate::store;
use infeed_core::error::Error;
use infeed_core::printable::excerpt;

/// Bytes of memory for a byte of a list of names: an empty line becomes a text.
const NAME_FACTOR: u64 = 48;

/// Class names as a description states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassNames {
    /// The names.
    List(Vec<String>),
    /// A text file with a name in each line, a `data.yaml`, or a folder whose folders are the classes, in sorted
    /// order.
    Path(PathBuf),
}

impl ClassNames {
    /// Returns the names.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a path that cannot be read; [`Error::Config`] for an empty list, and for
    /// an empty or repeated name.
    pub fn read(&self) -> Result<Vec<String>, Error> {
        let (names, location) = match self {
            ClassNames::List(names) => (names.clone(), "classes".to_owned()),
            ClassNames::Path(path) => {
                let names = match is_folder(path) {
                    true => listing::class_folders(path)?,
                    false => in_file(path)?,
                };
                (names, path.display().to_string())
            }
        };
        let wrong = |problem: String| Error::config("source", format!("{location}: {problem}"));
        if names.is_empty() {
            return Err(wrong("there are no class names".to_owned()));
        }
        let mut known = HashMap::new();
        for (number, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(wrong(format!("class {number} has no name")));
            }
            if let Some(other) = known.insert(name, number) {
                let name = excerpt(name);
                let problem = format!("classes {other} and {number} have the same name, `{name}`");
                return Err(wrong(problem));
            }
        }
        Ok(names)
    }
}

/// Whether the path or URL of class names is a folder. The URL of a text file has an extension.
fn is_folder(path: &Path) -> bool {
    match store::is_url(path) {
        true => path.extension().is_none(),
        false => path.is_dir(),
    }
}

/// Reads the names in a text file with a name in each line, without empty lines at the end, or in a
/// `data.yaml` of Ultralytics.
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read; [`Error::Config`] for a file of another format.
pub(super) fn in_file(path: &Path) -> Result<Vec<String>, Error> {
    let bytes = AnnotationRoom::new().read(path, NAME_FACTOR)?;
    let text = labelled_images::text(path, &bytes)?;
    let has = |name| path.extension().is_some_and(|extension| extension == name);
    if has("yaml") || has("yml") {
        return data_yaml::names(&text)
            .map_err(|problem| Error::config("source", format!("{}: {problem}", path.display())));
    }
    let lines = text.trim_end().lines();
    Ok(lines.map(|line| line.trim().to_owned()).collect())
}

impl Serialize for ClassNames {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            ClassNames::List(names) => names.serialize(to),
            ClassNames::Path(path) => path.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for ClassNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ClassNames, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = ClassNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of class names, or the path of a text file or folder")
            }

            fn visit_str<E>(self, path: &str) -> Result<ClassNames, E> {
                Ok(ClassNames::Path(path.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<ClassNames, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = from.next_element()? {
                    names.push(name);
                }
                Ok(ClassNames::List(names))
            }
        }
        from.deserialize_any(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn class_names_are_read_from_a_list_a_file_or_subfolders() {
        let root = tempfile::tempdir().expect("a folder");
        for name in ["train/dog", "train/cat/sub", "train/.hidden"] {
            fs::create_dir_all(root.path().join(name)).expect("a folder");
        }
        fs::write(root.path().join("train/notes.txt"), "x").expect("writes");
        let file = root.path().join("names.txt");
        fs::write(&file, "\u{FEFF}dog \r\nzebra crossing\r\n\r\n").expect("writes");

        let list = ClassNames::List(vec!["b".to_owned(), "a".to_owned()]);

        assert_eq!(list.read().expect("names"), ["b", "a"]);
        let file = ClassNames::Path(file);
        assert_eq!(file.read().expect("names"), ["dog", "zebra crossing"]);
        let folder = ClassNames::Path(root.path().join("train"));
        assert_eq!(folder.read().expect("names"), ["cat", "dog"]);
    }

    #[test]
    fn empty_and_repeated_names_are_errors_with_their_numbers() {
        for (names, problem) in [
            (&[][..], "there are no class names"),
            (&["a", ""], "class 1 has no name"),
            (&["a", "b", "a"], "classes 0 and 2 have the same name, `a`"),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let error = ClassNames::List(names)
                .read()
                .expect_err("names")
                .to_string();
            assert!(error.contains(problem), "{error}");
        }
        let missing = ClassNames::Path("no/such/file.txt".into()).read();
        assert!(matches!(missing, Err(Error::Open { .. })));
    }
}
