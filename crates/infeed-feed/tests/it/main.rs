//! Tests of feeders over loopback: the trainer delivers the batches of a local run, whatever happens.

mod contents;
mod explanations;
mod functions;
mod moving;
mod proxy;
mod refusals;
mod sharing;
mod trouble;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use infeed::loader::remote::RemoteWorkerStats;
use infeed::pipeline::SourceSpec;
use infeed::{Batch, Loader, Options, Pipeline};
use infeed_codec::transform::{Normalize, RandomHorizontalFlip, RandomResizedCrop};
use infeed_feed::wire::token::Token;
use infeed_feed::{FeedOptions, Feeder, Feeders, Local, serve};
use infeed_testkit::data;

use crate::data::{bits, epoch};

/// A deadline that no batch of these tests exceeds, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// A short deadline, for tests that lose batches on purpose.
const SHORT_DEADLINE: Duration = Duration::from_millis(400);

fn token() -> Token {
    Token::new("a token for these tests").expect("long enough")
}

/// The pipeline of the tests, over a folder of photos.
fn pipeline(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(Normalize::new([0.5, 0.5, 0.5], [0.2, 0.2, 0.2]))
        .batch(4)
}

fn feeder(pipeline: &Pipeline) -> Feeder {
    let mut options = FeedOptions::default();
    (options.token, options.workers) = (token(), Some(2));
    options.memory = Some(128 << 20);
    serve(pipeline, &[], &options).expect("feeds")
}

fn host(feeder: &Feeder) -> String {
    feeder.address().to_string()
}

/// Feeders with the token of these tests.
fn feeders_at<T: Into<String>>(hosts: impl IntoIterator<Item = T>, local: Local) -> Feeders {
    let mut feeders = Feeders::new(hosts);
    (feeders.token, feeders.local, feeders.deadline) = (token(), local, DEADLINE);
    feeders
}

/// Options of a trainer with these feeders.
fn options_with(feeders: Feeders) -> Options {
    let mut options = Options::default();
    (options.workers, options.memory) = (Some(2), Some(256 << 20));
    options.remote = Some(Arc::new(feeders));
    options
}

/// Options of a trainer with feeders at these addresses.
fn options_for<T: Into<String>>(hosts: impl IntoIterator<Item = T>, local: Local) -> Options {
    options_with(feeders_at(hosts, local))
}

/// The same with a short deadline.
fn with_short_deadline<T: Into<String>>(
    hosts: impl IntoIterator<Item = T>,
    local: Local,
) -> Options {
    let mut feeders = feeders_at(hosts, local);
    feeders.deadline = SHORT_DEADLINE;
    options_with(feeders)
}

fn open(pipeline: &Pipeline, options: &Options) -> Loader {
    pipeline.open(options).expect("opens")
}

/// Returns records and bits of the next epochs.
fn epochs(loader: &Loader, count: usize) -> Vec<(Vec<u64>, Vec<u8>)> {
    let batches: Vec<Batch> = (0..count).flat_map(|_| epoch(loader)).collect();
    bits(&batches)
}

/// Returns the same from a local run.
fn locally(pipeline: &Pipeline, options: &Options, count: usize) -> Vec<(Vec<u64>, Vec<u8>)> {
    let mut options = options.clone();
    options.remote = None;
    epochs(&open(pipeline, &options), count)
}

fn stats(loader: &Loader) -> Vec<RemoteWorkerStats> {
    loader.stats().expect("open").remote
}
