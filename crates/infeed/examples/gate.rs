//! A fixed amount of work, for counting its instructions:
//! `cargo run --example gate -- pipeline.toml BATCHES`.

use std::thread;
use std::time::Duration;

use infeed::{Error, Loader, Options, Pipeline};
use infeed_raw::machine::process_cpu_time;

/// Memory budget in bytes. Fixed, because it bounds the number of batches that are prepared ahead.
const MEMORY: u64 = 512 << 20;

fn main() -> Result<(), Error> {
    let usage = "usage: gate PIPELINE BATCHES";
    let mut args = std::env::args().skip(1);
    let path = args.next().expect(usage);
    let batches: u64 = args.next().and_then(|n| n.parse().ok()).expect(usage);
    let mut options = Options::default();
    (options.workers, options.readers) = (Some(1), Some(1));
    options.memory = Some(MEMORY);
    let loader = Pipeline::load(path)?.open(&options)?;
    let mut taken = 0;
    while taken < batches {
        taken += u64::from(loader.next_batch()?.is_some());
    }
    wait_until_idle(&loader)?;
    println!("{taken} batches taken, {} ready", loader.ready()?);
    Ok(())
}

/// Waits until the loader has prepared all batches that fit its memory. Without that, the number of
/// batches that are prepared would depend on the moment at which the process ends.
fn wait_until_idle(loader: &Loader) -> Result<(), Error> {
    let (interval, idle) = (Duration::from_millis(500), Duration::from_millis(10));
    loop {
        let before = process_cpu_time();
        thread::sleep(interval);
        if loader.ready()? > 0 && process_cpu_time() - before < idle {
            return Ok(());
        }
    }
}
