//! Filters on facts that the source knows without reading records.

use std::fmt::{self, Write as _};

use glob::{MatchOptions, Pattern};
use serde::{Deserialize, Serialize};

use super::file_names::one_or_more;
use infeed_core::error::Error;
use infeed_source::Source;
use infeed_source::subset::Subset;

/// Number of classes that an error lists.
const LISTED: usize = 5;

/// Suggestion for sources that know labels or names only after reading.
const BY_NUMBER: &str = "use .weights with one number per record, 0 to exclude a record";

/// Filter on records. A record stays if all conditions that are set hold. Filtering reads no
/// records: it uses only the source's index or list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordFilter {
    /// Keep records of one of these classes.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub label: Vec<Class>,
    /// Keep records of none of these classes.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub not_label: Vec<Class>,
    /// Keep records whose name matches one of these patterns of `*`, `?` and `[…]`. A pattern with
    /// a slash matches the whole name below the root of the dataset, where `**` matches any
    /// folders. A pattern without a slash matches the last part of the name.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub name: Vec<String>,
    /// Keep records whose name matches none of these patterns.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub not_name: Vec<String>,
    /// Keep records of shards, or files of a table, whose name matches one of these patterns.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub shard: Vec<String>,
    /// Keep records of shards whose name matches none of these patterns.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub not_shard: Vec<String>,
}

/// A class by number or name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Class {
    /// The class's label.
    Number(i64),
    /// The class's name, if the source knows class names.
    Name(String),
}

impl Class {
    /// Returns the label of the class in a source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a class that the source knows not to exist.
    pub(super) fn number(&self, source: &dyn Source, part: &str) -> Result<i64, Error> {
        let wrong = |problem: String| Err(Error::config(part, problem));
        let Some(classes) = source.classes() else {
            return match self {
                Class::Number(number) => Ok(*number),
                Class::Name(name) => wrong(format!(
                    "the source has no class names; use the number of class `{name}` instead"
                )),
            };
        };
        let known = match self {
            Class::Number(number) => usize::try_from(*number).ok(),
            Class::Name(name) => classes.iter().position(|class| class == name),
        };
        if let Some(number) = known.filter(|&number| number < classes.len()) {
            return Ok(number as i64);
        }
        let mut there = classes
            .iter()
            .take(LISTED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if classes.len() > LISTED {
            let _ = write!(there, " and {} more", classes.len() - LISTED);
        }
        wrong(format!(
            "no class {self}; there are {} classes, numbered from 0: {there}",
            classes.len()
        ))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::Number(number) => write!(f, "{number}"),
            Class::Name(name) => f.write_str(name),
        }
    }
}

/// Returns the error for a source that does not know labels without reading.
pub(super) fn no_labels(part: &str) -> Error {
    let problem = format!(
        "the labels of these records are unknown until they are read; use class folders or a CSV \
         of labels (sources.Folder), pack the dataset to a folder, or {BY_NUMBER}"
    );
    Error::config(part, problem)
}

/// A pattern. `whole` matches the whole name instead of the last part.
struct Glob {
    pattern: Pattern,
    whole: bool,
}

impl Glob {
    fn new(text: &str) -> Result<Glob, Error> {
        let wrong = |problem: &str| {
            let problem = format!("`{text}` is not a valid pattern: {problem}");
            Error::config("filter", problem)
        };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        Ok(Glob {
            pattern: Pattern::new(text).map_err(|error| wrong(error.msg))?,
            whole: text.contains('/'),
        })
    }

    fn all(texts: &[String]) -> Result<Vec<Glob>, Error> {
        texts.iter().map(|text| Glob::new(text)).collect()
    }

    fn matches(&self, name: &str) -> bool {
        let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let text = if self.whole { name } else { last };
        self.pattern.matches_with(text, options)
    }
}

/// Conditions of one kind: matches one of `some` (or `some` is empty), and none of `none`.
struct Criteria<T> {
    some: Vec<T>,
    none: Vec<T>,
}

impl<T> Criteria<T> {
    fn is_set(&self) -> bool {
        !self.some.is_empty() || !self.none.is_empty()
    }

    fn keeps(&self, matches: impl Fn(&T) -> bool) -> bool {
        (self.some.is_empty() || self.some.iter().any(&matches)) && !self.none.iter().any(&matches)
    }
}

impl RecordFilter {
    /// Checks the filter as far as possible without a source.
    pub(super) fn check(&self) -> Result<(), Error> {
        if *self == RecordFilter::default() {
            let problem = "the filter has no condition; set label, name or shard";
            return Err(Error::config("filter", problem));
        }
        let patterns = [&self.name, &self.not_name, &self.shard, &self.not_shard];
        patterns
            .iter()
            .try_for_each(|texts| Glob::all(texts).map(drop))
    }

    /// Returns the records of `subset` that the filter keeps.
    pub(super) fn apply(&self, source: &dyn Source, subset: &Subset) -> Result<Subset, Error> {
        let classes = |classes: &[Class]| {
            let numbers = classes.iter().map(|class| class.number(source, "filter"));
            numbers.collect::<Result<Vec<i64>, Error>>()
        };
        let by_label = !self.label.is_empty() || !self.not_label.is_empty();
        if by_label && !subset.is_empty() && source.label(subset.number(0)).is_none() {
            return Err(no_labels("filter"));
        }
        let labels = Criteria {
            some: classes(&self.label)?,
            none: classes(&self.not_label)?,
        };
        let names = Criteria {
            some: Glob::all(&self.name)?,
            none: Glob::all(&self.not_name)?,
        };
        let shards = Criteria {
            some: Glob::all(&self.shard)?,
            none: Glob::all(&self.not_shard)?,
        };
        let mut unknown = None;
        // Records of a shard are consecutive, so one cached result is enough.
        let mut last: Option<(String, bool)> = None;
        let kept = subset.filter(|_, record| {
            let by_label = !labels.is_set()
                || match source.label(record) {
                    Some(label) => labels.keeps(|&wanted| wanted == label),
                    None => {
                        unknown.get_or_insert_with(|| no_labels("filter"));
                        false
                    }
                };
            let by_name = !names.is_set()
                || match source.name(record) {
                    Some(name) => names.keeps(|glob| glob.matches(&name)),
                    None => {
                        unknown.get_or_insert_with(|| no_names(source, record));
                        false
                    }
                };
            let by_shard = !shards.is_set()
                || match (source.shard(record), &last) {
                    (Some(shard), Some((same, kept))) if shard == same => *kept,
                    (Some(shard), _) => {
                        let kept = shards.keeps(|glob| glob.matches(shard));
                        last = Some((shard.to_owned(), kept));
                        kept
                    }
                    (None, _) => {
                        unknown.get_or_insert_with(no_shards);
                        false
                    }
                };
            by_label && by_name && by_shard
        });
        match unknown {
            Some(error) => Err(error),
            None if kept.is_empty() => {
                let problem = format!(
                    "none of {} records match {self}; change or remove a condition",
                    subset.len()
                );
                Err(Error::config("filter", problem))
            }
            None => Ok(kept),
        }
    }
}

fn no_names(source: &dyn Source, record: u64) -> Error {
    let problem = match source.shard(record) {
        Some(_) => format!(
            "records of shards and tables have no names here; filter by shard, or {BY_NUMBER}"
        ),
        None => format!("the records of this source have no names; {BY_NUMBER}"),
    };
    Error::config("filter", problem)
}

fn no_shards() -> Error {
    let problem = "the records of this source are not in shards; filter by name or label";
    Error::config("filter", problem)
}

impl fmt::Display for RecordFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = |classes: &[Class]| classes.iter().map(Class::to_string).collect();
        let conditions: [(&str, Vec<String>); 6] = [
            ("label", classes(&self.label)),
            ("not label", classes(&self.not_label)),
            ("name", self.name.clone()),
            ("not name", self.not_name.clone()),
            ("shard", self.shard.clone()),
            ("not shard", self.not_shard.clone()),
        ];
        let set = conditions.iter().filter(|(_, values)| !values.is_empty());
        let words: Vec<String> = set
            .map(|(what, values)| format!("{what} {}", values.join(" or ")))
            .collect();
        f.write_str(&words.join(", "))
    }
}
