//! A loader that finds its number of workers while it runs.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed::pipeline::{Handle, MemoryField, SourceSpec};
use infeed::sample::DType;
use infeed::{Loader, Options, Pipeline};
use infeed_raw::machine::usable_cores;

/// Longest that settling may take on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(90);

fn numbers() -> (Pipeline, [Handle; 1]) {
    let field = MemoryField {
        name: "number".to_owned(),
        kind: "tensor".to_owned(),
        dtype: Some(DType::UInt64),
        shape: Vec::new(),
        handle: Some(0),
        offsets: None,
        path: None,
        offset: 0,
        records: None,
    };
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

#[test]
fn a_loop_that_never_waits_is_left_with_one_worker_and_a_line_that_says_why() {
    let loader = open(None);
    let begun = Instant::now();
    let opened = loader.stats().expect("open");
    assert!((1..=usable_cores()).contains(&opened.workers));

    let tuned = loop {
        loader.next_batch().expect("no bad record");
        thread::sleep(Duration::from_millis(4));
        let stats = loader.stats().expect("open");
        let tuned = stats.tuned.expect("it is left to the loader");
        assert!((1..=tuned.most).contains(&stats.workers));
        if tuned.settled {
            break tuned;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", tuned.text);
    };

    assert_eq!(loader.stats().expect("open").workers, 1);
    assert!(tuned.text.starts_with("workers: 1 on "), "{}", tuned.text);
    assert!(tuned.cores <= usable_cores());
}

#[test]
fn a_number_that_is_given_stays() {
    let loader = open(Some(3));
    let begun = Instant::now();

    while begun.elapsed() < Duration::from_secs(1) {
        loader.next_batch().expect("no bad record");
        thread::sleep(Duration::from_millis(2));
    }

    let stats = loader.stats().expect("open");
    assert_eq!(stats.workers, 3);
    assert!(stats.tuned.is_none());
}

#[test]
fn a_budget_that_holds_few_workers_lets_few_work() {
    let (pipeline, handles) = numbers();
    let mut options = Options::default();
    options.memory = Some(9 << 20);

    let loader = pipeline.open_with(&handles, &options).expect("opens");

    let tuned = loader.stats().expect("open").tuned.expect("auto");
    assert_eq!(tuned.most, 1);
    assert!(loader.next_batch().expect("no bad record").is_some());
}
