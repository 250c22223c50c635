//! Remedies: changes of how the pipeline is opened, described or fed. A trial runs them on a few
//! hundred records, and [`super::apply`] applies one to all records.

mod arrange;
pub(super) mod feeders;
mod open;
mod processes;
mod rewrite;

use infeed::pipeline::Pipeline;
use infeed_pack::PackOptions;

use super::case::Case;
use super::findings::NotTried;
use super::storage::Storage;
use infeed_core::error::Error;

pub(super) use feeders::count_of;

/// The change that a remedy makes.
#[derive(Clone, Debug)]
pub(super) enum RemedyChange {
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
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) name: String,
    /// Command or code that applies it. `OUT` is a placeholder for the new dataset.
    pub(super) command: String,
    pub(super) change: RemedyChange,
    pub(super) pixels: PixelChange,
}

/// Effect of a remedy on the pixels that the consumer receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PixelChange {
    /// None, with a remark that begins with `identical`.
    Identical(&'static str),
    /// Known only after a comparison. The text describes what a loss means.
    Compared(&'static str),
}

/// Facts about the records that decide which remedies make sense.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// Number of images of each format among those that were read.
    pub(super) png: usize,
    pub(super) jpeg: usize,
    /// Median of the shorter sides, in pixels.
    pub(super) short_side: u32,
}

/// Returns the remedies that make sense for this case, and the others with a reason.
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
    rewrite::add(case, records, &mut found);
    (found, not)
}

/// Returns the remedy with this id.
pub(super) fn by_id(case: &Case, records: Records, id: &str) -> Option<Candidate> {
    let opened = open::by_id(case, id)
        .or_else(|| processes::by_id(case, id))
        .or_else(|| feeders::by_id(id));
    opened.or_else(|| {
        let (found, _) = candidates(case, records, None);
        found.into_iter().find(|candidate| candidate.id == id)
    })
}

/// Ids of remedies without a number. Images can also be resized or cropped and written as JPEG.
const IDS: &[&str] = &[
    open::CACHE,
    "class-index",
    "crop",
    "crop-jpeg-95",
    "dct-scale",
    "decoded",
    "jpeg-90",
    "jpeg-95",
    "lossless",
    "png-stored",
    "png-up",
    "resize",
    "resize-jpeg-95",
    "restart-index",
    "shards",
    "uint8",
    "unverified",
];

/// Checks the id of a remedy, or its number in a report, before anything is measured. Whether the
/// remedy fits the pipeline is only known afterwards.
///
/// # Errors
///
/// [`Error::Config`] with the list of ids.
pub fn check_id(id: &str) -> Result<(), Error> {
    let counted = [
        open::WORKERS,
        open::READERS,
        processes::PROCESSES,
        feeders::FEEDERS,
    ];
    let is_count = |text: &str| text.parse::<usize>().is_ok_and(|count| count > 0);
    let numbered = |prefix: &&str| id.strip_prefix(*prefix).is_some_and(is_count);
    if is_count(id) || IDS.contains(&id) || counted.iter().any(numbered) {
        return Ok(());
    }
    let counted = counted.map(|prefix| format!("{prefix}N"));
    let problem = format!(
        "no remedy `{id}`; use a number of the report, or one of {}, {}",
        IDS.join(", "),
        counted.join(", "),
    );
    Err(Error::config("apply", problem))
}

/// Builds the entry of a remedy that is not tried.
fn not_tried(id: &str, name: &str, why: impl Into<String>) -> NotTried {
    NotTried {
        id: id.to_owned(),
        name: name.to_owned(),
        why: why.into(),
    }
}
