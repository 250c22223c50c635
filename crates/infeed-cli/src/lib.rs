//! The `infeed` command, as a library that takes arguments and returns the exit status.
//!
//! Each command has a file, and a line in `commands`. `args` parses values such as `2GiB` and
//! `500x375`. `error` formats the message of a failure.
//!
//! The cargo feature `feed` (default) includes `infeed feed` and the option `--feeders`. Without it,
//! both are errors that name the feature.

#[macro_use]
mod terminal;

mod args;
mod bench;
mod cache;
mod commands;
mod default_pipeline;
mod demo;
mod error;
mod explain;
#[cfg(feature = "feed")]
mod feed;
#[cfg(feature = "feed")]
mod feeders;
mod files;
mod inspect;
mod interrupt;
mod json;
mod ledger;
mod log;
#[cfg(not(feature = "feed"))]
mod no_feed;
mod npy;
mod on_error;
mod pack;
mod probe;
mod sample;
mod schema;
mod target;
mod verify;

pub use commands::run;
#[cfg(not(feature = "feed"))]
use no_feed as feeders;
