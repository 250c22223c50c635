//! Divides the members of a tar shard into records, and counts the members that no record has.

use std::hash::{BuildHasher as _, RandomState};

use super::index::{IndexedShard, ShardIndex};
use super::member::{MemberKind, TarMember};
use super::notes::{MemberClass, MemberNotes};

/// Maximum number of files of a record.
pub(crate) const FILES: usize = 1024;

/// Rule for names with several dots.
pub(crate) const DOTS: &str = "the extension begins at the first dot of the base name; rename the \
                               files so that no other dot is before the extension, and pack them \
                               again";

/// Offsets of the records of a shard, and the counts of its members.
#[derive(Debug)]
pub(crate) struct TarScan {
    starts: Vec<u64>,
    /// One past the last file.
    end: u64,
    /// Key of the current record.
    key: String,
    /// Extension and first header of each file of the current record.
    files: Vec<(String, u64)>,
    /// Hash of the key of each record.
    keys: Vec<u64>,
    hasher: RandomState,
    notes: MemberNotes,
}

impl TarScan {
    pub(crate) fn new() -> TarScan {
        TarScan {
            starts: Vec::new(),
            end: 0,
            key: String::new(),
            files: Vec::new(),
            keys: Vec::new(),
            hasher: RandomState::new(),
            notes: MemberNotes::default(),
        }
    }

    /// Number of records so far.
    pub(crate) fn records(&self) -> usize {
        self.starts.len()
    }

    /// Adds the next member.
    ///
    /// # Errors
    ///
    /// A file that occurs twice in its record, or too many files of a record.
    pub(crate) fn add(&mut self, member: &TarMember) -> Result<(), String> {
        let link = |class: fn(String) -> MemberClass| {
            let name = key_and_extension(&member.name);
            class(name.map_or_else(String::new, |(_, extension)| extension))
        };
        let class = match member.kind {
            MemberKind::File => return self.add_file(&member.name, member.begin, member.end),
            MemberKind::Folder => return Ok(()),
            MemberKind::HardLink => link(MemberClass::HardLink),
            MemberKind::SymbolicLink => link(MemberClass::SymbolicLink),
            MemberKind::Special => MemberClass::Special,
        };
        self.notes.add(class, &member.name);
        Ok(())
    }

    /// Adds the next file, from its first header to one past its padding.
    ///
    /// # Errors
    ///
    /// As [`add`](TarScan::add).
    pub(crate) fn add_file(&mut self, name: &str, begin: u64, end: u64) -> Result<(), String> {
        let Some((key, extension)) = key_and_extension(name) else {
            if let Some(class) = class_of_ignored(name) {
                self.notes.add(class, name);
            }
            return Ok(());
        };
        if self.starts.is_empty() || key != self.key {
            self.starts.push(begin);
            self.keys.push(self.hasher.hash_one(key));
            self.key.clear();
            self.key.push_str(key);
            self.files.clear();
        }
        let mut numbered = false;
        for (known, first) in &self.files {
            if *known == extension {
                return Err(format!(
                    "`{name}` occurs twice, at bytes {first} and {begin}; unpack the archive, \
                     which keeps the last one, and pack the files again"
                ));
            }
            numbered |= differ_in_number(known, &extension);
        }
        if self.files.len() >= FILES {
            return Err(format!("over {FILES} files have the stem `{key}`: {DOTS}"));
        }
        if is_spaced(&extension) {
            self.notes.add(MemberClass::Spaced, name);
        } else if numbered {
            self.notes.add(MemberClass::Numbered, name);
        }
        self.notes.add_file(&extension, name);
        self.files.push((extension, begin));
        self.end = end;
        Ok(())
    }

    /// Counts the data after the end mark.
    pub(crate) fn add_trailing(&mut self, begin: u64, bytes: u64) {
        let name = format!("{bytes} bytes from byte {begin}");
        self.notes.add(MemberClass::Trailing, &name);
    }

    /// Returns the first bytes of two records with one key, if there are such records.
    pub(crate) fn repeated_key(&self) -> Option<(u64, u64)> {
        let mut sorted = self.keys.clone();
        sorted.sort_unstable();
        let repeated = |pair: &&[u64]| pair[0] == pair[1];
        sorted.windows(2).find(repeated)?;
        let twice = |hash: &u64| {
            let first = sorted.partition_point(|known| known < hash);
            sorted.get(first + 1) == Some(hash)
        };
        let first = self.keys.iter().position(twice)?;
        let rest = self.keys.iter().skip(first + 1);
        let second = first + 1 + rest.clone().position(|hash| *hash == self.keys[first])?;
        Some((self.starts[first], self.starts[second]))
    }

    /// Returns the index of the shard.
    pub(crate) fn finish(mut self) -> IndexedShard {
        if !self.starts.is_empty() {
            self.starts.push(self.end);
        }
        IndexedShard {
            index: ShardIndex::Plain(self.starts),
            notes: self.notes,
        }
    }
}

/// Returns key and extension of a member. None for members that are not files of a record: folders,
/// links, hidden files, files without extension, and names like `__info__`, which hold no data.
pub(crate) fn split(member: &TarMember) -> Option<(&str, String)> {
    match member.kind {
        MemberKind::File => key_and_extension(&member.name),
        _ => None,
    }
}

/// Returns key and extension of the name of a file, as [`split`].
pub(crate) fn key_and_extension(name: &str) -> Option<(&str, String)> {
    if is_info(name) {
        return None;
    }
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    (dot > base).then(|| (&name[..dot], name[dot + 1..].to_lowercase()))
}

/// Whether the first part of a name is like `__info__`.
fn is_info(name: &str) -> bool {
    let top = name.split('/').next().unwrap_or_default();
    top.len() >= 4 && top.starts_with("__") && top.ends_with("__")
}

/// Returns the class of a file that belongs to no record; None for files that macOS adds.
fn class_of_ignored(name: &str) -> Option<MemberClass> {
    let base = name.rsplit('/').next().unwrap_or_default();
    match base {
        _ if is_info(name) => Some(MemberClass::Info),
        ".DS_Store" => None,
        _ if base.starts_with("._") => None,
        _ if base.starts_with('.') => Some(MemberClass::Hidden),
        _ => Some(MemberClass::NoExtension),
    }
}

/// Whether an extension has characters that extensions do not have, as in `1 (copy).png`.
fn is_spaced(extension: &str) -> bool {
    extension.contains(|c: char| c.is_whitespace() || "()[],".contains(c))
}

/// Whether an extension is probably part of a name, as `1.png` of `version 2.1.png`.
pub(crate) fn has_further_dot(extension: &str) -> bool {
    is_spaced(extension) || begins_with_number(extension)
}

fn begins_with_number(extension: &str) -> bool {
    extension.starts_with(|c: char| c.is_ascii_digit()) && extension.contains('.')
}

/// Whether two extensions of a record are equal after a number, such as `png`, `1.png` and `2.png`.
fn differ_in_number(one: &str, other: &str) -> bool {
    let numbered = [one, other].map(begins_with_number);
    if numbered == [false, false] {
        return false;
    }
    fn last(extension: &str) -> Option<&str> {
        extension.rsplit('.').next()
    }
    let plain = |at: usize, extension: &str| numbered[at] || !extension.contains('.');
    plain(0, one) && plain(1, other) && last(one) == last(other)
}
