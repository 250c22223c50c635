//! Images with an EXIF orientation are read from a packed dataset as from the original, with and
//! without `orient`.

use std::fs;
use std::path::{Path, PathBuf};

use infeed::pipeline::{BoxesSpec, Decode, Pipeline, SourceSpec};
use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_codec::transform::{
    BoxFormat, PixelView, RandomHorizontalFlip, Resize, Rng, Transform, TransformScratch,
};
use infeed_core::sample::{FieldKind, Image};
use infeed_pack::Target;
use infeed_sample::png;
use infeed_source::read_one;
use tempfile::TempDir;

use crate::data;
use crate::pack::pack_with;

/// Formats that store encoded images.
const ENCODED: [Target; 5] = [
    Target::Folder,
    Target::WebDataset,
    Target::TfRecord,
    Target::Arrow,
    Target::Parquet,
];

/// Copies JPEGs of all eight orientations and a turned PNG.
fn photos() -> (TempDir, SourceSpec) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let conformance = conformance();
    let jpegs = (1..=8).map(|orientation| format!("orientation{orientation}.jpg"));
    for (n, name) in jpegs.chain(["orientation6.png".to_owned()]).enumerate() {
        let to = format!("{n}{}", &name[name.len() - 4..]);
        fs::copy(conformance.join(&name), root.path().join(to)).expect("copies");
    }
    let source = unlabelled_folder(root.path());
    (root, source)
}

fn unlabelled_folder(root: &Path) -> SourceSpec {
    SourceSpec::Folder {
        path: root.to_owned(),
        labels: "none".to_owned(),
        classes: None,
        allow_empty: false,
        follow_links: true,
    }
}

/// Returns the images of a source in RGB.
fn images(source: &SourceSpec, orient: bool) -> Vec<Image> {
    let source = source.open(&[]).expect("opens");
    let is_image = |kind: &FieldKind| matches!(kind, FieldKind::Image(_));
    let mut fields = source.fields().iter();
    let at = fields
        .position(|field| is_image(&field.kind))
        .expect("an image");
    let mut decoder = Decoder::new();
    let records = 0..source.len();
    records
        .map(|record| {
            let record = read_one(&*source, record).expect("reads");
            let bytes = &record.fields[at];
            let header = decoder
                .header(bytes, orient, &Limits::default())
                .expect("an image");
            let mut image = Image::default();
            let request = Request::whole(&header, ColorMode::Rgb);
            decoder
                .decode(bytes, &header, &request, &mut image)
                .expect("decodes");
            image
        })
        .collect()
}

/// Writes a turned image with a box.
fn turned_box() -> (TempDir, SourceSpec) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (images, labels) = (root.path().join("images"), root.path().join("labels"));
    for folder in [&images, &labels] {
        fs::create_dir(folder).expect("creates");
    }
    fs::copy(conformance().join("orientation6.png"), images.join("0.png")).expect("copies");
    fs::write(labels.join("0.txt"), "0 0.5 0.25 0.25 0.5\n").expect("writes");
    let source = SourceSpec::Yolo {
        images,
        labels: None,
        classes: None,
        corners: false,
        follow_links: true,
    };
    (root, source)
}

fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance")
}

fn orienting_decode() -> Decode {
    Decode {
        orient: true,
        ..Decode::default()
    }
}

/// Returns an image with a shorter side of 10 pixels.
fn resize_to_ten(image: &Image) -> Image {
    let steps = Transform::from(Resize::new(10)).draw(image.size, &mut Rng::new(0, 0, 0, 0));
    let mut out = Image::default();
    for step in steps.expect("a size") {
        let scratch = &mut TransformScratch::default();
        step.apply(PixelView::from(image), &mut out, false, scratch)
            .expect("resizes");
    }
    out
}

/// Returns the mean difference of two images of one size.
fn difference(a: &Image, b: &Image) -> f64 {
    assert_eq!((a.size, a.channels), (b.size, b.channels));
    let pairs = a.data.iter().zip(&b.data);
    let sum: u64 = pairs.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.data.len() as f64
}

#[test]
fn every_format_and_encoding_reads_like_the_original_with_and_without_orient() {
    let (_root, source) = photos();
    for to in ENCODED {
        for encoding in ["keep", "lossless", "png", "webp-lossless", "jpeg:100"] {
            for decode in [Decode::default(), orienting_decode()] {
                let out = tempfile::tempdir().expect("a temporary folder");
                let pipeline = Pipeline {
                    decode: Some(decode),
                    ..Pipeline::new(source.clone())
                };
                let done = pack_with(&pipeline, out.path(), |options| {
                    options.to = to;
                    options.image = encoding.parse().expect("an encoding");
                });
                let done = done.expect("packs");

                for orient in [false, true] {
                    let both = images(&source, orient)
                        .into_iter()
                        .zip(images(&done.source, orient));
                    for (n, (before, after)) in both.enumerate() {
                        // Pixels of a JPEG of the best quality differ by its chroma of 4:2:0.
                        let most = if encoding == "jpeg:100" { 20.0 } else { 0.0 };
                        let found = difference(&before, &after);
                        assert!(found <= most, "{to:?} {encoding} {orient} {n}: {found}");
                    }
                }
            }
        }
    }
}

#[test]
fn resized_images_keep_their_turn_if_the_pipeline_does_not_turn_them() {
    let (_root, source) = photos();
    for to in ENCODED {
        for encoding in ["keep", "png", "webp-lossless"] {
            let out = tempfile::tempdir().expect("a temporary folder");
            let resize = Resize::new(10);
            let done = pack_with(&Pipeline::new(source.clone()), out.path(), |options| {
                options.to = to;
                options.image = encoding.parse().expect("an encoding");
                options.transforms = vec![resize.into()];
            });
            let done = done.expect("packs");

            for orient in [false, true] {
                let before = images(&source, orient);
                let after = images(&done.source, orient);
                for (n, (before, after)) in before.iter().zip(&after).enumerate() {
                    let expected = resize_to_ten(before);
                    let found = difference(&expected, after);
                    // The passes of a resize round once per side, and a JPEG loses a little.
                    assert!(found <= 20.0, "{to:?} {encoding} {orient} {n}: {found}");
                }
            }
        }
    }
}

#[test]
fn images_that_are_turned_before_a_transform_are_not_turned_again() {
    let (_root, source) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");
    let pipeline = Pipeline {
        decode: Some(orienting_decode()),
        ..Pipeline::new(source.clone())
    };

    let done = pack_with(&pipeline, out.path(), |options| {
        options.image = "png".parse().expect("an encoding");
        options.transforms = vec![Resize::new(10).into()];
    });
    let done = done.expect("packs");

    let is_high = |image: &Image| image.size.height > image.size.width;
    let expected: Vec<_> = images(&source, true).iter().map(is_high).collect();
    for orient in [false, true] {
        let found: Vec<_> = images(&done.source, orient).iter().map(is_high).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn raw_pixels_are_turned_only_where_no_coordinates_refer_to_the_stored_ones() {
    let (_root, source) = turned_box();
    let boxes = |oriented| BoxesSpec {
        oriented: Some(oriented),
        normalized: true,
        ..BoxesSpec::new("boxes", BoxFormat::Cxcywh)
    };
    let pack_raw = |boxes: BoxesSpec, decode: Decode| {
        let out = tempfile::tempdir().expect("a temporary folder");
        let pipeline = Pipeline {
            decode: Some(decode),
            ..Pipeline::new(source.clone()).boxes(boxes)
        };
        pack_with(&pipeline, out.path(), |options| {
            options.to = Target::Arrow;
            options.image = "raw".parse().expect("an encoding");
        })
    };

    let error = pack_raw(boxes(false), orienting_decode()).expect_err("the boxes would not fit");
    let text = error.to_string();
    assert!(text.contains("packing does not move `boxes`"), "{text}");
    assert!(text.contains("0.png"), "{text}");
    assert!(pack_raw(boxes(true), orienting_decode()).is_ok());
    assert!(pack_raw(boxes(false), Decode::default()).is_ok());
}

#[test]
fn boxes_next_to_a_file_of_another_encoding_fit_its_turned_pixels() {
    let (_root, source) = turned_box();
    for oriented in [Some(false), Some(true), None] {
        let boxes = BoxesSpec {
            oriented,
            normalized: true,
            ..BoxesSpec::new("boxes", BoxFormat::Cxcywh).columns(["labels"])
        };
        let pipeline = Pipeline {
            decode: Some(orienting_decode()),
            ..Pipeline::new(source.clone()).boxes(boxes)
        };
        for to in [
            Target::WebDataset,
            Target::TfRecord,
            Target::Arrow,
            Target::Parquet,
        ] {
            let out = tempfile::tempdir().expect("a temporary folder");
            let done = pack_with(&pipeline, out.path(), |options| {
                options.to = to;
                options.image = "png".parse().expect("an encoding");
            });

            let done = done.expect("packs");

            let epoch = |pipeline| data::bits(&data::epoch(&data::open(pipeline, 1)));
            assert_eq!(
                epoch(&done.pipeline),
                epoch(&pipeline),
                "{to:?} {oriented:?}"
            );
        }
    }
}

#[test]
fn the_packed_pipeline_declares_the_boxes_of_its_source() {
    let (_root, source) = turned_box();
    let flip = RandomHorizontalFlip::new(1.0);
    let pipeline = Pipeline {
        decode: Some(orienting_decode()),
        ..Pipeline::new(source).transform(flip)
    };
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |options| {
        options.to = Target::WebDataset;
        options.image = "png".parse().expect("an encoding");
    });

    let done = done.expect("packs");
    let epoch = |pipeline| data::bits(&data::epoch(&data::open(pipeline, 1)));
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
}

#[test]
fn a_turned_image_and_its_mask_keep_their_orientations() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (images, masks) = (root.path().join("images"), root.path().join("masks"));
    for folder in [&images, &masks] {
        fs::create_dir(folder).expect("creates");
    }
    let file = conformance().join("orientation6.png");
    fs::copy(file, images.join("0.png")).expect("copies");
    // The mask was drawn on the turned image and has no orientation.
    let mask = data::picture(0, 18, 13);
    let mask = Image {
        channels: 1,
        data: mask.data.chunks_exact(3).map(|pixel| pixel[0]).collect(),
        ..mask
    };
    fs::write(masks.join("0.png"), png(&mask).expect("encodes")).expect("writes");
    let pipeline = Pipeline {
        decode: Some(orienting_decode()),
        ..Pipeline::new(SourceSpec::pairs(&images, &masks))
    };
    for to in ENCODED {
        let out = tempfile::tempdir().expect("a temporary folder");
        let done = pack_with(&pipeline, out.path(), |options| {
            options.to = to;
            options.image = "png:up:fast".parse().expect("an encoding");
            options.mask = "png:up:fast".parse().expect("an encoding");
        });

        let done = done.expect("packs");

        let epoch = |pipeline| data::bits(&data::epoch(&data::open(pipeline, 1)));
        assert_eq!(epoch(&done.pipeline), epoch(&pipeline), "{to:?}");
    }
}
