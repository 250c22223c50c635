//! How long threads hold the executor's mutexes, per sample:
//! `cargo run --release --features lock-times --example lock_times -- PIPELINE WORKERS SECONDS`.
//!
//! A mutex limits the rate once threads hold it all the time. For 64 cores, the example computes
//! the share of the time from the time per sample here: samples pass 64 times as often as on one
//! core. `WORKERS` may exceed the cores of this machine.

use std::error::Error;
use std::time::{Duration, Instant};

use infeed::{Options, Pipeline};
use infeed_core::exec::{HoldTotals, hold_totals};
use infeed_raw::machine::process_cpu_time;

/// Cores for which the share is computed.
const CORES: f64 = 64.0;
/// Time before the measurement begins.
const WARM_UP: Duration = Duration::from_secs(2);
/// Readings of the clock that are timed.
const READINGS: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, workers, seconds] = args.as_slice() else {
        return Err("usage: lock_times PIPELINE WORKERS SECONDS".into());
    };
    let seconds = Duration::try_from_secs_f64(seconds.parse()?)?;
    let mut options = Options::default();
    options.workers = Some(workers.parse()?);
    let loader = Pipeline::load(path)?.open(&options)?;
    let clock_ns = time_of_a_reading();

    let opened = Instant::now();
    while opened.elapsed() < WARM_UP {
        loader.next_batch()?;
    }
    let (began, samples, cpu) = (Instant::now(), loader.stats()?.samples, process_cpu_time());
    let before = hold_totals();
    while began.elapsed() < seconds {
        loader.next_batch()?;
    }
    let samples = (loader.stats()?.samples - samples) as f64;
    let sample_ns = (process_cpu_time() - cpu).as_nanos() as f64 / samples;
    println!("{samples} samples, {sample_ns:.0} ns of processor time each");
    println!("mutex   holds per sample  ns per hold  ns per sample  share on {CORES} cores");
    for (before, now) in before.into_iter().zip(hold_totals()) {
        println!("{}", describe(now, before, samples, sample_ns, clock_ns));
    }
    Ok(())
}

fn describe(
    now: HoldTotals,
    before: HoldTotals,
    samples: f64,
    sample_ns: f64,
    clock_ns: f64,
) -> String {
    let holds = (now.holds - before.holds) as f64;
    let held_ns = ((now.held_ns - before.held_ns) as f64 - holds * clock_ns).max(0.0);
    let per_sample = held_ns / samples;
    format!(
        "{:<8}{:>16.3}{:>13.0}{:>15.1}{:>15.3} %{:>8} interrupted",
        now.name,
        holds / samples,
        held_ns / holds.max(1.0),
        per_sample,
        CORES * per_sample / sample_ns * 100.0,
        now.interrupted - before.interrupted,
    )
}

/// Returns the nanoseconds of one reading of the clock, which each measured hold contains.
fn time_of_a_reading() -> f64 {
    let begun = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    begun.elapsed().as_nanos() as f64 / f64::from(READINGS)
}
