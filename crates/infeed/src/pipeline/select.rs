//! Selection of records: the filters, then a part of the split, then the first `take` records.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::filter::RecordFilter;
use super::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::mixture::shares;
use infeed_core::order::permute::Permutation;
use infeed_core::random::hash;
use infeed_source::Source;
use infeed_source::selected::SelectedRecords;
use infeed_source::subset::{MAX_RECORDS, Subset};

/// Separates the key of a split from all other keys.
const SPLIT: u64 = 7;

/// Largest difference of the sum of shares from 1: allows rounding, and no forgotten part.
const ROUNDING: f64 = 1e-6;

/// One part of the records. The record numbers, the number of records and the seed determine the
/// part. The parts of one split are disjoint, and together they contain all records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Share of each part; the sum is 1.
    pub shares: Vec<f64>,
    /// Index of the part, from 0.
    pub part: usize,
    /// Seed of the division into parts.
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
            return wrong(format!("a share must be greater than 0, not {share}"));
        }
        let sum: f64 = self.shares.iter().sum();
        if (sum - 1.0).abs() > ROUNDING {
            return wrong(format!(
                "the shares add up to {sum}, not 1; list the remaining part too"
            ));
        }
        if self.part >= self.shares.len() {
            return wrong(format!(
                "no part {}; there are {} parts, numbered from 0",
                self.part,
                self.shares.len()
            ));
        }
        Ok(())
    }

    /// Returns the records of `subset` that are in this part.
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

/// Adds the index of a mix's part to an error.
fn of_part(at: usize, error: Error) -> Error {
    match error {
        Error::Config { part, problem } => {
            Error::config(part, format!("source {at} of the mix: {problem}"))
        }
        other => other,
    }
}

impl Pipeline {
    /// Adds a filter. A record stays if every filter keeps it.
    pub fn filter(mut self, filter: RecordFilter) -> Pipeline {
        self.filter.push(filter);
        self
    }

    /// Keeps one part of the records, counted from 0. The sum of the shares is 1.
    pub fn split(mut self, shares: &[f64], part: usize, seed: u64) -> Pipeline {
        let shares = shares.to_vec();
        self.split = Some(Split { shares, part, seed });
        self
    }

    /// Keeps the first `records` records that filter and split leave.
    pub fn take(mut self, records: u64) -> Pipeline {
        self.take = Some(records);
        self
    }

    /// Returns the description without selection, weights and repeat: each record of the source
    /// once per epoch.
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

    /// Whether the description selects only some records of the source.
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

    /// Selects the records of a source. In a weighted mix, selects in each part.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the source lacks what a condition needs, or if no record is left.
    pub fn select(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>, Error> {
        if !self.selects() {
            return Ok(source);
        }
        self.check_chosen()?;
        self.select_in(source).map(|(selected, _)| selected)
    }

    /// Returns the numbers of the selected records in a source; `None` if all are selected.
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

    /// Returns the selected records as a source and by number; for a weighted mix, of each part.
    fn select_in(&self, source: Arc<dyn Source>) -> Result<(Arc<dyn Source>, Subset), Error> {
        let Some((parts, weights)) = source.mixed() else {
            let subset = self.subset(&*source)?;
            let selected = SelectedRecords::new(source, subset.clone());
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
        let selected = SelectedRecords::mixed(Arc::clone(&source), subset.clone(), parts, weights);
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
        let problem = "a weighted mix has no first records; set the epoch of the mix instead";
        Err(Error::config("take", problem))
    }

    fn subset(&self, source: &dyn Source) -> Result<Subset, Error> {
        if source.len() > MAX_RECORDS {
            let problem = format!(
                "records can be selected from at most {MAX_RECORDS}, not {}",
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

    /// Checks the selection as far as possible without a source.
    pub(super) fn check_chosen(&self) -> Result<(), Error> {
        self.filter.iter().try_for_each(RecordFilter::check)?;
        if self.take == Some(0) {
            return Err(Error::config("take", "it must be at least 1"));
        }
        self.split.as_ref().map_or(Ok(()), Split::check)
    }

    /// Describes selection and weights as lines of the plan. Empty if each record occurs once per
    /// epoch.
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
