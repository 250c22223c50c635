//! A remedy to try: the change that it makes, and its effect on the pixels. And an entry in the tables
//! of remedies, which makes it.

use crate::case::Case;
use crate::measure::storage::Storage;
use crate::measure::survey::Records;
use infeed::pipeline::Pipeline;
use infeed_pack::PackOptions;

/// The change that a remedy makes.
#[derive(Clone, Debug)]
pub(crate) enum RemedyChange {
    /// A cache of decoded records.
    Cache,
    /// Worker threads.
    Workers(usize),
    /// I/O threads.
    Readers(usize),
    /// Feeders that the user named.
    Feeders,
    /// The description, over the same data.
    Description(Box<Pipeline>),
    /// The data. The description stays and reads the new data.
    Pack { options: PackOptions },
}

/// A remedy to try.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Command or code that applies it. `OUT` is a placeholder for the new dataset.
    pub(crate) command: String,
    pub(crate) change: RemedyChange,
    pub(crate) pixels: PixelChange,
}

/// Effect of a remedy on the pixels that the consumer receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PixelChange {
    /// None, with a remark that begins with `identical`.
    Identical(&'static str),
    /// Known only after a comparison. The text describes what a loss means.
    Compared(&'static str),
}

/// An entry in a table of remedies. The functions receive the id of the candidate to make.
pub(super) enum KnownRemedy {
    /// A remedy without a number.
    Single {
        id: &'static str,
        /// Returns the remedy if it makes sense for the case.
        make: fn(String, &Case, Records) -> Option<Candidate>,
    },
    /// A remedy with a count, such as a number of workers.
    Counted {
        /// Id before the count.
        prefix: &'static str,
        /// Returns the counts that are worth a trial.
        counts: fn(&Case, Option<&Storage>) -> Vec<usize>,
        make: fn(String, &Case, usize) -> Candidate,
    },
}

impl KnownRemedy {
    /// Returns the candidates that make sense for the case.
    pub(super) fn candidates(
        &self,
        case: &Case,
        records: Records,
        storage: Option<&Storage>,
    ) -> Vec<Candidate> {
        match *self {
            KnownRemedy::Single { id, make } => {
                make(id.to_owned(), case, records).into_iter().collect()
            }
            KnownRemedy::Counted {
                prefix,
                counts,
                make,
            } => counts(case, storage)
                .into_iter()
                .map(|count| make(format!("{prefix}{count}"), case, count))
                .collect(),
        }
    }

    /// Returns the candidate with this id. Its count may be one that is not tried now.
    pub(super) fn by_id(&self, case: &Case, records: Records, id: &str) -> Option<Candidate> {
        match *self {
            KnownRemedy::Single { id: own, make } => (own == id)
                .then(|| make(id.to_owned(), case, records))
                .flatten(),
            KnownRemedy::Counted { make, .. } => {
                Some(make(id.to_owned(), case, self.count_in(id)?))
            }
        }
    }

    /// Whether a remedy of this entry can have this id.
    pub(super) fn has_id(&self, id: &str) -> bool {
        match *self {
            KnownRemedy::Single { id: own, .. } => own == id,
            KnownRemedy::Counted { .. } => self.count_in(id).is_some(),
        }
    }

    /// Returns the id for a message, with `N` in place of a count.
    pub(super) fn shown_id(&self) -> String {
        match *self {
            KnownRemedy::Single { id, .. } => id.to_owned(),
            KnownRemedy::Counted { prefix, .. } => format!("{prefix}N"),
        }
    }

    /// Returns the count at the end of an id of this entry.
    fn count_in(&self, id: &str) -> Option<usize> {
        let KnownRemedy::Counted { prefix, .. } = *self else {
            return None;
        };
        let count = id.strip_prefix(prefix)?.parse().ok()?;
        (count > 0).then_some(count)
    }
}
