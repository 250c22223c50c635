//! `ImageMixUp`: an image is computed from the images of two positions before the transforms that
//! follow, the same on every machine.

use std::path::Path;

use infeed::pipeline::SourceSpec;
use infeed::plan::image_mixup::MixedImages;
use infeed::plan::join::JoinDraw;
use infeed::{Batch, Error, OnError, Options, Pipeline};
use infeed_codec::transform::{
    CenterCrop, ColorJitter, CopyPaste, ImageMixUp, MixUp, Mosaic, RandomAffine, RandomCrop,
    RandomHorizontalFlip, RandomResizedCrop, Transform,
};
use infeed_source::Source;

use crate::data::{bits, epoch, open, photo, photos};
use crate::fast_plan::equals_plain;
use crate::joins::draw_joins;

fn pipeline(root: &Path, transforms: Vec<Transform>) -> Pipeline {
    let pipeline = Pipeline::new(SourceSpec::folder(root)).shuffle(5).decode();
    transforms
        .into_iter()
        .fold(pipeline, Pipeline::transform)
        .batch(4)
}

fn mosaic(p: f64) -> Transform {
    Mosaic {
        p,
        window: 9,
        ..Mosaic::new([40, 48])
    }
    .into()
}

fn mixup(p: f64) -> Transform {
    ImageMixUp {
        p,
        ..ImageMixUp::default()
    }
    .into()
}

/// The second image of each position of an epoch.
fn draws(pipeline: &Pipeline, source: &dyn Source, epoch: u64) -> Vec<Option<MixedImages>> {
    let of = |drawn| match drawn {
        Some(JoinDraw::ImageMixUp(drawn)) => Some(drawn),
        _ => None,
    };
    draw_joins(pipeline, source, epoch)
        .into_iter()
        .map(of)
        .collect()
}

/// Rows of images over all batches.
fn rows(batches: &[Batch]) -> Vec<Vec<u8>> {
    let rows = |batch: &Batch| -> Vec<Vec<u8>> {
        let bytes = batch.array("image").expect("images").bytes();
        let row = bytes.len() / batch.rows();
        bytes.chunks(row).map(<[u8]>::to_vec).collect()
    };
    batches.iter().flat_map(rows).collect()
}

/// Transforms before the blending one.
fn transforms_before() -> Vec<Vec<Transform>> {
    let affine = || RandomAffine {
        scale: Some([0.5, 1.5]),
        ..RandomAffine::new(10.0)
    };
    vec![
        vec![mosaic(1.0), affine().into(), CenterCrop::new(24).into()],
        vec![mosaic(0.5), RandomHorizontalFlip::new(0.5).into()],
        vec![
            RandomHorizontalFlip::new(0.5).into(),
            mosaic(0.7),
            RandomCrop::new(30).into(),
            ColorJitter::default().into(),
        ],
        vec![
            RandomResizedCrop::new(24).into(),
            RandomHorizontalFlip::new(0.5).into(),
        ],
    ]
}

#[test]
fn rows_are_those_of_both_positions_blended() {
    let root = photos(24);
    for before in transforms_before() {
        let plain = pipeline(root.path(), before);
        let mixed = plain.clone().transform(mixup(0.6));
        let source = mixed.source.open(&[]).expect("opens");
        let (unmixed, loader) = (open(&plain, 2), open(&mixed, 2));
        let mut count = 0;
        for at in 0..2 {
            let (own, found) = (rows(&epoch(&unmixed)), rows(&epoch(&loader)));
            for (position, drawn) in draws(&mixed, &*source, at).into_iter().enumerate() {
                let Some(drawn) = drawn else {
                    assert!(found[position] == own[position], "position {position}");
                    continue;
                };
                count += 1;
                let partner = drawn.partners()[drawn.centers[0].map_or(0, |_| 3)] as usize;
                assert_ne!(partner, position);
                let (share, rest) = (drawn.share as f32, (1.0 - drawn.share) as f32);
                let blend =
                    |(a, b): (&u8, &u8)| (f32::from(*a) * share + f32::from(*b) * rest + 0.5) as u8;
                let pairs = own[position].iter().zip(&own[partner]);
                let expected: Vec<u8> = pairs.map(blend).collect();
                assert!(found[position] == expected, "position {position}");
            }
        }
        assert!((15..45).contains(&count), "{count} of 48");
    }
}

#[test]
fn later_transforms_apply_to_the_blended_image() {
    let root = photos(24);
    let after: Vec<Transform> = vec![
        RandomHorizontalFlip::new(0.5).into(),
        ColorJitter::default().into(),
    ];
    for before in transforms_before() {
        let all = before.into_iter().chain([mixup(0.6)]).chain(after.clone());

        equals_plain(&pipeline(root.path(), all.collect()));
    }
}

#[test]
fn partners_are_in_the_window_of_the_mosaic() {
    let root = photos(60);
    let pipeline = pipeline(root.path(), vec![mosaic(1.0), mixup(1.0)]);
    let source = pipeline.source.open(&[]).expect("opens");

    for (position, drawn) in (0..).zip(draws(&pipeline, &*source, 1)) {
        let drawn = drawn.expect("p is 1");
        let [own, other] = [&drawn.partners()[..3], &drawn.partners()[4..]];
        let second = drawn.partners()[3];
        let is_near = |of: u64, at: u64| (of.saturating_sub(9)..=of.max(9)).contains(&at);
        assert!(own.iter().all(|at| is_near(position, *at)));
        assert!(is_near(position, second) && second != position);
        assert!(other.iter().all(|at| is_near(second, *at)));
    }
}

#[test]
fn workers_memory_caches_and_bad_records_change_no_bit() {
    let root = photos(24);
    for n in [2, 9, 17] {
        let path = photo(root.path(), n);
        let bytes = std::fs::read(&path).expect("it is there");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    let transforms = vec![mosaic(0.8), mixup(0.5)];
    let pipeline = pipeline(root.path(), transforms);
    let run = |workers, memory, cache: Option<u64>| -> Vec<_> {
        let mut options = Options::default();
        options.on_error = OnError::Substitute;
        (options.workers, options.memory) = (Some(workers), memory);
        options.cache = cache.map(|bytes| infeed::loader::CacheLimit::Bytes(bytes).into());
        let loader = pipeline.open(&options).expect("opens");
        (0..3).flat_map(|_| bits(&epoch(&loader))).collect()
    };
    let reference = run(1, None, None);

    for (workers, memory, cache) in [
        (2, None, None),
        (7, None, None),
        (3, Some(20 << 20), None),
        (2, None, Some(64 << 20)),
    ] {
        let same = run(workers, memory, cache);
        assert!(
            same == reference,
            "{workers} workers, {memory:?}, {cache:?}"
        );
    }
}

#[test]
fn a_bad_record_of_the_second_image_is_named() {
    let root = photos(16);
    let pipeline = pipeline(root.path(), vec![mosaic(1.0), mixup(1.0)]);
    let source = pipeline.source.open(&[]).expect("opens");
    let order = pipeline.order(&*source, &[]).expect("an order").epoch(0);
    let drawn = draws(&pipeline, &*source, 0)[0].expect("p is 1");
    // Only the mosaic of the second image of the first row shows it.
    let last = drawn.partners()[6];
    let shows = |at: &u64| *at != 0 && !drawn.partners()[..4].contains(at);
    let bad = order.get(Some(last).filter(shows).unwrap_or(drawn.partners()[3]));
    let name = source.id(bad, None).name;
    let bytes = std::fs::read(&name).expect("it is there");
    std::fs::write(&name, &bytes[..bytes.len() / 2]).expect("writes");

    let error = open(&pipeline, 1).next_batch().expect_err("a bad record");

    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert_eq!(error.record().expect("named").index, bad);
}

#[test]
fn combinations_without_a_meaning_raise_the_fix() {
    let root = photos(4);
    for (transforms, part) in [
        (
            vec![
                RandomHorizontalFlip::new(0.5).into(),
                mixup(1.0),
                CenterCrop::new(8).into(),
            ],
            "transform 2 (ImageMixUp): the size of `image` differs by record",
        ),
        (
            vec![mosaic(1.0), mixup(1.0), mixup(1.0)],
            "a pipeline can have one ImageMixUp",
        ),
        (
            vec![RandomCrop::new(8).into(), mixup(1.0), mosaic(1.0)],
            "transform 3 (Mosaic): it cannot follow ImageMixUp",
        ),
        (
            vec![
                RandomCrop::new(8).into(),
                mixup(1.0),
                CopyPaste::default().into(),
            ],
            "it cannot follow ImageMixUp",
        ),
        (
            vec![
                RandomCrop::new(8).into(),
                mixup(1.0),
                MixUp::new(0.2).into(),
            ],
            "it mixes samples, which ImageMixUp does already",
        ),
        (
            vec![
                RandomCrop::new(8).into(),
                ImageMixUp { alpha: 0.0, p: 1.0 }.into(),
            ],
            "alpha is 0.0",
        ),
    ] {
        let opened = pipeline(root.path(), transforms).open(&Options::default());

        let error = opened.expect_err("it is rejected").to_string();

        assert!(error.contains(part), "{error}");
    }
}
