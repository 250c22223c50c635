//! Counts of the members of tar shards by class. Indexing makes them, and they are cached with the
//! index, so that a warning or an error about members does not depend on the cache.

use serde::{Deserialize, Serialize};

/// Maximum number of classes of a shard. An archive with more has names with further dots.
const CLASSES: usize = 64;

/// Number of names that are kept of each class.
const NAMED: usize = 3;

/// Class of the members of a tar shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemberClass {
    /// Files of records with this extension.
    Extension(String),
    /// Files of records whose extensions exceed the number of classes.
    MoreExtensions,
    /// Files of records whose extension has blanks or brackets.
    Spaced,
    /// Files of records that differ from another file of the record only in a number after the
    /// first dot.
    Numbered,
    /// Hard links whose name has this extension; empty for names without one.
    HardLink(String),
    /// Symbolic links whose name has this extension; empty for names without one.
    SymbolicLink(String),
    /// Files whose name has no dot.
    NoExtension,
    /// Files whose name begins with a dot.
    Hidden,
    /// Files below a name such as `__info__`.
    Info,
    /// Devices and other members without data.
    Special,
    /// Data after the end mark.
    Trailing,
}

/// Members of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberNote {
    pub(crate) class: MemberClass,
    /// Number of members.
    pub(crate) count: u64,
    /// First few names.
    pub(crate) names: Vec<String>,
}

/// All classes of the members of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberNotes(Vec<MemberNote>);

impl MemberNotes {
    /// Counts a member of a class.
    pub(crate) fn add(&mut self, class: MemberClass, name: &str) {
        let class = match class {
            class if self.0.len() < CLASSES => class,
            MemberClass::Extension(_) => MemberClass::MoreExtensions,
            MemberClass::HardLink(_) => MemberClass::HardLink(String::new()),
            MemberClass::SymbolicLink(_) => MemberClass::SymbolicLink(String::new()),
            class => class,
        };
        match self.0.iter_mut().find(|note| note.class == class) {
            Some(note) => note.add(name),
            None => self.0.push(MemberNote {
                class,
                count: 1,
                names: vec![name.to_owned()],
            }),
        }
    }

    /// Counts a file of a record.
    pub(crate) fn add_file(&mut self, extension: &str, name: &str) {
        let known = self.0.iter_mut().find(
            |note| matches!(&note.class, MemberClass::Extension(known) if known == extension),
        );
        match known {
            Some(note) => note.add(name),
            None => self.add(MemberClass::Extension(extension.to_owned()), name),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MemberNote> {
        self.0.iter()
    }

    /// Whether files of records may have this extension.
    pub(crate) fn may_have(&self, extension: &str) -> bool {
        self.0.iter().any(|note| match &note.class {
            MemberClass::Extension(known) => known == extension,
            MemberClass::MoreExtensions => true,
            _ => false,
        })
    }

    /// Extensions of files of records.
    pub(crate) fn extensions(&self) -> Vec<&str> {
        let extensions = self.0.iter().map(|note| match &note.class {
            MemberClass::Extension(extension) => Some(extension.as_str()),
            _ => None,
        });
        extensions.flatten().collect()
    }
}

impl MemberNote {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < NAMED {
            self.names.push(name.to_owned());
        }
    }
}
