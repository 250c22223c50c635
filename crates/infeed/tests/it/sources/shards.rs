//! Shards from a description to a batch: declared and detected fields, index files, invalid files.

use std::fs;
use std::path::Path;

use infeed::pipeline::{FieldSpec, SourceSpec};
use infeed::{Options, Pipeline, Values};
use infeed_codec::transform::{Crop, RandomResizedCrop};
use infeed_core::sample::{DType, FieldKind};

use super::write;
use crate::data::{epoch, open, picture};

fn files(names: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    let own = |(name, content): &(&str, &[u8])| ((*name).to_owned(), content.to_vec());
    names.iter().map(own).collect()
}

fn field(name: &str, from: &str, kind: Option<&str>) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        from: Some(from.to_owned()),
        kind: kind.map(str::to_owned),
        dtype: None,
        shape: Vec::new(),
    }
}

#[test]
fn descriptions_of_shards_survive_toml_with_one_or_more_shards() {
    for spec in [
        SourceSpec::webdataset("train-{00..09}.tar"),
        SourceSpec::tfrecord("train-*"),
        SourceSpec::mds("train"),
    ] {
        let pipeline = Pipeline::new(spec).shuffle(1).decode();
        let text = pipeline.to_toml().expect("plain data");
        assert_eq!(Pipeline::from_toml(&text).expect("its own form"), pipeline);
    }
    let text = "[source]\nkind = \"webdataset\"\nshards = \"a.tar\"\n\
                fields = [{ name = \"label\", from = \"cls\", kind = \"tensor\", dtype = \"int32\" }]";
    let pipeline = Pipeline::from_toml(text).expect("one shard");
    let SourceSpec::WebDataset { shards, fields, .. } = &pipeline.source else {
        panic!("another source");
    };
    assert_eq!(
        (&shards[..], fields[0].dtype),
        (&["a.tar".to_owned()][..], Some(DType::Int32))
    );
    let error = Pipeline::from_toml("[source]\nkind = \"webdataset\"\nshards = 3\n");
    assert!(error.is_err());
}

#[test]
fn checking_before_opening_uses_declared_fields_only() {
    let described = SourceSpec::WebDataset {
        shards: vec!["absent.tar".to_owned()],
        fields: vec![field("label", "cls", None)],
        follow_links: true,
    };
    let error = Pipeline::new(described)
        .decode()
        .transform(Crop::new(8, 8))
        .check();
    let error = error.expect_err("no image").to_string();
    assert!(error.contains("no image and no mask"), "{error}");

    let guessed = Pipeline::new(SourceSpec::webdataset("absent.tar")).decode();
    guessed
        .clone()
        .transform(RandomResizedCrop::new(8))
        .check()
        .expect("its fields are not known yet, and nothing was read");
    let error = guessed.transform(RandomResizedCrop::new(0)).check();
    assert!(error.is_err(), "wrong whatever the fields are");
}

#[test]
fn images_labels_and_text_of_a_tar_become_columns_of_a_batch() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("a.tar");
    let image = infeed_sample::png(&picture(1, 20, 30)).expect("encodes");
    let names: &[(&str, &[u8])] = &[
        ("0.png", &image),
        ("0.cls", b"3"),
        ("0.txt", b"three"),
        ("1.cls", b"4"),
        ("1.txt", b"four"),
        ("1.jpeg", &image),
    ];
    fs::write(&path, write::tar(&files(names))).expect("writes");
    let pipeline = Pipeline::new(SourceSpec::webdataset(path.display().to_string()))
        .decode()
        .transform(Crop::new(16, 16))
        .batch(2);

    let batch = &epoch(&open(&pipeline, 2))[0];

    assert_eq!(
        batch.array("image").expect("pixels").shape(),
        [2, 16, 16, 3]
    );
    let labels = [3_i64.to_le_bytes(), 4_i64.to_le_bytes()].concat();
    assert_eq!(batch.array("label").expect("numbers").bytes(), labels);
    assert!(matches!(batch.get("txt"), Some(Values::Text(text)) if text[..] == ["three", "four"]));
}

#[test]
fn an_index_next_to_a_shard_is_used_and_a_wrong_one_is_ignored() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("a.tar");
    let names: &[(&str, &[u8])] = &[("0.txt", b"zero"), ("1.txt", b"one"), ("2.txt", b"two")];
    fs::write(&path, write::tar(&files(names))).expect("writes");
    let records = || {
        let spec = SourceSpec::webdataset(path.display().to_string());
        spec.open(&[]).map(|source| source.len())
    };

    let own = "v1.2 3\ntxt 512 4 0.txt\ntxt 1536 3 1.txt\ntxt 2560 3 2.txt\n";
    let joined = "v1.2 2\ntxt 512 4 0.txt\ntxt 1536 3 1.txt txt 2560 3 2.txt\n";
    for index in ["a.idx", "a.tar.idx"] {
        for (text, what) in [
            (own, "its own"),
            (joined, "another's"),
            ("v1.2 9\n", "none"),
        ] {
            fs::write(root.path().join(index), text).expect("writes");
            assert_eq!(records().expect("a shard"), 3, "{index}, {what}");
        }
        fs::remove_file(root.path().join(index)).expect("it is there");
    }
}

#[test]
fn records_that_an_index_merges_are_damaged_and_name_the_index() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("a.tar");
    let names: Vec<(String, Vec<u8>)> = (0..5)
        .map(|n| (format!("{n}.txt"), b"text".to_vec()))
        .collect();
    fs::write(&path, write::tar(&names)).expect("writes");
    // Its lines account for the whole shard; the names in them are not compared.
    let line = |n: u64, name: &str| format!("txt {} 4 {name}\n", n * 1024 + 512);
    let joined = format!("{} {}", line(2, "2.a").trim_end(), line(3, "2.b"));
    let lines = [line(0, "0.txt"), line(1, "1.txt"), joined, line(4, "4.txt")];
    let text = format!("v1.2 4\n{}", lines.concat());
    fs::write(root.path().join("a.idx"), text).expect("writes");

    let source = SourceSpec::webdataset(path.display().to_string()).open(&[]);

    let source = source.expect("a shard");
    assert_eq!(source.len(), 4, "the index was used");
    let error = infeed_source::read_one(&*source, 2)
        .expect_err("two in one")
        .chain();
    assert!(
        error.contains("`2` and `3`") && error.contains("remove it"),
        "{error}"
    );
    assert!(infeed_source::read_one(&*source, 3).is_ok());
}

#[test]
fn a_shard_truncated_after_opening_stops_the_run() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("a.tar");
    let names: &[(&str, &[u8])] = &[("0.txt", b"zero"), ("1.txt", b"one")];
    let whole = write::tar(&files(names));
    fs::write(&path, &whole).expect("writes");
    let pipeline = Pipeline::new(SourceSpec::webdataset(path.display().to_string()));
    let source = pipeline.source.open(&[]).expect("a shard");
    fs::write(&path, &whole[..1000]).expect("writes");
    let mut options = Options::default();
    options.on_error = infeed::OnError::Skip;
    let loader = pipeline.open_over(source, &options).expect("opens");

    let error = loop {
        match loader.next_batch() {
            Ok(batch) => assert!(batch.is_some(), "the epoch does not end before it"),
            Err(error) => break error,
        }
    };

    assert!(matches!(error, infeed::Error::Read { .. }), "{error}");
    assert!(
        error.chain().contains("a.tar") && error.chain().contains("truncated"),
        "{error}"
    );
}

#[test]
fn a_missing_shard_is_named() {
    for spec in [
        SourceSpec::webdataset("absent-{0..3}.tar"),
        SourceSpec::tfrecord("absent.tfrecord"),
        SourceSpec::mds("absent"),
    ] {
        let error = spec.open(&[]).expect_err("it is not there").chain();
        assert!(error.contains("absent"), "{error}");
    }
}

#[test]
fn seeds_of_the_fuzzed_parsers_open_or_are_rejected() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut opened = 0;
    let fields = Vec::new;
    for kind in [
        "shard_tar",
        "shard_tfrecord",
        "read_arrow",
        "read_parquet",
        "read_npz",
    ] {
        for entry in fs::read_dir(seeds.join(kind)).expect("seeds") {
            let path = entry.expect("readable").path().display().to_string();
            let spec = match kind {
                "shard_tar" => SourceSpec::webdataset(path),
                "shard_tfrecord" => SourceSpec::tfrecord(path),
                "read_arrow" => SourceSpec::Arrow {
                    files: vec![path],
                    fields: fields(),
                    follow_links: true,
                },
                "read_parquet" => SourceSpec::Parquet {
                    files: vec![path],
                    fields: fields(),
                    follow_links: true,
                },
                _ => SourceSpec::Npz {
                    files: vec![path],
                    fields: fields(),
                    follow_links: true,
                },
            };
            let Ok(source) = spec.open(&[]) else {
                continue;
            };
            opened += 1;
            for record in 0..source.len() {
                let _ = infeed_source::read_one(&*source, record);
            }
        }
    }
    assert!(opened >= 9, "{opened} seeds are good");
}

#[test]
fn fields_of_a_tfrecord_follow_the_description() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("a.tfrecord");
    let shard: Vec<u8> = (0..3)
        .flat_map(|label| write::frame_record(&write::example(b"not looked at", label)))
        .collect();
    fs::write(&path, shard).expect("writes");
    let spec = SourceSpec::TfRecord {
        shards: vec![path.display().to_string()],
        fields: vec![
            field("file", "image/encoded", Some("bytes")),
            field("class", "image/class/label", Some("tensor")),
        ],
        follow_links: true,
    };

    let source = spec.open(&[]).expect("a shard");

    let kind = FieldKind::Tensor {
        dtype: DType::Int64,
        shape: Vec::new(),
    };
    assert_eq!(source.fields()[1].kind, kind);
    let record = infeed_source::read_one(&*source, 2).expect("a record");
    assert_eq!(record.fields[0], b"not looked at"[..]);
    assert_eq!(record.fields[1], 2_i64.to_le_bytes()[..]);
}
