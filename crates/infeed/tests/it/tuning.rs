//! A loader that finds its number of workers while it runs.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed::loader::Tuned;
use infeed::pipeline::{Handle, MemoryField, SourceSpec};
use infeed::sample::DType;
use infeed::{Loader, Options, Pipeline};
use infeed_raw::machine::usable_cores;

/// Longest that settling may take on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(90);

/// Loaders of which one at least meets a machine that leaves it alone.
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

/// Steps until it has settled; says what that came to, and whether one worker had a turn.
fn settles(loader: &Loader) -> (Tuned, bool) {
    let begun = Instant::now();
    let mut tried = false;
    loop {
        loader.next_batch().expect("no bad record");
        thread::sleep(Duration::from_millis(4));
        let stats = loader.stats().expect("open");
        let tuned = stats.tuned.expect("it is left to the loader");
        assert!((1..=tuned.most).contains(&stats.workers));
        tried |= stats.workers == 1;
        if tuned.settled {
            let start = format!("workers: {} on ", stats.workers);
            assert!(tuned.text.starts_with(&start), "{}", tuned.text);
            return (tuned, tried);
        }
        assert!(begun.elapsed() < PATIENCE, "{}", tuned.text);
    }
}

#[test]
fn a_loop_that_never_waits_is_left_with_one_worker_and_a_line_that_says_why() {
    // What else the machine does makes some steps longer, by chance those with one worker; then
    // it rightly keeps more. It does not do so time and again.
    let mut told = Vec::new();
    let is_left_with_one = (0..LOADERS).any(|_| {
        let loader = open(None);
        let opened = loader.stats().expect("open");
        assert!((1..=usable_cores()).contains(&opened.workers));

        let (tuned, tried) = settles(&loader);

        assert!(tried, "{}", tuned.text);
        assert!(tuned.cores <= usable_cores());
        told.push(tuned.text);
        loader.stats().expect("open").workers == 1
    });

    assert!(is_left_with_one, "{told:?}");
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
