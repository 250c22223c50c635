//! Simulated feeders for `benchmarks/feeders.py`:
//! `cargo run --release --example simulated_feeders -- PIPELINE COUNT BYTES_PER_S`.
//!
//! Each feeder serves the pipeline on its own port, at a rate that was measured elsewhere. It
//! sleeps in place of decoding and sends rows of the real size. Prints the address of each feeder
//! on a line and serves until its input ends.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use infeed::Pipeline;
use infeed_feed::{FeedOptions, serve_over};
use infeed_source::throttle::{Throttle, ThrottledSource};

/// Memory budget in bytes of each feeder, for a few batches.
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
    // Workers sleep, so copying and sending are the only work.
    options.workers = Some(1);
    options.readers = Some(1);
    // Real feeders each make their slabs with their first batches. Here one CPU makes all slabs, so
    // they are few.
    options.memory = Some(MEMORY);

    let mut feeders = Vec::with_capacity(count);
    for _ in 0..count {
        let slow = Arc::new(ThrottledSource::new(Arc::clone(&source), throttle));
        feeders.push(serve_over(&pipeline, slow, &options)?);
    }
    for feeder in &feeders {
        println!("{}", feeder.address());
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
