//! Every kind of field, and descriptions that are rejected with a fix.

use bytes::Bytes;
use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline, Values};
use infeed_codec::transform::{
    Crop, Normalize, OneHot, RandomHorizontalFlip, RandomResizedCrop, Resize, ToFloat,
};
use infeed_core::batch::ColumnKind;
use infeed_core::sample::{DType, Depth, Field, FieldKind, Pixels, Size};
use infeed_source::memory::{FieldData, Memory};
use std::sync::Arc;

use crate::data::{epoch, open, pairs, photos};

fn field(name: &str, kind: FieldKind) -> Field {
    Field {
        name: name.to_owned(),
        kind,
    }
}

#[test]
fn a_source_in_memory_carries_every_kind_of_field() {
    let raw = Pixels::Raw {
        size: Size {
            height: 2,
            width: 3,
        },
        channels: 3,
        depth: Depth::U8,
    };
    let pixels: Vec<u8> = (0..4 * 18).collect();
    let labels: Vec<u8> = (0..4_i64).flat_map(|n| n.to_le_bytes()).collect();
    let tensor: Vec<u8> = (0..8).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let list = |texts: [&str; 4]| texts.map(|t| Bytes::copy_from_slice(t.as_bytes())).to_vec();
    let source = Memory::new(
        vec![
            (
                field("image", FieldKind::Image(raw)),
                FieldData::Array(pixels.clone().into()),
            ),
            (
                field(
                    "label",
                    FieldKind::Tensor {
                        dtype: DType::Int64,
                        shape: vec![],
                    },
                ),
                FieldData::Array(labels.into()),
            ),
            (
                field(
                    "pose",
                    FieldKind::Tensor {
                        dtype: DType::Float32,
                        shape: vec![2],
                    },
                ),
                FieldData::Array(tensor.into()),
            ),
            (
                field("raw", FieldKind::Bytes),
                FieldData::List(list(["a", "", "ccc", "dd"])),
            ),
            (
                field("caption", FieldKind::Text),
                FieldData::List(list(["ein", "zwei", "drei", "für"])),
            ),
            (
                field(
                    "boxes",
                    FieldKind::Ragged {
                        dtype: DType::UInt8,
                    },
                ),
                FieldData::Ragged {
                    values: Bytes::from_static(&[1, 2, 3]),
                    offsets: vec![0, 2, 2, 3, 3],
                },
            ),
        ],
        false,
    )
    .expect("equal lengths");
    let pipeline = Pipeline::new(SourceSpec::Memory { fields: Vec::new() }).batch(4);

    let loader = pipeline
        .open_over(Arc::new(source), &Options::default())
        .expect("fits");
    let batch = &epoch(&loader)[0];

    assert_eq!(batch.array("image").expect("numbers").bytes(), pixels);
    assert_eq!(batch.array("image").expect("numbers").shape(), [4, 2, 3, 3]);
    assert_eq!(batch.array("pose").expect("numbers").shape(), [4, 2]);
    assert!(
        matches!(batch.get("raw"), Some(Values::Bytes(b)) if b[2] == b"ccc" && b[1].is_empty())
    );
    assert!(matches!(batch.get("caption"), Some(Values::Text(t)) if t[3] == "für"));
    let Some(Values::Ragged { values, offsets }) = batch.get("boxes") else {
        panic!("not ragged")
    };
    assert_eq!(values.bytes(), [1, 2, 3]);
    assert_eq!(offsets.shape(), [5]);
}

#[test]
fn without_decode_encoded_images_are_the_bytes_of_their_files() {
    let root = photos(4);
    let loader = open(&Pipeline::new(SourceSpec::folder(root.path())).batch(4), 1);

    let batch = &epoch(&loader)[0];

    let file = std::fs::read(crate::data::photo(root.path(), 0)).expect("it is there");
    assert!(matches!(batch.get("image"), Some(Values::Bytes(images)) if images[0] == file));
}

#[test]
fn samples_of_different_sizes_are_padded_on_request_and_rejected_otherwise() {
    let root = photos(4);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .batch(4);

    let refused = pipeline
        .open(&Options::default())
        .expect_err("sizes differ")
        .to_string();
    assert!(
        refused.contains("RandomResizedCrop") && refused.contains("pad=True"),
        "{refused}"
    );

    let loader = open(&pipeline.pad(), 2);
    let shape = epoch(&loader)[0]
        .array("image")
        .expect("numbers")
        .shape()
        .to_vec();
    assert!(shape[0] == 4 && shape[1] > 40 && shape[3] == 3, "{shape:?}");
}

#[test]
fn invalid_descriptions_are_rejected_when_opened_with_the_transform_and_the_fix() {
    let root = photos(4);
    let masks = pairs(2, 20, 20);
    let photo = || Pipeline::new(SourceSpec::folder(root.path())).decode();
    let pair = || {
        let (images, labels) = (masks.path().join("images"), masks.path().join("masks"));
        Pipeline::new(SourceSpec::pairs(images, labels)).decode()
    };
    let undecoded = Pipeline::new(SourceSpec::folder(root.path())).transform(Crop::new(8, 8));
    let cases: Vec<(Pipeline, &str)> = vec![
        (undecoded, ".decode()"),
        (
            photo()
                .transform(Normalize::new([0.5], [0.5, 0.5]))
                .transform(Resize::new([8, 8])),
            "Normalize",
        ),
        (
            photo()
                .transform(ToFloat::default())
                .transform(Resize::new([8, 8])),
            "before ToFloat",
        ),
        (
            photo()
                .transform(RandomResizedCrop::new(8))
                .transform(OneHot::from_indices(3)),
            "mask",
        ),
        (
            pair()
                .transform(Crop::new(8, 8))
                .transform(ToFloat::of("mask")),
            "mask",
        ),
        (
            pair()
                .transform(Crop::new(8, 8))
                .transform(OneHot::from_palette("/nowhere.csv")),
            "nowhere.csv",
        ),
        (
            photo()
                .transform(RandomResizedCrop::new(8))
                .dtype(DType::Float16),
            "ToFloat",
        ),
        (
            photo()
                .transform(RandomHorizontalFlip::new(1.5))
                .transform(Resize::new([8, 8])),
            "1.5",
        ),
    ];
    for (pipeline, expected) in cases {
        let error = pipeline
            .open(&Options::default())
            .expect_err(expected)
            .chain();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn one_hot_masks_have_one_channel_a_class() {
    let root = pairs(2, 20, 20);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let pipeline = Pipeline::new(SourceSpec::pairs(
        root.path().join("images"),
        root.path().join("masks"),
    ))
    .decode()
    .transform(Crop::new(16, 16))
    .transform(OneHot::from_palette(csv))
    .batch(2);

    let plan = pipeline.describe(&[]).expect("plans");

    let kind = &plan
        .iter()
        .find(|column| column.name == "mask")
        .expect("a column")
        .kind;
    assert_eq!(
        *kind,
        ColumnKind::Fixed {
            dtype: DType::Float32,
            shape: vec![16, 16, 4]
        }
    );
}
