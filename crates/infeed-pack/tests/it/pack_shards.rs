//! Shards contain the records of their source. Their bytes do not depend on threads or
//! interruptions.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use infeed::pipeline::{MemoryField, Pipeline, SourceSpec};
use infeed_codec::transform::{CenterCrop, ClassIndex, Crop, RandomHorizontalFlip, Transform};
use infeed_core::error::Error;
use infeed_core::sample::DType;
use infeed_pack::{BAD_LIST, Encoding, MANIFEST, PackOptions, PackedDataset, Target, pack};
use tempfile::TempDir;

use crate::data;

const SHARDS: [Target; 5] = [
    Target::WebDataset,
    Target::TfRecord,
    Target::Arrow,
    Target::Parquet,
    Target::Npz,
];

fn pack_with(
    pipeline: &Pipeline,
    out: &Path,
    to: Target,
    change: impl FnOnce(&mut PackOptions),
) -> Result<PackedDataset, Error> {
    let mut options = PackOptions::new(to);
    if to == Target::Npz {
        options.transforms = vec![CenterCrop::new([36, 40]).into()];
    }
    options.shard_bytes = 6000;
    change(&mut options);
    pack(pipeline, &[], None, out, &options, &|_| true)
}

fn photos(count: u64) -> (TempDir, Pipeline) {
    let root = data::photos(count);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(CenterCrop::new([36, 40]))
        .batch(4);
    (root, pipeline)
}

fn epoch(pipeline: &Pipeline) -> Vec<(Vec<u64>, Vec<u8>)> {
    data::bits(&data::epoch(&data::open(pipeline, 2)))
}

/// Returns the files of a folder with their bytes.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(root).expect("a folder").flatten();
    let paths = paths.map(|entry| entry.path());
    let name = |path: &Path| path.strip_prefix(root).expect("below").to_owned();
    paths
        .map(|path| (name(&path), fs::read(&path).expect("readable")))
        .collect()
}

/// Returns names and contents of the members of all tars of a folder, in order.
fn members(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for (name, bytes) in files(root) {
        if name.extension().is_none_or(|extension| extension != "tar") {
            continue;
        }
        for entry in tar::Archive::new(&bytes[..]).entries().expect("a tar") {
            let mut entry = entry.expect("a member");
            let name = entry.path().expect("Unicode").display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("whole");
            found.push((name, content));
        }
    }
    found
}

#[test]
fn the_number_of_threads_changes_no_byte_and_shards_have_the_requested_size() {
    let (_root, pipeline) = photos(30);
    for to in SHARDS {
        let out = tempfile::tempdir().expect("a temporary folder");
        let (one, many) = (out.path().join("one"), out.path().join("many"));

        let first = pack_with(&pipeline, &one, to, |o| o.workers = Some(1)).expect("packs");
        pack_with(&pipeline, &many, to, |o| o.workers = Some(7)).expect("packs");

        let (one, many) = (files(&one), files(&many));
        assert!(one == many, "{}", to.name());
        assert_eq!((first.records, first.bad), (30, 0));
        let shards = one
            .keys()
            .filter(|name| name.to_string_lossy().starts_with("shard-"));
        let shards: Vec<_> = shards.filter(|name| !name.ends_with("idx")).collect();
        assert!(shards.len() > 4, "{} has {shards:?}", to.name());
    }
}

#[test]
fn members_of_a_tar_are_the_files_with_a_label_and_an_index_that_finds_them() {
    let (root, pipeline) = photos(10);
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), Target::WebDataset, |_| {}).expect("packs");

    let members = members(out.path());
    assert_eq!(members.len(), 20);
    // In class order: the cats 0, 2, 4, 6, 8 come first.
    let second = fs::read(data::photo(root.path(), 2)).expect("a photo");
    assert_eq!(members[2], ("000000001.jpg".to_owned(), second));
    assert_eq!(members[3], ("000000001.cls".to_owned(), b"0".to_vec()));
    assert_eq!(members[19].1, b"1");
    let shard = fs::read(out.path().join("shard-000000.tar")).expect("a shard");
    let index = fs::read_to_string(out.path().join("shard-000000.idx")).expect("an index");
    let mut lines = index.lines();
    let (version, count) = lines
        .next()
        .expect("a line")
        .split_once(' ')
        .expect("two words");
    assert_eq!(
        (version, count),
        ("v1.2", &*lines.clone().count().to_string())
    );
    let words: Vec<&str> = lines.next().expect("a line").split(' ').collect();
    assert_eq!(
        (words[0], words[3], words[4]),
        ("jpg", "000000000.jpg", "cls")
    );
    let (begin, size): (usize, usize) = (
        words[1].parse().expect("an offset"),
        words[2].parse().expect("a size"),
    );
    assert_eq!(shard[begin..begin + size], members[0].1);
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
}

#[test]
fn a_packed_folder_is_a_pipeline_and_can_be_moved() {
    let (_root, pipeline) = photos(10);
    let pipeline = pipeline
        .shuffle(3)
        .transform(RandomHorizontalFlip::new(0.5));
    for to in Target::ALL {
        let out = tempfile::tempdir().expect("a temporary folder");
        let (first, second) = (out.path().join("first"), out.path().join("second"));
        let done = pack_with(&pipeline, &first, to, |o| {
            o.transforms = vec![CenterCrop::new([36, 40]).into()];
            o.image = match to {
                Target::Arrays | Target::Npz => Encoding::Keep,
                _ => "png".parse().expect("an encoding"),
            };
        });
        let expected = epoch(&done.expect("packs").pipeline);
        fs::rename(&first, &second).expect("moves");

        let loaded = Pipeline::load(&second).expect("complete");

        assert_eq!(loaded.shuffle, pipeline.shuffle);
        assert_eq!(epoch(&loaded), expected, "{}", to.name());
        fs::remove_file(second.join(MANIFEST)).expect("there was one");
        let error = Pipeline::load(&second).expect_err("incomplete").to_string();
        assert!(error.contains("not a complete packed dataset"), "{error}");
    }
}

#[test]
fn every_format_gives_the_batches_of_its_source() {
    let (_root, photos) = photos(11);
    let root = data::pairs(5, 24, 32);
    let csv = root.path().join("class_dict.csv");
    let source = SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let pairs = Pipeline::new(source)
        .decode()
        .transform(Crop::new(24, 32))
        .transform(ClassIndex::new(csv.to_string_lossy()))
        .batch(2);
    for to in Target::ALL {
        for (name, pipeline) in [("photos", &photos), ("pairs", &pairs)] {
            let out = tempfile::tempdir().expect("a temporary folder");
            let cut: Transform = match name {
                "photos" => CenterCrop::new([36, 40]).into(),
                _ => Crop::new(24, 32).into(),
            };
            let done = pack_with(pipeline, out.path(), to, |o| {
                o.transforms = match to {
                    Target::Arrays | Target::Npz => vec![cut],
                    _ => Vec::new(),
                };
            });

            let done = done.expect("packs");

            let name = format!("{} of {name}", to.name());
            assert_eq!(epoch(&done.pipeline), epoch(pipeline), "{name}");
            let loaded = Pipeline::load(out.path()).expect("complete");
            assert_eq!(epoch(&loaded), epoch(pipeline), "{name}, loaded");
        }
    }
}

#[test]
fn raw_pixels_in_arrow_give_the_batches_of_the_files() {
    let (_root, pipeline) = photos(11);
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), Target::Arrow, |o| {
        o.transforms = pipeline.transforms.clone();
        o.image = Encoding::Raw;
    });

    assert_eq!(epoch(&done.expect("packs").pipeline), epoch(&pipeline));
}

#[test]
fn masks_and_16_bit_images_survive_a_tar_unchanged() {
    let root = data::pairs(5, 24, 32);
    let csv = root.path().join("class_dict.csv");
    let source = SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let pipeline = Pipeline::new(source)
        .decode()
        .transform(Crop::new(24, 32))
        .transform(ClassIndex::new(csv.to_string_lossy()))
        .batch(2);
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), Target::WebDataset, |_| {}).expect("packs");

    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
    let mask = fs::read(root.path().join("masks/003.png")).expect("a mask");
    let name = "000000003.mask.png".to_owned();
    assert!(members(out.path()).contains(&(name, mask)));
}

#[test]
fn a_shuffle_is_the_first_epoch_of_a_shuffled_pipeline() {
    let (_root, pipeline) = photos(20);
    let out = tempfile::tempdir().expect("a temporary folder");

    pack_with(&pipeline, out.path(), Target::WebDataset, |o| {
        o.shuffle = Some(11)
    })
    .expect("packs");

    let shuffled = data::epoch(&data::open(&pipeline.clone().shuffle(11), 2));
    let order: Vec<u64> = shuffled
        .iter()
        .flat_map(|batch| batch.records.clone())
        .collect();
    let names = members(out.path()).into_iter().map(|(name, _)| name);
    let names = names.filter(|name| name.ends_with("jpg"));
    let expected: Vec<String> = order.iter().map(|n| format!("{n:09}.jpg")).collect();
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let error = pack_with(&pipeline, &out.path().join("a"), Target::Arrays, |o| {
        o.shuffle = Some(11);
    });
    assert!(
        error
            .expect_err("no shards")
            .to_string()
            .contains("shuffle")
    );
}

#[test]
fn every_format_lists_bad_records_and_packs_the_others() {
    let (root, pipeline) = photos(10);
    // In class order, record 1 is photo 2, and record 8 is photo 7.
    for n in [2, 7] {
        let path = data::photo(root.path(), n);
        let good = fs::read(&path).expect("a photo");
        fs::write(&path, &good[..good.len() / 2]).expect("writes");
    }
    for to in Target::ALL {
        let out = tempfile::tempdir().expect("a temporary folder");
        let cut = |o: &mut PackOptions| {
            if to == Target::Arrays {
                o.transforms = vec![CenterCrop::new([36, 40]).into()];
            }
        };

        let done = pack_with(&pipeline, out.path(), to, cut).expect("packs");

        let name = to.name();
        assert_eq!((done.records, done.bad), (8, 2), "{name}");
        let list = fs::read_to_string(out.path().join(BAD_LIST)).expect("a list");
        let lines: Vec<serde_json::Value> = list
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let numbers: Vec<_> = lines.iter().map(|line| line["record"].clone()).collect();
        assert_eq!(numbers, [1, 8], "{name}");
        assert!(
            lines[0]["name"]
                .as_str()
                .expect("a name")
                .ends_with("0002.jpg")
        );
        assert!(
            lines[1]["reason"]
                .as_str()
                .expect("a reason")
                .contains("0007.jpg")
        );
        let batches = epoch(&done.pipeline);
        let rows: usize = batches.iter().map(|(rows, _)| rows.len()).sum();
        assert_eq!(rows, 8, "{name}");
        let again = pack_with(&pipeline, out.path(), to, cut).expect("packs");
        assert_eq!((again.records, again.bad), (8, 2), "{name}");
        let fresh = out.path().join("fresh");
        let too_many = pack_with(&pipeline, &fresh, to, |o| {
            cut(o);
            o.max_bad = Some(1);
            o.workers = Some(1);
        });
        let error = too_many.expect_err("two are bad").to_string();
        assert!(
            error.contains("2 bad records exceed max_bad=1"),
            "{name}: {error}"
        );
    }
}

#[test]
fn the_image_format_field_is_written_once_and_matches_the_image() {
    let (_root, pipeline) = photos(6);
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_with(&pipeline, &out.path().join("a"), Target::TfRecord, |_| {}).expect("packs");
    let undeclared = Pipeline {
        source: SourceSpec::TfRecord {
            shards: vec![out.path().join("a/*.tfrecord").display().to_string()],
            fields: Vec::new(),
            follow_links: true,
        },
        ..pipeline
    };
    for (name, encoding, format) in [("b", "keep", "jpeg"), ("c", "png", "png")] {
        let path = out.path().join(name);

        let done = pack_with(&undeclared, &path, Target::TfRecord, |o| {
            o.image = encoding.parse().expect("an encoding");
        });

        let source = done.expect("packs").source.open(&[]).expect("opens");
        let fields = source.fields().iter();
        let at = fields
            .map(|field| &*field.name)
            .position(|name| name == "image/format");
        let at = at.expect("a field as before");
        let record = infeed_source::read_one(&*source, 3).expect("a record");
        assert_eq!(record.fields[at], format.as_bytes(), "{name}");
        let shards = files(&path).into_iter();
        let shards = shards.filter(|(name, _)| name.extension().is_some_and(|e| e == "tfrecord"));
        let bytes = shards.map(|(_, bytes)| bytes).collect::<Vec<_>>().concat();
        let word = b"image/format";
        let count = bytes
            .windows(word.len())
            .filter(|part| part == word)
            .count();
        assert_eq!(count, 6, "{name}");
    }
}

#[test]
fn field_names_that_differ_only_in_case_are_rejected_for_a_tar() {
    let field =
        |name: &str, handle| MemoryField::array(name, "tensor", DType::UInt8, vec![2], handle);
    let fields = vec![field("X", 0), field("x", 1)];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(3);
    let handles = [
        Bytes::from(vec![1; 6]).into(),
        Bytes::from(vec![2; 6]).into(),
    ];
    let out = tempfile::tempdir().expect("a temporary folder");
    let options = PackOptions::new(Target::WebDataset);

    let refused = pack(&pipeline, &handles, None, out.path(), &options, &|_| true);

    let problem = refused.expect_err("one member twice").to_string();
    assert!(problem.contains("`.x.npy`"), "{problem}");
}

#[test]
fn missing_and_truncated_shards_are_written_again_and_complete_ones_are_kept() {
    let (_root, pipeline) = photos(30);
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_with(&pipeline, out.path(), Target::TfRecord, |_| {}).expect("packs");
    let before = files(out.path());
    let path = out.path().join("shard-000002.tfrecord");
    let length = fs::metadata(&path).expect("a shard").len();
    let file = fs::File::options()
        .write(true)
        .open(&path)
        .expect("a shard");
    file.set_len(length - 1).expect("cuts");

    let repaired = pack_with(&pipeline, out.path(), Target::TfRecord, |_| {}).expect("packs");
    let all = pack_with(&pipeline, out.path(), Target::TfRecord, |_| {}).expect("packs");

    assert!((1..30).contains(&repaired.reused), "{}", repaired.reused);
    assert_eq!(all.reused, 30);
    assert!(files(out.path()) == before);
}

#[test]
fn verify_finds_damage_that_only_decoding_shows() {
    let (root, pipeline) = photos(6);
    let path = data::photo(root.path(), 4);
    let mut bytes = fs::read(&path).expect("a photo");
    // Removes bytes of the scan. The header and the end stay.
    let middle = bytes.len() - 600;
    bytes.drain(middle..middle + 400);
    fs::write(&path, bytes).expect("writes");
    let out = tempfile::tempdir().expect("a temporary folder");

    let copied = pack_with(&pipeline, &out.path().join("a"), Target::WebDataset, |_| {});
    let verified = pack_with(&pipeline, &out.path().join("b"), Target::WebDataset, |o| {
        o.verify = true;
    });

    assert_eq!(copied.expect("packs").bad, 0);
    assert_eq!(verified.expect("packs").bad, 1);
}

#[test]
fn a_lossy_encoding_reports_the_error_of_the_images() {
    let (_root, pipeline) = photos(12);
    let out = tempfile::tempdir().expect("a temporary folder");
    let encoded = |name: &str, encoding: &str| {
        let encoding = encoding.parse().expect("an encoding");
        let to = Target::WebDataset;
        pack_with(&pipeline, &out.path().join(name), to, |o| {
            o.image = encoding
        })
        .expect("packs")
    };

    let good = encoded("good", "jpeg:95").fidelity.expect("lossy");
    let poor = encoded("poor", "jpeg:30").fidelity.expect("lossy");

    assert_eq!(good.images, 12);
    assert!(
        good.psnr_db > poor.psnr_db && good.ssim > poor.ssim,
        "{good:?} {poor:?}"
    );
    assert!(
        poor.least_psnr_db <= poor.psnr_db && poor.psnr_db < 40.0,
        "{poor:?}"
    );
    assert_eq!(encoded("exact", "png").fidelity, None);
    assert_eq!(encoded("copied", "keep").fidelity, None);
}

#[test]
fn numbers_text_and_bytes_in_memory_are_packed_into_shards() {
    let text: Vec<&[u8]> = vec![b"one", b"", "drei \u{fc}".as_bytes()];
    let offsets = |parts: &[&[u8]]| -> Bytes {
        let mut at = 0_u64;
        let ends = parts.iter().map(|part| {
            at += part.len() as u64;
            at
        });
        let all: Vec<u64> = std::iter::once(0).chain(ends).collect();
        all.iter().flat_map(|n| n.to_le_bytes()).collect()
    };
    let floats: Vec<u8> = (0..6)
        .flat_map(|n| (n as f32 / 3.0).to_le_bytes())
        .collect();
    let labels: Vec<u8> = [-5_i64, 0, 300]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let field = |name: &str, kind: &str, dtype, shape: &[usize], handle, offsets| MemoryField {
        name: name.to_owned(),
        kind: kind.to_owned(),
        dtype,
        shape: shape.to_vec(),
        handle: Some(handle),
        offsets,
        files: false,
        path: None,
        offset: 0,
        records: None,
    };
    let fields = vec![
        field("text", "text", None, &[], 0, Some(1)),
        field("box", "tensor", Some(DType::Float32), &[2], 2, None),
        field("label", "tensor", Some(DType::Int64), &[], 3, None),
    ];
    let handles: Vec<Bytes> = vec![
        text.concat().into(),
        offsets(&text),
        floats.clone().into(),
        labels.into(),
    ];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(3);
    let out = tempfile::tempdir().expect("a temporary folder");
    let write = |to: Target| {
        let out = out.path().join(to.name());
        let options = PackOptions::new(to);
        pack(
            &pipeline,
            &handles
                .clone()
                .into_iter()
                .map(Into::into)
                .collect::<Vec<_>>(),
            None,
            &out,
            &options,
            &|_| true,
        )
    };

    for to in [
        Target::WebDataset,
        Target::TfRecord,
        Target::Arrow,
        Target::Parquet,
    ] {
        assert_eq!(write(to).expect("packs").records, 3, "{}", to.name());
    }
    let refused = write(Target::Npz)
        .expect_err("text is no array")
        .to_string();

    assert!(refused.contains("field `text`"), "{refused}");
    let members = members(&out.path().join("webdataset"));
    assert_eq!(members[0], ("000000000.txt".to_owned(), b"one".to_vec()));
    assert_eq!(members[1].0, "000000000.box.npy");
    assert_eq!(members[1].1[128..], floats[..8]);
    assert_eq!(members[2], ("000000000.cls".to_owned(), b"-5".to_vec()));
    let arrow = fs::File::open(out.path().join("arrow/shard-000000.arrow")).expect("a file");
    let mut reader = arrow_ipc::reader::FileReader::try_new(arrow, None).expect("Arrow");
    let batch = reader.next().expect("a batch").expect("whole");
    let strings: &arrow_array::StringArray = batch.column(0).as_any().downcast_ref().expect("text");
    assert_eq!(strings.value(2), "drei \u{fc}");
    let meta = batch.schema().field(1).metadata().clone();
    assert_eq!(meta["ARROW:extension:name"], "arrow.fixed_shape_tensor");
    assert_eq!(meta["ARROW:extension:metadata"], r#"{"shape":[2]}"#);
}

#[test]
fn a_run_that_stops_at_once_can_be_resumed() {
    let (_root, pipeline) = photos(10);
    let out = tempfile::tempdir().expect("a temporary folder");
    let options = PackOptions::new(Target::Arrow);
    let calls = AtomicU64::new(0);

    let stopped = pack(&pipeline, &[], None, out.path(), &options, &|at| {
        assert_eq!(at.total, 10);
        calls.fetch_add(1, Ordering::Relaxed) > 0
    });

    let error = stopped.expect_err("stopped");
    assert!(
        matches!(error, Error::Interrupted { done: 0, total: 10 }),
        "{error:?}"
    );
    assert_eq!(
        pack_with(&pipeline, out.path(), Target::Parquet, |_| {})
            .expect("is free")
            .records,
        10
    );
}
