//! What is read from a bucket and kept here.

use infeed::store;
use infeed::testing::server::Kind;

use super::{as_bucket, checked, noise, server};

/// One test, for the cache is the process's; others of this program may use it meanwhile.
#[test]
fn what_is_kept_is_not_asked_for_again_until_it_changes() {
    let server = server();
    let bucket = as_bucket(&server, "cached-one", &[]);
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
        log.iter().filter(|one| one.kind == Kind::Read).count()
    };

    let blob = find();
    checked(&*blob, 0..length, &old).expect("from the bucket");
    assert_eq!(reads(), 1);
    checked(&*find(), 1_000_000..3_000_000, &old).expect("from here");
    assert_eq!(reads(), 0);

    server.put("cached-one/shard.tar", new.clone());
    let fresh = find();
    checked(&*fresh, 1_000_000..3_000_000, &new).expect("from the bucket");
    assert_eq!(reads(), 1);
    // What was opened before is still what it was, and here.
    checked(&*blob, 0..length, &old).expect("from here");
    assert_eq!(reads(), 0);
    assert!(blob.held_bytes(100) >= 2 << 20, "pieces are read whole");
    store::set_cache(None, 0);
}
