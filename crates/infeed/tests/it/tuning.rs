//! A loader that tunes its number of workers during the run.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed::loader::TuningState;
use infeed::pipeline::{Handle, MemoryField, SourceSpec};
use infeed::{Loader, Options, Pipeline};
use infeed_core::sample::DType;
use infeed_raw::machine::usable_cores;

/// Longest time until the tuning settles on a busy machine.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Number of loaders, of which at least one should run without other load.
const LOADERS: usize = 6;

fn numbers() -> (Pipeline, [Handle; 1]) {
    let field = MemoryField::array("number", "tensor", DType::UInt64, Vec::new(), 0);
    let fields = vec![field];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(256);
    let bytes: Vec<u8> = (0..2560_u64).flat_map(u64::to_le_bytes).collect();
    (pipeline, [Bytes::from(bytes).into()])
}

fn open(workers: Option<usize>) -> Loader {
    let (pipeline, handles) = numbers();
    let mut options = Options::default();
    options.workers = workers;
    pipeline.open_with(&handles, &options).expect("opens")
}

/// Runs until the tuning has settled. Returns its state, and whether one worker had a turn.
fn settles(loader: &Loader) -> (TuningState, bool) {
    let begun = Instant::now();
    let mut tried = false;
    loop {
        loader.next_batch().expect("no bad record");
        // Other programs disturb a short step by a larger share of it.
        thread::sleep(Duration::from_millis(20));
        let stats = loader.stats().expect("open");
        let tuned = stats.tuned.expect("it is left to the loader");
        assert!((1..=tuned.most).contains(&stats.workers));
        tried |= stats.workers == 1;
        if tuned.settled {
            let start = format!("workers: {} on ", stats.workers);
            assert!(tuned.text.starts_with(&start), "{}", tuned.text);
            return (tuned, tried);
        }
        assert!(begun.elapsed() < SETTLE_TIMEOUT, "{}", tuned.text);
    }
}

#[test]
fn a_loop_that_never_waits_keeps_one_worker_and_logs_the_reason() {
    // Other load makes some steps longer. If it affects steps with one worker, the tuner rightly
    // keeps more workers. That is unlikely for all of several loaders.
    let mut reported = Vec::new();
    let is_left_with_one = (0..LOADERS).any(|_| {
        let loader = open(None);
        let opened = loader.stats().expect("open");
        assert!((1..=usable_cores()).contains(&opened.workers));

        let (tuned, tried) = settles(&loader);

        assert!(tried, "{}", tuned.text);
        assert!(tuned.cores <= usable_cores());
        reported.push(tuned.text);
        loader.stats().expect("open").workers == 1
    });

    assert!(is_left_with_one, "{reported:?}");
}

#[test]
fn a_given_number_of_workers_stays() {
    let loader = open(Some(3));

    // More batches than a tuner needs for a trial.
    for _ in 0..500 {
        loader.next_batch().expect("no bad record");
        let stats = loader.stats().expect("open");
        assert_eq!(stats.workers, 3);
        assert!(stats.tuned.is_none());
    }
}

#[test]
fn a_small_budget_limits_the_number_of_workers() {
    let (pipeline, handles) = numbers();
    let mut options = Options::default();
    options.memory = Some(9 << 20);

    let loader = pipeline.open_with(&handles, &options).expect("opens");

    let tuned = loader.stats().expect("open").tuned.expect("auto");
    assert_eq!(tuned.most, 1);
    assert!(loader.next_batch().expect("no bad record").is_some());
}
