//! Which records of a source come: those that filters keep, of them a part, of that the first.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::filter::Filter;
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

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        self.filter.iter().try_for_each(Filter::check)?;
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
