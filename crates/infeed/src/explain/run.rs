//! The plain run: the pipeline as it is, consumed as a training loop would, watched all the way.

use std::thread;
use std::time::{Duration, Instant};

use super::feed::{Feed, Got};
use super::findings::{QueuePoint, Run, Span, StageCost};
use crate::counters::Recorded;
use crate::error::Error;
use crate::loader::Stats;

/// Longest wait between two looks at the clock and at the user.
const PATIENCE: Duration = Duration::from_millis(50);

/// Points of the queue that are kept at most; beyond, every second one goes.
const POINTS: usize = 2_000;

/// What a pipeline selects, from the lines of its plan: one note.
pub(super) fn selected(selection: &str) -> Option<String> {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = selection.lines().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Consumes batches for `seconds` after the first one, each for the time of a step; `go_on` is
/// asked now and then with the share that is done.
///
/// # Errors
///
/// What stopped the loader.
pub(super) fn plain(
    feed: &Feed,
    step: Option<Duration>,
    seconds: f64,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Run, Error> {
    let loader = feed.loader();
    let opened = Instant::now();
    let mut first: Option<(Instant, u64)> = None;
    let (mut wait, mut stepped, mut rows) = (Duration::ZERO, Duration::ZERO, 0_u64);
    let mut queue: Vec<QueuePoint> = Vec::new();
    let (mut keep, mut seen) = (1_usize, 0_usize);
    let mut since_point = (Instant::now(), Duration::ZERO);
    loop {
        let done = first.map_or(0.0, |(at, _)| at.elapsed().as_secs_f64() / seconds);
        if done >= 1.0 || !go_on(done) {
            break;
        }
        let asked = Instant::now();
        let got = feed.next_within(PATIENCE)?;
        let waited = asked.elapsed();
        if first.is_some() {
            wait += waited;
        }
        since_point.1 += waited;
        let Got::Batch(samples) = got else { continue };
        rows += samples;
        first.get_or_insert((Instant::now(), rows));
        seen += 1;
        if seen.is_multiple_of(keep) {
            queue.push(QueuePoint {
                at_s: opened.elapsed().as_secs_f64(),
                ready: loader.ready()?,
                waiting: since_point.1.as_secs_f64()
                    / since_point.0.elapsed().as_secs_f64().max(1e-9),
            });
            since_point = (Instant::now(), Duration::ZERO);
        }
        if queue.len() == POINTS {
            let mut odd = false;
            queue.retain(|_| {
                odd = !odd;
                odd
            });
            keep *= 2;
        }
        if let Some(time) = step {
            let begun = Instant::now();
            thread::sleep(time);
            stepped += begun.elapsed();
        }
    }
    let stats = loader.stats()?;
    let (since, first_rows) =
        first.map_or((0.0, 0), |(at, rows)| (at.elapsed().as_secs_f64(), rows));
    Ok(Run {
        samples_per_s: (rows - first_rows) as f64 / since.max(1e-9),
        samples: rows,
        batches: stats.batches,
        seconds: opened.elapsed().as_secs_f64(),
        first_batch_s: stats.first_batch.unwrap_or_default().as_secs_f64(),
        wait_s: wait.as_secs_f64(),
        step_s: stepped.as_secs_f64(),
        stages: stages(&stats),
        queue,
    })
}

/// The cost of each stage, from a loader's counters.
pub(super) fn stages(stats: &Stats) -> Vec<StageCost> {
    let all: f64 = stats.stages.iter().map(|(_, s)| s.cpu.as_secs_f64()).sum();
    let cost = |(stage, s): &(crate::counters::Stage, crate::counters::StageStats)| {
        let cpu_s = s.cpu.as_secs_f64();
        StageCost {
            name: stage.name().to_owned(),
            samples: s.samples,
            wall_s: s.wall.as_secs_f64(),
            cpu_s,
            wait_s: s.wait.as_secs_f64(),
            bytes_in: s.bytes_in,
            bytes_out: s.bytes_out,
            p99_s: s.p99.as_secs_f64(),
            rate_per_core: if cpu_s > 0.0 {
                s.samples as f64 / cpu_s
            } else {
                0.0
            },
            cpu_share: cpu_s / all.max(1e-9),
        }
    };
    stats.stages.iter().map(cost).collect()
}

/// Spans as reports take them.
pub(super) fn spans(recorded: Vec<Recorded>) -> Vec<Span> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let span = |r: Recorded| Span {
        thread: r.thread,
        what: r.what.to_owned(),
        start_us: micros(r.start),
        length_us: micros(r.length),
        batch: r.batch,
    };
    recorded.into_iter().map(span).collect()
}
