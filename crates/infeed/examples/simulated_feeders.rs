//! Feeders whose machines are not there, for `benchmarks/feeders.py`:
//! `cargo run --release --example simulated_feeders -- PIPELINE COUNT BYTES_PER_S`.
//!
//! Each serves the pipeline on a port of its own, at the rate that was recorded elsewhere: it sleeps where
//! a machine would decode, and what it sends has the size of what would be sent. Prints where they listen, a line each, and serves until its input ends.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use infeed::Pipeline;
use infeed::feed::{FeedOptions, serve_over};
use infeed::source::throttled::{Throttle, Throttled};

/// Of each, for a few batches.
const MEMORY: u64 = 80 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, count, rate] = args.as_slice() else {
        return Err("PIPELINE COUNT BYTES_PER_S are wanted".into());
    };
    let count: usize = count.parse()?;
    let throttle = Throttle {
        bytes_per_s: rate.parse()?,
        requests_per_s: f64::INFINITY,
        latency: Duration::ZERO,
    };
    let pipeline = Pipeline::load(path)?;
    let source = pipeline.source.open(&[])?;
    let mut options = FeedOptions::default();
    // They sleep; what they copy and send is all they do.
    options.workers = Some(1);
    options.readers = Some(1);
    // A machine makes all its slabs with its first batches; here, that is a processor's work for all.
    options.memory = Some(MEMORY);

    let mut feeders = Vec::with_capacity(count);
    for _ in 0..count {
        let slow = Arc::new(Throttled::new(Arc::clone(&source), throttle));
        feeders.push(serve_over(&pipeline, slow, &options)?);
    }
    for feeder in &feeders {
        println!("{}", feeder.address());
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
