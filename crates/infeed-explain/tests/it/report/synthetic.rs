//! An invented explanation for testing the reports: a segmentation dataset on a machine with two
//! cores.
//!
//! Nothing in it was measured. A small, seeded simulation of readers, workers and a consumer gives
//! the times of the threads. All other values are constants that are consistent.

use infeed_core::random::hash;
use infeed_explain::{
    Crossover, Explanation, Interval, LedgerEntry, Limit, MeasuredMachine, PredictedChange,
    QueuePoint, Remedy, Resource, Run, Span, StageCost, Stall, Subject, TrialSample, UntriedRemedy,
    VERSION, Verdict, WhatIfReport,
};

const SEED: u64 = 7;
const WORKERS: usize = 2;
const READERS: usize = 4;
const ROWS: usize = 8;
/// Maximum number of batches in flight or ready.
const AHEAD: usize = 3;
/// Length of the timeline.
const SHOWN_US: u64 = 2_000_000;

/// Microseconds of one sample in each stage, and of the consumer's step.
struct Times {
    read: u64,
    decode: u64,
    transform: u64,
    write: u64,
    step: u64,
}

const USUAL: Times = Times {
    read: 900,
    decode: 5_100,
    transform: 1_150,
    write: 380,
    step: 12_000,
};

/// Decoding is the limit. Four remedies gain, two do not, one was not tried.
pub(crate) fn usual() -> Explanation {
    let (timeline, queue) = simulate(&USUAL);
    let stall = Stall {
        fetch: 0.01,
        prep: 0.58,
        wire: 0.0,
        copy: 0.0,
        compute: 0.41,
    };
    Explanation {
        version: VERSION,
        infeed: "0.1.0".into(),
        made_at_s: 1_767_225_600,
        machine: MeasuredMachine {
            cpu: "Example 9000 at 2.80GHz".into(),
            cores: 2,
            memory_bytes: 16_000_000_000,
            system: "Linux 6.1, x86_64".into(),
            memory_bytes_per_s: Some(11.2e9),
            profile: None,
        },
        subject: Subject {
            name: "streets".into(),
            pipeline: PIPELINE.into(),
            records: 1_204,
            bytes: 1_310_000_000,
            batch_rows: ROWS as u64,
            workers: WORKERS,
            readers: READERS,
            step_s: Some(0.012),
            fits_in_memory: true,
        },
        plan: PLAN.into(),
        run: run(queue, 0.58),
        stall,
        resources: resources(),
        verdict: verdict(),
        sample: Some(TrialSample {
            records: 256,
            encoded_bytes: 24_100_000,
            row_bytes: 154_000_000,
            cache_bytes: 33_554_432,
        }),
        control: Some(Interval {
            low: 0.98,
            mid: 1.01,
            high: 1.04,
        }),
        remedies: remedies(),
        not_tried: vec![UntriedRemedy {
            id: "half-float-behind-copy".into(),
            name: "cast to float16 behind the copy".into(),
            why: "batches stay in host memory here; open the pipeline with a device to try it"
                .into(),
        }],
        placement: None,
        decoding: None,
        tried: None,
        feeding: None,
        crossovers: crossovers(),
        what_if: None,
        transfers: None,
        utilisation: None,
        timeline,
        ledger: ledger(),
        warnings: Vec::new(),
        notes: vec![
            "Reads came from the page cache after the first epoch; cold, the same files gave \
             890 samples/s."
                .into(),
            "Two cores carry the workers and the training loop: a step that computes on them \
             takes its time from decoding."
                .into(),
        ],
    }
}

/// A question about 16 cores and objects in a bucket.
pub(crate) fn with_what_if() -> Explanation {
    let mut e = usual();
    let rate = Interval {
        low: 180.0,
        mid: 360.0,
        high: 450.0,
    };
    let change = |option: &str, arithmetic: &str, assumption: &str| PredictedChange {
        option: option.into(),
        arithmetic: vec![arithmetic.into()],
        assumptions: vec![assumption.into()],
        values: [("measured_cores".into(), 2.0)].into(),
    };
    e.what_if = Some(WhatIfReport {
        question: "16 cores, storage s3".into(),
        rate_now: Interval::exact(264.0),
        limit_now: Some(Limit::Decode),
        rate,
        gain: rate.map(|rate| rate / 264.0),
        limit: Some(Limit::Storage),
        batch_rows: ROWS as u64,
        step_time: Interval {
            low: 0.0178,
            mid: 0.0222,
            high: 0.0444,
        },
        resources: vec![
            Resource {
                limit: Limit::Storage,
                rate,
                arithmetic: "s3 allows 360 samples/s".into(),
            },
            Resource {
                limit: Limit::Decode,
                rate: Interval {
                    low: 1_540.0,
                    mid: 1_900.0,
                    high: 2_400.0,
                },
                arithmetic: "16 cores".into(),
            },
        ],
        crossovers: vec![Crossover {
            limit: Limit::Storage,
            step_s: Interval::exact(0.0222),
        }],
        changes: vec![
            change(
                "cores",
                "16 cores: 1900 samples/s (1540 to 2400), extrapolated from 2 cores: low if the \
                 measured loss repeats at each doubling, high if every core adds the same",
                "the additional cores are like these 2, and nothing else runs on them",
            ),
            change(
                "storage",
                "latency: 64 reads in flight / (1.00 x 150 ms) = 427 samples/s",
                "typical numbers, 0.5 to 1.25 of them: Amazon S3 User Guide",
            ),
        ],
    });
    e
}

fn crossovers() -> Vec<Crossover> {
    let crossover = |limit, rate: f64| Crossover {
        limit,
        step_s: Interval::exact(ROWS as f64 / rate),
    };
    vec![
        crossover(Limit::Decode, 264.0),
        crossover(Limit::Storage, 655.0),
        crossover(Limit::Memory, 1_540.0),
    ]
}

/// Storage and decoding allow the same rate.
pub(crate) fn tie() -> Explanation {
    let mut e = usual();
    e.resources[1].rate = Interval {
        low: 262.0,
        mid: 271.0,
        high: 281.0,
    };
    e.verdict.tie = true;
    e.verdict.next_rate = Some(271.0);
    e.verdict.claim = "decode and storage limit this run alike: stall 59 % of the time".into();
    e.stall = Stall {
        fetch: 0.29,
        prep: 0.30,
        wire: 0.0,
        copy: 0.0,
        compute: 0.41,
    };
    e
}

/// No remedy was tried and no prediction checked. Half of the fields are empty.
pub(crate) fn no_remedies() -> Explanation {
    let mut e = usual();
    e.remedies.clear();
    e.not_tried.clear();
    e.ledger.clear();
    e.notes.clear();
    e.timeline.clear();
    e.run.queue.clear();
    e.verdict.advice.clear();
    e.verdict.not_worth.clear();
    e.verdict.next_limit = None;
    e.verdict.next_rate = None;
    e.subject.pipeline.clear();
    e.subject.step_s = None;
    e.machine.memory_bytes_per_s = None;
    e
}

/// The step takes longer than everything else, and no remedy gains.
pub(crate) fn step_bound() -> Explanation {
    let mut e = usual();
    let times = Times {
        step: 45_000,
        ..USUAL
    };
    (e.timeline, e.run.queue) = simulate(&times);
    e.stall = Stall {
        fetch: 0.0,
        prep: 0.004,
        wire: 0.0,
        copy: 0.0,
        compute: 0.996,
    };
    e.run.samples_per_s = 177.0;
    e.run.wait_s = 0.004 * 6.25;
    e.run.step_s = 0.996 * 6.25;
    e.subject.step_s = Some(0.045);
    e.resources[2].rate = Interval::exact(177.8);
    e.resources[2].arithmetic = "8 samples / 45 ms per step = 178 samples/s".into();
    e.resources.swap(1, 2);
    e.resources.swap(0, 1);
    e.verdict = Verdict {
        limit: Limit::Step,
        rate: 177.8,
        next_limit: Some(Limit::Decode),
        next_rate: Some(264.0),
        tie: false,
        claim: "the training step limits this run: the loader keeps up".into(),
        evidence: vec!["a batch was ready in 99.6 % of the steps".into()],
        capacity: vec![
            "8 samples / 45 ms per step = 178 samples/s; the loader could give 264".into(),
        ],
        advice: vec!["nothing in the loader: make the step faster".into()],
        not_worth: vec!["more workers: batches are ready before they are asked for".into()],
    };
    for remedy in &mut e.remedies {
        let none = Interval {
            low: 0.99,
            mid: 1.0,
            high: 1.01,
        };
        remedy.gain = none;
        remedy.rate = none.map(|gain| gain * 177.8);
        remedy.step_time = Interval::exact(0.045);
        remedy.limit = Limit::Step;
    }
    e
}

const PIPELINE: &str = r#"[source]
type = "pairs"
images = "streets/images"
masks = "streets/masks"

[[transform]]
type = "random-crop"
size = [512, 512]

[[transform]]
type = "flip"
p = 0.5

[batch]
rows = 8
"#;

const PLAN: &str = "\
read       streets/images, streets/masks: 2 files a record
decode     image: PNG, rows of the crop only; mask: PNG, rows of the crop only
transform  random crop to 512 x 512 (in the decoder), flip (in the write)
write      image: uint8 [8, 512, 512, 3]; mask: one-hot uint8 [8, 512, 512, 12]
workers 2, I/O threads 4, 3 batches ahead, budget 512 MiB";

fn run(queue: Vec<QueuePoint>, waited: f64) -> Run {
    let samples = 1_616;
    let n = samples as f64;
    let stage = |name: &str, times: (f64, f64, f64), bytes: (u64, u64), share: f64| {
        let (cpu, wall, p99) = times;
        StageCost {
            name: name.into(),
            samples,
            wall_s: wall * n,
            cpu_s: cpu * n,
            wait_s: 0.4,
            bytes_in: bytes.0 * samples,
            bytes_out: bytes.1 * samples,
            p99_s: p99,
            rate_per_core: 1.0 / cpu,
            cpu_share: share,
        }
    };
    Run {
        samples_per_s: 258.0,
        samples,
        batches: samples / ROWS as u64,
        seconds: 6.3,
        first_batch_s: 0.048,
        wait_s: waited * 6.25,
        step_s: (1.0 - waited) * 6.25,
        stages: vec![
            stage(
                "read",
                (0.000_21, 0.000_9, 0.003_1),
                (1_088_000, 1_088_000),
                0.03,
            ),
            stage(
                "decode",
                (0.005_1, 0.005_2, 0.009_4),
                (1_088_000, 1_048_000),
                0.75,
            ),
            stage(
                "transform",
                (0.001_15, 0.001_2, 0.001_9),
                (1_048_000, 1_048_000),
                0.17,
            ),
            stage(
                "write",
                (0.000_38, 0.000_4, 0.000_6),
                (1_048_000, 3_932_000),
                0.05,
            ),
        ],
        queue,
    }
}

fn resources() -> Vec<Resource> {
    let resource = |limit, low, mid, high, arithmetic: &str| Resource {
        limit,
        rate: Interval { low, mid, high },
        arithmetic: arithmetic.into(),
    };
    vec![
        resource(
            Limit::Decode,
            251.0,
            264.0,
            277.0,
            "2 cores / 6.84 ms per sample, with 10 % for the loop = 264 samples/s",
        ),
        resource(
            Limit::Storage,
            610.0,
            655.0,
            690.0,
            "712 MB/s / 1.09 MB per sample = 655 samples/s",
        ),
        resource(
            Limit::Step,
            640.0,
            666.0,
            695.0,
            "8 samples / 12 ms per step = 666 samples/s",
        ),
        resource(
            Limit::Memory,
            1_390.0,
            1_540.0,
            1_700.0,
            "11.2 GB/s / 7.27 MB per sample = 1540 samples/s",
        ),
    ]
}

fn verdict() -> Verdict {
    Verdict {
        limit: Limit::Decode,
        rate: 264.0,
        next_limit: Some(Limit::Storage),
        next_rate: Some(655.0),
        tie: false,
        claim: "decode limits this run: prep stall 58 % of the time".into(),
        evidence: vec![
            "2 workers busy 97 % of the run; no batch was ready in 91 % of the steps".into(),
            "decode takes 75 % of all processor time, 5.1 ms a sample".into(),
        ],
        capacity: vec![
            "2 cores / 6.84 ms per sample, with 10 % for the loop = 264 samples/s".into(),
        ],
        advice: vec![
            "store the images as PNG that is cheaper to read: about 1.92x".into(),
            "pack decoded pixels: about 2.40x for 2.53 GB of disk".into(),
        ],
        not_worth: vec![
            "8 I/O threads instead of 4: 1.00x (0.97-1.02), decode would still limit".into(),
        ],
    }
}

fn remedies() -> Vec<Remedy> {
    struct TableRow<'a>(
        &'a str,
        &'a str,
        &'a str,
        [f64; 3],
        u64,
        f64,
        &'a str,
        Limit,
    );
    let rows = [
        TableRow(
            "pixels",
            "keep decoded pixels on disk",
            "infeed pack streets streets-pixels --to folder --keep pixels",
            [2.22, 2.4, 2.55],
            2_530_000_000,
            9.4,
            "identical",
            Limit::Storage,
        ),
        TableRow(
            "png-up",
            "PNG with filter Up, fast compression",
            "infeed pack streets streets-up --to folder --png-filter up --png-compression fast \
             --workers 2 --verify",
            [1.8, 1.92, 2.05],
            1_620_000_000,
            34.0,
            "identical",
            Limit::Decode,
        ),
        TableRow(
            "jpeg-90",
            "images as JPEG, quality 90",
            "infeed pack streets streets-90 --to folder --image-format jpeg --quality 90",
            [1.55, 1.71, 1.83],
            212_000_000,
            21.0,
            "images PSNR 38.9 dB, SSIM 0.971 (worst of 200: 35.2 dB, 0.942); masks identical",
            Limit::Decode,
        ),
        TableRow(
            "class-indices",
            "class indices instead of one-hot",
            "set one_hot = false in pipeline.toml",
            [1.03, 1.06, 1.09],
            0,
            0.0,
            "identical",
            Limit::Decode,
        ),
        TableRow(
            "more-readers",
            "8 I/O threads instead of 4",
            "set readers = 8",
            [0.97, 1.0, 1.02],
            0,
            0.0,
            "identical",
            Limit::Decode,
        ),
        TableRow(
            "more-workers",
            "3 workers instead of 2",
            "set workers = 3",
            [0.91, 0.96, 1.01],
            0,
            0.0,
            "identical",
            Limit::Decode,
        ),
    ];
    let remedy = |row: TableRow<'_>| {
        let TableRow(id, name, command, gain, disk_bytes, convert_s, quality, limit) = row;
        let gain = Interval {
            low: gain[0],
            mid: gain[1],
            high: gain[2],
        };
        let rate = gain.map(|gain| gain * 258.0);
        Remedy {
            id: id.into(),
            name: name.into(),
            command: command.into(),
            rate,
            gain,
            step_time: Interval {
                low: ROWS as f64 / rate.high,
                mid: ROWS as f64 / rate.mid,
                high: ROWS as f64 / rate.low,
            },
            disk_bytes,
            convert_s,
            quality: quality.into(),
            lossy: !quality.starts_with("identical"),
            needs_feeders: false,
            limit,
            arithmetic: format!(
                "2 cores / {:.2} ms per sample = {:.0} samples/s",
                2000.0 / rate.mid,
                rate.mid
            ),
        }
    };
    rows.into_iter().map(remedy).collect()
}

fn ledger() -> Vec<LedgerEntry> {
    let rows = [
        ("png-up", [1.74, 1.88, 2.01], 1.95),
        ("jpeg-90", [1.5, 1.66, 1.8], 1.61),
        ("pixels", [2.1, 2.36, 2.6], 2.66),
        ("resize", [1.31, 1.37, 1.45], 1.38),
    ];
    let entry =
        |(at, (remedy, [low, mid, high], measured)): (usize, (&str, [f64; 3], f64))| LedgerEntry {
            made_at_s: 1_766_000_000 + 86_400 * at as u64,
            subject: "streets".into(),
            remedy: remedy.into(),
            infeed: "0.1.0".into(),
            machine: "Example 9000 at 2.80GHz, 2 cores".into(),
            limit: Limit::Decode,
            predicted: Interval { low, mid, high },
            measured,
            rate_before: 258.0,
            rate_after: 258.0 * measured,
            left_out: 0,
        };
    rows.into_iter().enumerate().map(entry).collect()
}

/// Simulates the loader. Readers fill rows in order, workers take them in order, a batch is ready
/// when its last row is, and the consumer takes batches in order and computes.
fn simulate(times: &Times) -> (Vec<Span>, Vec<QueuePoint>) {
    // Between 0.7 and 1.3 of the time, with a hash of the stage and the number as random source.
    let about =
        |us: u64, what: u64, n: usize| us * (700 + hash(&[SEED, what, n as u64]) % 601) / 1000;
    let mut spans = Vec::new();
    let mut span = |thread: &str, what: &str, start: u64, end: u64, batch: usize| {
        spans.push(Span {
            thread: thread.to_owned(),
            what: what.to_owned(),
            start_us: start,
            length_us: end - start,
            batch: Some(batch as u64),
        });
    };
    let (mut readers, mut workers) = ([300_u64; READERS], [400_u64; WORKERS]);
    let mut consumer = 500_u64;
    let mut taken: Vec<u64> = Vec::new();
    let mut ready: Vec<u64> = Vec::new();
    for batch in 0_usize.. {
        // A batch starts when the consumer takes the batch `AHEAD` positions before it.
        let begin = batch
            .checked_sub(AHEAD)
            .map_or(0, |before: usize| taken[before]);
        if begin > SHOWN_US || consumer > SHOWN_US {
            break;
        }
        let mut done = 0;
        for row in 0..ROWS {
            let n = batch * ROWS + row;
            let free =
                |threads: &[u64]| (0..threads.len()).min_by_key(|&i| threads[i]).unwrap_or(0);
            let r = free(&readers);
            let start = readers[r].max(begin);
            let read = start + about(times.read, 0, n);
            span(&format!("infeed-read-{r}"), "read", start, read, batch);
            readers[r] = read;
            let w = free(&workers);
            let name = format!("infeed-work-{w}");
            let mut at = workers[w].max(read);
            let stages = [
                ("decode", times.decode),
                ("transform", times.transform),
                ("write", times.write),
            ];
            for (i, (what, us)) in stages.into_iter().enumerate() {
                let end = at + about(us, 1 + i as u64, n);
                span(&name, what, at, end, batch);
                at = end;
            }
            workers[w] = at;
            done = done.max(at);
        }
        ready.push(done);
        let begins = consumer.max(done);
        if begins > consumer {
            span("consumer", "wait", consumer, begins, batch);
        }
        taken.push(begins);
        consumer = begins + about(times.step, 9, batch).max(1);
        span("consumer", "step", begins, consumer, batch);
    }
    spans.retain(|span| span.start_us < SHOWN_US);
    let queue = queue(&spans, &ready, &taken);
    (spans, queue)
}

/// Number of ready batches in the simulated loader, every 50 ms.
fn queue(spans: &[Span], ready: &[u64], taken: &[u64]) -> Vec<QueuePoint> {
    const EVERY_US: u64 = 50_000;
    let waits: Vec<&Span> = spans.iter().filter(|span| span.what == "wait").collect();
    let point = |at: u64| {
        let made = ready.iter().filter(|&&made| made <= at).count();
        let gone = taken.iter().filter(|&&gone| gone <= at).count();
        let from = at - EVERY_US;
        let waited: u64 = waits
            .iter()
            .map(|wait| {
                let end = (wait.start_us + wait.length_us).min(at);
                end.saturating_sub(wait.start_us.max(from))
            })
            .sum();
        QueuePoint {
            at_s: at as f64 / 1e6,
            ready: made.saturating_sub(gone),
            waiting: waited as f64 / EVERY_US as f64,
        }
    };
    (1..=SHOWN_US / EVERY_US)
        .map(|n| point(n * EVERY_US))
        .collect()
}
