//! MDS shards: the fields of columns, and rejected files.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::records;
use crate::Source as _;
use crate::formats::mds;
use crate::shards::values::{FieldRequest, KindHint};
use infeed_core::sample::{DType, Depth, FieldKind, Pixels, Size};

/// A column: name, encoding, size.
type Column<'a> = (&'a str, &'a str, Option<u64>);

fn shard(columns: &[Column<'_>], samples: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let record = |values: &Vec<Vec<u8>>| {
        let sized = columns
            .iter()
            .zip(values)
            .filter(|((_, _, size), _)| size.is_none());
        let sizes = sized.flat_map(|(_, value)| (value.len() as u32).to_le_bytes());
        let mut record: Vec<u8> = sizes.collect();
        record.extend(values.concat());
        record
    };
    let records: Vec<Vec<u8>> = samples.iter().map(record).collect();
    let description = b"{}";
    let mut at = (4 * (records.len() + 2) + description.len()) as u32;
    let mut shard = (records.len() as u32).to_le_bytes().to_vec();
    shard.extend(at.to_le_bytes());
    for record in &records {
        at += record.len() as u32;
        shard.extend(at.to_le_bytes());
    }
    shard.extend(description);
    shard.extend(records.concat());
    shard
}

/// A folder of one shard; `zstd` compresses its file.
fn folder(columns: &[Column<'_>], samples: &[Vec<Vec<u8>>], zstd: bool) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let raw = shard(columns, samples);
    let mut about = json!({
        "version": 2,
        "format": "mds",
        "samples": samples.len(),
        "column_names": columns.iter().map(|column| column.0).collect::<Vec<_>>(),
        "column_encodings": columns.iter().map(|column| column.1).collect::<Vec<_>>(),
        "column_sizes": columns.iter().map(|column| column.2).collect::<Vec<_>>(),
        "compression": null,
        "hashes": [],
        "raw_data": {"basename": "shard.00000.mds", "bytes": raw.len(), "hashes": {}},
        "zip_data": null,
        "size_limit": 67_108_864,
    });
    if zstd {
        let packed = zstd::encode_all(&raw[..], 3).expect("to memory");
        about["compression"] = json!("zstd:3");
        about["zip_data"] =
            json!({"basename": "shard.00000.mds.zstd", "bytes": packed.len(), "hashes": {}});
        fs::write(root.path().join("shard.00000.mds.zstd"), packed).expect("writes");
    } else {
        fs::write(root.path().join("shard.00000.mds"), raw).expect("writes");
    }
    index(root.path(), &json!({"version": 2, "shards": [about]}));
    root
}

fn index(root: &Path, text: &Value) {
    fs::write(root.join("index.json"), text.to_string()).expect("writes");
}

fn open(
    root: &TempDir,
    wanted: &[FieldRequest],
) -> Result<super::Shards, infeed_core::error::Error> {
    mds::open(&root.path().display().to_string(), wanted, true)
}

fn request(name: &str, hint: KindHint) -> FieldRequest {
    FieldRequest {
        name: name.to_owned(),
        from: None,
        hint,
    }
}

fn tensor(dtype: DType, shape: &[usize]) -> FieldKind {
    let shape = shape.to_vec();
    FieldKind::Tensor { dtype, shape }
}

#[test]
fn columns_become_fields_in_each_of_their_encodings() {
    let pil = |pixels: &[u8]| {
        let head = [2_u32, 1, 3].map(u32::to_le_bytes).concat();
        [&head[..], b"RGB", pixels].concat()
    };
    let listed = [1_u32, 3].map(u32::to_le_bytes).concat();
    let columns: Vec<(Column<'_>, Vec<u8>, Vec<u8>, FieldKind)> = vec![
        (
            ("a", "bytes", None),
            b"ab".to_vec(),
            b"ab".to_vec(),
            FieldKind::Bytes,
        ),
        (("b", "str", None), "ü".into(), "ü".into(), FieldKind::Text),
        (
            ("c", "json", None),
            b"[1]".to_vec(),
            b"[1]".to_vec(),
            FieldKind::Text,
        ),
        (
            ("d", "int", Some(8)),
            vec![1; 8],
            vec![1; 8],
            tensor(DType::Int64, &[]),
        ),
        (
            ("e", "float16", Some(2)),
            vec![1; 2],
            vec![1; 2],
            tensor(DType::Float16, &[]),
        ),
        (
            ("f", "str_int", None),
            b"-2".to_vec(),
            (-2_i64).to_le_bytes().to_vec(),
            tensor(DType::Int64, &[]),
        ),
        (
            ("g", "ndarray:uint16:2,1", Some(4)),
            vec![7; 4],
            vec![7; 4],
            tensor(DType::UInt16, &[2, 1]),
        ),
        (
            ("h", "ndarray:uint16", None),
            [vec![1 << 2, 2], vec![7; 4]].concat(),
            vec![7; 4],
            tensor(DType::UInt16, &[2]),
        ),
        (
            ("i", "ndarray", None),
            [vec![8, 2 << 2 | 1, 2, 0, 1, 0], vec![7; 2]].concat(),
            vec![7; 2],
            tensor(DType::UInt8, &[2, 1]),
        ),
        (
            ("j", "jpeg", None),
            b"J".to_vec(),
            b"J".to_vec(),
            FieldKind::Image(Pixels::Encoded),
        ),
        (
            ("mask", "png", None),
            b"P".to_vec(),
            b"P".to_vec(),
            FieldKind::Mask(Pixels::Encoded),
        ),
        (
            ("k", "jpegarray", None),
            [&listed[..], b"abc"].concat(),
            b"abc".to_vec(),
            FieldKind::Image(Pixels::Encoded),
        ),
        (
            ("l", "pil", None),
            pil(&[7; 6]),
            vec![7; 6],
            FieldKind::Image(Pixels::Raw {
                size: Size {
                    height: 1,
                    width: 2,
                },
                channels: 3,
                depth: Depth::U8,
            }),
        ),
    ];
    let names: Vec<Column<'_>> = columns.iter().map(|column| column.0).collect();
    let values: Vec<Vec<u8>> = columns.iter().map(|column| column.1.clone()).collect();
    for zstd in [false, true] {
        let root = folder(&names, &[values.clone(), values.clone()], zstd);

        let shards = open(&root, &[]).expect("a dataset");

        for (field, (_, _, _, kind)) in shards.fields().iter().zip(&columns) {
            assert_eq!(&field.kind, kind, "{}", field.name);
        }
        let expected: Vec<Bytes> = columns
            .iter()
            .map(|column| column.2.clone().into())
            .collect();
        assert_eq!(records(&shards), [Ok(expected.clone()), Ok(expected)]);
        assert_eq!(shards.groups().expect("groups").whole, zstd);
    }
}

#[test]
fn specified_kinds_are_compared_with_the_columns() {
    let columns = [
        ("x", "int", Some(8)),
        ("y", "ndarray:int32", None),
        ("z", "pkl", None),
    ];
    let samples = vec![
        vec![
            vec![0; 8],
            [vec![1 << 2, 1], vec![1; 4]].concat(),
            b"code".to_vec(),
        ],
        vec![
            vec![0; 8],
            [vec![1 << 2, 2], vec![2; 8]].concat(),
            b"code".to_vec(),
        ],
    ];
    let root = folder(&columns, &samples, false);
    let refused = |wanted: &[FieldRequest]| open(&root, wanted).expect_err("refused").chain();

    let error = refused(&[request("z", KindHint::Nothing)]);
    assert!(
        error.contains("`z`") && error.contains("run code"),
        "{error}"
    );
    let error = refused(&[request("w", KindHint::Nothing)]);
    assert!(
        error.contains("no column `w`; there are `x`, `y`, `z`"),
        "{error}"
    );
    let error = refused(&[request("x", KindHint::Kind(FieldKind::Text))]);
    assert!(
        error.contains("int64 []") && error.contains("text"),
        "{error}"
    );
    let error = refused(&[request("x", KindHint::Ragged)]);
    assert!(
        error.contains("`x`") && error.contains("read it as a tensor"),
        "{error}"
    );
    let ragged = open(&root, &[request("y", KindHint::Ragged)]).expect("lists");
    assert_eq!(
        records(&ragged),
        [Ok(vec![vec![1; 4].into()]), Ok(vec![vec![2; 8].into()])]
    );
    let first = open(&root, &[request("y", KindHint::Nothing)]).expect("arrays");
    let second = records(&first).remove(1).expect_err("of another shape");
    assert!(
        second.contains("int32 [2]") && second.contains("record 1 of"),
        "{second}"
    );
}

#[test]
fn columns_that_cannot_be_a_field_are_left_out_with_the_reason() {
    let columns = [
        ("x", "int", Some(8)),
        ("y", "pkl", None),
        ("z", "new", None),
    ];
    let sample = vec![vec![0; 8], b"code".to_vec(), b"?".to_vec()];
    let root = folder(&columns, &[sample], false);

    let shards = open(&root, &[]).expect("a shard");

    assert_eq!(shards.fields().len(), 1);
    let left_out: Vec<String> = shards.left_out().iter().map(ToString::to_string).collect();
    assert!(
        left_out[0].contains("1 column is left out: y; it is pickled"),
        "{left_out:?}"
    );
    assert!(
        left_out[1].contains("1 column is left out: z; its encoding `new`"),
        "{left_out:?}"
    );
    let requested = open(&root, &[request("x", KindHint::Nothing)]).expect("a shard");
    assert_eq!(requested.left_out(), []);
}

#[test]
fn no_column_that_can_be_a_field_is_an_error_with_the_reasons() {
    let root = folder(&[("y", "pkl", None)], &[vec![b"code".to_vec()]], false);

    let error = open(&root, &[]).expect_err("rejected").chain();

    assert!(error.contains("no column can be a field: "), "{error}");
    assert!(error.contains("left out: y; it is pickled"), "{error}");
}

#[test]
fn shards_that_the_index_does_not_list_are_left_out() {
    let root = folder(&[("x", "int", Some(8))], &[vec![vec![0; 8]]], false);
    for name in ["shard.00001.mds", "shard.00002.mds.zstd", "notes.txt"] {
        fs::write(root.path().join(name), "").expect("writes");
    }

    let left_out = open(&root, &[]).expect("a shard").left_out();

    let expected = "2 shards that index.json does not list are left out: shard.00001.mds, \
                    shard.00002.mds.zstd";
    assert!(left_out[0].to_string().ends_with(expected), "{left_out:?}");
    assert_eq!(left_out.len(), 1);
}

#[test]
fn several_images_in_a_column_are_rejected_with_its_name() {
    let images = [[2_u32, 3, 3].map(u32::to_le_bytes).concat(), vec![7; 6]].concat();
    for packed in [false, true] {
        let root = folder(
            &[("frames", "jpegarray", None)],
            &[vec![images.clone()]],
            packed,
        );

        let error = open(&root, &[]).expect_err("rejected").chain();

        let expected = "column `frames` has 2 images in record 0, but a field has one; declare";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_folder_by_its_file_url_is_that_folder() {
    let columns = [("x", "int", Some(8))];
    let root = folder(&columns, &[vec![vec![7; 8]]], false);
    // The index also names a compressed file, which does not exist.
    let path = root.path().join("index.json");
    let text = fs::read_to_string(&path).expect("an index");
    let mut stated: Value = serde_json::from_str(&text).expect("JSON");
    let shard = &mut stated["shards"][0];
    shard["compression"] = json!("zstd:3");
    shard["zip_data"] = json!({"basename": "shard.00000.mds.zstd", "bytes": 9, "hashes": {}});
    index(root.path(), &stated);

    let url = format!("file://{}", root.path().display());
    let source = mds::open(&url, &[], true).expect("the raw shard is there");

    assert_eq!(records(&source), [Ok(vec![vec![7; 8].into()])]);
}

#[test]
fn arrays_of_two_axes_are_not_lists() {
    let array = [vec![2 << 2, 1, 2], vec![1; 8]].concat();
    for encoding in ["ndarray:int32", "ndarray:int32:1,2"] {
        let value = match encoding.contains(',') {
            true => vec![1; 8],
            false => array.clone(),
        };
        let root = folder(&[("y", encoding, None)], &[vec![value]], false);

        let error = open(&root, &[request("y", KindHint::Ragged)]).expect_err("two axes");

        let error = error.chain();
        assert!(
            error.contains("[1, 2]") && error.contains("tensor"),
            "{error}"
        );
    }
}

#[test]
fn a_wrong_index_is_rejected_with_the_reason() {
    let root = folder(&[("x", "bytes", None)], &[vec![b"ab".to_vec()]], false);
    let text = fs::read_to_string(root.path().join("index.json")).expect("it is there");
    let good: Value = serde_json::from_str(&text).expect("JSON");
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 9] = [
        (|v| v["version"] = json!(1), "version 1"),
        (|v| v["shards"] = json!([]), "no shards"),
        (
            |v| v["shards"][0]["format"] = json!("json"),
            "json version 2",
        ),
        (
            |v| v["shards"][0]["samples"] = json!(u64::MAX),
            "do not fit",
        ),
        (
            |v| v["shards"][0]["samples"] = json!(2),
            "1 records, not the 2",
        ),
        (
            |v| v["shards"][0]["raw_data"]["bytes"] = json!(5),
            "not the 5 of its index.json",
        ),
        (
            |v| v["shards"][0]["raw_data"]["basename"] = json!("../x"),
            "outside",
        ),
        (
            |v| v["shards"][0]["column_names"] = json!([]),
            "different numbers",
        ),
        (
            |v| v["shards"][0]["compression"] = json!("br:11"),
            "compressed with br",
        ),
    ];
    for (change, reason) in changes {
        let mut lying = good.clone();
        change(&mut lying);
        index(root.path(), &lying);
        let error = open(&root, &[]).expect_err(reason).chain();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    fs::write(root.path().join("index.json"), "{").expect("writes");
    assert!(open(&root, &[]).is_err());
}

#[test]
fn a_flip_in_a_packed_shard_is_damage_where_index_json_has_a_hash() {
    let samples = vec![vec![b"pixels of an image".to_vec()]; 3];
    let root = folder(&[("x", "bytes", None)], &samples, true);
    let path = root.path().join("shard.00000.mds.zstd");
    let whole = fs::read(&path).expect("it is there");
    let text = fs::read_to_string(root.path().join("index.json")).expect("it is there");
    let mut stated: Value = serde_json::from_str(&text).expect("JSON");
    let sha256 = ring::digest::digest(&ring::digest::SHA256, &whole);
    let hexadecimal: String = sha256.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let xxh64 = format!("{:016x}", twox_hash::XxHash64::oneshot(0, &whole));

    for (algorithm, digest) in [("sha256", hexadecimal), ("xxh64", xxh64)] {
        stated["shards"][0]["zip_data"]["hashes"] = json!({"md5": "?", algorithm: digest});
        index(root.path(), &stated);
        fs::write(&path, &whole).expect("writes");
        let shards = open(&root, &[]).expect("a dataset");
        assert!(records(&shards).iter().all(Result::is_ok));
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, flipped).expect("writes");
            for record in records(&shards) {
                let error = record.expect_err("it was flipped");
                assert!(error.contains(algorithm), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn a_flip_in_a_zstd_shard_with_a_content_checksum_is_damage() {
    let samples = vec![vec![b"pixels of an image".to_vec()]; 3];
    let root = folder(&[("x", "bytes", None)], &samples, true);
    let path = root.path().join("shard.00000.mds.zstd");
    let stored = fs::read(&path).expect("it is there");
    let raw = zstd::decode_all(&stored[..]).expect("zstd");
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("to memory");
    encoder.include_checksum(true).expect("a parameter");
    std::io::Write::write_all(&mut encoder, &raw).expect("to memory");
    let whole = encoder.finish().expect("to memory");
    let text = fs::read_to_string(root.path().join("index.json")).expect("it is there");
    let mut stated: Value = serde_json::from_str(&text).expect("JSON");
    stated["shards"][0]["zip_data"]["bytes"] = json!(whole.len());
    index(root.path(), &stated);
    fs::write(&path, &whole).expect("writes");
    let shards = open(&root, &[]).expect("a dataset");
    let expected = records(&shards);
    assert!(expected.iter().all(Result::is_ok));

    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&path, flipped).expect("writes");
            let found = records(&shards);
            // A bit of the frame's header may be without meaning.
            let harmless = found == expected;
            assert!(harmless || found.iter().all(Result::is_err), "byte {at}");
        }
    }
}

#[test]
fn a_shard_that_unpacks_to_more_than_it_says_is_damaged_not_unpacked() {
    let samples = vec![vec![vec![0_u8; 1 << 20]]];
    let root = folder(&[("x", "bytes", None)], &samples, true);
    let file = root.path().join("index.json");
    let text = fs::read_to_string(&file).expect("it is there");
    let mut lying: Value = serde_json::from_str(&text).expect("JSON");

    lying["shards"][0]["raw_data"]["bytes"] = json!(1000);
    index(root.path(), &lying);
    let error = records(&open(&root, &[]).expect("a dataset"))
        .remove(0)
        .expect_err("a bomb");
    assert!(error.contains("does not unpack to 1000 bytes"), "{error}");

    lying["shards"][0]["raw_data"]["bytes"] = json!(u64::MAX);
    index(root.path(), &lying);
    let error = open(&root, &[]).expect_err("absurd").chain();
    assert!(error.contains("over the limit"), "{error}");
}

#[test]
fn cuts_are_errors_when_opening_and_flips_never_panic() {
    let columns = [("x", "ndarray", None), ("y", "int", Some(8))];
    let sample = vec![vec![8, 1 << 2, 3, 1, 2, 3], vec![1; 8]];
    for (zstd, name) in [(false, "shard.00000.mds"), (true, "shard.00000.mds.zstd")] {
        let root = folder(&columns, &[sample.clone(), sample.clone()], zstd);
        let path = root.path().join(name);
        let whole = fs::read(&path).expect("it is there");
        let hint = [
            request("x", KindHint::Kind(tensor(DType::UInt8, &[3]))),
            request("y", KindHint::Kind(tensor(DType::Int64, &[]))),
        ];
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("writes");
            let error = open(&root, &hint).expect_err("it is cut").to_string();
            assert!(error.contains(name), "{error}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                fs::write(&path, flipped).expect("writes");
                match open(&root, &hint) {
                    Err(error) => assert!(error.to_string().contains(name), "{error}"),
                    Ok(shards) => {
                        for record in records(&shards) {
                            let fits = record.as_ref().map(|fields| fields[0].len() == 3);
                            match fits {
                                Ok(fits) => assert!(fits),
                                Err(error) => assert!(error.contains(name), "{error}"),
                            }
                        }
                    }
                }
            }
        }
    }
}
