//! Cases that exist only in buckets: failed requests, conditional writes, multipart uploads.

use std::time::Duration;

use infeed::Batch;
use infeed::pipeline::MemoryField;
use infeed_core::sample::DType;
use infeed_pack::{MANIFEST, Target};
use infeed_testkit::server::{RequestFault, RequestKind};

use super::*;
use crate::data;

fn bucket(name: &'static str) -> (Site, Pipeline, TempDir) {
    let root = data::photos(20);
    let photos = photos(root.path());
    (Site::bucket(name), photos, root)
}

fn server(site: &Site) -> &Server {
    match site {
        Site::Bucket(server, _) => server,
        Site::Folder(_) => panic!("a folder has no server"),
    }
}

#[test]
fn a_run_killed_before_any_request_ends_with_the_same_bytes() {
    let (site, photos, _root) = bucket("parts-refused");
    let options = options(Target::WebDataset);
    let expected = expected_files(&photos, &options);
    let mut writes = 0;
    loop {
        server(&site).refuse_writes_after(Some(writes));
        let killed = pack_into(&photos, &site.out(), &options);
        server(&site).refuse_writes_after(None);
        if killed.is_ok() {
            break;
        }
        let error = killed.expect_err("rejected").chain();
        assert!(error.contains("lacked the necessary privileges"), "{error}");
        if site.files().contains_key(MANIFEST) {
            // Only the notes and the mark remain to be removed.
            let load = Pipeline::load(site.out()).expect_err("not finished");
            assert!(load.to_string().contains("not finished"), "{load}");
        }

        pack_into(&photos, &site.out(), &options).expect("goes on");

        assert!(site.files() == expected, "after {writes} writes");
        site.clear();
        writes += 1;
    }
    assert!(writes > 15, "{writes}");
    assert!(site.files() == expected);
}

#[test]
fn failed_requests_and_lost_responses_change_no_byte() {
    let (site, photos, _root) = bucket("parts-chaos");
    let options = options(Target::TfRecord);
    let expected = expected_files(&photos, &options);
    for seed in 0..4 {
        server(&site).chaos_of_writes(seed, 30);
        write(&photos, &site.out(), &options, 3).expect("writes");

        pack_into(&photos, &site.out(), &options).expect("packs");

        assert!(site.files() == expected, "seed {seed}");
        server(&site).chaos_of_writes(0, 0);
        site.clear();
    }
}

#[test]
fn a_service_without_conditions_gets_the_same_objects() {
    let (site, photos, _root) = bucket("parts-unconditional");
    server(&site).without_conditions();
    let options = options(Target::Arrow);
    let expected = expected_files(&photos, &options);
    write(&photos, &site.out(), &options, 2).expect("writes");
    for note in [
        "shard-000001.noted",
        "shard-000002.noted",
        "shard-000003.noted",
    ] {
        site.remove(note);
    }

    pack_into(&photos, &site.out(), &options).expect("packs");

    assert!(site.files() == expected);
}

#[test]
fn an_object_with_other_bytes_is_reported_and_not_replaced() {
    for conditions in [true, false] {
        let name = ["parts-other", "parts-other-looked-at"][usize::from(conditions)];
        let (site, photos, _root) = bucket(name);
        if !conditions {
            server(&site).without_conditions();
        }
        let options = options(Target::WebDataset);
        drop(Parts::begin(&photos, &site.out(), &options).expect("begins"));
        let length = expected_files(&photos, &options)["shard-000001.tar"].len();
        let other = vec![7; length];
        site.put("shard-000001.tar", &other);

        let error = pack_into(&photos, &site.out(), &options).expect_err("rejected");

        let message = error.chain();
        assert!(message.contains("shard-000001.tar"), "{message}");
        assert!(message.contains("exists with other bytes"), "{message}");
        assert!(site.files()["shard-000001.tar"] == other);
        site.remove("shard-000001.tar");
        pack_into(&photos, &site.out(), &options).expect("goes on");
    }
}

#[test]
fn a_foreign_folder_of_a_bucket_is_rejected() {
    let (site, photos, _root) = bucket("parts-not-ours");
    let options = options(Target::Parquet);
    site.put("photo.jpg", b"foreign");

    let error = pack_into(&photos, &site.out(), &options).expect_err("rejected");

    assert!(error.to_string().contains("not empty"), "{error}");
    assert_eq!(site.files().len(), 1);
    for (out, to, part) in [
        (
            "s3://parts-not-ours/x",
            Target::Folder,
            "written to folders",
        ),
        (
            "s3://parts-not-ours/x",
            Target::Arrays,
            "written to folders",
        ),
        (
            "https://host/x",
            Target::Arrow,
            "cannot write to a web server",
        ),
        ("ftp://host/x", Target::Arrow, "begin with"),
    ] {
        let error =
            pack_into(&photos, Path::new(out), &PackOptions::new(to)).expect_err("rejected");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_packed_dataset_in_a_bucket_can_be_moved() {
    let (site, photos, _root) = bucket("parts-loaded");
    let options = options(Target::WebDataset);
    let before = Pipeline::load(site.out()).expect_err("nothing there");
    assert!(
        before.to_string().contains("no infeed-pack.json"),
        "{before}"
    );
    write(&photos, &site.out(), &options, 1).expect("writes");
    let begun = Pipeline::load(site.out()).expect_err("not complete");
    assert!(begun.to_string().contains("not finished"), "{begun}");
    let packed = pack_into(&photos, &site.out(), &options).expect("packs");
    let moved = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in site.files() {
        fs::write(moved.path().join(name), bytes).expect("writes");
    }
    let labels = |pipeline: &Pipeline| -> Vec<u8> {
        let pipeline = pipeline.clone().transform(CenterCrop::new([24, 24]));
        let batches = data::epoch(&data::open(&pipeline, 1));
        let label = |batch: &Batch| batch.array("label").expect("numbers").bytes().to_vec();
        batches.iter().flat_map(label).collect()
    };

    let there = Pipeline::load(site.out()).expect("complete");

    let here = Pipeline::load(moved.path()).expect("complete");
    assert_eq!(there.source, packed.source);
    assert_eq!(labels(&there), labels(&here));
    assert_eq!(labels(&there).len(), 20 * 8);
    let file = Pipeline::load(site.out().join("pipeline.toml")).expect("its file");
    assert_eq!(file, there);
}

#[test]
fn a_large_shard_is_uploaded_in_parts_and_appears_complete() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("values.npy");
    // 40 records of 1 MiB: two shards of three parts each.
    let values: Vec<u8> = (0..40_u64 << 20)
        .map(|n| infeed_core::random::mix(n >> 3) as u8)
        .collect();
    fs::write(&path, &values).expect("writes");
    let field = MemoryField {
        name: "values".to_owned(),
        kind: "tensor".to_owned(),
        dtype: Some(DType::UInt8),
        shape: vec![1 << 20],
        handle: None,
        offsets: None,
        files: false,
        path: Some(path),
        offset: 0,
        records: Some(40),
    };
    let fields = vec![field];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(4);
    let mut options = options(Target::Arrow);
    options.shard_bytes = 24 << 20;
    let expected = expected_files(&pipeline, &options);
    let site = Site::bucket("parts-in-parts");
    let faults = [
        vec![],
        vec![(RequestKind::Part, RequestFault::Status(503), 2)],
        vec![
            (RequestKind::Part, RequestFault::Cut(1 << 20), 1),
            (RequestKind::Part, RequestFault::Lost, 1),
        ],
        vec![
            (RequestKind::Begin, RequestFault::Lost, 1),
            (RequestKind::Complete, RequestFault::Status(500), 1),
        ],
        vec![(RequestKind::Complete, RequestFault::Lost, 1)],
        vec![(
            RequestKind::Complete,
            RequestFault::Delay(Duration::from_millis(30)),
            1,
        )],
    ];
    for faults in faults {
        let server = server(&site);
        server.take_log();
        let before = server.uploads();
        for &(kind, fault, times) in &faults {
            server.fault(kind, fault, times);
        }

        pack_into(&pipeline, &site.out(), &options).expect("packs");

        assert!(site.files() == expected, "{faults:?}");
        let log = server.take_log();
        let count = |kind| log.iter().filter(|request| request.kind == kind).count();
        assert!(count(RequestKind::Part) >= 6, "{faults:?}");
        // No process aborts an upload whose first response was lost.
        let lost = faults.iter().any(|(kind, ..)| *kind == RequestKind::Begin);
        assert_eq!(server.uploads() - before, usize::from(lost), "{faults:?}");
        site.clear();
    }

    server(&site).fault(RequestKind::Complete, RequestFault::Status(403), 2);
    let before = server(&site).uploads();
    pack_into(&pipeline, &site.out(), &options).expect_err("rejected");
    let shards = site.files();
    assert!(!shards.keys().any(|name| name.ends_with(".arrow")));
    assert_eq!(server(&site).uploads(), before, "given up");
}
