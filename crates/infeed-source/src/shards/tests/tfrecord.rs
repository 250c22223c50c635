//! TFRecord shards: the fields of features, and rejected files.

use std::io::Write as _;

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::{Shard, admits_what_values_take, check_damaged_shards, open, records};
use crate::Source as _;
use crate::formats::tfrecord::TfRecord;
use crate::shards::ShardFormat as _;
use crate::shards::index::ShardIndex;
use crate::shards::text_index;
use crate::shards::values::{FieldRequest, KindHint};
use infeed_core::sample::{DType, FieldKind, Pixels};

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    let sum = crc32_iscsi(bytes);
    sum.rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

fn frame_record(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [
        &length[..],
        &masked_crc(&length),
        record,
        &masked_crc(record),
    ]
    .concat()
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

fn feature(name: &str, list: u8, values: &[u8]) -> Vec<u8> {
    let value = field(2, &field(list, values));
    field(1, &[field(1, name.as_bytes()), value].concat())
}

fn of_bytes(name: &str, values: &[&[u8]]) -> Vec<u8> {
    let values: Vec<Vec<u8>> = values.iter().map(|value| field(1, value)).collect();
    feature(name, 1, &values.concat())
}

fn of_floats(name: &str, values: &[f32]) -> Vec<u8> {
    let packed: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    feature(name, 2, &field(1, &packed))
}

/// Small numbers, a byte each.
fn of_wholes(name: &str, values: &[u8]) -> Vec<u8> {
    feature(name, 3, &field(1, values))
}

fn example(features: &[Vec<u8>]) -> Vec<u8> {
    frame_record(&field(1, &features.concat()))
}

fn request(name: &str, from: Option<&str>, hint: KindHint) -> FieldRequest {
    FieldRequest {
        name: name.to_owned(),
        from: from.map(str::to_owned),
        hint,
    }
}

fn tensor(dtype: DType, shape: &[usize]) -> FieldKind {
    let shape = shape.to_vec();
    FieldKind::Tensor { dtype, shape }
}

const JPEG: &[u8] = &[0xFF, 0xD8, 0xFF, 0xE0];

fn shard() -> Vec<u8> {
    let record = |label: u8, boxes: &[f32]| {
        example(&[
            of_wholes("image/class/label", &[label]),
            of_bytes("image/encoded", &[JPEG]),
            of_floats("boxes", boxes),
            of_floats("scale", &[0.5, 2.0]),
            of_bytes("name", &[b"x"]),
            of_bytes("words", &[b"a", b"b"]),
        ])
    };
    [record(7, &[1.0]), record(9, &[])].concat()
}

#[test]
fn features_become_fields_by_what_the_first_records_hold() {
    let shards = open(TfRecord::new(&[]), shard()).expect("a shard");

    let fields: Vec<(&str, &FieldKind)> = shards
        .fields()
        .iter()
        .map(|field| (field.name.as_str(), &field.kind))
        .collect();
    let boxes = FieldKind::Ragged {
        dtype: DType::Float32,
    };
    assert_eq!(
        fields,
        [
            ("image", &FieldKind::Image(Pixels::Encoded)),
            ("label", &tensor(DType::Int64, &[])),
            ("boxes", &boxes),
            ("name", &FieldKind::Bytes),
            ("scale", &tensor(DType::Float32, &[2])),
        ]
    );
    let found = records(&shards);
    let scale = [0.5_f32.to_le_bytes(), 2_f32.to_le_bytes()].concat();
    for (number, label, boxes) in [(0, 7_i64, &1_f32.to_le_bytes()[..]), (1, 9, &[])] {
        let expected = [JPEG, &label.to_le_bytes(), boxes, b"x", &scale];
        assert_eq!(
            found[number].as_ref().expect("whole"),
            &expected.map(Bytes::copy_from_slice)
        );
    }
    let left_out: Vec<String> = shards.left_out().iter().map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        [
            "shard: 1 feature that is a list of bytes is left out: words; a field has one value of \
             bytes in each record"
        ]
    );
}

/// Opens these records without requested fields, and returns the error.
fn open_error(examples: &[Vec<u8>]) -> String {
    let error = open(TfRecord::new(&[]), examples.concat()).expect_err("rejected");
    error.chain()
}

#[test]
fn a_feature_that_only_some_records_have_is_rejected_with_both_records() {
    let label = || of_wholes("label", &[7]);
    let extra = || of_wholes("extra", &[5]);

    let error = open_error(&[example(&[label(), extra()]), example(&[label()])]);
    let expected = "only some records have the feature `extra`: record 0 has it, but record 1 has \
                    not; declare the features to read with fields=";
    assert!(error.contains(expected), "{error}");

    let error = open_error(&[example(&[label()]), example(&[label(), extra()])]);
    assert!(
        error.contains("record 1 has it, but record 0 has not"),
        "{error}"
    );
}

#[test]
fn two_images_in_a_feature_are_rejected_with_its_name() {
    let error = open_error(&[example(&[of_bytes("frames", &[JPEG, JPEG])])]);

    let expected = "the feature `frames` has 2 images in record 0, but a field has one; declare";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_feature_that_is_not_set_is_an_empty_list() {
    let shard = [
        example(&[of_floats("boxes", &[1.0, 2.0])]),
        example(&[feature("boxes", 4, b"")]),
    ]
    .concat();
    for fields in [&[][..], &[request("boxes", None, KindHint::Ragged)]] {
        let shards = open(TfRecord::new(fields), shard.clone()).expect("a shard");

        let dtype = DType::Float32;
        assert_eq!(shards.fields()[0].kind, FieldKind::Ragged { dtype });
        let found = records(&shards);
        assert_eq!(found[0].as_ref().expect("two numbers")[0].len(), 8);
        assert_eq!(found[1], Ok(vec![Bytes::new()]));
    }
}

#[test]
fn a_ragged_feature_that_a_record_lacks_is_an_empty_list() {
    let shard = [
        example(&[of_wholes("label", &[1]), of_floats("boxes", &[1.0, 2.0])]),
        example(&[of_wholes("label", &[2])]),
    ]
    .concat();
    let dtype = DType::Float32;
    let declared = [
        KindHint::Ragged,
        KindHint::Kind(FieldKind::Ragged { dtype }),
    ];
    for hint in declared {
        let fields = [request("boxes", None, hint.clone())];
        let shards = open(TfRecord::new(&fields), shard.clone()).expect("a shard");
        assert_eq!(records(&shards)[1], Ok(vec![Bytes::new()]));

        let fields = [request("corners", None, hint)];
        let error = open(TfRecord::new(&fields), shard.clone()).expect_err("no feature");
        let expected = "field `corners`: no feature `corners`; the records have `boxes`, `label`";
        assert!(error.chain().contains(expected), "{}", error.chain());
    }
}

#[test]
fn a_feature_without_a_value_in_the_first_records_is_left_out() {
    let one = example(&[feature("boxes", 4, b""), of_wholes("label", &[7])]);

    let shards = open(TfRecord::new(&[]), one).expect("a shard");

    assert_eq!(shards.fields().len(), 1);
    let left_out = shards.left_out()[0].to_string();
    assert!(left_out.contains("without a value in the first records is left out: boxes"));
}

#[test]
fn bytes_that_are_no_image_file_are_rejected_as_an_image() {
    let image = KindHint::Kind(FieldKind::Image(Pixels::Encoded));
    let fields = [
        request("image", None, image),
        request("label", None, KindHint::Nothing),
    ];
    let raw = example(&[of_bytes("image", &[&[7; 192]]), of_wholes("label", &[1])]);

    let error = open(TfRecord::new(&fields), raw)
        .expect_err("rejected")
        .chain();

    let expected = "field `image`: `image` is no image file in the first records; declare pixels as \
                    Field(kind=\"tensor\", dtype=\"uint8\", shape=(height, width, channels))";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn specified_fields_need_no_record_and_are_converted_without_loss() {
    let fields = [
        request("label", None, KindHint::Kind(tensor(DType::UInt8, &[]))),
        request("scale", None, KindHint::Kind(tensor(DType::Float64, &[2]))),
        request(
            "raw",
            Some("image/encoded"),
            KindHint::Kind(tensor(DType::UInt16, &[2])),
        ),
        request("boxes", None, KindHint::Ragged),
    ];
    let shards = open(TfRecord::new(&fields), shard()).expect("a shard");

    let found = records(&shards);

    let scale = [0.5_f64.to_le_bytes(), 2_f64.to_le_bytes()].concat();
    let expected = [&[7][..], &scale, JPEG, &1_f32.to_le_bytes()];
    assert_eq!(
        found[0].as_ref().expect("whole"),
        &expected.map(Bytes::copy_from_slice)
    );
}

#[test]
fn unpacked_numbers_are_the_same_numbers() {
    let floats = [vec![1 << 3 | 5], 1.5_f32.to_le_bytes().to_vec()].concat();
    let minus_one = [[0xFF; 9].as_slice(), &[1]].concat();
    let wholes = [vec![1 << 3, 5, 1 << 3], minus_one].concat();
    let shard = example(&[feature("f", 2, &floats), feature("w", 3, &wholes)]);
    let shards = open(TfRecord::new(&[]), shard).expect("a shard");

    let wholes = [5_i64.to_le_bytes(), (-1_i64).to_le_bytes()].concat();
    let expected = [&1.5_f32.to_le_bytes()[..], &wholes].map(Bytes::copy_from_slice);
    assert_eq!(records(&shards), [Ok(expected.to_vec())]);
}

#[test]
fn a_record_that_contradicts_its_field_is_damaged_with_the_reason() {
    let bad = |features: &[Vec<u8>]| {
        let hint = [request(
            "label",
            None,
            KindHint::Kind(tensor(DType::UInt8, &[])),
        )];
        let shards = open(TfRecord::new(&hint), example(features)).expect("a shard");
        records(&shards).remove(0).expect_err("damaged")
    };
    let wide = vec![1; 300];
    for (features, reason) in [
        (
            vec![of_bytes("cat", &[b"x"])],
            "it is missing; the record has `cat`; complete the record",
        ),
        (vec![], "no features"),
        (vec![of_wholes("label", &[])], "0 numbers"),
        (vec![of_wholes("label", &[1, 2])], "over 1 numbers"),
        (
            vec![feature("label", 3, &field(1, &wide))],
            "over 1 numbers",
        ),
        (
            vec![of_floats("label", &[1.5])],
            "1.5 does not fit in uint8",
        ),
        (
            vec![feature("label", 3, &field(1, &[0xAC, 0x02]))],
            "300 does not fit in uint8",
        ),
        (vec![of_bytes("label", &[b"a", b"b"])], "2 values"),
        (vec![of_bytes("label", &[])], "empty"),
        (vec![of_bytes("label", &[b"ab"])], "2 bytes"),
        (
            vec![feature("label", 4, b"")],
            "`image/class/label;label`: it is not set",
        ),
    ] {
        let error = bad(&features);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let shards = open(
        TfRecord::new(&[request("x", None, KindHint::Nothing)]),
        shard(),
    );
    let error = shards.expect_err("no such feature").chain();
    assert!(
        error.contains("`x`") && error.contains("`image/class/label`"),
        "{error}"
    );
    let sequence = frame_record(&field(2, b""));
    let error = open(TfRecord::new(&[]), sequence)
        .expect_err("refused")
        .chain();
    assert!(error.contains("SequenceExample"), "{error}");
}

#[test]
fn compressed_shards_hold_the_same_records() {
    let expected = records(&open(TfRecord::new(&[]), shard()).expect("a shard"));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&shard()).expect("to memory");
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(&shard()).expect("to memory");

    for packed in [
        gzip.finish().expect("to memory"),
        zlib.finish().expect("to memory"),
    ] {
        let shards = open(TfRecord::new(&[]), packed).expect("a shard");
        assert!(shards.groups().expect("a shard is a group").whole);
        assert_eq!(records(&shards), expected);
    }
}

#[test]
fn hostile_files_are_rejected_with_the_reason() {
    let sized = |length: u64| {
        let length = length.to_le_bytes();
        [&length[..], &masked_crc(&length), &[0; 100]].concat()
    };
    let packed = |content: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(content).expect("to memory");
        gzip.finish().expect("to memory")
    };
    for (shard, reason) in [
        (
            sized(u64::MAX),
            "at byte 0: a record of 18446744073709551615 bytes",
        ),
        (sized(u64::MAX - 16), "past the end"),
        (sized(1 << 40), "past the end"),
        (b"PAR1 and so on, and so on".to_vec(), "not a TFRecord"),
        (Vec::new(), "no records"),
        (packed(&vec![0; 50 << 20]), "checksum"),
        (packed(&sized(1 << 62)), "a record is cut"),
        (packed(&[]), "no records"),
    ] {
        let error = open(TfRecord::new(&[]), shard).expect_err(reason).chain();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn cuts_and_flips_never_change_a_record() {
    let fields = [
        request("label", None, KindHint::Kind(tensor(DType::Int64, &[]))),
        request("name", None, KindHint::Kind(FieldKind::Bytes)),
    ];
    let record = |label: u8| {
        example(&[
            of_wholes("label", &[label]),
            of_bytes("name", &[b"some name"]),
        ])
    };
    let whole = [record(7), record(9)].concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&whole).expect("to memory");
    let gzip = gzip.finish().expect("to memory");
    let right = |number: usize, fields: &[Bytes]| {
        fields[0] == [7_i64, 9][number].to_le_bytes()[..] && fields[1] == b"some name"[..]
    };

    check_damaged_shards(&whole, || TfRecord::new(&fields), right, 1);
    check_damaged_shards(&gzip, || TfRecord::new(&fields), right, 1);
}

#[test]
fn an_example_with_any_bit_flipped_is_read_without_panic() {
    use crate::shards::example::features;

    let whole = shard();
    let example = &whole[12..whole.len() / 2 - 4];
    for at in 0..example.len() {
        for bit in 0..8 {
            let mut flipped = example.to_vec();
            flipped[at] ^= 1 << bit;
            let _ = features(&flipped.into(), &mut |_, feature| {
                let _ = feature.count();
                for kind in [
                    tensor(DType::UInt8, &[2]),
                    FieldKind::Text,
                    FieldKind::Bytes,
                ] {
                    let _ = feature.value(&kind);
                }
                Ok(())
            });
        }
    }
}

#[test]
fn an_index_next_to_the_shard_is_used_if_it_matches() {
    let one = example(&[of_wholes("label", &[7])]);
    let shard = Shard([&one[..], &one].concat().into());
    let (middle, end) = (one.len() as u64, 2 * one.len() as u64);
    let format = TfRecord::new(&[]);

    let own = text_index::of_tfrecord(&[0, middle, end]);
    assert_eq!(
        format.text_index(&own, &shard),
        Some(ShardIndex::Plain(vec![0, middle, end]).into())
    );
    for other in [
        text_index::of_tfrecord(&[0, middle]),
        text_index::of_tfrecord(&[0, middle - 1, end]),
        text_index::of_tfrecord(&[0, middle, end + 1]),
        text_index::of_tfrecord(&[0]),
    ] {
        assert_eq!(format.text_index(&other, &shard), None, "{other}");
    }
}

#[test]
fn numbers_that_grow_eightfold_when_parsed_are_admitted() {
    let record = |count: usize| example(&[of_wholes("tokens", &vec![7; count])]);
    let plain: Vec<u8> = [1000, 3, 0, 517].map(record).concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&plain).expect("to memory");
    let packed = gzip.finish().expect("to memory");
    let kind = FieldKind::Ragged {
        dtype: DType::Int64,
    };
    let tokens = [request("tokens", None, KindHint::Kind(kind))];

    for bytes in [plain, packed] {
        let shards = open(TfRecord::new(&tokens), bytes).expect("a shard");

        admits_what_values_take(&shards);
    }
}
