//! Digests of runs, and replays that are compared with run records.

use std::fs;
use std::path::Path;

use infeed::loader::digest::{Digest, DigestScope};
use infeed::loader::run_record::{
    ComparedSteps, RecordedStep, RowHashes, RowKey, RunRecord, RunWriter, compare_runs,
};
use infeed::loader::verify::{VerifyOptions, VerifyReference, VerifyReport};
use infeed::pipeline::{MemoryField, SourceSpec};
use infeed::{Batch, Error, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{RandomHorizontalFlip, RandomResizedCrop};
use infeed_core::sample::{DType, RecordId};
use infeed_sample::{Subsampling, jpeg};

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

fn options(digest: DigestScope, workers: usize) -> Options {
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

fn replay(
    pipeline: &Pipeline,
    against: VerifyReference,
    change: impl FnOnce(&mut VerifyOptions),
) -> VerifyReport {
    try_replay(pipeline, against, change).expect("replays")
}

fn try_replay(
    pipeline: &Pipeline,
    against: VerifyReference,
    change: impl FnOnce(&mut VerifyOptions),
) -> Result<VerifyReport, Error> {
    let mut verify = VerifyOptions::default();
    verify.against = against;
    verify.options.workers = Some(3);
    change(&mut verify);
    pipeline.verify(&[], &verify, &mut |_, _| true)
}

/// Replays some steps and writes a run record with hashes of contents.
fn record(pipeline: &Pipeline, file: &Path, steps: u64) -> Digest {
    let written = replay(pipeline, VerifyReference::Nothing, |verify| {
        verify.write = Some(file.to_owned());
        verify.steps = Some(steps);
        verify.options.digest = DigestScope::Pixels;
        verify.options.on_error = OnError::Substitute;
    });
    written.digest
}

fn reference_file(file: &Path) -> VerifyReference {
    VerifyReference::Recorded(file.to_owned())
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

    let ids = of(1, DigestScope::Ids, 1);
    let pixels = of(1, DigestScope::Pixels, 1);
    assert_eq!(ids, of(1, DigestScope::Ids, 4));
    assert_eq!(pixels, of(1, DigestScope::Pixels, 4));
    assert_eq!(pixels.without_pixels(), ids);
    assert_ne!(ids, of(2, DigestScope::Ids, 1));

    let other = jpeg(&picture(99, 50, 60), 90, Subsampling::Quarter).expect("encodes");
    fs::write(photo(root.path(), 4), other).expect("writes");
    let changed = of(1, DigestScope::Pixels, 2);
    assert_eq!(changed.ids, pixels.ids);
    assert_ne!(changed.pixels, pixels.pixels);
}

#[test]
fn a_restored_loader_continues_the_digest_of_the_run() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let open = |digested| pipeline.open(&options(digested, 2)).expect("opens");
    let whole = open(DigestScope::Pixels);
    take(&whole, 3);
    let state = whole.state();
    take(&whole, 3);

    let again = open(DigestScope::Pixels);
    again.restore(&state).expect("the same run");
    assert_eq!(Some(again.digest()), state.digest);
    take(&again, 3);
    assert_eq!(again.digest(), whole.digest());

    // If bytes were not hashed from the beginning, the digest of the run does not cover them.
    let ids = open(DigestScope::Ids);
    ids.restore(&state).expect("the same run");
    take(&ids, 3);
    assert_eq!(ids.digest(), whole.digest().without_pixels());
    let more = open(DigestScope::Pixels);
    more.restore(&ids.state()).expect("the same run");
    assert_eq!(more.digest(), ids.digest());
    assert!(more.step_digest().pixels.is_some());
}

#[test]
fn a_replay_agrees_with_the_file_of_an_earlier_one() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    let digest = record(&pipeline, &file, 9);

    let all = replay(&pipeline, reference_file(&file), |_| {});
    assert_eq!((all.from, all.steps, all.wanted), ((0, 0), 9, 9));
    assert_eq!((all.difference, all.digest), (None, digest));

    let first = replay(&pipeline, reference_file(&file), |verify| {
        verify.steps = Some(3);
    });
    assert_eq!((first.from, first.steps, first.wanted), ((0, 0), 3, 3));
}

#[test]
fn the_first_different_step_is_named_with_the_kind_of_difference() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    record(&pipeline, &file, 8);
    let loader = pipeline.open(&options(DigestScope::Ids, 1)).expect("opens");
    let batches = take(&loader, 8);
    // Photograph 4 is the third cat, and cats come first.
    let at = batches
        .iter()
        .position(|batch| batch.records.contains(&2))
        .expect("it comes");

    let other = jpeg(&picture(99, 50, 60), 90, Subsampling::Quarter).expect("encodes");
    let good = fs::read(photo(root.path(), 4)).expect("it is there");
    fs::write(photo(root.path(), 4), other).expect("writes");
    let found = replay(&pipeline, reference_file(&file), |_| {});
    let difference = found.difference.expect("a pixel is another");
    assert_eq!(found.steps, at as u64);
    assert_eq!(
        (difference.epoch, difference.step),
        (at as u64 / 4, at as u64 % 4)
    );
    assert_eq!(difference.other_records, Some(false));
    let text = difference.to_string();
    let place = format!("step {} of epoch {} (positions", at % 4, at / 4);
    for part in [&place[..], " has different bytes in ", "0004.jpg"] {
        assert!(text.contains(part), "{text}");
    }
    let row = difference.row.expect("the row of the record");
    assert_eq!(row.records[0], row.records[1]);
    assert_eq!(row.records[0].as_ref().map(|record| record.index), Some(2));

    // A truncated file is a bad record, and a substitute takes its place.
    fs::write(photo(root.path(), 4), &good[..good.len() / 2]).expect("writes");
    let found = replay(&pipeline, reference_file(&file), |_| {});
    let difference = found.difference.expect("another record");
    assert_eq!(difference.other_records, Some(true));
    assert_eq!(difference.step, at as u64 % 4);
    let text = difference.to_string();
    assert!(text.contains(" has another record, "), "{text}");
    assert!(
        text.ends_with("is there, which the expected run does not have"),
        "{text}"
    );
}

#[test]
fn an_epoch_that_starts_again_counts_once_and_a_partial_one_counts_its_steps() {
    let root = photos(18);
    let open = || {
        let loader = pipeline(root.path(), 1).open(&options(DigestScope::Pixels, 2));
        loader.expect("opens")
    };
    let whole = open();
    take(&whole, 6);

    let loader = open();
    take(&loader, 2);
    loader.seek(0, 0).expect("back");
    assert_eq!(loader.digest(), Digest::empty(DigestScope::Pixels));
    take(&loader, 6);
    assert_eq!(loader.digest(), whole.digest());

    let left = open();
    take(&left, 2);
    let before = left.digest();
    left.end_epoch().expect("open");
    assert_eq!(left.digest(), before);
}

#[test]
fn two_replays_of_a_pipeline_agree() {
    let root = photos(18);

    let found = replay(&pipeline(root.path(), 1), VerifyReference::Itself, |_| {});

    assert_eq!((found.steps, found.wanted, found.difference), (4, 4, None));
    assert!(found.digest.pixels.is_some());
}

#[test]
fn a_file_without_its_last_line_is_read_up_to_there_and_a_later_line_of_a_step_counts() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    record(&pipeline, &file, 5);
    let text = fs::read_to_string(&file).expect("it is there");
    let lines: Vec<&str> = text.lines().collect();
    // Step 1 occurs with the digest of step 2, then with its own; the last line is truncated.
    let wrong = lines[3].replace("\"step\":2", "\"step\":1");
    let content = [
        lines[0],
        lines[1],
        &wrong,
        lines[2],
        lines[3],
        &lines[4][..20],
    ];
    fs::write(&file, content.join("\n")).expect("writes");

    let found = replay(&pipeline, reference_file(&file), |_| {});

    assert_eq!((found.steps, found.difference), (3, None));
}

#[test]
fn files_of_other_runs_and_of_other_kinds_are_errors_that_name_the_file() {
    let root = photos(18);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    record(&pipeline(root.path(), 1), &file, 3);
    let against = |file: &Path| {
        let found = try_replay(&pipeline(root.path(), 2), reference_file(file), |_| {});
        found.expect_err("it is another").chain()
    };

    assert!(against(&file).contains("another run (seed is 2, was 1)"));

    let other = out.path().join("other.jsonl");
    for (content, problem) in [
        ("", "no complete first line"),
        ("{\"infeed_run_record\":1", "no complete first line"),
        ("no JSON\n", "not a run record"),
        ("\u{0}\u{0}\n", "not a run record"),
        ("{\"infeed_run_record\":9}\n", "version 9 is unknown"),
        (
            "{\"infeed_digests\":1,\"of\":\"ids\",\"rank\":0}\n",
            "file of digests of an earlier version; write it again with infeed verify --write",
        ),
        (
            "{\"infeed_certificate\":1}\n",
            "record of an earlier version; record the run again with infeed.runs.certify",
        ),
        ("{\"infeed_run_record\":1}\n", "the file has no steps"),
        (
            "{\"infeed_run_record\":1}\n{\"step\":18446744073709551615,\"hashes\":\"0123456789ab\"}\n",
            " has no step ",
        ),
    ] {
        fs::write(&other, content).expect("writes");
        let error = against(&other);
        assert!(error.contains(problem), "{error}");
    }
    fs::write(&other, vec![b'x'; 17 << 20]).expect("writes");
    assert!(against(&other).contains("longer than in any run record"));
    let header = fs::read_to_string(&file).expect("it is there");
    let header = header.lines().next().expect("a line");
    fs::write(&other, format!("{header}\n{{\"epoch\":0}}\n")).expect("writes");
    assert!(against(&other).contains("other.jsonl: line 2 is not a line of a run record"));
}

#[test]
fn a_replay_ends_when_the_callback_returns_false() {
    let root = photos(18);
    let mut verify = VerifyOptions::default();
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

#[test]
fn a_record_of_numbers_names_the_row_and_both_records() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    replay(&pipeline, VerifyReference::Nothing, |verify| {
        verify.write = Some(file.clone());
    });
    let text = fs::read_to_string(&file).expect("it is there");
    let loader = pipeline.open(&options(DigestScope::Ids, 1)).expect("opens");
    let batches = take(&loader, 4);
    // Step 1 expects the record of step 2 in its row 3, and the other way round.
    let [one, other] = [batches[1].records[3], batches[2].records[0]];
    let ids = |batch: &Batch| {
        let ids: Vec<String> = batch.records.iter().map(u64::to_string).collect();
        format!("{ids:?}").replace(' ', "")
    };
    let swap = |batch: &Batch, from: u64, to: u64| {
        ids(batch).replace(&format!("\"{from}\""), &format!("\"{to}\""))
    };
    let text = text
        .replace(&ids(&batches[1]), &swap(&batches[1], one, other))
        .replace(&ids(&batches[2]), &swap(&batches[2], other, one));
    fs::write(&file, text).expect("writes");

    let found = replay(&pipeline, reference_file(&file), |_| {});

    let difference = found.difference.expect("two records are swapped");
    assert_eq!((difference.step, difference.other_records), (1, Some(true)));
    let row = difference.row.as_ref().expect("the row");
    let index = |record: &Option<RecordId>| record.as_ref().map(|record| record.index);
    assert_eq!(row.records.each_ref().map(index), [Some(one), Some(other)]);
    assert_eq!(row.keys, [Some(one.to_string()), Some(other.to_string())]);
    let name = |record| loader.source().expect("open").id(record, None);
    assert_eq!(
        difference.to_string(),
        format!(
            "step 1 of epoch 0 (positions 4 to 7) differs: position 7 has another record. Sample {} \
             is expected there. Sample {} is there; it is expected in step 2 of epoch 0, row 0",
            name(other),
            name(one)
        )
    );
}

#[test]
fn bytes_between_the_hashed_pieces_of_a_row_count_through_the_digest() {
    const ROW: usize = 100_000;
    let field = MemoryField::array("x", "tensor", DType::UInt8, vec![ROW], 0);
    let fields = vec![field];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(2);
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    let run = |bytes: &[u8], against: VerifyReference, write: Option<&Path>| {
        let mut verify = VerifyOptions::default();
        verify.against = against;
        verify.write = write.map(Path::to_owned);
        verify.options.digest = DigestScope::Pixels;
        let handles = [bytes::Bytes::copy_from_slice(bytes).into()];
        let found = pipeline.verify(&handles, &verify, &mut |_, _| true);
        found.expect("replays").difference
    };
    let mut bytes = vec![0; 4 * ROW];
    run(&bytes, VerifyReference::Nothing, Some(&file));
    assert_eq!(run(&bytes, reference_file(&file), None), None);
    let other = out.path().join("other.jsonl");

    bytes[3 * ROW + 1000] = 1;

    let difference = run(&bytes, reference_file(&file), None);
    let difference = difference.expect("a byte of record 3 is another");
    assert_eq!((difference.step, difference.row.is_none()), (1, true));
    let text = difference.to_string();
    assert!(
        text.contains("the same records with different bytes; in this run"),
        "{text}"
    );
    run(&bytes, VerifyReference::Nothing, Some(&other));
    let read = |path: &Path| RunRecord::read(path).expect("a record");
    let found = compare_runs(&read(&file), &read(&other), ComparedSteps::All);
    let found = found.expect("both have the steps").expect("the same byte");
    assert_eq!((found.step, found.row), (1, None));
    assert!(
        found.text.contains("their digests are not"),
        "{}",
        found.text
    );
}

#[test]
fn a_record_of_another_loader_is_compared_by_its_ids_or_contents() {
    let root = photos(18);
    let pipeline = pipeline(root.path(), 1);
    let loader = pipeline.open(&options(DigestScope::Ids, 1)).expect("opens");
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    // Two epochs of four steps.
    let batches = take(&loader, 8);
    let write = |keys: &dyn Fn(&Batch) -> Vec<RowKey>| {
        let mut writer = RunWriter::create(&file, None).expect("writes");
        for (step, batch) in (0..).zip(&batches) {
            let step = RecordedStep {
                step,
                rows: keys(batch),
                digest: None,
            };
            writer.write(&step).expect("writes");
        }
    };
    let ids = |add: u64| {
        move |batch: &Batch| {
            let ids = batch.records.iter().map(|record| record + add);
            ids.map(|id| RowKey::Id(id.to_string().into())).collect()
        }
    };

    write(&ids(0));
    let same = replay(&pipeline, reference_file(&file), |_| {});
    assert_eq!((same.steps, same.difference), (8, None));
    write(&|batch| RowHashes::of_batch(batch).expect("columns"));
    let same = replay(&pipeline, reference_file(&file), |_| {});
    assert_eq!((same.steps, same.difference), (8, None));

    let other = replay(
        &self::pipeline(root.path(), 2),
        reference_file(&file),
        |_| {},
    );
    let difference = other.difference.expect("another order");
    assert_eq!(
        (difference.expected, difference.other_records),
        (None, None)
    );
    let text = difference.to_string();
    assert!(text.contains("position 0 has other contents, "), "{text}");

    write(&ids(1000));
    let error = try_replay(&pipeline, reference_file(&file), |_| {}).expect_err("no numbers");
    let error = error.chain();
    assert!(
        error.contains("is not the number of one of the 18 records"),
        "{error}"
    );
}
