//! Keys of rows.

use std::fmt;

use infeed_core::printable::excerpt;

/// Key of a row, by which runs are compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowKey {
    /// Id of the sample. Loaders of infeed use the record number.
    Id(Box<str>),
    /// Hash of the row's contents, 48 bits; see [`RowHashes`](super::RowHashes).
    Hash(u64),
}

/// Kind of the keys of a run. Keys of different kinds cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Ids of samples.
    Ids,
    /// Hashes of contents.
    Hashes,
}

impl RowKey {
    /// Returns the kind of the key.
    pub fn kind(&self) -> KeyKind {
        match self {
            RowKey::Id(_) => KeyKind::Ids,
            RowKey::Hash(_) => KeyKind::Hashes,
        }
    }

    /// Returns the id, or the hash as 12 hexadecimal digits.
    pub fn text(&self) -> String {
        match self {
            RowKey::Id(id) => id.to_string(),
            RowKey::Hash(hash) => format!("{hash:012x}"),
        }
    }
}

/// Writes an excerpt of the key's text that is safe to show.
impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&excerpt(&self.text()))
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::Ids => "ids",
            KeyKind::Hashes => "hashes of contents",
        })
    }
}
