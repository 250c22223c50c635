//! How a pipeline is opened.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::digest::Digested;
use super::hosts::Feeders;
use crate::plan::device::DecodeBy;

/// A wait that is worth a line in the log, unless the user says otherwise: longer than a storage's
/// hiccup, shorter than a user's patience.
const STALL: Duration = Duration::from_secs(10);

/// How a pipeline is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Worker threads. None: as many as make the consumer's step shortest and no more, found while
    /// it runs, beginning with the cores that this process may use; see
    /// [`Stats::tuned`](super::Stats::tuned).
    pub workers: Option<usize>,
    /// I/O threads. None: 4, or as many as suit where the source's bytes lie.
    pub readers: Option<usize>,
    /// Bytes for slabs, encoded bytes and decode scratch. None: what four batches and their
    /// making need, at most half of what this process may still use.
    pub memory: Option<u64>,
    /// This process among those that train together.
    pub rank: u64,
    /// How many of them there are.
    pub world_size: u64,
    /// What becomes of bad records.
    pub on_error: OnError,
    /// Most different bad records before the run stops: one that is bad in every epoch is one.
    pub max_bad: Option<u64>,
    /// How long to record who does what when, from opening; see
    /// [`Loader::timeline`](super::Loader::timeline).
    pub timeline: Option<Duration>,
    /// How long the consumer waits for a batch before a line in the log says who waits for whom.
    pub stall: Option<Duration>,
    /// What [`Loader::digest`](super::Loader::digest) covers.
    pub digest: Digested,
    /// A file to which the digest of every step is written as it is delivered; one of the same run
    /// is gone on with. For [`verify`](super::verify).
    pub digest_file: Option<PathBuf>,
    /// Other machines that make batches beside this one. With them, `workers: None` means the cores that
    /// this process may use.
    pub feeders: Option<Feeders>,
    /// Who decodes JPEGs, for batches on a device.
    pub decode: DecodeBy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: None,
            readers: None,
            memory: None,
            rank: 0,
            world_size: 1,
            on_error: OnError::Stop,
            max_bad: None,
            timeline: None,
            stall: Some(STALL),
            digest: Digested::Ids,
            digest_file: None,
            feeders: None,
            decode: DecodeBy::Auto,
        }
    }
}

/// What becomes of a record whose bytes are bad. A failed *read* always stops the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The error comes out at the record's place in the order.
    #[default]
    Stop,
    /// Another record, a function of seed, epoch and position, takes its place.
    Substitute,
    /// Its batch is shorter. Refused where all must be full: with several ranks, and with every
    /// [`Tail`](crate::order::partition::Tail) but `Keep`.
    Skip,
}
