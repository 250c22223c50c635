//! Masks to classes: stored values, pixels of unknown class, and their counts.

use std::path::Path;

use infeed::pipeline::SourceSpec;
use infeed::{Batch, OnError, Options, Pipeline};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{
    ClassIndex, Crop, OneHot, Pad, RandomCrop, RandomHorizontalFlip, Transform,
};
use infeed_core::sample::{DType, Depth, Image, Size};
use infeed_sample::png;
use tempfile::TempDir;

use crate::data::{epoch, open, pairs, picture};

/// Images with masks of one channel; pixel number `at` stores `value(n, at)`.
fn write_dataset(count: u64, value: impl Fn(u64, usize) -> u8) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for folder in ["images", "masks"] {
        std::fs::create_dir(root.path().join(folder)).expect("a new folder");
    }
    let (height, width) = (20, 28);
    for n in 0..count {
        let image = png(&picture(n, height, width)).expect("encodes");
        std::fs::write(root.path().join(format!("images/{n:03}.png")), image).expect("writes");
        let mut mask = Image::default();
        mask.reset(Size { height, width }, 1, Depth::U8);
        for (at, pixel) in mask.data.iter_mut().enumerate() {
            *pixel = value(n, at);
        }
        let mask = png(&mask).expect("encodes");
        std::fs::write(root.path().join(format!("masks/{n:03}.png")), mask).expect("writes");
    }
    root
}

fn masks(root: &Path, last: impl Into<Transform>) -> Pipeline {
    let source = SourceSpec::pairs(root.join("images"), root.join("masks"));
    Pipeline::new(source)
        .decode()
        .transform(Crop::new(20, 28))
        .transform(last)
        .batch(2)
}

/// Returns the first batch, or the error instead of it.
fn first(pipeline: &Pipeline) -> Result<Batch, String> {
    let batch = open(pipeline, 2).next_batch();
    batch
        .map(|batch| batch.expect("records"))
        .map_err(|error| error.chain())
}

fn mask(batch: &Batch) -> &[u8] {
    batch.array("mask").expect("a mask").bytes()
}

/// A mask of 0 and 255, with its right half set.
fn binary(_: u64, at: usize) -> u8 {
    if at % 28 < 14 { 0 } else { 255 }
}

#[test]
fn values_outside_the_classes_are_an_error_that_names_file_value_share_and_fix() {
    let root = write_dataset(2, binary);

    for transform in [
        Transform::from(OneHot::from_indices(2)),
        ClassIndex::from_indices(2).into(),
    ] {
        let error = first(&masks(root.path(), transform.clone())).expect_err("a stray value");

        for part in [
            "masks/000.png",
            transform.name(),
            "50.00 % of the pixels have no class",
            "value 255, but the classes are 0 to 1",
            "values=(0, 255)",
            "ignore_index=255",
            "unknown=\"ignore\"",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn the_stored_values_of_the_classes_may_be_any() {
    let root = write_dataset(2, binary);
    let one_hot = OneHot {
        dtype: DType::UInt8,
        ..OneHot::from_values([0, 255])
    };

    let channels = first(&masks(root.path(), one_hot)).expect("two classes");
    let numbers = first(&masks(root.path(), ClassIndex::from_values([255, 0]))).expect("two");

    assert_eq!(&mask(&channels)[..2 * 14], [1, 0].repeat(14));
    assert_eq!(&mask(&channels)[2 * 14..2 * 28], [0, 1].repeat(14));
    assert_eq!(&mask(&numbers)[..28], [[1; 14], [0; 14]].concat());
}

#[test]
fn one_stored_value_may_be_declared_to_have_no_class_and_no_other_is_accepted() {
    let root = write_dataset(2, |_, at| [0, 1, 255][at % 3]);
    let ignoring = |index: u16| OneHot {
        ignore_index: Some(index),
        dtype: DType::UInt8,
        ..OneHot::from_indices(2)
    };
    let number = ClassIndex {
        ignore_index: Some(255),
        ..ClassIndex::from_indices(2)
    };

    let channels = first(&masks(root.path(), ignoring(255))).expect("255 is declared");
    let numbers = first(&masks(root.path(), number)).expect("255 is declared");
    let error = first(&masks(root.path(), ignoring(7))).expect_err("255 is not");

    assert_eq!(&mask(&channels)[..6], [1, 0, 0, 1, 0, 0]);
    assert_eq!(&mask(&numbers)[..3], [0, 1, 255]);
    assert!(
        error.contains("33.21 % of the pixels have no class: value 255"),
        "{error}"
    );
}

#[test]
fn a_palette_of_other_data_is_an_error_that_names_the_most_frequent_colour() {
    let root = pairs(2, 20, 28);
    let csv = root.path().join("other.csv");
    std::fs::write(&csv, "name,r,g,b\na,0,0,0\nb,128,64,128\n").expect("writes");
    let csv = csv.display().to_string();

    let error = first(&masks(root.path(), OneHot::from_palette(&csv))).expect_err("other colours");
    let ignored = ClassIndex::new(&csv).ignoring_unknown();
    let numbers = first(&masks(root.path(), ignored)).expect("accepted");
    let index = ClassIndex {
        ignore_index: Some(9),
        ..ClassIndex::new(&csv)
    };
    let nines = first(&masks(root.path(), index)).expect("accepted");

    let share = "50.00 % of the pixels have no class, most of them (25.00 %): colour 64,0,64";
    assert!(
        error.contains(share) && error.contains("masks/000.png"),
        "{error}"
    );
    assert_eq!(mask(&numbers)[14], 255);
    assert_eq!(mask(&nines)[14], 9);
}

#[test]
fn padding_without_a_class_is_named_in_the_error() {
    let root = pairs(2, 20, 28);
    let csv = root.path().join("other.csv");
    let known = "name,r,g,b\na,128,64,128\nb,64,0,64\nc,255,0,0\nd,0,0,1\n";
    std::fs::write(&csv, known).expect("writes");
    let all = root.path().join("class_dict.csv").display().to_string();
    let source = || SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let pads = |fill: f64, csv: &str| {
        let pad = Pad {
            mask_fill: infeed_codec::transform::ChannelValues::All(fill),
            ..Pad::new(2)
        };
        let pipeline = Pipeline::new(source()).decode().transform(pad);
        first(&pipeline.transform(OneHot::from_palette(csv)))
    };

    let error = pads(77.0, &all).expect_err("the fill is no class");

    assert!(error.contains("Pad pads masks with this value"), "{error}");
    assert!(pads(0.0, &all).is_ok(), "0,0,0 is a class");
}

#[test]
fn on_error_applies_to_records_with_unknown_values() {
    let root = write_dataset(6, |n, at| if n == 3 { 9 } else { (at % 2) as u8 });
    let pipeline = masks(root.path(), OneHot::from_indices(2));
    let mut options = Options::default();
    options.on_error = OnError::Skip;

    let loader = pipeline.open(&options).expect("opens");
    let rows: usize = epoch(&loader).iter().map(Batch::rows).sum();

    assert_eq!(rows, 5);
    let bad = loader.bad_records();
    assert!(
        bad[0].record.name.ends_with("masks/003.png"),
        "{}",
        bad[0].record.name
    );
}

#[test]
fn pixels_of_no_class_are_counted_in_delivered_batches_whatever_is_prepared_ahead() {
    let root = write_dataset(12, |n, at| ((at + n as usize) % 5) as u8);
    let source = SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let mut pipeline = Pipeline::new(source)
        .shuffle(4)
        .decode()
        .transform(RandomCrop::new(13))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(ClassIndex {
            ignore_index: Some(200),
            ..ClassIndex::from_indices(3).ignoring_unknown()
        })
        .batch(2);
    if let Some(decode) = &mut pipeline.decode {
        decode.modes.insert("mask".to_owned(), ColorMode::Stored);
    }

    for workers in [1, 4] {
        let loader = open(&pipeline, workers);
        let mut expected = 0;
        for _ in 0..9 {
            let Some(batch) = loader.next_batch().expect("no bad record") else {
                continue;
            };
            expected += mask(&batch).iter().filter(|&&class| class == 200).count() as u64;
            assert_eq!(loader.stats().expect("open").unknown_pixels, expected);
        }
        assert!(expected > 0);
    }
}
