//! Nothing is lost silently: bad records stop the run, are substituted or are skipped, the same on
//! every run. Failed reads always stop the run.

use std::fs;
use std::path::Path;

use infeed::loader::device::Placement;
use infeed::pipeline::SourceSpec;
use infeed::{Error, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::RandomResizedCrop;
use infeed_device::sim::Sim;

use crate::data::{bits, epoch, photo, photos};

fn damage(root: &Path, numbers: &[u64]) {
    for &n in numbers {
        let path = photo(root, n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
}

fn open(root: &Path, on_error: OnError, workers: usize, max_bad: Option<u64>) -> Loader {
    let pipeline = Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(4);
    let mut options = Options::default();
    (options.on_error, options.workers, options.max_bad) = (on_error, Some(workers), max_bad);
    pipeline.open(&options).expect("opens")
}

#[test]
fn a_truncated_jpeg_is_an_error_that_names_its_file_at_its_place_in_the_order() {
    let root = photos(16);
    damage(root.path(), &[6]);
    let whole = photos(16);
    let order: Vec<u64> = epoch(&open(whole.path(), OnError::Stop, 2, None))
        .iter()
        .flat_map(|batch| batch.records.clone())
        .collect();

    for workers in [1, 2, 7] {
        let loader = open(root.path(), OnError::Stop, workers, None);
        let mut good = 0;
        let error = loop {
            match loader.next_batch() {
                Ok(batch) => good += batch.expect("the epoch does not end before it").rows(),
                Err(error) => break error,
            }
        };
        let record = error.record().expect("it names a record").clone();
        assert!(matches!(error, Error::Decode { .. }), "{error}");
        assert!(record.name.ends_with("0006.jpg"), "{record}");
        let place = order
            .iter()
            .position(|&r| r == record.index)
            .expect("it is in the epoch");
        assert_eq!(good, place / 4 * 4, "all batches before it came out");
        assert_eq!(
            loader.next_batch().expect_err("still").to_string(),
            error.to_string()
        );
    }
}

#[test]
fn substitutes_keep_batches_full_and_are_the_same_for_every_worker_count() {
    let root = photos(18);
    damage(root.path(), &[2, 3, 11]);

    let mut seen = Vec::new();
    for workers in [1, 2, 7] {
        let loader = open(root.path(), OnError::Substitute, workers, None);
        let batches: Vec<_> = (0..2).flat_map(|_| epoch(&loader)).collect();
        let bad: Vec<_> = loader
            .bad_records()
            .iter()
            .map(|bad| (bad.epoch, bad.position, bad.record.name.clone()))
            .collect();
        assert_eq!(bad.len(), 3, "each once in two epochs: {bad:?}");
        assert!(bad.is_sorted() && bad.iter().all(|(epoch, ..)| *epoch == 0));
        assert_eq!(loader.stats().expect("open").bad, 3);
        assert!(
            batches
                .iter()
                .all(|batch| batch.rows() == 4 || batch.step == 4)
        );
        seen.push((bits(&batches), bad));
    }

    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn skipping_makes_the_batch_shorter_and_lists_the_record() {
    let root = photos(8);
    damage(root.path(), &[4]);
    let loader = open(root.path(), OnError::Skip, 2, None);

    let batches = epoch(&loader);

    assert_eq!(batches.iter().map(infeed::Batch::rows).sum::<usize>(), 7);
    let bad_records = loader.bad_records();
    assert!(bad_records.len() == 1 && bad_records[0].record.name.ends_with("0004.jpg"));
    for batch in &batches {
        assert_eq!(
            batch.array("image").expect("a column").shape()[0],
            batch.rows()
        );
    }
}

#[test]
fn a_batch_of_which_every_record_is_skipped_is_not_delivered() {
    let root = photos(8);
    // The second and the last batch: records are sorted by class, then by name.
    damage(root.path(), &[4, 6, 5, 7]);
    let pipeline = || {
        Pipeline::new(SourceSpec::folder(root.path()))
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(2)
    };
    let mut options = Options::default();
    options.on_error = OnError::Skip;
    let loader = pipeline().open(&options).expect("opens");
    let device = Sim::parse("sim").expect("a device");
    let sent = pipeline().open_on(device, Placement::Auto, 3, &[], &options);
    let sent = sent.expect("opens");

    for epoch in 0..2 {
        let batches =
            std::iter::from_fn(|| loader.next_batch().expect("skips")).collect::<Vec<_>>();
        let rows: Vec<_> = batches
            .iter()
            .map(|b| (b.epoch, b.step, b.rows()))
            .collect();
        assert_eq!(rows, [(epoch, 0, 2), (epoch, 2, 2)]);
        let batches = std::iter::from_fn(|| sent.next_batch().expect("skips")).collect::<Vec<_>>();
        let rows: Vec<_> = batches
            .iter()
            .map(|b| (b.epoch(), b.step(), b.rows()))
            .collect();
        assert_eq!(rows, [(epoch, 0, 2), (epoch, 2, 2)]);
    }
    assert_eq!(loader.bad_records().len(), 4);
}

#[test]
fn skipping_is_rejected_where_batches_must_be_full() {
    let root = photos(8);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(4)
        .drop_last();
    let mut options = Options::default();
    options.on_error = OnError::Skip;

    let error = pipeline.open(&options).expect_err("drop_last").to_string();

    assert!(error.contains("substitute"), "{error}");
}

#[test]
fn a_run_that_is_mostly_broken_stops_at_the_limit() {
    let root = photos(16);
    damage(root.path(), &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let loader = open(root.path(), OnError::Substitute, 2, Some(5));

    let error = loop {
        match loader.next_batch() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };

    assert!(
        matches!(
            error,
            Error::TooManyBad {
                bad: 6,
                limit: 5,
                ..
            }
        ),
        "{error}"
    );
    let name = error.record().expect("a record").to_string();
    let text = error.chain();
    assert_eq!(text.matches(&name).count(), 1, "{text}");
    assert!(
        text.starts_with(
            "6 bad records exceed max_bad=5; raise max_bad, or list the bad records with `infeed \
             inspect`; the last error: cannot decode field `image` of "
        ),
        "{text}"
    );
}

#[test]
fn the_error_that_stopped_a_run_repeats_until_the_next_seek() {
    let root = photos(16);
    damage(root.path(), &[5]);
    let is_good = |loader: &Loader| loader.next_batch().expect("good").is_some();
    for policy in [OnError::Substitute, OnError::Stop] {
        let loader = open(root.path(), policy, 2, Some(0));
        let mut delivered = 0;
        let error = loop {
            match loader.next_batch() {
                Ok(batch) => delivered += u64::from(batch.is_some()),
                Err(error) => break error,
            }
        };
        let (place, digest) = (loader.place(), loader.digest());

        let again = loader.next_batch().expect_err("it goes on to be stopped");

        assert_eq!(again.chain(), error.chain());
        assert_eq!(again.record(), error.record());
        assert_eq!(
            (loader.place(), loader.digest()),
            (place, digest),
            "a batch that was not delivered is not counted"
        );
        assert_eq!(place, (0, delivered));
        assert_eq!(loader.stats().expect("open").batches, delivered);

        // The batch with the bad record is now the first one requested.
        loader.seek(0, delivered).expect("a step of the epoch");
        let there = loader.next_batch().expect_err("it is as bad as before");
        assert_eq!(there.chain(), error.chain());
        loader.end_epoch().expect("open");
        assert_eq!(loader.place(), (1, 0));
        let other = (delivered + 1) % loader.steps().expect("open");
        loader.seek(0, other).expect("a step of the epoch");
        assert!(is_good(&loader), "{policy:?}");
    }
}

#[test]
fn an_epoch_that_stopped_at_its_first_step_can_be_ended() {
    let root = photos(16);
    damage(root.path(), &[0]);
    for policy in [OnError::Substitute, OnError::Stop] {
        let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(4);
        let mut options = Options::default();
        (options.on_error, options.max_bad) = (policy, Some(0));
        let loader = pipeline.open(&options).expect("opens");
        loader.next_batch().expect_err("the first is bad");

        loader.end_epoch().expect("open");

        assert_eq!(loader.place(), (1, 0), "{policy:?}");
        loader
            .next_batch()
            .expect_err("and so it is in every epoch");
    }
}

#[test]
fn a_record_that_is_bad_in_every_epoch_counts_once_against_the_limit() {
    let root = photos(16);
    damage(root.path(), &[3, 9]);
    let loader = open(root.path(), OnError::Substitute, 2, Some(2));

    for _ in 0..4 {
        epoch(&loader);
    }

    let of_state: Vec<u64> = loader.state().bad.iter().map(|bad| bad.2).collect();
    let listed = loader.bad_records();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().map(|bad| bad.record.index).eq(of_state));
}

#[test]
fn seeking_back_keeps_bad_records_and_counts_none_twice() {
    let root = photos(16);
    damage(root.path(), &[3, 9, 12]);
    let loader = open(root.path(), OnError::Substitute, 2, Some(3));
    epoch(&loader);
    let after_one = loader.state();
    epoch(&loader);

    loader.seek(0, 0).expect("there is an epoch 0");

    assert_eq!(loader.bad_records().len(), 3);
    assert_eq!(loader.stats().expect("open").bad, 3);
    assert_eq!(loader.state().bad, [], "none lies before the first batch");
    epoch(&loader);
    let again = loader.state();
    assert_eq!((again.epoch, again.position), (1, 0));
    assert_eq!(again.bad, after_one.bad);
    assert_eq!(loader.bad_records().len(), 3);
}

#[test]
fn a_failed_read_stops_the_run_even_when_bad_records_are_substituted() {
    let root = photos(8);
    let loader = {
        let gone = photo(root.path(), 5);
        let loader_root = root.path().to_owned();
        // The file exists when the source opens and is missing when it is read.
        let pipeline = Pipeline::new(SourceSpec::folder(&loader_root))
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(4);
        let source = pipeline.source.open(&[]).expect("lists");
        fs::remove_file(gone).expect("it is there");
        let mut options = Options::default();
        options.on_error = OnError::Substitute;
        pipeline.open_over(source, &options).expect("opens")
    };

    let error = loop {
        match loader.next_batch() {
            Ok(batch) => assert!(batch.is_some(), "the epoch does not end before it"),
            Err(error) => break error,
        }
    };

    assert!(
        matches!(error, Error::Read { .. }) && error.chain().contains("0005.jpg"),
        "{error}"
    );
}
