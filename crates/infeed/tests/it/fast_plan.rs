//! Push-down and fusion give the pixels of the plain plan.

use infeed::pipeline::{Layout, SourceSpec};
use infeed::{Pipeline, Values};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{
    CenterCrop, ClassIndex, Crop, CropOrPad, GaussianBlur, GaussianNoise, Grayscale, Normalize,
    OneHot, Pad, RandAugment, RandomAffine, RandomApply, RandomCrop, RandomErasing,
    RandomHorizontalFlip, RandomPerspective, RandomResizedCrop, RandomRotation, RandomShortestSize,
    RandomVerticalFlip, RandomZoomOut, Resize, Rng, ToFloat, Transform,
};
use infeed_core::counters::Stage;
use infeed_core::sample::DType;

use crate::data::{epoch, open, pairs, photos};

/// Compares every sample of two epochs with its preview, which decodes whole images and runs every
/// step separately.
pub(crate) fn equals_plain(pipeline: &Pipeline) {
    let loader = open(pipeline, 2);
    for at in 0..2 {
        let mut position = 0;
        for batch in epoch(&loader) {
            for row in 0..batch.rows() {
                let (id, stages) = pipeline.preview(&[], position, at).expect("a good record");
                assert_eq!(id.index, batch.records[row]);
                let plain = &stages.last().expect("an output").fields;
                for (name, values) in plain {
                    let Values::Array(plain) = values else {
                        panic!("{name} is no array")
                    };
                    let fast = batch.array(name).expect("a column").bytes();
                    let size = plain.bytes().len();
                    assert_eq!(
                        batch.array(name).expect("a column").shape()[1..],
                        *plain.shape()
                    );
                    assert!(
                        fast[row * size..(row + 1) * size] == *plain.bytes(),
                        "{name} of {id}, position {position} of epoch {at}"
                    );
                }
                position += 1;
            }
        }
    }
}

fn photo_pipeline(root: &std::path::Path, transforms: Vec<Transform>) -> Pipeline {
    let pipeline = Pipeline::new(SourceSpec::folder(root)).shuffle(3).decode();
    transforms
        .into_iter()
        .fold(pipeline, Pipeline::transform)
        .batch(5)
}

#[test]
fn jpeg_regions_flips_and_float_rows_equal_whole_images_step_by_step() {
    let root = photos(30);
    let normalize = || Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let lists: Vec<Vec<Transform>> = vec![
        vec![
            RandomResizedCrop::new(24).into(),
            RandomHorizontalFlip::new(0.5).into(),
            normalize().into(),
        ],
        vec![
            RandomCrop::new(32).into(),
            RandomVerticalFlip::new(0.5).into(),
            ToFloat::default().into(),
        ],
        vec![
            RandomHorizontalFlip::new(0.5).into(),
            RandomCrop::new(20).into(),
        ],
        vec![
            Resize::new(40).into(),
            RandomHorizontalFlip::new(0.5).into(),
            CenterCrop::new(32).into(),
        ],
        vec![
            RandomVerticalFlip::new(0.5).into(),
            Resize::new([30, 20]).into(),
            RandomCrop::new(16).into(),
        ],
        vec![
            CropOrPad::new(50, 50).into(),
            normalize().into(),
            RandomErasing::new(0.9).into(),
        ],
        vec![
            RandomHorizontalFlip::new(0.5).into(),
            RandomAffine::new(20.0).into(),
            RandomVerticalFlip::new(0.5).into(),
            RandAugment::default().into(),
            CenterCrop::new(32).into(),
        ],
        vec![
            RandomCrop::new(32).into(),
            RandomPerspective::new(0.7).into(),
            RandomApply::new(
                vec![
                    GaussianBlur::new(3).into(),
                    RandomHorizontalFlip::new(0.5).into(),
                ],
                0.8,
            )
            .into(),
            GaussianNoise::default().into(),
            normalize().into(),
        ],
        vec![
            RandomShortestSize::new([24, 30]).into(),
            RandomZoomOut::new(0.5).into(),
            RandomRotation::new(90.0).into(),
            CenterCrop::new(28).into(),
        ],
        vec![
            Pad::new(3).into(),
            CenterCrop::new(36).into(),
            normalize().into(),
            RandomHorizontalFlip::new(0.5).into(),
        ],
    ];
    for transforms in lists {
        for layout in [Layout::Hwc, Layout::Chw] {
            equals_plain(&photo_pipeline(root.path(), transforms.clone()).layout(layout));
        }
    }
}

#[test]
fn half_precision_rows_equal_too() {
    let root = photos(10);
    for dtype in [DType::Float16, DType::BFloat16] {
        let transforms = vec![RandomCrop::new(30).into(), ToFloat::default().into()];
        equals_plain(
            &photo_pipeline(root.path(), transforms)
                .dtype(dtype)
                .layout(Layout::Chw),
        );
    }
}

#[test]
fn masks_move_with_their_images_and_their_classes_survive() {
    let root = pairs(9, 37, 53);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let base = || {
        Pipeline::new(SourceSpec::pairs(
            root.path().join("images"),
            root.path().join("masks"),
        ))
        .shuffle(1)
        .decode()
    };
    let flips = |pipeline: Pipeline| {
        pipeline
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(RandomVerticalFlip::new(0.5))
            .batch(3)
    };

    let mut coloured = base();
    if let Some(decode) = &mut coloured.decode {
        decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
    }
    equals_plain(&flips(coloured.transform(RandomCrop::new(21))));
    equals_plain(&flips(
        base()
            .transform(RandomResizedCrop::new(19))
            .transform(OneHot::from_palette(&csv)),
    ));
    equals_plain(&flips(
        base()
            .transform(RandomCrop::new(20))
            .transform(ClassIndex::new(&csv)),
    ));
    let mut wide = ClassIndex::new(&csv);
    wide.dtype = DType::Int64;
    equals_plain(&flips(base().transform(RandomCrop::new(20)).transform(wide)).layout(Layout::Chw));
    equals_plain(
        &flips(
            base()
                .transform(Crop::new(30, 40))
                .transform(OneHot::from_palette(&csv)),
        )
        .layout(Layout::Chw),
    );
}

#[test]
fn the_plan_names_the_stages_in_which_a_run_counts_work() {
    let root = photos(4);
    // Every transform changes every image, so that nothing moves further than planned.
    let kinds: [fn(u32) -> Transform; 6] = [
        |at| CenterCrop::new(28 - 2 * at).into(),
        |at| Resize::new([40 + at, 41 + at]).into(),
        |_| Pad::new(1).into(),
        |_| RandomHorizontalFlip::new(1.0).into(),
        |_| RandomVerticalFlip::new(1.0).into(),
        |_| Grayscale::new(3).into(),
    ];
    let least = 3 * 40 * 48;
    let mut rng = Rng::new(9, 0, 0, 0);
    for _ in 0..60 {
        let any = |at| kinds[rng.below(kinds.len() as u32) as usize](at);
        let mut transforms: Vec<Transform> = (0..4).map(any).collect();
        transforms.push(CenterCrop::new(12).into());
        transforms.push(Normalize::new([0.5], [0.5]).into());
        let pipeline = photo_pipeline(root.path(), transforms.clone());
        let loader = open(&pipeline, 1);
        epoch(&loader);

        let (plan, stats) = (loader.plan().expect("open"), loader.stats().expect("open"));

        let of = |wanted| {
            let mut stages = stats.stages.iter();
            stages.find(|(stage, _)| *stage == wanted).expect("all").1
        };
        let decode = of(Stage::Decode);
        let decodes_part = decode.bytes_out < least * decode.samples;
        assert_eq!(plan.contains("only the region"), decodes_part, "{plan}");
        let passes = of(Stage::Transform).samples > 0;
        assert_eq!(plan.contains("\n  transform "), passes, "{plan}");
        equals_plain(&pipeline);
    }
}

#[test]
fn an_image_and_its_mask_may_differ_in_size_if_nothing_moves_pixels() {
    let root = pairs(3, 37, 53);
    let larger = pairs(3, 40, 60);
    let mut pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        larger.path().join("masks"),
    ))
    .decode()
    .transform(Grayscale::new(3))
    .batch(1);
    if let Some(decode) = &mut pipeline.decode {
        decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
    }

    equals_plain(&pipeline);
}
