//! Tests of the local cache for object stores. A separate program, because the cache belongs to the
//! process and other tests count requests.

use std::ops::Range;

use infeed_core::random::mix;
use infeed_source::store::{self, Blob};
use infeed_testkit::hub::HubServer;
use infeed_testkit::server::{RequestKind, Server};

fn noise(length: u64, seed: u64) -> Vec<u8> {
    (0..length)
        .map(|n| mix(n ^ seed.rotate_left(32)) as u8)
        .collect()
}

/// A read that must be correct if it succeeds.
fn read_checked(blob: &dyn Blob, range: Range<u64>, content: &[u8]) -> std::io::Result<()> {
    let bytes = blob.read(range.clone())?;
    let expected = &content[range.start as usize..range.end as usize];
    assert!(bytes == expected, "wrong bytes in {range:?}");
    Ok(())
}

#[test]
fn cached_bytes_are_not_requested_again_until_the_object_changes() {
    let server = Server::start().expect("a free port");
    let options = [
        ("aws_endpoint_url", &*server.url()),
        ("aws_skip_signature", "true"),
        ("aws_region", "us-east-1"),
    ];
    let bucket = "s3://cached-one";
    store::configure(bucket, &options).expect("known options");
    let length = 3_500_000;
    let (old, new) = (noise(length, 1), noise(length, 2));
    server.put("cached-one/shard.tar", old.clone());
    let folder = tempfile::tempdir().expect("a temporary folder");
    store::set_cache(Some(folder.path()), 1 << 30);
    let find = || {
        let found = store::find(&[format!("{bucket}/shard.tar")]);
        found.expect("it is there").remove(0)
    };
    let reads = || {
        let log = server.take_log();
        log.iter()
            .filter(|one| one.kind == RequestKind::Read)
            .count()
    };

    let blob = find();
    read_checked(&*blob, 0..length, &old).expect("from the bucket");
    assert_eq!(reads(), 1);
    read_checked(&*find(), 1_000_000..3_000_000, &old).expect("from here");
    assert_eq!(reads(), 0);

    server.put("cached-one/shard.tar", new.clone());
    let fresh = find();
    read_checked(&*fresh, 1_000_000..3_000_000, &new).expect("from the bucket");
    assert_eq!(reads(), 1);
    // A blob that was opened before still has its old bytes, from the cache.
    read_checked(&*blob, 0..length, &old).expect("from here");
    assert_eq!(reads(), 0);
    assert!(blob.held_bytes(100) >= 2 << 20, "pieces are read whole");

    // A server without range requests sends whole files, even if a part of one is cached.
    server.put("web/image.jpg", old.clone());
    server.without_ranges();
    let blob = store::find(&[format!("{}/web/image.jpg", server.url())]).expect("it is there");
    read_checked(&*blob[0], 0..length, &old).expect("the whole");
    let pieces = std::fs::read_dir(folder.path().join("pieces")).expect("a folder");
    for folder in pieces.flatten() {
        for piece in std::fs::read_dir(folder.path())
            .expect("one")
            .flatten()
            .skip(1)
        {
            std::fs::remove_file(piece.path()).expect("a piece");
        }
    }
    let some = std::fs::read_dir(folder.path().join("pieces")).expect("a folder");
    for folder in some.flatten().step_by(2) {
        std::fs::remove_dir_all(folder.path()).expect("pieces");
    }
    read_checked(&*blob[0], 0..length, &old).expect("the whole, though some of it was here");

    // Commits of a dataset of the Hub share the files that they have in common.
    let hub = HubServer::start().expect("two free ports");
    let url = "hf://datasets/tests/cached";
    let options = [("hf_endpoint", &*hub.url()), ("hf_token", "x")];
    store::configure(url, &options).expect("known options");
    let (a, b) = (("a.tar", old.clone()), ("b.tar", old.clone()));
    let first = hub.publish("tests/cached", "main", &[a.clone(), b]);
    let second = hub.publish("tests/cached", "main", &[a, ("b.tar", new.clone())]);
    let files = |commit: &str, name: &str| {
        let found = store::find(&[format!("{url}@{commit}/{name}")]);
        found.expect("it is there").remove(0)
    };
    let reads = || {
        let log = hub.take_log();
        log.iter().filter(|request| request.is_elsewhere).count()
    };
    for name in ["a.tar", "b.tar"] {
        read_checked(&*files(&first, name), 0..length, &old).expect("from the Hub");
        assert_eq!(reads(), 1);
    }
    read_checked(&*files(&second, "a.tar"), 0..length, &old).expect("from here");
    assert_eq!(reads(), 0);
    read_checked(&*files(&second, "b.tar"), 0..length, &new).expect("from the Hub");
    assert_eq!(reads(), 1);
    store::set_cache(None, 0);
}
