//! Names of files in a description: a list for most formats, one name for formats that are a folder.

use serde::{Deserialize, Deserializer};

/// Files of a source, as a description names them.
pub(super) trait FileNames: Sized {
    /// Returns the names of one path, pattern or URL.
    fn from_name(name: String) -> Self;

    fn names(&self) -> &[String];

    fn names_mut(&mut self) -> &mut [String];

    /// Reads the names from a description.
    ///
    /// # Errors
    ///
    /// The error of the description's format.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

impl FileNames for Vec<String> {
    fn from_name(name: String) -> Vec<String> {
        vec![name]
    }

    fn names(&self) -> &[String] {
        self
    }

    fn names_mut(&mut self) -> &mut [String] {
        self
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        one_or_more(from)
    }
}

impl FileNames for String {
    fn from_name(name: String) -> String {
        name
    }

    fn names(&self) -> &[String] {
        std::slice::from_ref(self)
    }

    fn names_mut(&mut self) -> &mut [String] {
        std::slice::from_mut(self)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        String::deserialize(from)
    }
}

/// Deserializes the names of files.
pub(super) fn file_names<'de, T: FileNames, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::read(from)
}

/// Deserializes a list, or a single item as a list of one.
pub(super) fn one_or_more<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore<T> {
        One(T),
        More(Vec<T>),
    }
    Ok(match OneOrMore::deserialize(from)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    })
}
