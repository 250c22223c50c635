//! The cache of decoded records changes the time of a run and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use infeed::loader::digest::DigestScope;
use infeed::loader::{CacheLimit, CacheOptions, DecodedCacheStats, DiskCacheOptions};
use infeed::pipeline::SourceSpec;
use infeed::{Error, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{
    CenterCrop, MixUp, Normalize, OneHot, Pad, RandomCrop, RandomErasing, RandomHorizontalFlip,
    RandomResizedCrop, RandomVerticalFlip, Resize, Transform,
};

use crate::data::{bits, epoch, pairs, photo, photos};

fn pipeline(source: SourceSpec, transforms: &[Transform]) -> Pipeline {
    let pipeline = Pipeline::new(source).shuffle(3).decode();
    let transformed = transforms.iter().cloned();
    transformed.fold(pipeline, Pipeline::transform).batch(5)
}

fn photo_pipeline(root: &Path) -> Pipeline {
    let transforms = [Resize::new(40).into(), RandomCrop::new(32).into()];
    pipeline(SourceSpec::folder(root), &transforms)
}

fn options(bytes: u64) -> Options {
    let mut options = Options::default();
    options.workers = Some(2);
    options.cache = (bytes > 0).then(|| CacheLimit::Bytes(bytes).into());
    options
}

fn open(pipeline: &Pipeline, bytes: u64) -> Loader {
    pipeline.open(&options(bytes)).expect("opens")
}

fn stats(loader: &Loader) -> DecodedCacheStats {
    let stats = loader.stats().expect("is open");
    stats.decoded_cache.expect("a cache")
}

/// Hits and misses so far.
fn counts(loader: &Loader) -> (u64, u64) {
    let found = stats(loader);
    (found.hits, found.misses)
}

/// Bytes that the first epoch of a pipeline puts into its cache.
fn cache_bytes(pipeline: &Pipeline) -> u64 {
    let loader = open(pipeline, 1 << 30);
    epoch(&loader);
    stats(&loader).used_bytes
}

#[test]
fn an_empty_a_half_and_a_full_cache_give_the_bits_of_none() {
    let (photos, pairs) = (photos(30), pairs(20, 48, 60));
    let normalize = || Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).into();
    let on_photos: Vec<Vec<Transform>> = vec![
        vec![RandomResizedCrop::new(24).into(), normalize()],
        vec![
            Resize::new(40).into(),
            RandomCrop::new(32).into(),
            RandomHorizontalFlip::new(0.5).into(),
            normalize(),
        ],
        vec![
            CenterCrop::new(36).into(),
            Resize::new([30, 20]).into(),
            RandomVerticalFlip::new(0.5).into(),
        ],
        vec![
            RandomHorizontalFlip::new(0.5).into(),
            Resize::new([30, 20]).into(),
        ],
        vec![
            Resize::new(40).into(),
            CenterCrop::new(32).into(),
            Pad::new(3).into(),
            normalize(),
            RandomErasing::new(0.9).into(),
        ],
        vec![RandomResizedCrop::new(24).into(), MixUp::new(0.4).into()],
    ];
    let csv = pairs.path().join("class_dict.csv");
    let classes = || OneHot::from_palette(csv.to_str().expect("UTF-8")).into();
    let on_pairs: Vec<Vec<Transform>> = vec![
        vec![
            RandomCrop::new(32).into(),
            RandomHorizontalFlip::new(0.5).into(),
            classes(),
        ],
        vec![
            Resize::new(40).into(),
            RandomResizedCrop::new(16).into(),
            classes(),
        ],
    ];
    let pair_source = || SourceSpec::pairs(pairs.path().join("images"), pairs.path().join("masks"));
    let on_photos = on_photos
        .iter()
        .map(|transforms| pipeline(SourceSpec::folder(photos.path()), transforms));
    let on_pairs = on_pairs
        .iter()
        .map(|transforms| pipeline(pair_source(), transforms));
    for pipeline in on_photos.chain(on_pairs) {
        let plain = open(&pipeline, 0);
        let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
        let all = cache_bytes(&pipeline);

        for bytes in [64, all / 2, 1 << 30] {
            let loader = open(&pipeline, bytes);
            for (at, expected) in expected.iter().enumerate() {
                assert!(
                    bits(&epoch(&loader)) == *expected,
                    "{pipeline:?}, epoch {at}, {bytes}"
                );
            }
            let found = stats(&loader);
            assert!(found.used_bytes <= found.limit_bytes);
            assert_eq!(
                found.is_full,
                bytes < 1 << 30,
                "{pipeline:?} {bytes} {found:?}"
            );
            match bytes {
                64 => assert_eq!((found.hits, found.records), (0, 0)),
                _ => assert!(found.hits > 0 && found.records > 0),
            }
        }
    }
}

#[test]
fn a_cached_epoch_reads_no_file() {
    // More records than the loader reads ahead.
    let root = photos(600);
    let pipeline = photo_pipeline(root.path());
    let plain = open(&pipeline, 0);
    let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
    let loader = open(&pipeline, 1 << 30);

    let first = bits(&epoch(&loader));
    let second = bits(&epoch(&loader));
    for n in 0..600 {
        fs::remove_file(photo(root.path(), n)).expect("removes");
    }
    let third = bits(&epoch(&loader));

    assert!([first, second, third] == *expected);
}

#[test]
fn recent_counters_leave_out_the_epoch_that_fills_the_cache() {
    // More records than the loader reads ahead.
    let root = photos(600);
    let loader = open(&photo_pipeline(root.path()), 1 << 30);
    let recent = || loader.recent_stats().expect("is open");

    epoch(&loader);
    let first = recent();
    assert_eq!(
        first.samples, 600,
        "nothing is left out before the second epoch"
    );
    (0..2).for_each(|_| drop(epoch(&loader)));
    let later = recent();

    let all = loader.stats().expect("is open");
    let cache = later.decoded_cache.expect("a cache");
    assert_eq!((all.samples, later.samples), (1800, 600));
    assert_eq!(cache.misses, 0);
    assert!(cache.hits >= 500 && cache.records == 600, "{cache:?}");
    assert!(later.elapsed < all.elapsed && later.batches < all.batches);
    let plain = open(&photo_pipeline(root.path()), 0);
    (0..2).for_each(|_| drop(epoch(&plain)));
    assert_eq!(plain.recent_stats().expect("is open").samples, 1200);
}

#[test]
fn loaders_of_the_same_records_share_one_copy() {
    let root = photos(20);
    let first = open(&photo_pipeline(root.path()), 1 << 30);
    epoch(&first);
    let records = stats(&first).records;
    assert_eq!(records, 20);

    // Another seed, other random transforms, the same deterministic ones.
    let other = [
        Resize::new(40).into(),
        RandomResizedCrop::new(20).into(),
        RandomHorizontalFlip::new(0.5).into(),
    ];
    let other = pipeline(SourceSpec::folder(root.path()), &other).shuffle(8);
    let second = open(&other, 1 << 20);
    assert!(bits(&epoch(&second)) == bits(&epoch(&open(&other, 0))));
    assert_eq!(counts(&second).1, 0, "all were there");
    let found = stats(&second);
    assert_eq!(
        found.limit_bytes >> 20,
        1024,
        "the limit of the first loader"
    );

    // The first loader goes, the copy stays.
    drop(first);
    let third = open(&photo_pipeline(root.path()), 1 << 30);
    epoch(&third);
    assert_eq!(counts(&third).1, 0);

    // Another size is another record.
    let larger = [Resize::new(44).into(), RandomCrop::new(32).into()];
    let larger = open(&pipeline(SourceSpec::folder(root.path()), &larger), 1 << 30);
    epoch(&larger);
    assert!(counts(&larger).1 >= 20);
}

#[test]
fn a_changed_file_is_another_dataset() {
    let root = photos(10);
    let pipeline = photo_pipeline(root.path());
    let first = open(&pipeline, 1 << 30);
    epoch(&first);
    let path = photo(root.path(), 3);
    // Same size, other content, other time.
    let file = fs::File::options().write(true).open(&path).expect("opens");
    let later = SystemTime::now() + Duration::from_secs(5);
    file.set_modified(later).expect("sets");

    let second = open(&pipeline, 1 << 30);
    epoch(&second);

    assert!(counts(&second).1 >= 10, "none was there");
}

#[test]
fn bad_records_and_digests_are_the_same_with_a_cache() {
    let root = photos(24);
    for n in [2, 9, 17] {
        let path = photo(root.path(), n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    for on_error in [OnError::Substitute, OnError::Skip] {
        let run = |bytes: u64| {
            let mut options = options(bytes);
            (options.on_error, options.digest) = (on_error, DigestScope::Pixels);
            let loader = photo_pipeline(root.path()).open(&options).expect("opens");
            let epochs: Vec<_> = (0..3).map(|_| bits(&epoch(&loader))).collect();
            let bad: Vec<_> = loader
                .bad_records()
                .iter()
                .map(|bad| bad.record.index)
                .collect();
            (
                epochs,
                bad,
                loader.digest(),
                loader.stats().expect("is open").bad,
            )
        };

        let (plain, cached) = (run(0), run(1 << 30));

        assert!(plain.0 == cached.0);
        assert_eq!((plain.1, plain.3), (cached.1, cached.3));
        assert_eq!(format!("{:?}", plain.2), format!("{:?}", cached.2));
    }
    let loader = open(&photo_pipeline(root.path()), 1 << 30);
    let error = loop {
        if let Err(error) = loader.next_batch() {
            break error;
        }
    };
    assert!(matches!(error, Error::Decode { .. }), "{error}");
}

#[test]
fn a_resumed_run_and_ranks_share_the_cache() {
    let root = photos(24);
    let pipeline = photo_pipeline(root.path()).batch(4).drop_last();
    let rank = |rank, bytes| {
        let mut options = options(bytes);
        (options.rank, options.world_size) = (rank, 2);
        pipeline.open(&options).expect("opens")
    };
    let plain: Vec<Loader> = (0..2).map(|n| rank(n, 0)).collect();
    let cached: Vec<Loader> = (0..2).map(|n| rank(n, 1 << 30)).collect();
    for _ in 0..4 {
        for (plain, cached) in plain.iter().zip(&cached) {
            assert!(bits(&epoch(plain)) == bits(&epoch(cached)));
        }
    }
    let misses: u64 = cached.iter().map(|loader| counts(loader).1).sum();
    assert!(
        misses <= 24 + 20,
        "a record is decoded about once: {misses}"
    );

    let state = plain[0].state();
    let resumed = rank(0, 1 << 30);
    resumed.restore(&state).expect("the same run");
    assert!(bits(&epoch(&resumed)) == bits(&epoch(&plain[0])));
    assert_eq!(counts(&resumed).1, 0);
}

#[test]
fn a_cache_without_use_is_an_error_that_names_the_fix() {
    let root = photos(4);
    let plain = Pipeline::new(SourceSpec::folder(root.path())).batch(2);

    let error = plain
        .open(&options(1 << 20))
        .expect_err("nothing is decoded");

    assert!(error.to_string().contains("leave `cache` out"), "{error}");
    let mut auto = options(0);
    auto.cache = Some(CacheLimit::Auto.into());
    let loader = plain.open(&auto).expect("opens without");
    assert!(loader.stats().expect("is open").decoded_cache.is_none());

    let loader = photo_pipeline(root.path()).open(&auto).expect("opens");
    epoch(&loader);
    assert_eq!(stats(&loader).records, 4);
}

/// Opens a pipeline with a folder for its records.
fn open_with_folder(pipeline: &Pipeline, memory: Option<u64>, folder: &Path, limit: u64) -> Loader {
    let mut options = options(0);
    options.cache = Some(CacheOptions {
        memory: memory.map(CacheLimit::Bytes),
        disk: Some(DiskCacheOptions {
            folder: folder.to_owned(),
            limit_bytes: limit,
        }),
    });
    pipeline.open(&options).expect("opens")
}

/// Records that a loader read from the folder, and damaged ones.
fn disk_counts(loader: &Loader) -> (u64, u64) {
    let found = stats(loader).disk.expect("a folder");
    (found.hits, found.damaged)
}

/// Files of the pieces in a folder.
fn pieces(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("pieces")).expect("a cache");
    let folders = folders.map(|found| found.expect("a folder").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    files.map(|file| file.expect("a file").path()).collect()
}

#[test]
fn a_later_run_decodes_nothing_that_is_in_the_folder() {
    let root = photos(30);
    for transforms in [
        vec![Resize::new(40).into(), RandomCrop::new(32).into()],
        vec![RandomResizedCrop::new(24).into(), MixUp::new(0.4).into()],
    ] {
        let pipeline = pipeline(SourceSpec::folder(root.path()), &transforms);
        let plain = open(&pipeline, 0);
        let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
        let half = cache_bytes(&pipeline) / 2;
        for memory in [None, Some(half), Some(1 << 30)] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let run = || {
                let loader = open_with_folder(&pipeline, memory, folder.path(), 1 << 30);
                for expected in &expected {
                    assert!(bits(&epoch(&loader)) == *expected, "{memory:?}");
                }
                loader
            };

            let first = run();
            assert_eq!(pieces(folder.path()).len(), 30);
            drop(first);
            let second = run();

            assert_eq!(counts(&second).1, 0, "{memory:?}: nothing was decoded");
            let (hits, damaged) = disk_counts(&second);
            assert_eq!(damaged, 0);
            match memory {
                Some(limit) if limit > half => assert!((30..70).contains(&hits), "{hits}"),
                _ => assert!(hits > 45, "{memory:?} {hits}"),
            }
        }
    }
}

#[test]
fn damaged_and_lost_records_of_the_folder_are_decoded_again() {
    let root = photos(30);
    for mixing in [false, true] {
        let mut transforms: Vec<Transform> = vec![RandomResizedCrop::new(24).into()];
        if mixing {
            transforms.push(MixUp::new(0.4).into());
        }
        let pipeline = pipeline(SourceSpec::folder(root.path()), &transforms);
        let plain = open(&pipeline, 0);
        let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        epoch(&open_with_folder(&pipeline, None, folder.path(), 1 << 30));

        for (at, path) in pieces(folder.path()).iter().enumerate() {
            let mut bytes = fs::read(path).expect("is there");
            match at % 4 {
                0 => *bytes.last_mut().expect("has bytes") ^= 1,
                1 => bytes.truncate(at * 100),
                2 => {
                    fs::remove_file(path).expect("removes");
                    continue;
                }
                _ => continue,
            }
            fs::write(path, bytes).expect("writes");
        }
        let loader = open_with_folder(&pipeline, None, folder.path(), 1 << 30);
        for expected in &expected {
            assert!(bits(&epoch(&loader)) == *expected, "mixing {mixing}");
        }

        let (hits, damaged) = disk_counts(&loader);
        assert!(damaged >= 15, "{damaged}");
        assert!(hits > 30, "{hits}");
        assert_eq!(pieces(folder.path()).len(), 30, "they are back");
    }
}

#[test]
fn a_folder_that_is_too_small_keeps_what_it_has() {
    let root = photos(30);
    let pipeline = photo_pipeline(root.path());
    let plain = open(&pipeline, 0);
    let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let limit = cache_bytes(&pipeline) / 2;

    let mut before = 0;
    for run in 0..3 {
        let loader = open_with_folder(&pipeline, None, folder.path(), limit);
        for expected in &expected {
            assert!(bits(&epoch(&loader)) == *expected, "run {run}");
        }
        let (hits, _) = disk_counts(&loader);
        assert!(hits >= 3 * before, "run {run}: {hits} {before}");
        let kept = pieces(folder.path()).len() as u64;
        assert!((before.max(6)..30).contains(&kept), "{kept}");
        before = kept;
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error_and_one_that_cannot_be_written_is_not() {
    let root = photos(6);
    let pipeline = photo_pipeline(root.path());
    let file = root.path().join("file");
    fs::write(&file, "no folder").expect("writes");
    let mut options = options(0);
    options.cache = Some(CacheOptions {
        memory: None,
        disk: Some(DiskCacheOptions {
            folder: file.clone(),
            limit_bytes: 1 << 30,
        }),
    });
    let error = pipeline.open(&options).expect_err("a file is in the way");
    assert!(error.to_string().contains("file"), "{error}");
    fs::remove_file(&file).expect("removes");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let loader = open_with_folder(&pipeline, None, folder.path(), 1 << 30);
    fs::remove_dir_all(folder.path().join("under-way")).expect("removes");
    epoch(&loader);
    assert!(stats(&loader).disk.expect("a folder").is_full);
}
