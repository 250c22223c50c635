//! The wire of this machine to itself: batches of a pipeline's size, made of nothing and sent as a
//! feeder sends them. What they cost the side that receives is what any network leaves to be done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;
use crate::feed::{FeedOptions, FeedStats, serve};
use crate::loader::feeders::{Feeders, Local};
use crate::loader::{Options, Stats, Step};
use crate::pipeline::{Handle, MemoryField, Pipeline, SourceSpec};
use crate::sample::DType;
use crate::source::Source;

/// Bytes of a batch that is sent at most: its cost a byte does not grow with it.
const BATCH_BYTES: usize = 16 << 20;

/// Bytes of a row at most.
const ROW_BYTES: usize = 8 << 20;

/// Batches of an epoch; the records lie in memory.
const BATCHES: usize = 2;

/// Batches left out at the beginning, which touch memory for the first time.
const WARM_UP: usize = 6;

/// Length of a measurement, and the longest wait for one.
const SLICE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(5);

/// What the wire of this machine to itself gives, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loopback {
    /// Bytes a second over one connection.
    pub(super) connection: f64,
    /// Over two at once, or over one if that is more.
    pub(super) all: f64,
    /// Processor time of who receives, and of who sends, a byte.
    pub(super) receive_s: f64,
    pub(super) send_s: f64,
}

/// Sends batches of so many rows of so many bytes for a second or two.
///
/// # Errors
///
/// What keeps this machine from sending to itself.
pub(super) fn loopback(row_bytes: f64, rows: u64) -> Result<Loopback, Error> {
    let row = (row_bytes.max(1.0) as usize).min(ROW_BYTES);
    let rows = (rows as usize).clamp(1, (BATCH_BYTES / row).max(1));
    let field = MemoryField::array("rows", "tensor", DType::UInt8, vec![row], 0);
    let pipeline = Pipeline::new(SourceSpec::Memory {
        fields: vec![field],
    })
    .batch(rows as u64);
    let handles = [Handle::from(Bytes::from(vec![0x5a; row * rows * BATCHES]))];
    let listening = FeedOptions {
        workers: Some(1),
        ..FeedOptions::default()
    };
    let feeder = serve(&pipeline, &handles, &listening)?;
    let host = feeder.address().to_string();
    let source = pipeline.open_source(&handles)?;
    let one = run(&pipeline, &source, std::slice::from_ref(&host))?;
    let sent: FeedStats = feeder.stats();
    let two = run(&pipeline, &source, &[host.clone(), host])?;
    Ok(Loopback {
        connection: one.0,
        all: two.0.max(one.0),
        receive_s: one.1,
        send_s: sent.cpu.as_secs_f64() / sent.bytes.max(1) as f64,
    })
}

/// Bytes a second, and processor time a byte received.
fn run(
    pipeline: &Pipeline,
    source: &Arc<dyn Source>,
    hosts: &[String],
) -> Result<(f64, f64), Error> {
    let mut feeders = Feeders::new(hosts.iter().map(String::as_str));
    feeders.local = Local::Fallback;
    let mut options = Options::default();
    (options.workers, options.feeders) = (Some(1), Some(feeders));
    let loader = pipeline.open_over(Arc::clone(source), &options)?;
    let begun = Instant::now();
    let mut before: Option<(Instant, Stats)> = None;
    let mut batches = 0;
    while begun.elapsed() < PATIENCE {
        if let Step::Batch(batch) = loader.next_within(SLICE)? {
            batches += 1;
            drop(batch);
        }
        match &before {
            None if batches >= WARM_UP => before = Some((Instant::now(), loader.stats()?)),
            Some((since, _)) if since.elapsed() >= SLICE => break,
            _ => {}
        }
    }
    let nothing = || {
        let problem = "nothing came from this machine to itself, so the wire was not measured";
        Error::config("feeders", problem)
    };
    let (since, before) = before.ok_or_else(nothing)?;
    let after = loader.stats()?;
    let seconds = since.elapsed().as_secs_f64().max(1e-9);
    let bytes = bytes(&after).saturating_sub(bytes(&before)) as f64;
    let cpu = cpu(&after).saturating_sub(cpu(&before)).as_secs_f64();
    match bytes > 0.0 {
        true => Ok((bytes / seconds, cpu / bytes)),
        false => Err(nothing()),
    }
}

fn bytes(stats: &Stats) -> u64 {
    stats.feeders.iter().map(|feeder| feeder.bytes).sum()
}

fn cpu(stats: &Stats) -> Duration {
    stats.feeders.iter().map(|feeder| feeder.cpu).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_sends_batches_to_itself_and_tells_what_that_costs() {
        for (row_bytes, rows) in [(1000.0, 64), (200_000.0, 8), (0.0, 1)] {
            let found = loopback(row_bytes, rows).expect("loopback is there");

            assert!(
                found.connection > 0.0 && found.all >= found.connection,
                "{found:?}"
            );
            assert!(found.receive_s > 0.0 && found.send_s > 0.0, "{found:?}");
        }
    }
}
