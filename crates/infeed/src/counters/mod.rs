//! What every stage counts: always on, written by one thread, read by any.

mod histogram;
mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use histogram::Calls;
use histogram::Histogram;
pub use timeline::{Recorded, Timeline};

/// False in a build with `--cfg infeed_uncounted`, which exists to measure what counting costs.
const COUNTED: bool = !cfg!(infeed_uncounted);

/// A step of the pipeline that runs on I/O threads or workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Encoded bytes from where they lie.
    Read,
    /// Bytes to pixels.
    Decode,
    /// Pixels to pixels.
    Transform,
    /// Pixels into the row of a batch: flip, cast, normalize, layout, one-hot.
    Write,
    /// Functions of the user's, on samples and batches.
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

/// Counts of one stage on one thread.
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

/// The counters of one thread, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    stages: [Counts; Stage::ALL.len()],
    timeline: Option<Arc<Timeline>>,
    /// Batch that the thread works for, plus one; 0 where it is not known.
    batch: AtomicU64,
}

/// A snapshot of one stage, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageStats {
    /// Samples that went through.
    pub samples: u64,
    /// Bytes taken in.
    pub bytes_in: u64,
    /// Bytes given on.
    pub bytes_out: u64,
    /// Time threads spent inside the stage.
    pub wall: Duration,
    /// Processor time they used there.
    pub cpu: Duration,
    /// Time threads were blocked before they could begin: reading waits for the consumer to
    /// come nearer, decoding for encoded bytes, writing for a free batch, Python for the
    /// interpreter's lock or a free process.
    pub wait: Duration,
    /// What 99 of 100 calls took at most, within 7 %.
    pub p99: Duration,
}

impl ThreadCounters {
    /// Counters that also keep spans.
    pub fn new(timeline: Option<Arc<Timeline>>) -> ThreadCounters {
        ThreadCounters {
            timeline,
            ..ThreadCounters::default()
        }
    }

    /// Says which batch the coming work is for.
    pub fn work_for(&self, batch: u64) {
        if self.timeline.is_some() {
            self.batch.store(batch + 1, Ordering::Relaxed);
        }
    }

    /// Adds how long this thread's calls of a stage took.
    pub fn add_calls(&self, stage: Stage, sum: &mut Calls) {
        sum.add(&self.stages[stage as usize].calls);
    }

    /// Enters one call into the histogram and the timeline.
    fn call(&self, stage: Stage, start: Instant, end: Instant) {
        self.stages[stage as usize].calls.add(nanos(end - start));
        if let Some(timeline) = &self.timeline {
            let batch = self.batch.load(Ordering::Relaxed).checked_sub(1);
            timeline.record(stage.name(), start, end, batch);
        }
    }

    /// Adds this thread's counts of a stage to a sum.
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
    pub fn waited(&self, stage: Stage, time: Duration) {
        self.stages[stage as usize]
            .wait_ns
            .fetch_add(nanos(time), Ordering::Relaxed);
    }
}

/// How often a meter asks for the thread's processor time: the question is a system call of
/// about 200 ns, so once in 2 ms of work is 0.01 %.
const SETTLE_NS: u64 = 2_000_000;

/// Measures one thread's stages: wall time by a clock read at every border, processor time now
/// and then, shared out in proportion to wall time.
#[derive(Debug)]
pub struct Meter {
    mark: Instant,
    /// Wall time by stage since processor time was last asked for.
    pending_ns: [u64; Stage::ALL.len()],
    cpu: Duration,
    cpu_time: fn() -> Duration,
}

impl Meter {
    /// A meter for the calling thread; `cpu_time` gives the processor time a thread has used.
    pub fn new(cpu_time: fn() -> Duration) -> Meter {
        Meter {
            mark: Instant::now(),
            pending_ns: [0; Stage::ALL.len()],
            cpu: if COUNTED { cpu_time() } else { Duration::ZERO },
            cpu_time,
        }
    }

    /// Begins to measure: what came before is nobody's.
    pub fn start(&mut self) {
        if !COUNTED {
            return;
        }
        self.mark = Instant::now();
    }

    /// Ends a stage: the time since the last border is its.
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

    /// Leaves out the time since the last border, as time of no stage.
    pub fn skip(&mut self) -> Duration {
        if !COUNTED {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let spent = now - self.mark;
        self.mark = now;
        spent
    }

    /// Ends the only stage of a short-lived meter: the time since it was made, less what was spent
    /// waiting, is the stage's, and so is the processor time.
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

    /// Shares out processor time, if enough work has gathered.
    pub fn settle(&mut self, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let wall: u64 = self.pending_ns.iter().sum();
        if wall >= SETTLE_NS {
            self.share_out(wall, counters);
        }
    }

    /// Ends what came before a stage that may block for long, whose processor time says nothing of
    /// the others': [`Meter::lap_alone`] ends it.
    pub fn begin_alone(&mut self, counters: &ThreadCounters) {
        if !COUNTED {
            return;
        }
        let wall: u64 = self.pending_ns.iter().sum();
        self.share_out(wall.max(1), counters);
        self.mark = Instant::now();
    }

    /// Ends such a stage: of the time since, `waited` came before it; `elsewhere` is processor time
    /// that it took in other processes.
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
        // Time between stages (claiming, waking) is a few percent at most and goes with them.
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
        // No more processor time than wall time was spent on one thread.
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
