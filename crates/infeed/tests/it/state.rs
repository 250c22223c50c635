//! A run resumes from its state with the same records and bits, whatever changed around it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use infeed::loader::LoaderState;
use infeed::pipeline::SourceSpec;
use infeed::{Batch, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{RandomHorizontalFlip, RandomResizedCrop};

use crate::data::{epoch, photo, photos};

fn pipeline(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(4)
        .drop_last()
}

fn open(pipeline: &Pipeline, workers: usize, rank: u64, world_size: u64) -> Loader {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    options.workers = Some(workers);
    (options.rank, options.world_size) = (rank, world_size);
    pipeline.open(&options).expect("opens")
}

fn take(loader: &Loader, count: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    while batches.len() < count {
        batches.extend(loader.next_batch().expect("good"));
    }
    batches
}

/// Returns records, pixels and labels of a global batch, joined from its ranks.
fn global(parts: &[Vec<Batch>], step: usize) -> (Vec<u64>, Vec<u8>, Vec<u8>) {
    let batches = || parts.iter().map(|part| &part[step]);
    let column = |name: &str| -> Vec<u8> {
        let arrays = batches().map(|batch| batch.array(name).expect("a column"));
        arrays
            .map(|array| array.bytes())
            .collect::<Vec<_>>()
            .concat()
    };
    let records = batches().flat_map(|batch| batch.records.clone()).collect();
    (records, column("image"), column("label"))
}

#[test]
fn any_workers_and_ranks_resume_with_the_same_global_batches_despite_bad_records() {
    let root = photos(26);
    for n in [3, 8, 20] {
        let path = photo(root.path(), n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    let pipeline = pipeline(root.path());
    let uninterrupted = open(&pipeline, 2, 0, 1);
    let mut whole = Vec::new();
    // Bad records that a single rank has met after each of its steps.
    let mut alone: Vec<BTreeMap<u64, (u64, u64)>> = Vec::new();
    for _ in 0..15 {
        whole.extend(take(&uninterrupted, 1));
        let bad = uninterrupted.state().bad.into_iter();
        alone.push(
            bad.map(|(epoch, position, record)| (record, (epoch, position)))
                .collect(),
        );
    }

    for (kill_at, workers, before, after) in [
        (1, 1, 1, 2),
        (5, 3, 2, 4),
        (6, 2, 4, 1),
        (9, 1, 2, 2),
        (13, 4, 1, 4),
    ] {
        let first: Vec<Loader> = (0..before)
            .map(|rank| open(&pipeline, workers, rank, before))
            .collect();
        for loader in &first {
            take(loader, kill_at);
        }
        let states: Vec<String> = first
            .iter()
            .map(|loader| loader.state().to_json())
            .collect();
        drop(first);
        // The states are equal, except for the bad records, which each rank met itself.
        let parsed = || {
            states
                .iter()
                .map(|one| LoaderState::from_json(one).expect("its own"))
        };
        let shared = |state: LoaderState| LoaderState {
            bad: Vec::new(),
            ..state
        };
        let first = shared(parsed().next().expect("a rank"));
        assert!(parsed().map(shared).all(|state| state == first));
        // Two ranks may have met the same record if it was also a substitute.
        let mut seen = BTreeMap::new();
        for (epoch, position, record) in parsed().flat_map(|state| state.bad) {
            let place = seen.entry(record).or_insert((epoch, position));
            *place = (epoch, position).min(*place);
        }
        assert_eq!(seen, alone[kill_at - 1], "killed at {kill_at}");

        let parts: Vec<Vec<Batch>> = (0..after)
            .map(|rank| {
                let loader = open(&pipeline, 5 - workers, rank, after);
                let state = LoaderState::from_json(&states[0]).expect("its own form");
                loader.restore(&state).expect("the same run");
                take(&loader, 15 - kill_at)
            })
            .collect();
        for step in 0..15 - kill_at {
            let wanted = global(std::slice::from_ref(&whole), kill_at + step);
            assert!(
                global(&parts, step) == wanted,
                "killed at {kill_at}, step {step}"
            );
        }
    }
}

#[test]
fn bad_records_in_the_state_count_against_the_limit_after_resuming() {
    let root = photos(12);
    let path = photo(root.path(), 2);
    let bytes = fs::read(&path).expect("it is there");
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    let pipeline = pipeline(root.path());
    let first = open(&pipeline, 2, 0, 1);
    epoch(&first);
    let state = first.state();
    assert_eq!(state.bad.len(), 1);
    assert_eq!(state.bad[0].2, first.bad_records()[0].record.index);

    let mut options = Options::default();
    (options.on_error, options.max_bad) = (OnError::Substitute, Some(1));
    let second = pipeline.open(&options).expect("opens");
    second.restore(&state).expect("the same run");
    epoch(&second);
    assert_eq!(second.state().bad, state.bad, "the same record again");
    assert_eq!(second.bad_records().len(), 1);

    // One more bad record exceeds the limit.
    let other = photo(root.path(), 7);
    let bytes = fs::read(&other).expect("it is there");
    fs::write(&other, &bytes[..bytes.len() / 2]).expect("writes");
    let second = pipeline.open(&options).expect("opens");
    second.restore(&state).expect("the same run");

    let error = loop {
        if let Err(error) = second.next_batch() {
            break error.to_string();
        }
    };
    assert!(error.contains("2 bad records"), "{error}");
}

#[test]
fn another_dataset_or_description_is_rejected_by_name_unless_forced() {
    let (root, other) = (photos(16), photos(17));
    let loader = open(&pipeline(root.path()), 2, 0, 1);
    take(&loader, 2);
    let state = loader.state();

    let moved = tempfile::tempdir().expect("a temporary folder");
    fs::rename(root.path(), moved.path().join("photos")).expect("it moves");
    let elsewhere = open(&pipeline(&moved.path().join("photos")), 2, 0, 1);
    elsewhere.restore(&state).expect("the same names");

    let larger = open(&pipeline(other.path()), 2, 0, 1);
    let error = larger.restore(&state).expect_err("17 records").to_string();
    for part in [
        "records is 17, was 16",
        "data's fingerprint",
        "strict=False",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let notes = larger.restore_anyway(&state).expect("requested");
    assert!(
        notes.iter().any(|note| note.contains("step 2 of epoch 0")),
        "{notes:?}"
    );
    assert_eq!(larger.place(), (0, 2));

    let flipped = pipeline(other.path()).transform(RandomHorizontalFlip::new(1.0));
    let saved = larger.state();
    let error = open(&flipped, 1, 0, 1)
        .restore(&saved)
        .expect_err("another flip");
    assert!(
        error.to_string().contains("the description's fingerprint"),
        "{error}"
    );
}
