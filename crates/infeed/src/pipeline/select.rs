//! Which records of a source come: those that a filter keeps, of them a part, of that the first.

use std::fmt::Write as _;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use serde::{Deserialize, Serialize};

use super::source::one_or_more;
use super::{Handle, Pipeline};
use crate::error::Error;
use crate::order::Order;
use crate::order::mixture::shares;
use crate::order::permute::Permutation;
use crate::random::hash;
use crate::source::Source;
use crate::source::selected::Selected;
use crate::source::subset::{MOST, Subset};

/// Keeps the key of a split apart from others.
const SPLIT: u64 = 7;

/// How far the shares of a split may be from one together: a rounding, and no forgotten part.
const ROUNDING: f64 = 1e-6;

/// Classes that an error lists.
const LISTED: usize = 5;

/// What to do where only records tell what was asked for.
const BY_NUMBER: &str = "give .weights one number a record, 0 for those to leave out";

/// Which records stay: those for which every condition holds that is set. Nothing is read for it:
/// conditions are on what the source knows from its index or list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Of one of these classes.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub label: Vec<Class>,
    /// Of none of these classes.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub not_label: Vec<Class>,
    /// Called as one of these patterns says, of `*`, `?` and `[…]`. One with a slash is for the
    /// whole name, below the root of the dataset, and `**` in it for any folders; one without is
    /// for the last part.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub name: Vec<String>,
    /// Called as none of these patterns says.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub not_name: Vec<String>,
    /// In a shard, or file of a table, that is called so.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_more"
    )]
    pub shard: Vec<String>,
    /// In none that is called so.
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
    /// Its label.
    Number(i64),
    /// Its name, where the source knows names of classes.
    Name(String),
}

/// One part of the records. Which records are in it is a function of their numbers, how many there
/// are, and the seed: parts of one split have no record in common, and all of them together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The share of each part; together one.
    pub shares: Vec<f64>,
    /// Which part, from 0.
    pub part: usize,
    /// Another seed divides otherwise.
    #[serde(default)]
    pub seed: u64,
}

impl Class {
    /// The label of the class in a source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for one that the source does not have, as far as it knows them.
    pub(super) fn number(&self, source: &dyn Source, part: &str) -> Result<i64, Error> {
        let wrong = |problem: String| Err(Error::config(part, problem));
        let Some(classes) = source.classes() else {
            return match self {
                Class::Number(number) => Ok(*number),
                Class::Name(name) => wrong(format!(
                    "the source knows classes by number alone; give that of `{name}`"
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
            "there is no class {self}; there are {} from 0: {there}",
            classes.len()
        ))
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Class::Number(number) => write!(f, "{number}"),
            Class::Name(name) => f.write_str(name),
        }
    }
}

/// The error where a source does not know labels by its index.
pub(super) fn no_labels(part: &str) -> Error {
    let problem = format!(
        "the labels of these records are not known before they are read; use class folders or a CSV \
         of labels (sources.Folder), pack the dataset to a folder, or {BY_NUMBER}"
    );
    Error::config(part, problem)
}

/// A pattern, and whether it is for the whole of a name.
struct Glob {
    pattern: Pattern,
    whole: bool,
}

impl Glob {
    fn new(text: &str) -> Result<Glob, Error> {
        let wrong = |problem: &str| {
            let problem = format!("`{text}` is no pattern: {problem}");
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

/// Two lists of conditions of a kind: one of these, none of those.
struct Either<T> {
    some: Vec<T>,
    none: Vec<T>,
}

impl<T> Either<T> {
    fn is_set(&self) -> bool {
        !self.some.is_empty() || !self.none.is_empty()
    }

    fn keeps(&self, matches: impl Fn(&T) -> bool) -> bool {
        (self.some.is_empty() || self.some.iter().any(&matches)) && !self.none.iter().any(&matches)
    }
}

impl Filter {
    /// Those of `subset` that the filter keeps.
    fn apply(&self, source: &dyn Source, subset: &Subset) -> Result<Subset, Error> {
        let classes = |classes: &[Class]| {
            let numbers = classes.iter().map(|class| class.number(source, "filter"));
            numbers.collect::<Result<Vec<i64>, Error>>()
        };
        if !(self.label.is_empty() && self.not_label.is_empty())
            && subset.len() > 0
            && source.label(subset.number(0)).is_none()
        {
            return Err(no_labels("filter"));
        }
        let labels = Either {
            some: classes(&self.label)?,
            none: classes(&self.not_label)?,
        };
        let names = Either {
            some: Glob::all(&self.name)?,
            none: Glob::all(&self.not_name)?,
        };
        let shards = Either {
            some: Glob::all(&self.shard)?,
            none: Glob::all(&self.not_shard)?,
        };
        let mut unknown = None;
        // Records of a shard follow each other.
        let mut last: Option<(String, bool)> = None;
        let kept = subset.filtered(|_, record| {
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
                let problem = format!("it keeps none of {} records: {self}", subset.len());
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
    let problem = "the records of this source lie in no shards; filter by name or label";
    Error::config("filter", problem)
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

impl Split {
    fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::config("split", problem));
        if let Some(share) = self
            .shares
            .iter()
            .find(|share| !(share.is_normal() && **share > 0.0))
        {
            return wrong(format!("a share is over zero, not {share}"));
        }
        let sum: f64 = self.shares.iter().sum();
        if (sum - 1.0).abs() > ROUNDING {
            return wrong(format!(
                "the shares are {sum} together and have to be 1; what is left over is a part, too"
            ));
        }
        if self.part >= self.shares.len() {
            return wrong(format!(
                "there is no part {}; there are {}, from 0",
                self.part,
                self.shares.len()
            ));
        }
        Ok(())
    }

    /// Those of `subset` that are in this part.
    fn apply(&self, subset: &Subset) -> Result<Subset, Error> {
        let counts = shares(&self.shares, subset.len());
        let begin: u64 = counts[..self.part].iter().sum();
        let own = begin..begin + counts[self.part];
        if own.is_empty() {
            let problem = format!("part {} has none of {} records", self.part, subset.len());
            return Err(Error::config("split", problem));
        }
        let places = Permutation::keyed(subset.len(), hash(&[SPLIT, self.seed]));
        Ok(subset.filtered(|place, _| own.contains(&places.get(place))))
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shares: Vec<String> = self.shares.iter().map(f64::to_string).collect();
        write!(
            f,
            "part {} of {}, seed {}",
            self.part,
            shares.join(" / "),
            self.seed
        )
    }
}

/// An error about a part of a mix, which it names.
fn of_part(at: usize, error: Error) -> Error {
    match error {
        Error::Config { part, problem } => {
            Error::config(part, format!("source {at} of the mix: {problem}"))
        }
        other => other,
    }
}

impl Pipeline {
    /// Keeps the records that a filter keeps, and every one before it.
    pub fn filter(mut self, filter: Filter) -> Pipeline {
        self.filter.push(filter);
        self
    }

    /// Keeps one part of the records, from 0, of shares that are one together.
    pub fn split(mut self, shares: &[f64], part: usize, seed: u64) -> Pipeline {
        let shares = shares.to_vec();
        self.split = Some(Split { shares, part, seed });
        self
    }

    /// Keeps the first so many records of those that filter and split leave.
    pub fn take(mut self, records: u64) -> Pipeline {
        self.take = Some(records);
        self
    }

    /// The same over all records of the source, each once an epoch.
    pub fn plain(&self) -> Pipeline {
        Pipeline {
            filter: Vec::new(),
            split: None,
            take: None,
            weights: None,
            repeat: None,
            ..self.clone()
        }
    }

    /// Whether only some records of the source come.
    pub fn selects(&self) -> bool {
        !self.filter.is_empty() || self.split.is_some() || self.take.is_some()
    }

    /// Opens the source and selects its records.
    ///
    /// # Errors
    ///
    /// As [`SourceSpec::open`](super::SourceSpec::open) and [`Pipeline::select`].
    pub fn open_source(&self, handles: &[Handle]) -> Result<Arc<dyn Source>, Error> {
        self.select(self.source.open(handles)?)
    }

    /// The records of a source that this description selects; of a source that mixes others by
    /// weights, those of each of them.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming what the source does not know, or what leaves no record.
    pub fn select(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>, Error> {
        if !self.selects() {
            return Ok(source);
        }
        self.check_chosen()?;
        self.select_in(source).map(|(selected, _)| selected)
    }

    /// The numbers of the selected records in a source; None if all are.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::select`].
    pub fn selected(&self, source: &dyn Source) -> Result<Option<Subset>, Error> {
        if !self.selects() {
            return Ok(None);
        }
        self.check_chosen()?;
        self.numbers_in(source).map(Some)
    }

    /// What is selected of a source, of each part of a mix by weights, as sources and by number.
    fn select_in(&self, source: Arc<dyn Source>) -> Result<(Arc<dyn Source>, Subset), Error> {
        let Some((parts, weights)) = source.mixed() else {
            let subset = self.subset(&*source)?;
            let selected = Selected::new(source, subset.clone());
            return Ok((Arc::new(selected), subset));
        };
        self.refuse_take()?;
        let parts = parts.iter().enumerate().map(|(at, part)| {
            let selected = self.select_in(Arc::clone(part));
            selected.map_err(|error| of_part(at, error))
        });
        let (parts, subsets): (Vec<_>, Vec<_>) = parts
            .collect::<Result<Vec<_>, Error>>()?
            .into_iter()
            .unzip();
        let (subset, weights) = (Subset::joined(&subsets), weights.clone());
        let selected = Selected::mixed(Arc::clone(&source), subset.clone(), parts, weights);
        Ok((Arc::new(selected), subset))
    }

    fn numbers_in(&self, source: &dyn Source) -> Result<Subset, Error> {
        let Some((parts, _)) = source.mixed() else {
            return self.subset(source);
        };
        self.refuse_take()?;
        let parts = parts.iter().enumerate().map(|(at, part)| {
            let numbers = self.numbers_in(&**part);
            numbers.map_err(|error| of_part(at, error))
        });
        Ok(Subset::joined(&parts.collect::<Result<Vec<_>, _>>()?))
    }

    fn refuse_take(&self) -> Result<(), Error> {
        if self.take.is_none() {
            return Ok(());
        }
        let problem = "the source mixes others by weights, of which none comes first; set the \
                       epoch of the mix instead";
        Err(Error::config("take", problem))
    }

    fn subset(&self, source: &dyn Source) -> Result<Subset, Error> {
        if source.len() > MOST {
            let problem = format!(
                "records are selected of at most {MOST}, not {}",
                source.len()
            );
            return Err(Error::config("source", problem));
        }
        let mut subset = Subset::whole(source.len());
        for filter in &self.filter {
            subset = filter.apply(source, &subset)?;
        }
        if let Some(split) = &self.split {
            subset = split.apply(&subset)?;
        }
        Ok(match self.take {
            Some(records) => subset.first(records),
            None => subset,
        })
    }

    /// Refuses a selection that cannot be, as far as that shows without a source.
    pub(super) fn check_chosen(&self) -> Result<(), Error> {
        for filter in &self.filter {
            if *filter == Filter::default() {
                let problem = "it has no condition; give label, name or shard";
                return Err(Error::config("filter", problem));
            }
            let texts = [
                &filter.name,
                &filter.not_name,
                &filter.shard,
                &filter.not_shard,
            ];
            for texts in texts {
                Glob::all(texts)?;
            }
        }
        if self.take == Some(0) {
            return Err(Error::config("take", "it is at least 1"));
        }
        self.split.as_ref().map_or(Ok(()), Split::check)
    }

    /// What is selected of a source and how often it comes, as lines of a plan; nothing where each
    /// record comes once an epoch.
    pub fn selection(&self, source: &dyn Source, order: &Order) -> String {
        let mut text = String::new();
        let mut line = |stage: &str, what: String| {
            let _ = match what.is_empty() {
                true => writeln!(text, "{stage}"),
                false => writeln!(text, "  {stage:<10} {what}"),
            };
        };
        if let Some(subset) = source.selection() {
            let (kept, all) = (subset.len(), subset.all());
            line(&format!("records: {kept} of {all}"), String::new());
        }
        for filter in &self.filter {
            line("filter", filter.to_string());
        }
        if let Some(split) = &self.split {
            line("split", split.to_string());
        }
        if let Some(records) = self.take {
            line("take", format!("the first {records}"));
        }
        if self.weights.is_some() || self.repeat.is_some() {
            line(&format!("epoch: {} positions", order.len()), String::new());
        }
        if let Some(weights) = &self.weights {
            line("weights", weights.to_string());
        }
        if let Some(passes) = self.repeat {
            line("repeat", format!("{passes} passes"));
        }
        text
    }
}
