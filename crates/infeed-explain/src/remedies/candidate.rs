//! A remedy to try: the change that it makes, and its effect on the pixels.

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
