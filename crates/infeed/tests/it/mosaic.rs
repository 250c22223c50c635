//! `Mosaic`: a row is computed from the records of four positions, the same on every machine and for
//! every world size.

use std::path::Path;

use infeed::pipeline::{Layout, SourceSpec};
use infeed::plan::join::JoinDraw;
use infeed::{Batch, Error, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{
    CenterCrop, ClassIndex, ColorJitter, Filter, Grayscale, Mosaic, MosaicDraw, Normalize,
    RandomAffine, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, ToFloat, Transform,
};
use infeed_core::counters::Stage;
use infeed_core::sample::{Depth, Image, Size};
use infeed_source::Source;

use crate::data::{bits, epoch, open, pairs, photo, photos};
use crate::fast_plan::equals_plain;
use crate::joins::draw_joins;

fn pipeline(root: &Path, transforms: Vec<Transform>) -> Pipeline {
    let pipeline = Pipeline::new(SourceSpec::folder(root)).shuffle(5).decode();
    transforms
        .into_iter()
        .fold(pipeline, Pipeline::transform)
        .batch(4)
}

fn mosaic(p: f64) -> Mosaic {
    Mosaic {
        p,
        ..Mosaic::new([40, 48])
    }
}

/// The mosaic of each position of an epoch.
fn draws(pipeline: &Pipeline, source: &dyn Source, epoch: u64) -> Vec<Option<MosaicDraw>> {
    let of = |drawn| match drawn {
        Some(JoinDraw::Mosaic(drawn)) => Some(drawn),
        _ => None,
    };
    draw_joins(pipeline, source, epoch)
        .into_iter()
        .map(of)
        .collect()
}

#[test]
fn rows_equal_four_images_placed_step_by_step() {
    let root = photos(12);
    let normalize = Normalize::new([0.5, 0.4, 0.3], [0.2, 0.2, 0.2]);
    let lists: Vec<Vec<Transform>> = vec![
        vec![mosaic(1.0).into()],
        vec![mosaic(0.5).into(), RandomHorizontalFlip::new(0.5).into()],
        // Crops before the mosaic move into the decoder, flips stay.
        vec![
            RandomCrop::new(30).into(),
            RandomHorizontalFlip::new(0.5).into(),
            mosaic(1.0).into(),
            RandomCrop::new(32).into(),
            normalize.into(),
        ],
        // Warps and colours that are drawn before the mosaic, with mirrored pixels behind them.
        vec![
            RandomAffine::new(30.0).into(),
            ColorJitter::default().into(),
            RandomHorizontalFlip::new(0.5).into(),
            mosaic(0.9).into(),
            CenterCrop::new(24).into(),
        ],
        vec![
            RandomCrop::new([36, 40]).into(),
            Mosaic {
                antialias: false,
                ..mosaic(0.9)
            }
            .into(),
        ],
        // Tiles of images that need no resize.
        vec![
            RandomResizedCrop::new([20, 24]).into(),
            RandomHorizontalFlip::new(0.5).into(),
            mosaic(1.0).into(),
            ToFloat::default().into(),
        ],
        vec![
            mosaic(1.0).into(),
            RandomAffine {
                scale: Some([0.5, 1.5]),
                ..RandomAffine::new(10.0)
            }
            .into(),
            CenterCrop::new(24).into(),
            ColorJitter::default().into(),
            Grayscale::new(1).into(),
        ],
        // Warps that need a small part of the mosaic, often without some of its images.
        vec![
            RandomHorizontalFlip::new(0.5).into(),
            mosaic(1.0).into(),
            RandomAffine {
                scale: Some([2.0, 4.0]),
                translate: Some([0.5, 0.5]),
                interpolation: Filter::Bilinear,
                ..RandomAffine::new(30.0)
            }
            .into(),
            CenterCrop::new([12, 14]).into(),
            RandomHorizontalFlip::new(0.5).into(),
        ],
        vec![
            RandomResizedCrop::new([20, 24]).into(),
            mosaic(1.0).into(),
            RandomCrop::new([12, 14]).into(),
            RandomAffine::new(30.0).into(),
        ],
    ];
    for transforms in lists {
        let pipeline = pipeline(root.path(), transforms);
        equals_plain(&pipeline.clone().layout(Layout::Chw));
        equals_plain(&pipeline);
    }
}

#[test]
fn masks_are_placed_with_their_images() {
    let root = pairs(9, 30, 50);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let source = SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let mosaic = Mosaic {
        mask_fill: infeed_codec::transform::ChannelValues::ByChannel(vec![0.0, 0.0, 0.0]),
        ..mosaic(1.0)
    };
    let pipeline = Pipeline::new(source)
        .shuffle(1)
        .decode()
        .transform(mosaic)
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(ClassIndex::new(&csv))
        .batch(3);

    equals_plain(&pipeline);
}

#[test]
fn every_tile_shows_the_record_of_its_position() {
    let root = tempfile::tempdir().expect("a folder");
    let grey = |record: u64| 10 + 20 * record as u8;
    for n in 0..10 {
        let mut image = Image::default();
        let (height, width) = (9 + n as u32, 40 - 3 * n as u32);
        image.reset(Size { height, width }, 3, Depth::U8);
        image.data.fill(grey(n));
        let bytes = infeed_sample::png(&image).expect("encodes");
        std::fs::write(root.path().join(format!("{n}.png")), bytes).expect("writes");
    }
    let pipeline = pipeline(root.path(), vec![mosaic(0.7).into()]);
    let source = pipeline.source.open(&[]).expect("opens");
    let order = pipeline.order(&*source, &[]).expect("an order");
    let loader = open(&pipeline, 2);
    for at in 0..2 {
        let batches = epoch(&loader);
        let pixels = batches
            .iter()
            .map(|batch| batch.array("image").expect("pixels").bytes());
        let rows = pixels.collect::<Vec<_>>().concat();
        let mut mosaics = 0;
        for (position, draw) in draws(&pipeline, &*source, at).into_iter().enumerate() {
            let row = &rows[position * 40 * 48 * 3..][..40 * 48 * 3];
            let record = |position: u64| order.epoch(at).get(position);
            let pixel = |x: usize, y: usize| row[(y * 48 + x) * 3];
            let own = position as u64;
            let Some(MosaicDraw { partners, center }) = draw else {
                assert_eq!(pixel(23, 19), grey(record(own)));
                assert_eq!([pixel(0, 0), pixel(47, 39)], [114; 2]);
                continue;
            };
            mosaics += 1;
            let [x, y] = center.map(|n| n as usize);
            let around = [(x - 1, y - 1), (x, y - 1), (x - 1, y), (x, y)];
            let positions = [own, partners[0], partners[1], partners[2]];
            assert_eq!(
                around.map(|(x, y)| pixel(x, y)),
                positions.map(|position| grey(record(position))),
                "position {position} of epoch {at}"
            );
            let shades = positions.map(|position| grey(record(position)));
            let is_known = |value: &u8| *value == 114 || shades.contains(value);
            assert!(row.iter().all(is_known));
        }
        assert!((3..10).contains(&mosaics), "{mosaics} of 10");
    }
}

fn open_rank(pipeline: &Pipeline, workers: usize, rank: u64, world_size: u64) -> Loader {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    options.workers = Some(workers);
    (options.rank, options.world_size) = (rank, world_size);
    pipeline.open(&options).expect("opens")
}

fn damage(root: &Path, numbers: &[u64]) {
    for &n in numbers {
        let path = photo(root, n);
        let bytes = std::fs::read(&path).expect("it is there");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
}

/// Bytes of the files that a loader has decoded after this many epochs, in multiples of the dataset.
fn decoded_share(root: &Path, transforms: Vec<Transform>, epochs: usize, options: &Options) -> f64 {
    let pipeline = pipeline(root, transforms);
    let source = pipeline.source.open(&[]).expect("opens");
    let files = (0..source.len()).flat_map(|record| source.local_files(record));
    let all: u64 = files
        .map(|path| path.metadata().expect("a file").len())
        .sum();
    let loader = pipeline.open(options).expect("opens");
    (0..epochs).for_each(|_| assert!(!epoch(&loader).is_empty()));
    let stats = loader.stats().expect("open");
    let mut stages = stats.stages.into_iter();
    let decode = stages.find_map(|(stage, found)| (stage == Stage::Decode).then_some(found));
    decode.expect("decodes").bytes_in as f64 / all as f64
}

#[test]
fn an_image_is_decoded_once_for_all_mosaics_that_show_it() {
    let root = photos(60);
    let mut options = Options::default();
    options.workers = Some(3);

    // The loader makes batches of up to four more epochs.
    let shared = decoded_share(root.path(), vec![mosaic(1.0).into()], 8, &options);
    assert!((8.0..=12.0).contains(&shared), "{shared}");

    // Memory for two tiles.
    options.memory = Some(1);
    let open = pipeline(root.path(), vec![mosaic(1.0).into()]).open(&options);
    let Err(Error::Budget { needed_bytes, .. }) = open else {
        panic!("a byte suffices");
    };
    options.memory = Some(needed_bytes + 3 * 2 * (20 * 24 * 3));
    let short = decoded_share(root.path(), vec![mosaic(1.0).into()], 8, &options);
    assert!(short > 20.0, "{short}");
}

#[test]
fn partners_are_in_the_window_before_the_sample() {
    let root = photos(60);
    let windowed = Mosaic {
        window: 6,
        ..mosaic(1.0)
    };
    let pipeline = pipeline(root.path(), vec![windowed.into()]);
    let source = pipeline.source.open(&[]).expect("opens");

    for (position, draw) in (0..).zip(draws(&pipeline, &*source, 1)) {
        let first = u64::saturating_sub(position, 6);
        for partner in draw.expect("p is 1").partners {
            assert!((first..=first + 6).contains(&partner) && partner != position);
        }
    }
    equals_plain(&pipeline);
}

#[test]
fn workers_ranks_resuming_and_bad_records_change_no_bit() {
    let root = photos(24);
    damage(root.path(), &[2, 9, 17]);
    let pipeline = pipeline(root.path(), vec![mosaic(0.8).into()]);
    let reference: Vec<_> = {
        let loader = open_rank(&pipeline, 1, 0, 1);
        (0..3).flat_map(|_| bits(&epoch(&loader))).collect()
    };

    for (workers, memory) in [(2, None), (7, None), (3, Some(20 << 20))] {
        let mut options = Options::default();
        options.on_error = OnError::Substitute;
        (options.workers, options.memory) = (Some(workers), memory);
        let loader = pipeline.open(&options).expect("opens");
        let same: Vec<_> = (0..3).flat_map(|_| bits(&epoch(&loader))).collect();
        assert!(same == reference, "{workers} workers, {memory:?} bytes");
    }
    for world_size in [2, 4] {
        let ranks: Vec<Vec<Batch>> = (0..world_size)
            .map(|rank| {
                let loader = open_rank(&pipeline, 2, rank, world_size);
                (0..3).flat_map(|_| epoch(&loader)).collect()
            })
            .collect();
        for (step, (records, whole)) in reference.iter().enumerate() {
            let parts: Vec<&Batch> = ranks.iter().map(|rank| &rank[step]).collect();
            let of = parts.iter().flat_map(|batch| batch.records.clone());
            assert_eq!(of.collect::<Vec<u64>>(), *records, "step {step}");
            let images = parts
                .iter()
                .map(|batch| batch.array("image").expect("there"));
            let images = images
                .map(|array| array.bytes())
                .collect::<Vec<_>>()
                .concat();
            assert!(
                whole.starts_with(&images),
                "step {step} of {world_size} ranks"
            );
        }
    }
    let first = open_rank(&pipeline, 2, 0, 1);
    for _ in 0..8 {
        first.next_batch().expect("good");
    }
    let state = first.state();
    drop(first);
    let second = open_rank(&pipeline, 3, 0, 1);
    second.restore(&state).expect("its own state");
    let rest: Vec<_> = (0..2).flat_map(|_| bits(&epoch(&second))).collect();
    // Eight calls are the six steps of the first epoch, its end, and one step.
    assert!(rest == reference[7..], "going on after 7 steps");
}

#[test]
fn a_cache_changes_no_bit() {
    let root = photos(12);
    let transforms = vec![Resize::new(64).into(), mosaic(0.8).into()];
    let pipeline = pipeline(root.path(), transforms);
    let plain: Vec<_> = {
        let loader = open(&pipeline, 2);
        (0..2).flat_map(|_| bits(&epoch(&loader))).collect()
    };
    let mut options = Options::default();
    options.workers = Some(2);
    options.cache = Some(infeed::loader::CacheLimit::Bytes(64 << 20).into());

    let loader = pipeline.open(&options).expect("opens");
    let found: Vec<_> = (0..2).flat_map(|_| bits(&epoch(&loader))).collect();

    assert!(found == plain);
    let cache = loader
        .stats()
        .expect("counters")
        .decoded_cache
        .expect("a cache");
    assert!(cache.hits > 20 && cache.records == 12, "{cache:?}");
}

#[test]
fn on_error_applies_to_every_record_of_a_mosaic() {
    let root = photos(16);
    let pipeline = pipeline(root.path(), vec![mosaic(1.0).into()]);
    let source = pipeline.source.open(&[]).expect("opens");
    let order = pipeline.order(&*source, &[]).expect("an order").epoch(0);
    let all = draws(&pipeline, &*source, 0);
    // A row of the first batch stays good; a partner, of a later batch, becomes bad.
    let partners = |row: usize| all[row].expect("p is 1").partners;
    let row = (0..4).find(|&row| partners(row).iter().all(|of| *of >= 4));
    let partner = partners(row.expect("some are"))[1];
    let bad = order.get(partner);
    let name = source.id(bad, None).name;
    let bytes = std::fs::read(&name).expect("it is there");
    std::fs::write(&name, &bytes[..bytes.len() / 2]).expect("writes");
    let with = |on_error| {
        let mut options = Options::default();
        (options.on_error, options.workers) = (on_error, Some(2));
        pipeline.open(&options).expect("opens")
    };

    let error = with(OnError::Stop).next_batch().expect_err("a bad partner");
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert_eq!(error.record().expect("named").index, bad);

    let substituted = with(OnError::Substitute);
    let count: usize = epoch(&substituted).iter().map(Batch::rows).sum();
    assert_eq!(count, 16);
    let skipping = with(OnError::Skip);
    let batches = epoch(&skipping);
    let left: Vec<u64> = batches.iter().flat_map(|b| b.records.clone()).collect();
    let needs =
        |position: &u64| *position != partner && !partners(*position as usize).contains(&partner);
    let good: Vec<u64> = (0..16).filter(needs).map(|p| order.get(p)).collect();
    assert_eq!(left, good);
    for loader in [&substituted, &skipping] {
        let found: Vec<u64> = loader
            .bad_records()
            .iter()
            .map(|m| m.record.index)
            .collect();
        assert_eq!(found, [bad]);
    }
}

#[test]
fn combinations_without_a_meaning_raise_the_fix() {
    let root = photos(4);
    let refusal = |transforms: Vec<Transform>| {
        let opened = pipeline(root.path(), transforms).open(&Options::default());
        opened.expect_err("it is rejected").to_string()
    };
    for (transforms, part) in [
        (
            vec![mosaic(1.0).into(), mosaic(0.5).into()],
            "transform 2 (Mosaic): a pipeline can have one Mosaic",
        ),
        (
            vec![
                mosaic(1.0).into(),
                infeed_codec::transform::MixUp::new(0.2).into(),
            ],
            "transform 2 (MixUp): it mixes samples",
        ),
        (
            vec![Grayscale::new(1).into(), mosaic(1.0).into()],
            "put it after Mosaic",
        ),
        (
            vec![ToFloat::default().into(), mosaic(1.0).into()],
            "put it before ToFloat",
        ),
        (vec![Mosaic::new(1).into()], "at least 2 x 2"),
    ] {
        let error = refusal(transforms);

        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_folder_keeps_the_records_of_mosaics_and_may_lose_them() {
    let root = photos(24);
    let transforms = vec![Resize::new(30).into(), mosaic(1.0).into()];
    let pipeline = pipeline(root.path(), transforms);
    let plain = open(&pipeline, 2);
    let expected: Vec<_> = (0..3).map(|_| bits(&epoch(&plain))).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let run = || {
        let mut options = Options::default();
        options.workers = Some(2);
        options.cache = Some(infeed::loader::CacheOptions {
            memory: None,
            disk: Some(infeed::loader::DiskCacheOptions {
                folder: folder.path().to_owned(),
                limit_bytes: 1 << 30,
            }),
        });
        let loader = pipeline.open(&options).expect("opens");
        for expected in &expected {
            assert!(bits(&epoch(&loader)) == *expected);
        }
        let stats = loader.stats().expect("is open");
        stats.decoded_cache.expect("a cache")
    };

    run();
    let second = run();
    assert_eq!(second.misses, 0, "all were kept");
    let pieces = walk(&folder.path().join("pieces"));
    assert_eq!(pieces.len(), 24);
    for (number, piece) in pieces.iter().enumerate() {
        match number % 3 {
            0 => std::fs::remove_file(piece).expect("removes"),
            1 => {
                let mut bytes = std::fs::read(piece).expect("is there");
                *bytes.last_mut().expect("has bytes") ^= 1;
                std::fs::write(piece, bytes).expect("writes");
            }
            _ => {}
        }
    }
    let third = run();
    assert!(third.misses >= 16 && third.hits > 60, "{third:?}");
}

/// Files in folders of a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = |folder: &Path| std::fs::read_dir(folder).expect("a folder");
    let folders = entries(folder).map(|found| found.expect("a folder").path());
    let files = folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>());
    files.map(|file| file.expect("a file").path()).collect()
}
