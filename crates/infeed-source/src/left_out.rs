//! Parts of a dataset that no record contains. A loader warns about them when it opens, and
//! `infeed inspect` lists them.

use std::collections::HashSet;
use std::fmt;

use infeed_core::printable::printable;

/// Maximum number of names that are kept of each kind.
const NAMED: usize = 3;

/// Parts of one kind that a source does not read, such as files of another type. Parts that the user
/// excludes, with `fields=` for example, are not left out in this sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Path or URL of the dataset or file that has the parts.
    pub location: String,
    /// Singular, beginning with a noun: `file without an image extension`.
    pub kind: &'static str,
    /// Number of parts.
    pub count: u64,
    /// The first few names in sorted order.
    pub names: Vec<String>,
    /// Reason or fix; empty if the kind explains itself.
    pub note: String,
}

impl LeftOut {
    /// Creates an empty kind.
    pub fn new(location: impl Into<String>, kind: &'static str) -> LeftOut {
        LeftOut {
            location: location.into(),
            kind,
            count: 0,
            names: Vec::new(),
            note: String::new(),
        }
    }

    /// Sets the reason or fix.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> LeftOut {
        self.note = note.into();
        self
    }

    /// Counts a part. The names do not depend on the order of the calls.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        self.keep(name);
    }

    /// Counts one part.
    #[must_use]
    pub fn with(mut self, name: &str) -> LeftOut {
        self.add(name);
        self
    }

    fn append(&mut self, other: &LeftOut) {
        self.count += other.count;
        for name in &other.names {
            self.keep(name);
        }
    }

    /// Adds parts to those of the same location and kind in a list.
    pub fn append_to(self, all: &mut Vec<LeftOut>) {
        let same =
            |known: &&mut LeftOut| known.location == self.location && known.kind == self.kind;
        match all.iter_mut().find(same) {
            Some(known) => known.append(&self),
            None => all.push(self),
        }
    }

    /// Joins the parts of many files by kind and note. The location of joined parts is the first
    /// file, with the number of the others.
    pub fn over_files(parts: impl IntoIterator<Item = LeftOut>) -> Vec<LeftOut> {
        let mut joined: Vec<(LeftOut, HashSet<String>)> = Vec::new();
        for part in parts {
            let files = HashSet::from([part.location.clone()]);
            let same = |(known, _): &&mut (LeftOut, _)| {
                (known.kind, &known.note) == (part.kind, &part.note)
            };
            match joined.iter_mut().find(same) {
                Some((known, known_files)) => {
                    known.append(&part);
                    known_files.extend(files);
                }
                None => joined.push((part, files)),
            }
        }
        let located = joined.into_iter().map(|(mut part, files)| {
            match files.len() - 1 {
                0 => {}
                1 => part.location.push_str(" and 1 more file"),
                more => part.location.push_str(&format!(" and {more} more files")),
            }
            part
        });
        located.collect()
    }

    fn keep(&mut self, name: &str) {
        let at = self.names.partition_point(|known| known.as_str() <= name);
        if at < NAMED {
            self.names.insert(at, name.to_owned());
            self.names.truncate(NAMED);
        }
    }

    /// Returns number and kind, such as `3 files without an image extension`.
    pub fn count_text(&self) -> String {
        if self.count == 1 {
            return format!("1 {}", self.kind);
        }
        let (noun, rest) = self.kind.split_once(' ').unwrap_or((self.kind, ""));
        let space = if rest.is_empty() { "" } else { " " };
        format!("{} {noun}s{space}{rest}", self.count)
    }

    /// Returns the kept names, and the number of the others.
    pub fn names_text(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| printable(name)).collect();
        let more = self.count.saturating_sub(names.len() as u64);
        match more {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.count == 1 { "is" } else { "are" };
        let location = printable(&self.location);
        let (counted, named) = (self.count_text(), self.names_text());
        write!(f, "{location}: {counted} {verb} left out: {named}")?;
        match self.note.as_str() {
            "" => Ok(()),
            note => write!(f, "; {note}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_the_number_and_the_first_names_in_sorted_order() {
        let mut files = LeftOut::new("photos", "file without an image extension");
        files.add("c.txt");
        assert_eq!(
            files.to_string(),
            "photos: 1 file without an image extension is left out: c.txt"
        );
        let mut all = vec![files];

        for name in ["e.txt", "b.txt", "a\u{1b}.txt", "d.txt"] {
            let one = LeftOut::new("photos", "file without an image extension").with(name);
            one.append_to(&mut all);
        }

        assert_eq!(all.len(), 1);
        assert_eq!(
            all[0].clone().note("rename them").to_string(),
            "photos: 5 files without an image extension are left out: a\\u{1b}.txt, b.txt, c.txt and \
             2 more; rename them"
        );
        assert_eq!(LeftOut::new("x", "column").count_text(), "0 columns");
    }

    #[test]
    fn parts_of_many_files_are_one_message() {
        let part = |file: &str, kind, note: &str| LeftOut::new(file, kind).with("a").note(note);
        let parts = [
            part("1.tar", "link", ""),
            part("2.tar", "column", "x"),
            part("2.tar", "link", ""),
            part("2.tar", "column", "y"),
            part("2.tar", "link", ""),
        ];

        let texts: Vec<_> = LeftOut::over_files(parts)
            .iter()
            .map(LeftOut::to_string)
            .collect();

        assert_eq!(
            texts,
            [
                "1.tar and 1 more file: 3 links are left out: a, a, a",
                "2.tar: 1 column is left out: a; x",
                "2.tar: 1 column is left out: a; y",
            ]
        );
    }
}
