//! Counters of every stage: always on, written by one thread, readable by any.

mod histogram;
mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use histogram::Calls;
use histogram::Histogram;
pub use timeline::{Timeline, TimelineSpan};

/// False in a build with `--cfg infeed_uncounted`, which measures the cost of counting.
const COUNTED: bool = !cfg!(infeed_uncounted);

/// A stage of the pipeline that runs on I/O threads or workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reads encoded bytes from storage.
    Read,
    /// Decodes bytes to pixels.
    Decode,
    /// Transforms pixels.
    Transform,
    /// Writes pixels into the row of a batch: flip, cast, normalize, layout, one-hot.
    Write,
    /// User functions on samples and batches.
    Python,
}

impl Stage {
    /// All stages, in the order data flows.
    pub const ALL: [Stage; 5] = [
        Stage::Read,
        Stage::Decode,
        Stage::Transform,
        Stage::Write,
        Stage::Python,
    ];

    /// Lower-case name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Decode => "decode",
            Stage::Transform => "transform",
            Stage::Write => "write",
            Stage::Python => "python",
        }
    }
}

/// Counters of one stage on one thread.
#[derive(Debug, Default)]
struct Counts {
    samples: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    wall_ns: AtomicU64,
    cpu_ns: AtomicU64,
    wait_ns: AtomicU64,
    calls: Histogram,
}

/// Counters of one thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    stages: [Counts; Stage::ALL.len()],
    timeline: Option<Arc<Timeline>>,
    /// Batch that the thread works on, plus one; 0 if unknown.
    batch: AtomicU64,
}

/// Snapshot of one stage, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageStats {
    /// Samples processed.
    pub samples: u64,
    /// Input bytes.
    pub bytes_in: u64,
    /// Output bytes.
    pub bytes_out: u64,
    /// Time threads spent inside the stage.
    pub wall: Duration,
    /// Processor time of the threads inside the stage.
    pub cpu: Duration,
    /// Time that threads were blocked before the stage: reading waits for the read-ahead limit,
    /// decoding for encoded bytes, writing for a free batch, Python for the GIL or a free process.
    pub wait: Duration,
    /// 99th percentile of the duration of calls, within 7 %.
    pub p99: Duration,
}

impl ThreadCounters {
    /// Creates counters that also record spans in a timeline.
    pub fn new(timeline: Option<Arc<Timeline>>) -> ThreadCounters {
        ThreadCounters {
            timeline,
            ..ThreadCounters::default()
        }
    }

    /// Sets the batch that the following work is for.
    pub fn work_for(&self, batch: u64) {
        if self.timeline.is_some() {
            self.batch.store(batch + 1, Ordering::Relaxed);
        }
    }

    /// Adds the durations of this thread's calls of a stage.
    pub fn add_calls(&self, stage: Stage, sum: &mut Calls) {
        sum.add(&self.stages[stage as usize].calls);
    }

    /// Records one call in the histogram and the timeline.
    fn call(&self, stage: Stage, start: Instant, end: Instant) {
        self.stages[stage as usize].calls.add(nanos(end - start));
        if let Some(timeline) = &self.timeline {
            let batch = self.batch.load(Ordering::Relaxed).checked_sub(1);
            timeline.record(stage.name(), start, end, batch);
        }
    }

    /// Adds this thread's counters of a stage to a sum.
    pub fn add_to(&self, stage: Stage, sum: &mut StageStats) {
        // Relaxed: each number is right by itself, and a snapshot needs no more.
        let counts = &self.stages[stage as usize];
        sum.samples += counts.samples.load(Ordering::Relaxed);
        sum.bytes_in += counts.bytes_in.load(Ordering::Relaxed);
        sum.bytes_out += counts.bytes_out.load(Ordering::Relaxed);
        sum.wall += Duration::from_nanos(counts.wall_ns.load(Ordering::Relaxed));
        sum.cpu += Duration::from_nanos(counts.cpu_ns.load(Ordering::Relaxed));
        sum.wait += Duration::from_nanos(counts.wait_ns.load(Ordering::Relaxed));
    }

    /// Counts samples and bytes of a stage.
    pub fn count(&self, stage: Stage, samples: u64, bytes_in: u64, bytes_out: u64) {
        if !COUNTED {
            return;
        }
        let counts = &self.stages[stage as usize];
        counts.samples.fetch_add(samples, Ordering::Relaxed);
        counts.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        counts.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
    }

    /// Counts time blocked before a stage.
    pub fn add_wait(&self, stage: Stage, time: Duration) {
        self.stages[stage as usize]
            .wait_ns
            .fetch_add(nanos(time), Ordering::Relaxed);
    }
}

/// Wall time between two queries of the thread's processor time. A query is a system call of about
/// 200 ns, so one per 2 ms costs 0.01 %.
const SETTLE_NS: u64 = 2_000_000;

/// Measures the stages of one thread: reads the clock at every border for wall time, and sometimes
/// the processor time, which is divided in proportion to wall time.
#[derive(Debug)]
pub struct Meter {
    mark: Instant,
    /// Wall time by stage since the last query of processor time.
    pending_ns: [u64; Stage::ALL.len()],
    cpu: Duration,
    cpu_time: fn() -> Duration,
}

impl Meter {
    /// Creates a meter for the calling thread. `cpu_time` returns the processor time of that
    /// thread.
    pub fn new(cpu_time: fn() -> Duration) -> Meter {
        Meter {
            mark: Instant::now(),
            pending_ns: [0; Stage::ALL.len()],
            cpu: if COUNTED { cpu_time() } else { Duration::ZERO },
            cpu_time,
        }
    }

    /// Begins to measure. Earlier time belongs to no stage.
    pub fn start(&mut self) {
        if !COUNTED {
            return;
        }
        self.mark = Instant::now();
    }

    /// Ends a stage and adds the time since the last border to it.
    pub fn lap(&mut self, stage: Stage, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let now = Instant::now();
        let spent = nanos(now - self.mark);
        counters.call(stage, self.mark, now);
        self.mark = now;
        self.pending_ns[stage as usize] += spent;
        counters.stages[stage as usize]
            .wall_ns
            .fetch_add(spent, Ordering::Relaxed);
    }

    /// Ignores the time since the last border.
    pub fn skip(&mut self) -> Duration {
        if !COUNTED {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let spent = now - self.mark;
        self.mark = now;
        spent
    }

    /// Ends the only stage of a short-lived meter. Its wall time is the time since the meter was
    /// created minus `waited`. It also gets all processor time since then.
    pub fn finish(&mut self, stage: Stage, waited: Duration, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let counts = &counters.stages[stage as usize];
        let end = Instant::now();
        let wall = (end - self.mark).saturating_sub(waited);
        counters.call(stage, end - wall, end);
        let cpu = (self.cpu_time)().saturating_sub(self.cpu);
        counts.wall_ns.fetch_add(nanos(wall), Ordering::Relaxed);
        counts.cpu_ns.fetch_add(nanos(cpu), Ordering::Relaxed);
        counts.wait_ns.fetch_add(nanos(waited), Ordering::Relaxed);
    }

    /// Divides the processor time if enough work was measured.
    pub fn settle(&mut self, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let wall: u64 = self.pending_ns.iter().sum();
        if wall >= SETTLE_NS {
            self.share_out(wall, counters);
        }
    }

    /// Ends the work before a stage that may block for long, whose processor time must not be
    /// divided with the other stages. [`Meter::lap_alone`] ends that stage.
    pub fn begin_alone(&mut self, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let wall: u64 = self.pending_ns.iter().sum();
        self.share_out(wall.max(1), counters);
        self.mark = Instant::now();
    }

    /// Ends a stage that [`Meter::begin_alone`] began. The first `waited` of its time was waiting.
    /// `elsewhere` is its processor time in other processes.
    pub fn lap_alone(
        &mut self,
        stage: Stage,
        waited: Duration,
        elsewhere: Duration,
        counters: &ThreadCounters,
    ) {
        if !COUNTED {
            return;
        }
        let now = Instant::now();
        let start = (self.mark + waited).min(now);
        counters.call(stage, start, now);
        let counts = &counters.stages[stage as usize];
        counts
            .wall_ns
            .fetch_add(nanos(now - start), Ordering::Relaxed);
        counts.wait_ns.fetch_add(nanos(waited), Ordering::Relaxed);
        let cpu = (self.cpu_time)();
        let spent = cpu.saturating_sub(self.cpu) + elsewhere;
        counts.cpu_ns.fetch_add(nanos(spent), Ordering::Relaxed);
        (self.cpu, self.mark) = (cpu, now);
    }

    fn share_out(&mut self, wall: u64, counters: &ThreadCounters) {
        let cpu = (self.cpu_time)();
        // The time between stages (claiming, waking) is at most a few percent and is divided with
        // them.
        let spent = nanos(cpu.saturating_sub(self.cpu)).min(wall);
        self.cpu = cpu;
        for (counts, pending) in counters.stages.iter().zip(&mut self.pending_ns) {
            let share = (u128::from(spent) * u128::from(*pending) / u128::from(wall)) as u64;
            counts.cpu_ns.fetch_add(share, Ordering::Relaxed);
            *pending = 0;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_shared_in_proportion_to_wall_time() {
        fn cpu_time() -> Duration {
            Duration::from_secs(1)
        }
        let counters = ThreadCounters::default();
        let mut meter = Meter::new(|| Duration::ZERO);
        meter.cpu_time = cpu_time;
        meter.pending_ns = [0, 3 * SETTLE_NS, SETTLE_NS, 0, 0];

        meter.settle(&counters);

        let cpu = |stage| {
            let mut sum = StageStats::default();
            counters.add_to(stage, &mut sum);
            sum.cpu
        };
        // Processor time never exceeds the wall time of one thread.
        assert_eq!(cpu(Stage::Decode), Duration::from_nanos(3 * SETTLE_NS));
        assert_eq!(cpu(Stage::Transform), Duration::from_nanos(SETTLE_NS));
        assert_eq!(meter.pending_ns, [0; 5]);
    }

    #[test]
    fn a_stage_that_blocks_takes_no_processor_time_of_the_others() {
        let counters = ThreadCounters::default();
        let mut meter = Meter::new(|| Duration::ZERO);
        meter.pending_ns = [0, 500, 0, 0, 0];
        meter.cpu_time = || Duration::from_nanos(400);

        meter.begin_alone(&counters);
        meter.cpu_time = || Duration::from_nanos(700);
        let elsewhere = Duration::from_nanos(50);
        meter.lap_alone(Stage::Python, Duration::ZERO, elsewhere, &counters);

        let cpu = |stage| {
            let mut sum = StageStats::default();
            counters.add_to(stage, &mut sum);
            sum.cpu
        };
        assert_eq!(cpu(Stage::Decode), Duration::from_nanos(400));
        assert_eq!(cpu(Stage::Python), Duration::from_nanos(350));
    }
}
