//! Loaders over a bucket: the order and bits of a local folder, and a prompt end.

use std::fs;

use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::CenterCrop;
use infeed_testkit::server::{RequestFault, RequestKind};

use super::{as_bucket, server};
use crate::data::{bits, epoch, open, pairs, photo, photos};

fn pipeline(source: SourceSpec) -> Pipeline {
    Pipeline::new(source)
        .shuffle(7)
        .decode()
        .transform(CenterCrop::new(32))
        .batch(8)
}

#[test]
fn a_folder_in_a_bucket_gives_the_batches_of_the_folder_on_a_disk() {
    let root = photos(60);
    fs::write(root.path().join("cat/notes.txt"), "no image").expect("writes");
    let server = server();
    let bucket = as_bucket(&server, "loaders-one", &[]);
    server
        .put_folder("loaders-one/photos", root.path())
        .expect("reads");
    server.put("loaders-one/photos/cat/.hidden.jpg", "no image");
    server.put("loaders-one/photos-other/cat/0.jpg", "another folder's");
    server.set_page(7);
    server.chaos(3, 15);

    let here = open(&pipeline(SourceSpec::folder(root.path())), 2);
    let there = open(&pipeline(SourceSpec::folder(format!("{bucket}/photos"))), 3);

    for _ in 0..2 {
        assert_eq!(bits(&epoch(&there)), bits(&epoch(&here)));
    }
}

#[test]
fn pairs_in_a_bucket_give_the_batches_of_the_pairs_on_a_disk() {
    let root = pairs(20, 40, 48);
    let server = server();
    let bucket = as_bucket(&server, "loaders-two", &[]);
    server
        .put_folder("loaders-two/s", root.path())
        .expect("reads");
    let (image, mask) = (root.path().join("images"), root.path().join("masks"));

    let coloured = |source| {
        let mut pipeline = pipeline(source);
        if let Some(decode) = &mut pipeline.decode {
            decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
        }
        pipeline
    };

    let here = open(&coloured(SourceSpec::pairs(image, mask)), 2);
    let there = SourceSpec::pairs(format!("{bucket}/s/images/"), format!("{bucket}/s/masks"));
    let there = open(&coloured(there), 2);

    assert_eq!(bits(&epoch(&there)), bits(&epoch(&here)));
}

#[test]
fn shards_in_a_bucket_give_the_batches_of_the_shards_on_a_disk() {
    let root = photos(60);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for shard in 0..4 {
        let path = folder.path().join(format!("train-{shard}.tar"));
        let mut tar = tar::Builder::new(fs::File::create(path).expect("a new file"));
        for n in (0..60).filter(|n| n % 4 == shard) {
            let photo = photo(root.path(), n);
            tar.append_path_with_name(photo, format!("{n:04}.jpg"))
                .expect("packs");
        }
        tar.finish().expect("packs");
    }
    let server = server();
    let bucket = as_bucket(&server, "loaders-five", &[]);
    server
        .put_folder("loaders-five/t", folder.path())
        .expect("reads");
    server.chaos(5, 15);
    let shards = |names: String| pipeline(SourceSpec::webdataset(names));

    let here = format!("{}/train-*.tar", folder.path().display());
    let here = open(&shards(here), 2);
    let there = open(&shards(format!("{bucket}/t/train-{{0..3}}.tar")), 2);

    for _ in 0..2 {
        assert_eq!(bits(&epoch(&there)), bits(&epoch(&here)));
    }
}

#[test]
fn files_of_a_web_server_are_found_through_its_list() {
    let root = photos(12);
    let csv = "path,label\ncat/0000.jpg,5\ndog/0003.jpg,6\ncat/0002.jpg,7\n";
    fs::write(root.path().join("labels.csv"), csv).expect("writes");
    let server = server();
    server.put_folder("w", root.path()).expect("reads");
    let source = |root: String| SourceSpec::Folder {
        labels: format!("{root}/labels.csv"),
        classes: None,
        allow_empty: false,
        path: root.into(),
        follow_links: true,
    };

    let here = open(&pipeline(source(root.path().display().to_string())), 2);
    let there = open(&pipeline(source(format!("{}/w", server.url()))), 2);

    assert_eq!(bits(&epoch(&there)), bits(&epoch(&here)));
}

#[test]
fn closing_does_not_wait_for_hanging_requests() {
    let root = photos(40);
    let server = server();
    // Waiting for a request to end would exceed the time limit of a test.
    let timeouts = [("deadline_s", "3600"), ("idle_s", "3600")];
    let bucket = as_bucket(&server, "loaders-three", &timeouts);
    server
        .put_folder("loaders-three/p", root.path())
        .expect("reads");
    let loader = open(&pipeline(SourceSpec::folder(format!("{bucket}/p"))), 2);
    loader.next_batch().expect("a batch").expect("the first");
    server.fault(RequestKind::Read, RequestFault::Stall, 10_000);
    server.take_log();

    // The records that were read ahead may complete one epoch, not two.
    loader.end_epoch().expect("it begins the next");
    while server.take_log().is_empty() {
        std::thread::yield_now();
    }
    loader.end_epoch().expect("while requests hang");
    drop(loader);
}

#[test]
fn an_object_that_changes_stops_the_run_with_its_name() {
    let root = photos(40);
    let server = server();
    let bucket = as_bucket(&server, "loaders-four", &[]);
    server
        .put_folder("loaders-four/p", root.path())
        .expect("reads");
    let spec = SourceSpec::folder(format!("{bucket}/p"));
    let source = spec.open(&[]).expect("listed");
    server
        .put_folder("loaders-four/p", root.path())
        .expect("the same bytes, other tags");

    let loader = pipeline(spec)
        .open_over(source, &Options::default())
        .expect("opens");
    let error = loader.next_batch().expect_err("another version");

    assert!(
        error.chain().contains("s3://loaders-four/p/"),
        "{}",
        error.chain()
    );
    assert!(error.chain().contains("changed since"), "{}", error.chain());
}
