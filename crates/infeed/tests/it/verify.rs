//! The certificate of a run: digests, files of them, and replays that name what differs.

use std::fs;
use std::path::{Path, PathBuf};

use infeed::loader::digest::{Digest, Digested};
use infeed::loader::verify::{Against, Verified, Verify};
use infeed::pipeline::SourceSpec;
use infeed::testing::synthetic::{Subsampling, jpeg};
use infeed::transform::{RandomHorizontalFlip, RandomResizedCrop};
use infeed::{Batch, Error, Loader, OnError, Options, Pipeline};

use crate::data::{photo, photos, picture};

fn pipeline(root: &Path, seed: u64) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(seed)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(4)
        .drop_last()
}

fn options(digest: Digested, workers: usize) -> Options {
    let mut options = Options::default();
    options.digest = digest;
    options.workers = Some(workers);
    options
}

fn take(loader: &Loader, count: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    while batches.len() < count {
        batches.extend(loader.next_batch().expect("good"));
    }
    batches
}

fn replay(pipeline: &Pipeline, against: Against, change: impl FnOnce(&mut Verify)) -> Verified {
    try_replay(pipeline, against, change).expect("replays")
}

fn try_replay(
    pipeline: &Pipeline,
    against: Against,
    change: impl FnOnce(&mut Verify),
) -> Result<Verified, Error> {
    let mut verify = Verify::default();
    verify.against = against;
    verify.options.workers = Some(3);
    change(&mut verify);
    pipeline.verify(&[], &verify, &mut |_, _| true)
}

/// Runs some steps as one of several ranks and writes their digests.
fn record(pipeline: &Pipeline, file: &Path, rank: (u64, u64), steps: usize) -> Digest {
    let mut options = options(Digested::Pixels, 2);
    options.digest_file = Some(file.to_owned());
    options.on_error = OnError::Substitute;
    (options.rank, options.world_size) = rank;
    let loader = pipeline.open(&options).expect("opens");
    take(&loader, steps);
    loader.digest()
}

fn recorded(files: &[&PathBuf]) -> Against {
    Against::Recorded(files.iter().map(|&file| file.clone()).collect())
}

#[test]
fn a_digest_is_the_same_for_any_workers_and_differs_where_a_seed_or_a_pixel_does() {
    let root = photos(18);
    let of = |seed, digested, workers| {
        let loader = pipeline(root.path(), seed).open(&options(digested, workers));
        let loader = loader.expect("opens");
        take(&loader, 9);
        loader.digest()
    };

    let ids = of(1, Digested::Ids, 1);
    let pixels = of(1, Digested::Pixels, 1);
    assert_eq!(ids, of(1, Digested::Ids, 4));
    assert_eq!(pixels, of(1, Digested::Pixels, 4));
    assert_eq!(pixels.without_pixels(), ids);
    assert_ne!(ids, of(2, Digested::Ids, 1));

    let other = jpeg(&picture(99, 50, 60), 90, Subsampling::Quarter).expect("encodes");
    fs::write(photo(root.path(), 4), other).expect("writes");
    let changed = of(1, Digested::Pixels, 2);
    assert_eq!(changed.ids, pixels.ids);
    assert_ne!(changed.pixels, pixels.pixels);
}

#[test]
fn a_restored_loader_goes_on_with_the_digest_of_the_run() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let open = |digested| pipeline.open(&options(digested, 2)).expect("opens");
    let whole = open(Digested::Pixels);
    take(&whole, 3);
    let state = whole.state();
    take(&whole, 3);

    let again = open(Digested::Pixels);
    again.restore(&state).expect("the same run");
    assert_eq!(Some(again.digest()), state.digest);
    take(&again, 3);
    assert_eq!(again.digest(), whole.digest());

    // Bytes that were not hashed from the beginning are in no digest of the whole.
    let ids = open(Digested::Ids);
    ids.restore(&state).expect("the same run");
    take(&ids, 3);
    assert_eq!(ids.digest(), whole.digest().without_pixels());
    let more = open(Digested::Pixels);
    more.restore(&ids.state()).expect("the same run");
    assert_eq!(more.digest(), ids.digest());
    assert!(more.step_digest().pixels.is_some());
}

#[test]
fn a_replay_agrees_with_what_a_run_wrote_from_any_state_on() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("digests.jsonl");
    let digest = record(&pipeline, &file, (0, 1), 9);

    let all = replay(&pipeline, recorded(&[&file]), |_| {});
    assert_eq!((all.from, all.steps, all.wanted), ((0, 0), 9, 9));
    assert_eq!((all.difference, all.digest), (None, digest));

    let loader = pipeline.open(&options(Digested::Ids, 1)).expect("opens");
    take(&loader, 5);
    let state = loader.state();
    let rest = replay(&pipeline, recorded(&[&file]), |verify| {
        verify.state = Some(state);
        verify.steps = Some(3);
    });
    assert_eq!((rest.from, rest.steps), ((1, 1), 3));
}

#[test]
fn files_of_all_ranks_are_held_against_one_process_and_that_of_one_against_its_rank() {
    let root = photos(18);
    let bytes = fs::read(photo(root.path(), 3)).expect("it is there");
    fs::write(photo(root.path(), 3), &bytes[..bytes.len() / 2]).expect("writes");
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let files = [0, 1].map(|rank| out.path().join(format!("rank{rank}.jsonl")));
    record(&pipeline, &files[0], (0, 2), 9);
    record(&pipeline, &files[1], (1, 2), 7);

    let both = replay(&pipeline, recorded(&[&files[1], &files[0]]), |_| {});
    assert_eq!((both.steps, both.difference), (7, None), "those both have");
    let one = replay(&pipeline, recorded(&[&files[0]]), |_| {});
    assert_eq!((one.steps, one.difference), (9, None));

    let twice = try_replay(&pipeline, recorded(&[&files[0], &files[0]]), |_| {});
    let error = twice.expect_err("rank 1 is missing").to_string();
    assert!(error.contains("ranks [0, 0] out of 2"), "{error}");
}

#[test]
fn the_first_step_that_differs_is_named_and_whether_its_records_do() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("digests.jsonl");
    record(&pipeline, &file, (0, 1), 8);
    let loader = pipeline.open(&options(Digested::Ids, 1)).expect("opens");
    let batches = take(&loader, 8);
    // Photograph 4 is the third of the cats, which come first.
    let at = batches
        .iter()
        .position(|batch| batch.records.contains(&2))
        .expect("it comes");

    let other = jpeg(&picture(99, 50, 60), 90, Subsampling::Quarter).expect("encodes");
    let good = fs::read(photo(root.path(), 4)).expect("it is there");
    fs::write(photo(root.path(), 4), other).expect("writes");
    let found = replay(&pipeline, recorded(&[&file]), |_| {});
    let difference = found.difference.expect("a pixel is another");
    assert_eq!(found.steps, at as u64);
    assert_eq!(
        (difference.epoch, difference.step),
        (at as u64 / 4, at as u64 % 4)
    );
    assert!(!difference.other_records);
    let text = difference.to_string();
    let place = format!("step {} of epoch {} (positions", at % 4, at / 4);
    for part in [
        &place[..],
        "the same records, other bytes; here it holds",
        "0004.jpg",
    ] {
        assert!(text.contains(part), "{text}");
    }

    // Cut short, it is a bad record, and another stands in.
    fs::write(photo(root.path(), 4), &good[..good.len() / 2]).expect("writes");
    let found = replay(&pipeline, recorded(&[&file]), |_| {});
    let difference = found.difference.expect("another record");
    assert!(difference.other_records && difference.step == at as u64 % 4);
    assert!(
        difference.to_string().contains("differs: other records"),
        "{difference}"
    );
}

#[test]
fn an_epoch_that_is_begun_again_counts_once_and_one_that_is_left_counts_as_far() {
    let root = photos(18);
    let open = || {
        let loader = pipeline(root.path(), 1).open(&options(Digested::Pixels, 2));
        loader.expect("opens")
    };
    let whole = open();
    take(&whole, 6);

    let looked = open();
    take(&looked, 2);
    looked.seek(0, 0).expect("back");
    assert_eq!(looked.digest(), Digest::empty(Digested::Pixels));
    take(&looked, 6);
    assert_eq!(looked.digest(), whole.digest());

    let left = open();
    take(&left, 2);
    let before = left.digest();
    left.end_epoch().expect("open");
    assert_eq!(left.digest(), before);
}

#[test]
fn two_replays_of_a_pipeline_agree() {
    let root = photos(18);

    let found = replay(&pipeline(root.path(), 1), Against::Itself, |_| {});

    assert_eq!((found.steps, found.wanted, found.difference), (4, 4, None));
    assert!(found.digest.pixels.is_some());
}

#[test]
fn a_run_that_goes_on_goes_on_with_its_file_and_steps_that_come_again_count_once() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("digests.jsonl");
    let mut with_file = options(Digested::Ids, 2);
    with_file.digest_file = Some(file.clone());
    let first = pipeline.open(&with_file).expect("opens");
    take(&first, 3);
    let state = first.state();
    take(&first, 2);
    drop(first);
    // Killed in the middle of a line.
    let mut text = fs::read_to_string(&file).expect("it is there");
    text.truncate(text.len() - 9);
    fs::write(&file, &text).expect("writes");

    let second = pipeline.open(&with_file).expect("goes on with it");
    second.restore(&state).expect("the same run");
    take(&second, 5);
    let digest = second.digest();
    drop(second);

    let lines = fs::read_to_string(&file).expect("it is there");
    assert_eq!(lines.lines().count(), 1 + 4 + 5);
    let found = replay(&pipeline, recorded(&[&file]), |_| {});
    assert_eq!(
        (found.steps, found.difference, found.digest),
        (8, None, digest)
    );
}

#[test]
fn files_of_other_runs_and_other_files_are_refused_by_name() {
    let root = photos(18);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("digests.jsonl");
    record(&pipeline(root.path(), 1), &file, (0, 1), 3);
    let refused = |result: Result<(), Error>| result.expect_err("it is another").chain();
    let against = |file: &PathBuf| {
        let found = try_replay(&pipeline(root.path(), 2), recorded(&[file]), |_| {});
        refused(found.map(drop))
    };

    assert!(against(&file).contains("another run (seed is 2, was 1)"));
    let mut with_file = options(Digested::Pixels, 1);
    with_file.digest_file = Some(file.clone());
    let error = refused(pipeline(root.path(), 1).open(&with_file).map(drop));
    assert!(
        error.contains("on_error is stop, was substitute"),
        "{error}"
    );
    assert!(error.contains("name another file"), "{error}");

    let other = out.path().join("other.jsonl");
    for (content, problem) in [
        ("", "it holds nothing"),
        ("{\"infeed_digests\":1", "it holds nothing"),
        ("no JSON\n", "no file of digests"),
        ("\u{0}\u{0}\n", "no file of digests"),
    ] {
        fs::write(&other, content).expect("writes");
        let error = against(&other);
        assert!(
            error.contains("other.jsonl") && error.contains(problem),
            "{error}"
        );
    }
    fs::write(&other, vec![b'x'; 200_000]).expect("writes");
    assert!(against(&other).contains("longer than any"));
    let header = fs::read_to_string(&file).expect("it is there");
    let header = header.lines().next().expect("a line");
    fs::write(&other, format!("{header}\n{{\"epoch\":0}}\n")).expect("writes");
    assert!(against(&other).contains("line 2 is no step's"));
}

#[test]
fn a_replay_ends_when_it_is_told_to() {
    let root = photos(18);
    let mut verify = Verify::default();
    verify.steps = Some(100);

    let found = pipeline(root.path(), 1).verify(&[], &verify, &mut |done, wanted| {
        assert_eq!(wanted, 100);
        done < 3
    });

    let found = found.expect("no bad record");
    assert_eq!(
        (found.steps, found.wanted, found.difference),
        (3, 100, None)
    );
}
