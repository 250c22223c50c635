//! The plain run: the pipeline as it is, consumed like a training loop and observed throughout.

use std::thread;
use std::time::{Duration, Instant};

use super::consumer::LoaderConsumer;
use super::progress::{Phases, RUNNING};
use super::variant::with_fixed_workers;
use crate::case::Case;
use crate::findings::{QueuePoint, Run, Span};
use crate::model::stages::stage_costs;
use crate::model::transfers::Transfers;
use infeed::loader::Loader;
use infeed_core::counters::TimelineSpan;
use infeed_core::error::Error;
use infeed_device::busy::{Utilisation, UtilisationMonitor};

/// Duration at the start of the plain run in which the timeline is recorded.
const TIMELINE: Duration = Duration::from_secs(2);

/// Longest wait between two checks of the clock and of `go_on`.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of queue points. Beyond it, every second point is dropped.
const POINTS: usize = 2_000;

/// The plain run with everything that was observed.
pub(crate) struct PlainRun {
    pub(crate) run: Run,
    /// The plan, one line per field.
    pub(crate) plan: String,
    pub(crate) utilisation: Option<Utilisation>,
    pub(crate) timeline: Vec<Span>,
    pub(crate) transfers: Option<Transfers>,
    /// Notes about the selection and the run, one sentence each.
    pub(crate) notes: Vec<String>,
}

impl PlainRun {
    /// Opens the pipeline of a case and runs it.
    ///
    /// # Errors
    ///
    /// As opening and running the pipeline.
    pub(crate) fn measure(case: &Case, phases: &Phases<'_>) -> Result<PlainRun, Error> {
        let conditions = &case.conditions;
        let mut options = with_fixed_workers(&conditions.open);
        options.timeline = Some(TIMELINE);
        let order = case.pipeline.order(&*case.own, &case.handles)?;
        let selection = case.pipeline.selection(&*case.own, &order);
        let consumer = LoaderConsumer::open(case, &case.pipeline.plain(), &options)?;
        let loader = consumer.loader();
        let plan = format!("{selection}{}", loader.plan()?);
        let device = conditions.device.as_ref();
        let watch = device.and_then(UtilisationMonitor::over);
        let running = |share| phases.report(RUNNING, share);
        let run = plain(&consumer, conditions.step, conditions.seconds, &running)?;
        let mut notes = notices(loader, &run);
        notes.extend(selection_note(&selection));
        Ok(PlainRun {
            plan,
            utilisation: watch.and_then(UtilisationMonitor::end),
            timeline: spans(loader.timeline()?),
            transfers: consumer.transfers()?,
            notes,
            run,
        })
    }
}

/// Returns the loader's notices, and the limits of a run that was too short.
fn notices(loader: &Loader, run: &Run) -> Vec<String> {
    let mut notes = loader.take_notices();
    let bad = loader.bad_records().len();
    if bad > 0 {
        notes.push(format!("{bad} bad records were replaced or left out"));
    }
    if run.batches < 10 {
        notes.push(format!(
            "only {} batches were measured; use smaller batches or a longer --seconds for tighter \
            intervals",
            run.batches
        ));
    }
    notes
}

/// Joins the selection lines of a plan into one note.
pub(crate) fn selection_note(selection: &str) -> Option<String> {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = selection.lines().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Consumes batches for `seconds` after the first one, with a step of the given length. Calls
/// `go_on` regularly with the share that is done.
///
/// # Errors
///
/// Returns the error that stopped the loader.
pub(crate) fn plain(
    consumer: &LoaderConsumer,
    step: Option<Duration>,
    seconds: f64,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Run, Error> {
    let loader = consumer.loader();
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
        let begun = Instant::now();
        let got = consumer.next_within(POLL_INTERVAL)?;
        let waited = begun.elapsed();
        if first.is_some() {
            wait += waited;
        }
        since_point.1 += waited;
        let Some(samples) = got else { continue };
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
        stages: stage_costs(&stats),
        queue,
    })
}

/// Converts timeline spans for the reports.
pub(crate) fn spans(recorded: Vec<TimelineSpan>) -> Vec<Span> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let span = |r: TimelineSpan| Span {
        thread: r.thread,
        what: r.what.to_owned(),
        start_us: micros(r.start),
        length_us: micros(r.length),
        batch: r.batch,
    };
    recorded.into_iter().map(span).collect()
}
