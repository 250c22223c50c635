//! The bare loops: the rate of infeed's decoders and kernels without the engine.
//!
//! n threads each decode records from the page cache into their own memory, which is reused for
//! every batch. No order, no queues, no hand-over: the difference of an engine to these numbers is
//! the cost of the engine. Prints one line of JSON, as `measure.py` does.

mod classification;
mod decoded_rows;
mod records;
mod segmentation;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::{Parser, ValueEnum};
use infeed_raw::machine;
use serde_json::json;

/// Measures a bare loop.
#[derive(Parser)]
struct Args {
    workload: Workload,
    /// Folder of the dataset; for the decoded one, its .npy file.
    #[arg(long)]
    data: PathBuf,
    #[arg(long, default_value_t = machine::usable_cores())]
    threads: usize,
    /// Length of the measured span.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before the span, in which all memory is touched.
    #[arg(long, default_value_t = 3.0)]
    warm_up: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    Segmentation,
    SegmentationOrdered,
    SegmentationLossless,
    WholePng,
    Classification,
    ClassificationLossless,
    ClassificationUint8,
    ClassificationUint8Lossless,
    Decoded,
    DecodedUint8,
}

/// The loop body of one thread: makes one batch and returns its number of samples.
type Step = Box<dyn FnMut() -> Result<u64>>;

/// Makes the steps of each thread from its number; shared by all of them.
type Job = Box<dyn Fn(u64) -> Result<Step> + Sync>;

fn main() -> Result<()> {
    let args = Args::parse();
    let job = match args.workload {
        Workload::Segmentation | Workload::SegmentationOrdered => segmentation::pairs(&args.data)?,
        Workload::SegmentationLossless => segmentation::records(&args.data)?,
        Workload::WholePng => segmentation::whole(&args.data)?,
        Workload::Classification => classification::jpegs(&args.data, true)?,
        Workload::ClassificationLossless => classification::records(&args.data, true)?,
        Workload::ClassificationUint8 => classification::jpegs(&args.data, false)?,
        Workload::ClassificationUint8Lossless => classification::records(&args.data, false)?,
        Workload::Decoded => decoded_rows::job(&args.data, true)?,
        Workload::DecodedUint8 => decoded_rows::job(&args.data, false)?,
    };
    let figures = measure(&args, &job)?;
    println!("{figures}");
    Ok(())
}

/// Runs the job on all threads and counts the samples of the measured span.
fn measure(args: &Args, job: &Job) -> Result<serde_json::Value> {
    let done: Vec<AtomicU64> = (0..args.threads).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let count = || {
        done.iter()
            .map(|samples| samples.load(Ordering::Relaxed))
            .sum::<u64>()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = done
            .iter()
            .enumerate()
            .map(|(n, samples)| {
                let stop = &stop;
                scope.spawn(move || -> Result<()> {
                    let mut step = job(n as u64)?;
                    while !stop.load(Ordering::Relaxed) {
                        samples.fetch_add(step()?, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(Duration::from_secs_f64(args.warm_up));
        let (before, cpu_before, start) = (count(), machine::process_cpu_time(), Instant::now());
        thread::sleep(Duration::from_secs_f64(args.seconds));
        let (samples, cpu, wall) = (
            count() - before,
            machine::process_cpu_time() - cpu_before,
            start.elapsed(),
        );
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(json!({
            "samples_per_s": samples as f64 / wall.as_secs_f64(),
            "wall_s": wall.as_secs_f64(),
            "cpu_ms_per_sample": cpu.as_secs_f64() * 1e3 / samples.max(1) as f64,
            "peak_rss_bytes": machine::peak_rss_bytes(),
        }))
    })
}
