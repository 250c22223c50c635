//! Measures loopback: sends batches of the pipeline's size from this machine to itself, as a feeder
//! sends them. The receiver's cost is the same with any network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use infeed::loader::{Options, Stats, Step};
use infeed::pipeline::{Handle, MemoryField, Pipeline, SourceSpec};
use infeed_core::error::Error;
use infeed_core::sample::DType;
use infeed_feed::wire::channel::Encryption;
use infeed_feed::{FeedOptions, FeedStats, Feeders, Local, serve};
use infeed_source::Source;

/// Maximum bytes of a batch. The cost per byte does not grow with the batch.
const BATCH_BYTES: usize = 16 << 20;

/// Maximum bytes of a row.
const ROW_BYTES: usize = 8 << 20;

/// Batches of an epoch. The records lie in memory.
const BATCHES: usize = 2;

/// Batches of feeders left out at the start, because they touch memory for the first time.
const WARM_UP: u64 = 6;

/// Length of a measurement.
const SLICE: Duration = Duration::from_millis(400);

/// Longest wait for the connection, and for the next bytes. A busy machine needs seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Rates and costs of loopback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loopback {
    /// Bytes per second over one connection.
    pub(super) connection: f64,
    /// Bytes per second over two connections, or over one if that is more.
    pub(super) all: f64,
    /// Processor time per byte of the receiver, and of the sender, in seconds.
    pub(super) receive_s: f64,
    pub(super) send_s: f64,
}

/// Sends batches of `rows` rows of `row_bytes` bytes for 1 to 2 s.
///
/// # Errors
///
/// Returns the error that keeps this machine from sending to itself.
pub(super) fn loopback(row_bytes: f64, rows: u64) -> Result<Loopback, Error> {
    let row = (row_bytes.max(1.0) as usize).min(ROW_BYTES);
    let rows = (rows as usize).clamp(1, (BATCH_BYTES / row).max(1));
    let field = MemoryField::array("rows", "tensor", DType::UInt8, vec![row], 0);
    let pipeline = Pipeline::new(SourceSpec::Memory {
        fields: vec![field],
    })
    .batch(rows as u64);
    let handles = [Handle::from(Bytes::from(vec![0x5a; row * rows * BATCHES]))];
    let mut listening = FeedOptions::default();
    listening.workers = Some(1);
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

/// Returns bytes per second, and processor time per received byte.
fn run(
    pipeline: &Pipeline,
    source: &Arc<dyn Source>,
    hosts: &[String],
) -> Result<(f64, f64), Error> {
    let mut feeders = Feeders::new(hosts.iter().map(String::as_str));
    feeders.local = Local::Fallback;
    // Encryption, as between machines, because it is part of the cost per byte there.
    feeders.encryption = Encryption::Always;
    let mut options = Options::default();
    options.workers = Some(1);
    options.remote = Some(Arc::new(feeders));
    let loader = pipeline.open_over(Arc::clone(source), &options)?;
    let mut last = (Instant::now(), 0);
    let mut before: Option<(Instant, Stats)> = None;
    while last.0.elapsed() < TIMEOUT {
        if let Step::Batch(batch) = loader.next_within(SLICE)? {
            drop(batch);
        }
        // Local threads make batches until a feeder is connected, so only the bytes of feeders count.
        let stats = loader.stats()?;
        if bytes(&stats) > last.1 {
            last = (Instant::now(), bytes(&stats));
        }
        match &before {
            None if batches(&stats) >= WARM_UP => before = Some((Instant::now(), stats)),
            Some((since, before)) if since.elapsed() >= SLICE && last.1 > bytes(before) => break,
            _ => {}
        }
    }
    let nothing = || {
        let problem = "no bytes arrived over loopback, so the wire was not measured";
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

fn batches(stats: &Stats) -> u64 {
    stats.remote.iter().map(|feeder| feeder.batches).sum()
}

fn bytes(stats: &Stats) -> u64 {
    stats.remote.iter().map(|feeder| feeder.bytes).sum()
}

fn cpu(stats: &Stats) -> Duration {
    stats.remote.iter().map(|feeder| feeder.cpu).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_reports_its_rate_and_its_cost() {
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
