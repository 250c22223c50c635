//! A training loop over storage that is slower than the pipeline, for `benchmarks/tuning.py`:
//! `cargo run --release --example throttled -- PIPELINE MB_PER_S WORKERS|auto SECONDS SETTLE`.
//!
//! Prints one line of JSON: the time of a step during the measured seconds, and the tuned number of
//! workers. The measurement begins when tuning has settled, or after `SETTLE` seconds.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed::{Options, Pipeline};
use infeed_source::throttle::{Throttle, ThrottledSource};

/// Warm-up time if no tuning has to settle.
const WARM_UP: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, rate, workers, seconds, settle] = args.as_slice() else {
        return Err("PIPELINE MB_PER_S WORKERS|auto SECONDS SETTLE are wanted".into());
    };
    let time = |text: &str| -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::try_from_secs_f64(text.parse()?)?)
    };
    let (seconds, settle) = (time(seconds)?, time(settle)?);
    let throttle = Throttle {
        bytes_per_s: rate.parse::<f64>()? * 1e6,
        requests_per_s: 1e6,
        latency: Duration::from_millis(1),
    };
    let mut options = Options::default();
    options.workers = match workers.as_str() {
        "auto" => None,
        number => Some(number.parse()?),
    };
    let pipeline = Pipeline::load(path)?;
    let source = pipeline.source.open(&[])?;
    let loader = pipeline.open_over(Arc::new(ThrottledSource::new(source, throttle)), &options)?;

    let opened = Instant::now();
    let mut settled_s = None;
    let begun = loop {
        let batch = loader.next_batch()?;
        match loader.stats()?.tuned {
            None if opened.elapsed() >= WARM_UP && batch.is_some() => break Instant::now(),
            Some(tuned) if tuned.settled || opened.elapsed() >= settle => {
                settled_s = tuned.settled.then(|| opened.elapsed().as_secs_f64());
                break Instant::now();
            }
            _ => {}
        }
    };
    let waited = loader.stats()?.wait;
    let mut steps = 0_u32;
    while begun.elapsed() < seconds {
        steps += u32::from(loader.next_batch()?.is_some());
    }
    let span = begun.elapsed().as_secs_f64();
    let stats = loader.stats()?;
    println!(
        "{}",
        serde_json::json!({
            "step_s": span / f64::from(steps.max(1)),
            "wait": (stats.wait - waited).as_secs_f64() / span,
            "steps": steps,
            "workers": stats.workers,
            "settled_s": settled_s,
            "text": stats.tuned.map(|tuned| tuned.text),
        })
    );
    Ok(())
}
