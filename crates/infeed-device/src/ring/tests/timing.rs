//! Step times and gaps compared with an independent calculation. The test sets the clock, so
//! nothing depends on the machine.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ring::TimedRequest;
use crate::sim::{SimConfig, SimQueue};
use crate::{Device, DeviceBatch, Ring, Route, SentBatch, Sim};
use infeed_core::batch::{Array, Batch, Column, Values};
use infeed_core::random;
use infeed_core::sample::DType;

use super::{column, kernel, settings};

/// Times of one regime in microseconds, and their variation.
#[derive(Clone, Copy, Debug)]
struct Regime {
    host_us: f64,
    bus_us: f64,
    kernel_us: f64,
    step_us: f64,
    jitter: f64,
    slots: usize,
    /// Whether the host waits for each step, as a training loop that prints its loss does.
    waits: bool,
}

const STEPS: usize = 1200;
/// Number of steps to skip, until the ring is full.
const SKIPPED: usize = 100;
const ROWS: usize = 8;

/// Times of a run in nanoseconds.
struct Run {
    /// End of each step.
    ends: Vec<f64>,
    /// Duration of each command, with its random delay: copies, kernels, steps.
    bus: Vec<f64>,
    kernels: Vec<f64>,
    steps: Vec<f64>,
    hosts: Vec<f64>,
    gaps: f64,
}

impl Run {
    fn per_step_us(&self) -> f64 {
        per_step_us(&self.ends)
    }
}

fn per_step_us(ends: &[f64]) -> f64 {
    (ends[STEPS - 1] - ends[SKIPPED]) / (STEPS - 1 - SKIPPED) as f64 / 1e3
}

/// Returns the time that the host takes to make a batch.
fn host_ns(regime: &Regime, n: usize) -> f64 {
    let draw = random::hash(&[77, n as u64]) as f64 / u64::MAX as f64;
    (regime.host_us * 1e3 * (1.0 + regime.jitter * (2.0 * draw - 1.0))).round()
}

fn batch(n: usize) -> Batch {
    let bytes = vec![n as u8; ROWS * 48];
    let image = Array::own(&bytes, vec![ROWS, 4, 4, 3], DType::UInt8).expect("memory");
    Batch {
        columns: vec![Column {
            name: "image".to_owned(),
            values: Values::Array(image),
        }],
        records: vec![0; ROWS],
        epoch: 0,
        step: n as u64,
    }
}

/// Runs two actors with separate clocks in the order of their times: a host that makes batches and
/// a loop that takes them.
fn run(regime: &Regime, seed: u64) -> Run {
    let moved = (ROWS * 48) as f64;
    let sim = Sim::with_own_clock(SimConfig {
        bandwidth_bytes_per_s: moved / (regime.bus_us * 1e-6),
        latency: Duration::ZERO,
        kernel_bytes_per_s: 3.0 * moved / (regime.kernel_us * 1e-6),
        jitter: regime.jitter,
        seed,
        ..SimConfig::default()
    });
    let route = Route::expand(
        column("image", DType::UInt8, &[4, 4, 3]),
        kernel(),
        column("image", DType::BFloat16, &[3, 4, 4]),
    );
    let ring = Ring::new(sim.clone(), vec![route], settings(ROWS, regime.slots)).expect("a ring");
    super::super::sync::lock(&ring.shared.sampling).time_all();
    let queue = sim.stream().expect("a stream");
    let mut host = Host {
        made_ns: 0.0,
        sent: 0,
        free_ns: vec![0.0; regime.slots].into(),
    };
    let mut ahead: VecDeque<(f64, SentBatch<Sim>)> = VecDeque::new();
    let mut training = Training::default();
    while training.ends.len() < STEPS {
        let send_ns = host.next(regime).unwrap_or(f64::INFINITY);
        let take_ns = match (&training.request, ahead.front()) {
            (None, _) => training.at_ns,
            (Some(_), Some((sent_ns, _))) => sent_ns.max(training.at_ns),
            (Some(_), None) => f64::INFINITY,
        };
        let now = |ns: f64| sim.set_now(Duration::from_nanos(ns as u64));
        if take_ns <= send_ns && training.request.is_none() {
            now(take_ns);
            training.request = Some(ring.ask(queue).expect("a request"));
        } else if send_ns <= take_ns {
            now(send_ns);
            let sent = ring.send(batch(host.sent)).expect("sent");
            ahead.push_back((send_ns, sent));
            host.has_sent(send_ns);
        } else {
            now(take_ns);
            let (_, sent) = ahead.pop_front().expect("one is ahead");
            if training.take(regime, &ring, sent, queue, take_ns) {
                host.free_ns.push_back(take_ns);
            }
        }
    }
    sim.set_now(Duration::from_secs(3600));
    let stats = ring.stats().expect("stats");
    assert_eq!(stats.overflow, 0);
    assert_eq!(stats.gaps.batches, STEPS as u64);
    assert!(sim.violations().is_empty(), "{}", sim.violations()[0]);
    let of = |stream: usize| -> Vec<f64> {
        let spans = sim.spans().into_iter();
        let spans = spans.filter(|&(of, ..)| of == stream);
        spans.map(|(_, start, end)| (end - start) as f64).collect()
    };
    Run {
        ends: training.ends,
        bus: of(0),
        kernels: of(1),
        steps: of(queue.number()),
        hosts: (0..STEPS).map(|n| host_ns(regime, n)).collect(),
        gaps: stats.gaps.waited.as_nanos() as f64,
    }
}

struct Host {
    made_ns: f64,
    sent: usize,
    /// Times at which the free slots became free.
    free_ns: VecDeque<f64>,
}

impl Host {
    /// Returns the time at which the host sends its next batch, if a slot is free.
    fn next(&self, regime: &Regime) -> Option<f64> {
        let made_ns = self.made_ns + host_ns(regime, self.sent);
        Some(self.free_ns.front()?.max(made_ns))
    }

    fn has_sent(&mut self, now_ns: f64) {
        self.free_ns.pop_front();
        self.made_ns = now_ns;
        self.sent += 1;
    }
}

#[derive(Default)]
struct Training {
    /// Time of the loop's next or pending request.
    at_ns: f64,
    request: Option<TimedRequest<Sim>>,
    held: Option<DeviceBatch<Sim>>,
    ends: Vec<f64>,
}

impl Training {
    /// Takes a batch and enqueues its step. Returns whether it dropped another batch.
    fn take(
        &mut self,
        regime: &Regime,
        ring: &Ring<Sim>,
        sent: SentBatch<Sim>,
        queue: SimQueue,
        now_ns: f64,
    ) -> bool {
        let batch = sent.hand_over(self.request.take()).expect("handed over");
        let before = self.held.replace(batch).is_some();
        let batch = self.held.as_ref().expect("just put there");
        let array = batch.array("image").expect("no fault").expect("a column");
        array.ready_on(queue).expect("a wait");
        let lasting = Duration::from_nanos((regime.step_us * 1e3) as u64);
        let sim = ring.device();
        let read = sim.read(queue, array.memory(), array.bytes(), lasting);
        drop(read.expect("a read"));
        let end_ns = sim.end_of(queue).expect("a stream").as_nanos() as f64;
        // A loop that does not wait runs at most one step ahead of the device.
        self.at_ns = match (regime.waits, self.ends.last()) {
            (true, _) => end_ns,
            (false, Some(&last)) => last.max(now_ns),
            (false, None) => now_ns,
        };
        self.ends.push(end_ns);
        before
    }
}

/// Computes the same results from times alone: the end of each step, and the sum of the gaps.
fn recurrence(regime: &Regime, run: &Run) -> (Vec<f64>, f64) {
    let slots = regime.slots;
    let [mut sent, mut copied, mut ready, mut taken, mut done] = [const { Vec::new() }; 5];
    let last = |of: &Vec<f64>| of.last().copied().unwrap_or(0.0);
    let mut gaps = 0.0;
    for n in 0..STEPS {
        let of = |times: &Vec<f64>, back: usize| match n >= back {
            true => times[n - back],
            false => 0.0,
        };
        // Batch n uses the slot of batch n - slots, which was dropped when the next one was taken.
        let free = match n >= slots {
            true => taken[n - slots + 1],
            false => 0.0,
        };
        let s: f64 = (last(&sent) + run.hosts[n]).max(free);
        let c: f64 = s.max(last(&copied)).max(of(&ready, slots)) + run.bus[n];
        let r: f64 = c.max(last(&ready)).max(of(&done, slots)) + run.kernels[n];
        let at = match (regime.waits, n) {
            (_, 0) => 0.0,
            (true, _) => done[n - 1],
            (false, 1) => taken[0],
            (false, _) => f64::max(done[n - 2], taken[n - 1]),
        };
        let t: f64 = s.max(at);
        gaps += (r - last(&done).max(at)).max(0.0);
        let d: f64 = t.max(last(&done)).max(r) + run.steps[n];
        for (of, time) in [
            (&mut sent, s),
            (&mut copied, c),
            (&mut ready, r),
            (&mut taken, t),
            (&mut done, d),
        ] {
            of.push(time);
        }
    }
    (done, gaps)
}

fn regimes() -> Vec<(&'static str, f64, Regime)> {
    let regime = |host_us, bus_us, kernel_us, step_us| Regime {
        host_us,
        bus_us,
        kernel_us,
        step_us,
        jitter: 0.3,
        slots: 3,
        waits: true,
    };
    vec![
        ("host", 3000.0, regime(3000.0, 800.0, 50.0, 1000.0)),
        ("bus", 2500.0, regime(400.0, 2500.0, 50.0, 1000.0)),
        ("kernel", 2500.0, regime(400.0, 700.0, 2500.0, 1000.0)),
        ("step", 2000.0, regime(400.0, 700.0, 50.0, 2000.0)),
    ]
}

#[test]
fn step_times_match_an_independent_calculation() {
    let balanced = Regime {
        jitter: 0.5,
        ..regimes()[0].2
    };
    let balanced = Regime {
        host_us: 1000.0,
        bus_us: 1000.0,
        kernel_us: 900.0,
        step_us: 1000.0,
        ..balanced
    };
    let mut all: Vec<Regime> = regimes().into_iter().map(|(.., regime)| regime).collect();
    all.push(balanced);
    for mut regime in all {
        for (slots, waits) in [(2, true), (3, true), (3, false), (5, false)] {
            (regime.slots, regime.waits) = (slots, waits);

            let run = run(&regime, 5);
            let (ends, gaps) = recurrence(&regime, &run);

            let (is, was) = (run.per_step_us(), per_step_us(&ends));
            assert!(
                (is / was - 1.0).abs() < 0.02,
                "{regime:?}: {is} not {was} us"
            );
            let apart = (run.gaps - gaps).abs() / gaps.max(1e6);
            assert!(
                apart < 0.02,
                "{regime:?}: gaps of {} not {gaps} ns",
                run.gaps
            );
        }
    }
}

#[test]
fn the_slowest_part_sets_the_time_per_step() {
    for (limit, us, regime) in regimes() {
        let run = run(&regime, 11);

        let is = run.per_step_us();
        assert!((is / us - 1.0).abs() < 0.02, "{limit}: {is} us");
        // The device waits except while a step runs.
        let waited = run.gaps / STEPS as f64 / 1e3;
        let expected = us - regime.step_us;
        assert!(
            (waited - expected).abs() < 0.02 * us,
            "{limit}: {waited} us"
        );
    }
}
