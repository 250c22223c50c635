//! What could help: each remedy as a change of how the pipeline is opened, described or fed, which
//! is tried on a few hundred records here and applied to all of them by [`super::apply`].

mod arrange;
mod fed;
mod open;
mod processes;
mod rewrite;

use crate::pack::PackOptions;
use crate::pipeline::Pipeline;

use super::case::Case;
use super::findings::NotTried;
use super::storage::Storage;

pub(super) use fed::{candidate as fed, count_of};

/// What a remedy changes.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Worker threads.
    Workers(usize),
    /// I/O threads.
    Readers(usize),
    /// The feeders that were named.
    Feeders,
    /// The description, over the same data.
    Description(Box<Pipeline>),
    /// The data; the same description goes on over what is written.
    Pack { options: PackOptions },
}

/// A remedy that may be tried.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) name: String,
    /// What applies it, as typed or written; `OUT` stands for the new dataset.
    pub(super) command: String,
    pub(super) change: Change,
    /// What it does to the pixels, where that is known without looking.
    pub(super) quality: Option<&'static str>,
}

/// What is known of the records before remedies are chosen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// Of the images that were looked at, how many were of each kind.
    pub(super) png: usize,
    pub(super) jpeg: usize,
    /// Shorter side of half of the images at most, in pixels.
    pub(super) short_side: u32,
}

/// Everything that makes sense for this case, and what does not or not yet.
pub(super) fn candidates(
    case: &Case,
    records: Records,
    storage: Option<&Storage>,
) -> (Vec<Candidate>, Vec<NotTried>) {
    let mut found = Vec::new();
    let mut not = Vec::new();
    open::add(case, storage, &mut found);
    processes::add(case, &mut found, &mut not);
    arrange::add(case, &mut found);
    rewrite::add(case, records, &mut found, &mut not);
    (found, not)
}

/// The remedy that an explanation of this case calls `id`.
pub(super) fn by_id(case: &Case, records: Records, id: &str) -> Option<Candidate> {
    let opened = open::by_id(case, id)
        .or_else(|| processes::by_id(case, id))
        .or_else(|| fed::by_id(id));
    opened.or_else(|| {
        let (found, _) = candidates(case, records, None);
        found.into_iter().find(|candidate| candidate.id == id)
    })
}

/// A remedy that is not tried.
fn not_tried(id: &str, name: &str, why: impl Into<String>) -> NotTried {
    NotTried {
        id: id.to_owned(),
        name: name.to_owned(),
        why: why.into(),
    }
}
