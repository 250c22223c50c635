//! Tests of the frequency of records in a loader: filter, split, take, weights and passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bytes::Bytes;
use infeed::loader::LoaderState;
use infeed::pipeline::{Class, Handle, MemoryField, MixPart, RecordFilter, SourceSpec, Weights};
use infeed::{Loader, OnError, Options, Pipeline};
use infeed_codec::transform::RandomResizedCrop;
use infeed_core::sample::DType;
use infeed_pack::{PackOptions, Target, pack};

use crate::data::{epoch, photo, photos};
use infeed_testkit::write;

/// Thirds, more or less.
const SHARES: [f64; 3] = [0.5, 0.3, 0.2];

fn name(text: &str) -> Class {
    Class::Name(text.to_owned())
}

fn labels(classes: &[Class]) -> RecordFilter {
    RecordFilter {
        label: classes.to_vec(),
        ..RecordFilter::default()
    }
}

fn name_filter(pattern: &str) -> RecordFilter {
    RecordFilter {
        name: vec![pattern.to_owned()],
        ..RecordFilter::default()
    }
}

/// Returns numbers in memory as a field, with the buffer that holds them.
fn numbers(field: &str, dtype: DType, bytes: Vec<u8>, handle: usize) -> (MemoryField, Handle) {
    let field = MemoryField::array(field, "tensor", dtype, Vec::new(), handle);
    (field, Bytes::from(bytes).into())
}

/// Returns a source in memory with this number of records. Every third has class 1, the others
/// class 0.
fn memory(records: u64) -> (SourceSpec, Vec<Handle>) {
    let bytes = (0..records).flat_map(|n| i64::from(n % 3 == 0).to_le_bytes());
    let (field, buffer) = numbers("label", DType::Int64, bytes.collect(), 0);
    let fields = vec![field];
    (SourceSpec::Memory { fields }, vec![buffer])
}

/// Returns weights by record, in a handle after those of the source.
fn by_record(weights: &[f64], handles: &mut Vec<Handle>) -> Weights {
    let bytes = weights.iter().flat_map(|weight| weight.to_le_bytes());
    let (field, buffer) = numbers("weights", DType::Float64, bytes.collect(), handles.len());
    handles.push(buffer);
    Weights {
        records: Some(field),
        ..Weights::default()
    }
}

/// Writes TFRecord shards of 13 records, compressed as a whole or not.
fn shards(root: &Path, records: usize, gzip: bool) -> SourceSpec {
    let numbers: Vec<usize> = (0..records).collect();
    for (shard, numbers) in numbers.chunks(13).enumerate() {
        let record = |&n: &usize| write::frame_record(&write::example(&[n as u8; 9], n as u8));
        let mut file: Vec<u8> = numbers.iter().flat_map(record).collect();
        if gzip {
            file = write::gzip(&file);
        }
        fs::write(root.join(format!("train-{shard:02}")), file).expect("writes");
    }
    SourceSpec::tfrecord(root.join("train-*").display().to_string())
}

fn open(pipeline: &Pipeline, handles: &[Handle], workers: usize) -> Loader {
    let mut options = Options::default();
    options.workers = Some(workers);
    pipeline.open_with(handles, &options).expect("it fits")
}

/// Returns the record numbers in the source, in the order of delivery.
fn delivered_records(loader: &Loader) -> Vec<u64> {
    let source = loader.source().expect("it is open");
    let id = |&record: &u64| source.id(record, None).index;
    let batches = epoch(loader);
    let records = batches.iter().flat_map(|batch| &batch.records);
    records.map(id).collect()
}

fn sort(mut records: Vec<u64>) -> Vec<u64> {
    records.sort_unstable();
    records
}

fn open_error(pipeline: &Pipeline, handles: &[Handle]) -> String {
    let error = pipeline.open_with(handles, &Options::default());
    error.expect_err("it cannot be").to_string()
}

#[test]
fn parts_of_a_split_are_disjoint_complete_and_of_exact_size_over_every_kind_of_source() {
    let root = photos(40);
    let folder = SourceSpec::folder(root.path());
    let (plain, whole) = (tempfile::tempdir(), tempfile::tempdir());
    let (plain, whole) = (plain.expect("a folder"), whole.expect("a folder"));
    let (memory, buffers) = memory(101);
    for (spec, handles, records) in [
        (folder, &[][..], 40),
        (shards(plain.path(), 50, false), &[], 50),
        (shards(whole.path(), 50, true), &[], 50),
        (memory, &buffers[..], 101),
    ] {
        let part = |part, seed| {
            let pipeline = Pipeline::new(spec.clone())
                .shuffle(3)
                .split(&SHARES, part, seed)
                .batch(7);
            open(&pipeline, handles, 2)
        };
        let mut all = Vec::new();
        for (number, share) in SHARES.iter().enumerate() {
            let loader = part(number, 0);
            let first = delivered_records(&loader);
            assert!((first.len() as f64 - share * records as f64).abs() < 1.0);
            assert_eq!(
                sort(delivered_records(&loader)),
                sort(first.clone()),
                "each epoch"
            );
            all.extend(first);
        }
        assert_eq!(sort(all), (0..records).collect::<Vec<_>>());
        assert_ne!(
            sort(delivered_records(&part(0, 0))),
            sort(delivered_records(&part(0, 1)))
        );
    }
}

#[test]
fn a_split_belongs_to_the_records_and_not_to_their_order() {
    let (spec, handles) = memory(60);
    let part = |pipeline: Pipeline| {
        let pipeline = pipeline.split(&[0.25, 0.75], 0, 9).batch(4);
        sort(delivered_records(&open(&pipeline, &handles, 2)))
    };

    let unshuffled = part(Pipeline::new(spec.clone()));

    assert_eq!(unshuffled.len(), 15);
    assert_ne!(unshuffled, (0..15).collect::<Vec<_>>());
    for seed in 0..3 {
        assert_eq!(part(Pipeline::new(spec.clone()).shuffle(seed)), unshuffled);
    }
}

#[test]
fn filters_keep_classes_and_names_and_leave_out_others() {
    let root = photos(30);
    let folder = || Pipeline::new(SourceSpec::folder(root.path())).batch(7);
    let names = |pipeline: &Pipeline| -> BTreeSet<String> {
        let loader = open(pipeline, &[], 2);
        let source = loader.source().expect("it is open");
        let batches = epoch(&loader);
        let records = batches.iter().flat_map(|batch| batch.records.clone());
        let name = |record| source.name(record).expect("a file");
        records.map(name).collect()
    };
    let cats = names(&folder().filter(labels(&[name("cat")])));
    assert_eq!(cats.len(), 15);
    assert!(cats.iter().all(|name| name.starts_with("cat/")));
    assert_eq!(names(&folder().filter(labels(&[Class::Number(0)]))), cats);
    assert_eq!(names(&folder().filter(name_filter("cat/*"))), cats);
    assert_eq!(names(&folder().filter(name_filter("*/*.jpg"))).len(), 30);
    assert_eq!(names(&folder().filter(name_filter("*.jpg"))).len(), 30);
    let not_dog = RecordFilter {
        not_label: vec![name("dog")],
        ..RecordFilter::default()
    };
    assert_eq!(names(&folder().filter(not_dog)), cats);
    let few = RecordFilter {
        name: vec!["000[0-7]*".to_owned(), "0020.jpg".to_owned()],
        not_name: vec!["0004*".to_owned()],
        label: vec![name("cat")],
        ..RecordFilter::default()
    };
    let expected = [
        "cat/0000.jpg",
        "cat/0002.jpg",
        "cat/0006.jpg",
        "cat/0020.jpg",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(names(&folder().filter(few)), expected);
    let both = folder()
        .filter(name_filter("000*"))
        .filter(labels(&[name("cat")]));
    assert_eq!(names(&both).len(), 5);
}

#[test]
fn shards_are_filtered_by_their_names_and_only_those_are_read() {
    let root = tempfile::tempdir().expect("a folder");
    let spec = shards(root.path(), 60, true);
    let shard = RecordFilter {
        shard: vec!["train-0[13]".to_owned()],
        ..RecordFilter::default()
    };
    let pipeline = Pipeline::new(spec).filter(shard).shuffle(0).batch(5);

    let records = delivered_records(&open(&pipeline, &[], 2));

    assert_eq!(sort(records), (13..26).chain(39..52).collect::<Vec<_>>());
}

#[test]
fn filter_split_take_weights_and_repeat_compose_in_this_order() {
    let (spec, mut handles) = memory(300);
    // Class 1 has every third record. The pipeline takes half of them, then the first 20, with
    // double weight for even numbers, in two passes.
    let weights: Vec<f64> = (0..300).map(|n| f64::from(2 - n % 2)).collect();
    let weights = by_record(&weights, &mut handles);
    let base = Pipeline::new(spec)
        .filter(labels(&[Class::Number(1)]))
        .split(&[0.5, 0.5], 1, 4)
        .batch(6);
    let half = sort(delivered_records(&open(&base, &handles, 1)));
    assert_eq!(half.len(), 50);
    assert!(half.iter().all(|record| record % 3 == 0));

    let pipeline = base.take(20).weights(weights).repeat(2).shuffle(8);
    let loader = open(&pipeline, &handles, 3);
    let both = delivered_records(&loader);

    assert_eq!(both.len(), 40);
    let first = &half[..20];
    assert!(both.iter().all(|record| first.contains(record)));
    let sum: u64 = first.iter().map(|record| 2 - record % 2).sum();
    for pass in both.chunks(20) {
        for record in first {
            let count = pass.iter().filter(|one| *one == record).count() as f64;
            let share = 20.0 * (2 - record % 2) as f64 / sum as f64;
            assert!((count - share).abs() < 1.0, "{record}: {count} of {share}");
        }
    }
}

#[test]
fn classes_occur_exactly_by_weight_and_equally_when_balanced() {
    // Class 1 has 34 of 100 records, which are not consecutive.
    let (spec, handles) = memory(100);
    let of_class = |weights: Weights, epochs: usize| -> Vec<(usize, usize)> {
        let pipeline = Pipeline::new(spec.clone())
            .weights(weights)
            .shuffle(1)
            .batch(9);
        let loader = open(&pipeline, &handles, 2);
        let counts = (0..epochs).map(|_| {
            let records = delivered_records(&loader);
            let ones = records.iter().filter(|&record| record % 3 == 0).count();
            (ones, records.len() - ones)
        });
        counts.collect()
    };

    let twice = Weights::classes([(Class::Number(1), 2.0)]);
    let expected = 100.0 * 68.0 / 134.0;
    for (ones, others) in of_class(twice, 5) {
        assert_eq!(ones + others, 100);
        assert!((ones as f64 - expected).abs() < 1.0, "{ones} of {expected}");
    }
    let mut balanced = Weights::balanced();
    balanced.epoch = Some(64);
    assert_eq!(of_class(balanced, 4), vec![(32, 32); 4]);
    let none = Weights::classes([(Class::Number(0), 0.0)]);
    assert_eq!(of_class(none, 2), vec![(34, 0); 2]);
}

#[test]
fn weights_over_whole_shards_are_exact_too_and_read_each_shard_once() {
    let root = tempfile::tempdir().expect("a folder");
    let spec = shards(root.path(), 60, true);
    let weights: Vec<f64> = (0..60).map(|n| f64::from(n % 4)).collect();
    let mut handles = Vec::new();
    let mut weights = by_record(&weights, &mut handles);
    weights.epoch = Some(90);
    let pipeline = Pipeline::new(spec).weights(weights).shuffle(2).batch(10);

    for workers in [1, 3] {
        let loader = open(&pipeline, &handles, workers);
        for _ in 0..2 {
            let mut counts = BTreeMap::new();
            for record in delivered_records(&loader) {
                *counts.entry(record).or_insert(0) += 1;
            }
            // The weights are 0 to 3, 90 in total.
            let expected = (0..60).filter(|n| n % 4 > 0).map(|n| (n, n % 4));
            assert_eq!(counts, expected.collect());
        }
    }
}

#[test]
fn an_epoch_of_passes_has_every_record_once_per_pass_in_new_order() {
    let (spec, handles) = memory(30);
    let once = Pipeline::new(spec).shuffle(6).batch(7);
    let epochs = open(&once, &handles, 1);
    let passes: Vec<u64> = (0..6).flat_map(|_| delivered_records(&epochs)).collect();

    let loader = open(&once.clone().repeat(3), &handles, 3);

    assert_eq!(delivered_records(&loader), passes[..90]);
    assert_eq!(delivered_records(&loader), passes[90..]);
    for pass in passes.chunks(30) {
        assert_eq!(sort(pass.to_vec()), (0..30).collect::<Vec<_>>());
    }
}

/// Combines all selections over a folder with some damaged photos.
fn curriculum(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .filter(RecordFilter {
            not_name: vec!["0012*".to_owned()],
            ..RecordFilter::default()
        })
        .split(&[0.8, 0.2], 0, 1)
        .take(25)
        .weights(Weights::classes([(name("dog"), 3.0)]))
        .repeat(2)
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(4)
        .drop_last()
}

fn open_rank(pipeline: &Pipeline, workers: usize, rank: u64, world_size: u64) -> Loader {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    options.workers = Some(workers);
    (options.rank, options.world_size) = (rank, world_size);
    pipeline.open(&options).expect("opens")
}

/// Returns records and pixels of the next steps, of all ranks together.
fn steps(loaders: &[Loader], count: usize) -> Vec<(Vec<u64>, Vec<u8>)> {
    let mut all = vec![(Vec::new(), Vec::new()); count];
    for loader in loaders {
        let mut done = 0;
        while done < count {
            let Some(batch) = loader.next_batch().expect("good") else {
                continue;
            };
            all[done].0.extend(&batch.records);
            all[done]
                .1
                .extend(batch.array("image").expect("pixels").bytes());
            done += 1;
        }
    }
    all
}

#[test]
fn any_workers_and_ranks_resume_a_curriculum_with_the_same_batches() {
    let root = photos(40);
    for n in [3, 8, 20] {
        let path = photo(root.path(), n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    let pipeline = curriculum(root.path());
    let ranks = |workers, world_size| -> Vec<Loader> {
        let rank = |rank| open_rank(&pipeline, workers, rank, world_size);
        (0..world_size).map(rank).collect()
    };
    // 25 records, twice: 12 steps per epoch.
    let whole = steps(&ranks(2, 1), 30);

    for (kill_at, workers, before, after) in
        [(5, 1, 1, 2), (7, 3, 4, 1), (12, 2, 2, 4), (19, 4, 1, 1)]
    {
        let first = ranks(workers, before);
        assert!(steps(&first, kill_at) == whole[..kill_at]);
        let state = first[0].state().to_json();
        drop(first);

        let second = ranks(5 - workers, after);
        for loader in &second {
            let state = LoaderState::from_json(&state).expect("valid");
            loader.restore(&state).expect("the same run");
        }
        assert!(
            steps(&second, 30 - kill_at) == whole[kill_at..],
            "killed at {kill_at}"
        );
    }
}

#[test]
fn a_state_of_another_selection_is_rejected_and_states_stay_small() {
    let root = photos(40);
    let base = curriculum(root.path());
    let state = open_rank(&base, 1, 0, 1).state();
    let without_bad = state.to_json();
    assert!(
        without_bad.len() < 300,
        "{}: {without_bad}",
        without_bad.len()
    );

    let more = |change: fn(&mut Pipeline)| {
        let mut other = base.clone();
        change(&mut other);
        other
    };
    let data = "the data's fingerprint (names, counts, filter, split, take)";
    let done = "the description's fingerprint (decode, transforms, fuse, boxes, weights, repeat)";
    for (other, part) in [
        (base.clone().filter(name_filter("*1.jpg")), data),
        (base.clone().split(&[0.8, 0.2], 0, 2), data),
        (base.clone().take(24), data),
        (
            more(|p| p.weights = Some(Weights::classes([(name("dog"), 2.0)]))),
            done,
        ),
        (more(|p| p.weights = None), done),
        (base.clone().repeat(3), done),
    ] {
        let error = open_rank(&other, 1, 0, 1).restore(&state);
        let error = error.expect_err("another selection").to_string();
        assert!(error.contains(part), "{error}");
    }
    let moved = base.clone();
    open_rank(&moved, 1, 0, 1)
        .restore(&state)
        .expect("the same");
}

fn mix_of_two(weights: Option<[f64; 2]>, epoch: Option<u64>) -> (Pipeline, Vec<Handle>) {
    let ((first, mut handles), (second, more)) = (memory(60), memory(120));
    handles.extend(more);
    let SourceSpec::Memory { mut fields } = second else {
        panic!("arrays");
    };
    fields[0].handle = Some(1);
    let sources = [first, SourceSpec::Memory { fields }];
    let parts = sources.into_iter().enumerate().map(|(at, source)| MixPart {
        weight: weights.map(|weights| weights[at]),
        source,
    });
    let parts = parts.collect();
    (Pipeline::new(SourceSpec::Mix { parts, epoch }), handles)
}

#[test]
fn a_selection_of_a_weighted_mix_applies_to_each_part() {
    let (mix, handles) = mix_of_two(Some([1.0, 3.0]), None);
    let pipeline = mix
        .filter(labels(&[Class::Number(1)]))
        .split(&[0.75, 0.25], 0, 0)
        .shuffle(1)
        .batch(8);
    let loader = open(&pipeline, &handles, 2);

    // Of 20 and 40 records of class 1, 15 and 30 remain: an epoch has 45.
    let two: Vec<u64> = (0..2).flat_map(|_| delivered_records(&loader)).collect();

    assert_eq!(two.len(), 90);
    assert!(two.iter().all(|record| record % 3 == 0));
    let first: BTreeSet<u64> = two.iter().copied().filter(|&record| record < 60).collect();
    assert_eq!(first.len(), 15);
    let of_first = two.iter().filter(|&&record| record < 60).count() as f64;
    assert!((of_first - 22.5).abs() <= 1.0, "{of_first}");
    let other = open(&pipeline.clone().split(&[0.75, 0.25], 1, 0), &handles, 1);
    assert!(
        delivered_records(&other)
            .iter()
            .all(|record| !two.contains(record))
    );

    for (pipeline, part) in [
        (pipeline.clone().take(5), "set the epoch of the mix"),
        (
            pipeline.clone().weights(Weights::balanced()),
            "weighted mix",
        ),
    ] {
        let error = open_error(&pipeline, &handles);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn mixes_by_weights_in_a_mix_keep_their_weights_when_they_are_selected() {
    let (mix, mut handles) = mix_of_two(Some([1.0, 3.0]), None);
    let (third, more) = memory(60);
    handles.extend(more);
    let SourceSpec::Memory { mut fields } = third else {
        panic!("arrays");
    };
    fields[0].handle = Some(2);
    let part = |source| MixPart {
        weight: Some(0.5),
        source,
    };
    let parts = vec![part(mix.source), part(SourceSpec::Memory { fields })];
    let pipeline = Pipeline::new(SourceSpec::Mix { parts, epoch: None })
        .filter(labels(&[Class::Number(1)]))
        .shuffle(1)
        .batch(10);
    let loader = open(&pipeline, &handles, 2);

    // 80 records of class 1. Of 3 epochs, 120 positions belong to the inner mix: 2 of its epochs.
    let all: Vec<u64> = (0..3).flat_map(|_| delivered_records(&loader)).collect();

    let of = |range: std::ops::Range<u64>| all.iter().filter(|one| range.contains(one)).count();
    assert_eq!((of(0..60), of(60..180), of(180..240)), (30, 90, 120));
}

#[test]
fn a_packed_dataset_would_lose_the_weights_of_a_mix() {
    let root = tempfile::tempdir().expect("a folder");
    for weights in [None, Some([1.0, 3.0])] {
        let (mix, handles) = mix_of_two(weights, None);
        let out = root.path().join(format!("weights-{}", weights.is_some()));
        let options = PackOptions::new(Target::WebDataset);
        let packed = pack(&mix, &handles, None, &out, &options, &|_| true);
        let problem = packed.err().map(|error| error.to_string());
        assert_eq!(problem.is_some(), weights.is_some(), "{problem:?}");
        assert!(problem.is_none_or(|text| text.contains("mix the packed ones")));
        assert_eq!(out.exists(), weights.is_none());
    }
}

#[test]
fn a_mix_without_weights_is_selected_as_one_source() {
    let (mix, mut handles) = mix_of_two(None, None);
    let weights: Vec<f64> = (0..180).map(|n| f64::from(u8::from(n >= 60))).collect();
    let weights = by_record(&weights, &mut handles);
    let pipeline = mix.filter(labels(&[Class::Number(0)])).shuffle(3).batch(16);

    let all = sort(delivered_records(&open(&pipeline, &handles, 2)));
    assert_eq!(all, (0..180).filter(|n| n % 3 > 0).collect::<Vec<_>>());
    let second = sort(delivered_records(&open(
        &pipeline.weights(weights),
        &handles,
        2,
    )));
    assert_eq!(second, (60..180).filter(|n| n % 3 > 0).collect::<Vec<_>>());
}

#[test]
fn a_substitute_is_a_selected_record_that_has_a_weight() {
    let root = photos(40);
    for n in 0..40 {
        // All cats below 20 are bad. The pipeline selects only them and the dogs above 30.
        if n < 20 && n % 2 == 0 {
            fs::write(photo(root.path(), n), b"\xFF\xD8no photo").expect("writes");
        }
    }
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .filter(RecordFilter {
            not_name: vec!["cat/00[23]*".to_owned(), "dog/00[012]*".to_owned()],
            ..RecordFilter::default()
        })
        .weights(Weights::classes([(name("dog"), 0.5)]))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(8))
        .batch(4);
    let loader = open_rank(&pipeline, 2, 0, 1);

    let records = delivered_records(&loader);

    assert!(!loader.bad_records().is_empty());
    // Cats are records 0 to 19 of the folder. Dogs above 30 start at 35.
    assert!(records.iter().all(|&record| record >= 35), "{records:?}");
}

#[test]
fn an_unknown_class_name_or_shard_is_rejected_with_the_fix() {
    let root = tempfile::tempdir().expect("a folder");
    let tfrecord = Pipeline::new(shards(root.path(), 20, false));
    let photos = photos(10);
    let folder = Pipeline::new(SourceSpec::folder(photos.path()));
    let (spec, handles) = memory(30);
    let memory = Pipeline::new(spec);
    let mut with_weights = handles.clone();
    let mut weights = |weights: &[f64]| by_record(weights, &mut with_weights);
    let (few, negative) = (weights(&[1.0; 29]), weights(&[-1.0; 30]));
    let (nan, zero) = (weights(&[f64::NAN; 30]), weights(&[0.0; 30]));
    let shard = |text: &str| RecordFilter {
        shard: vec![text.to_owned()],
        ..RecordFilter::default()
    };
    for (pipeline, parts) in [
        (
            tfrecord.clone().filter(labels(&[Class::Number(1)])),
            ["filter: the labels", ".weights"],
        ),
        (
            tfrecord.clone().filter(name_filter("*.jpg")),
            ["have no names", "filter by shard"],
        ),
        (
            tfrecord.clone().filter(shard("val-*")),
            ["none of 20 records", "shard val-*"],
        ),
        (
            tfrecord.weights(Weights::balanced()),
            ["weights: the labels", "pack the dataset"],
        ),
        (
            folder.clone().filter(labels(&[name("cow")])),
            ["no class cow", "from 0: cat, dog"],
        ),
        (
            folder.clone().filter(labels(&[Class::Number(2)])),
            ["no class 2", "2 classes"],
        ),
        (
            folder.clone().filter(shard("*")),
            ["are not in shards", "name or label"],
        ),
        (
            folder.clone().filter(name_filter("[a")),
            ["`[a` is not a valid pattern", "filter"],
        ),
        (
            folder.clone().filter(name_filter("*.png")),
            ["none of 10 records", "name *.png"],
        ),
        (
            folder.clone().filter(RecordFilter::default()),
            ["no condition", "label, name or shard"],
        ),
        (
            folder.clone().split(&[0.9, 0.2], 0, 0),
            ["add up to 1.1", "not 1"],
        ),
        (
            folder.clone().split(&[0.5, 0.5], 2, 0),
            ["no part 2", "there are 2"],
        ),
        (
            folder.clone().split(&[1.0, 0.0], 0, 0),
            ["a share must be greater than 0", "split"],
        ),
        (
            folder.clone().split(&[0.01, 0.99], 0, 0),
            ["part 0 has none", "of 10 records"],
        ),
        (folder.clone().take(0), ["take", "at least 1"]),
        (folder.clone().repeat(0), ["repeat", "at least 1"]),
        (
            folder.clone().repeat(u64::MAX),
            ["repeat", "exceed the limit"],
        ),
        (
            folder.clone().weights(Weights::default()),
            ["exactly one of", "balanced"],
        ),
        (
            folder.weights(Weights::classes([(name("cat"), f64::NAN)])),
            ["class cat has the weight NaN", "at least 0"],
        ),
        (
            memory.clone().filter(labels(&[name("cat")])),
            ["no class names", "`cat`"],
        ),
        (
            memory.clone().filter(name_filter("*")),
            ["have no names", ".weights"],
        ),
        (
            memory.clone().weights(few),
            ["29 numbers for 30 records", "each record"],
        ),
        (
            memory.clone().weights(negative),
            ["record 0", "has the weight -1"],
        ),
        (memory.clone().weights(nan), ["NaN", "at least 0"]),
        (memory.weights(zero), ["all weights are zero", "weights"]),
    ] {
        let error = open_error(&pipeline, &with_weights);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn a_selection_is_written_and_read_as_toml_and_arrays_in_memory_are_not() {
    let text = "version = 1\ntake = 50\nrepeat = 2\n\n[source]\nkind = \"folder\"\npath = \"a\"\n\n\
                [[filter]]\nlabel = [\"cat\", 3]\nname = \"*.jpg\"\n\n[[filter]]\n\
                not_shard = [\"x\", \"y\"]\n\n[split]\nshares = [0.9, 0.1]\npart = 1\n\n[weights]\n\
                classes = [{ label = \"cat\", weight = 2.0 }, { label = 3, weight = 0.5 }]\n";

    let pipeline = Pipeline::from_toml(text).expect("a selection");

    assert_eq!(pipeline.filter[0].label, [name("cat"), Class::Number(3)]);
    assert_eq!(pipeline.filter[0].name, ["*.jpg"]);
    let written = pipeline.to_toml().expect("plain data");
    assert_eq!(Pipeline::from_toml(&written).expect("valid"), pipeline);
    assert_eq!(
        Pipeline::from_json(&pipeline.to_json()).expect("its own"),
        pipeline
    );
    let plain = pipeline.plain();
    assert!(!plain.to_json().contains("filter"), "{}", plain.to_json());

    let held = plain.weights(by_record(&[1.0], &mut Vec::new()));
    let error = held.to_toml().expect_err("a handle").to_string();
    assert!(
        error.contains("`weights`") && error.contains("np.save"),
        "{error}"
    );
}

#[test]
fn the_plan_lists_the_selected_records_and_their_weights() {
    let root = photos(40);
    let pipeline = curriculum(root.path());

    let plan = pipeline.explain(&[]).expect("opens");

    let expected = "records: 25 of 40\n  filter     not name 0012*\n  split      part 0 of 0.8 / 0.2, \
                    seed 1\n  take       the first 25\nepoch: 50 positions\n  weights    dog 3, \
                    others 1\n  repeat     2 passes\nimage: -> uint8 [16, 16, 3]";
    assert!(plan.starts_with(expected), "{plan}");
    assert_eq!(open_rank(&pipeline, 1, 0, 1).plan().expect("open"), plan);
}

#[test]
fn packing_writes_the_selected_records_and_no_others() {
    let root = photos(40);
    let out = tempfile::tempdir().expect("a folder");
    let pipeline = curriculum(root.path());
    let folder = |out: &Path| {
        let options = PackOptions::new(Target::Folder);
        pack(&pipeline, &[], None, out, &options, &|_| true)
    };
    let packed = folder(&out.path().join("folder")).expect("packs");

    assert_eq!(packed.records, 25);
    // The order is equal, because the numbers have the same order and the split is done.
    let own = steps(&[open_rank(&pipeline, 1, 0, 1)], 12);
    assert!(own == steps(&[open_rank(&packed.pipeline, 2, 0, 1)], 12));
    let again = folder(&out.path().join("folder")).expect("is complete");
    assert_eq!(again.reused, 25);

    let shards = PackOptions::new(Target::WebDataset);
    let to = out.path().join("shards");
    let error = pack(&pipeline, &[], None, &to, &shards, &|_| true).expect_err("classes");
    assert!(error.to_string().contains("pack to a folder"), "{error}");
    let unweighted = Pipeline {
        weights: None,
        ..pipeline
    };
    let packed = pack(&unweighted, &[], None, &to, &shards, &|_| true).expect("packs");
    assert_eq!(packed.records, 25);
    assert_eq!(
        (packed.pipeline.repeat, packed.pipeline.selects()),
        (Some(2), false)
    );
}
