//! Order is a function of the seed: epochs and their ends, resuming, and the end of threads.

use std::collections::BTreeSet;
use std::time::Duration;

use infeed::pipeline::SourceSpec;
use infeed::{Error, Options, Pipeline, Step};
use infeed_codec::transform::{
    ColorJitter, Normalize, RandomErasing, RandomHorizontalFlip, RandomResizedCrop,
};

use crate::data::{bits, epoch, open, photos};

fn train(root: &std::path::Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(7)
        .decode()
        .transform(RandomResizedCrop::new(32))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(ColorJitter::default())
        .transform(Normalize::new([0.5, 0.4, 0.3], [0.2, 0.2, 0.2]))
        .transform(RandomErasing::new(0.5))
        .batch(6)
}

#[test]
fn every_worker_count_gives_the_same_bits() {
    let root = photos(40);
    let reference: Vec<_> = {
        let loader = open(&train(root.path()), 1);
        (0..2).flat_map(|_| bits(&epoch(&loader))).collect()
    };

    for workers in [2, 7] {
        let loader = open(&train(root.path()), workers);
        let same: Vec<_> = (0..2).flat_map(|_| bits(&epoch(&loader))).collect();
        assert!(same == reference, "{workers} workers");
    }
}

#[test]
fn an_epoch_holds_every_record_once_and_the_next_has_another_order() {
    let root = photos(20);
    let loader = open(&train(root.path()), 2);

    let order = |batches: &[infeed::Batch]| -> Vec<u64> {
        batches
            .iter()
            .flat_map(|batch| batch.records.clone())
            .collect()
    };
    let (first, second) = (order(&epoch(&loader)), order(&epoch(&loader)));

    for seen in [&first, &second] {
        assert_eq!(
            seen.iter().copied().collect::<BTreeSet<_>>(),
            (0..20).collect()
        );
        assert_eq!(seen.len(), 20);
    }
    assert_ne!(first, second);
}

#[test]
fn seeking_gives_the_batches_that_an_uninterrupted_run_gives() {
    let root = photos(20);
    let through = open(&train(root.path()), 2);
    let all: Vec<_> = (0..3).flat_map(|_| bits(&epoch(&through))).collect();
    let steps = through.steps().expect("open") as usize;

    let loader = open(&train(root.path()), 3);
    for (at, step) in [(2, 1), (0, 3), (1, 0)] {
        loader.seek(at, step).expect("a step of the epoch");
        let rest = bits(&epoch(&loader));
        let begin = at as usize * steps + step as usize;
        assert!(
            rest == all[begin..(at as usize + 1) * steps],
            "epoch {at} step {step}"
        );
    }
}

#[test]
fn ending_an_epoch_early_continues_with_the_next_and_skips_none_at_its_end() {
    let root = photos(20);
    let loader = open(&train(root.path()), 2);

    loader
        .next_batch()
        .expect("no bad record")
        .expect("a batch");
    loader.end_epoch().expect("open");
    let second = epoch(&loader);
    loader.end_epoch().expect("open");
    let third = epoch(&loader);

    assert!(second.iter().all(|batch| batch.epoch == 1));
    assert!(third.iter().all(|batch| batch.epoch == 2));
    assert_eq!(second.len(), third.len());
}

#[test]
fn ranks_see_the_slices_of_the_global_batch() {
    let root = photos(24);
    let whole = epoch(&open(&train(root.path()).drop_last(), 1));

    for world_size in [2, 3] {
        let mut parts: Vec<Vec<u64>> = vec![Vec::new(); whole.len()];
        for rank in 0..world_size {
            let mut options = Options::default();
            (options.rank, options.world_size, options.workers) = (rank, world_size, Some(2));
            let loader = train(root.path())
                .drop_last()
                .open(&options)
                .expect("divides");
            for (part, batch) in parts.iter_mut().zip(epoch(&loader)) {
                part.extend(batch.records);
            }
        }
        let global: Vec<_> = whole.iter().map(|batch| batch.records.clone()).collect();
        assert_eq!(parts, global, "world size {world_size}");
    }
}

#[test]
fn a_consumer_killed_mid_epoch_leaves_no_thread_behind() {
    let root = photos(12);
    let pipeline = train(root.path()).batch(2);

    // Every thread owns the job, and the job owns the source.
    for taken in [0, 1, 4] {
        let loader = open(&pipeline, 3);
        let source = std::sync::Arc::downgrade(&loader.source().expect("open"));
        for _ in 0..taken {
            loader.next_batch().expect("no bad record");
        }
        drop(loader);
        assert_eq!(source.strong_count(), 0, "a thread still holds the job");
    }
}

#[test]
fn a_closed_loader_is_an_error_and_its_batches_stay_valid() {
    let root = photos(12);
    let loader = open(&train(root.path()), 2);
    let batch = loader
        .next_batch()
        .expect("no bad record")
        .expect("a batch");
    let before = batch.array("image").expect("a column").bytes().to_vec();

    loader.close();

    assert!(matches!(loader.next_batch(), Err(Error::Closed)));
    assert_eq!(batch.array("image").expect("a column").bytes(), before);
}

#[test]
fn a_zero_timeout_returns_without_a_batch() {
    let root = photos(12);
    let loader = open(&train(root.path()), 1);

    let batch = loop {
        match loader
            .next_within(Duration::from_millis(1))
            .expect("no bad record")
        {
            Step::Batch(batch) => break batch,
            Step::Timeout => {}
            Step::End => panic!("an epoch has batches"),
        }
    };

    assert_eq!((batch.epoch, batch.step), (0, 0));
}
