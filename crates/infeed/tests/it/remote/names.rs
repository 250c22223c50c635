//! URL patterns: lists, braces, single objects.

use infeed_source::store::{self, FolderEntry};
use infeed_testkit::server::{RequestFault, RequestKind};

use super::{as_bucket, server};

fn names(patterns: &[&str]) -> Vec<String> {
    let blobs = store::find(patterns).expect("they are there");
    blobs.iter().map(|blob| blob.name().to_owned()).collect()
}

#[test]
fn braces_are_requested_by_name_and_stars_are_listed_page_by_page() {
    let server = server();
    let bucket = as_bucket(&server, "names-one", &[]);
    for n in 0..25 {
        server.put(
            &format!("names-one/train-{n:04}.tar"),
            vec![n; usize::from(n) + 1],
        );
    }
    server.put("names-one/train-0003.idx", "index");
    server.put("names-one/below/train-0001.tar", "deeper");
    server.set_page(4);

    let listed = store::find(&[format!("{bucket}/train-*.tar")]).expect("they are there");
    assert_eq!(listed.len(), 25);
    assert_eq!(listed[7].name(), format!("{bucket}/train-0007.tar"));
    assert_eq!(listed[7].len(), 8);
    assert_eq!(listed[7].read(0..8).expect("reads"), vec![7; 8]);

    let braces = names(&[&format!("{bucket}/train-{{0009..0011}}.tar")]);
    let expected = [9, 10, 11].map(|n| format!("{bucket}/train-{n:04}.tar"));
    assert_eq!(braces, expected);
    let found = store::find(&[&expected[0]]).expect("it is there");
    assert_eq!(
        found[0].stamp(),
        listed[9].stamp(),
        "a list and a look agree"
    );

    assert_eq!(names(&[&format!("{bucket}/*/train-*.tar")]).len(), 1);
}

#[test]
fn an_object_whose_name_is_a_pattern_is_read_as_it_is() {
    let server = server();
    let bucket = as_bucket(&server, "names-literal", &[]);
    for name in ["t-1.tar", "t-[1].tar", "{v1}/a.tar"] {
        server.put(&format!("names-literal/{name}"), name);
    }

    for (pattern, expected) in [
        ("t-[1].tar", "t-[1].tar"),
        ("t-[12].tar", "t-1.tar"),
        ("{v1}/a.tar", "{v1}/a.tar"),
    ] {
        let found = names(&[&format!("{bucket}/{pattern}")]);
        assert_eq!(found, [format!("{bucket}/{expected}")], "{pattern}");
    }
}

#[test]
fn a_missing_object_is_named() {
    let server = server();
    let bucket = as_bucket(&server, "names-two", &[]);
    server.put("names-two/a.tar", "a");

    let missing = format!("{bucket}/{{a,b}}.tar");
    let error = store::find(&[missing]).expect_err("b").chain();
    assert!(error.contains("s3://names-two/b.tar"), "{error}");
    let error = store::find(&[format!("{bucket}/*.zip")])
        .expect_err("none")
        .chain();
    assert!(error.contains("no object"), "{error}");
    let error = store::find(&[format!("{bucket}/")])
        .expect_err("a folder")
        .chain();
    assert!(error.contains("folder"), "{error}");
    let web = format!("{}/names-two/*.tar", server.url());
    let error = store::find(&[web]).expect_err("no list").chain();
    assert!(error.contains("braces"), "{error}");
    let error = store::find(&["ftp://host/x"]).expect_err("unknown").chain();
    assert!(error.contains("s3://"), "{error}");
}

#[test]
fn list_and_head_requests_are_retried_after_transient_failures() {
    let server = server();
    let bucket = as_bucket(&server, "names-three", &[]);
    (0..9).for_each(|n| server.put(&format!("names-three/{n}.tar"), "x"));
    server.set_page(2);

    for fault in [
        RequestFault::Status(503),
        RequestFault::Cut(100),
        RequestFault::Cut(0),
    ] {
        server.fault(RequestKind::List, fault, 2);
        server.fault(RequestKind::Head, RequestFault::Status(503), 2);
        assert_eq!(names(&[&format!("{bucket}/*.tar")]).len(), 9, "{fault:?}");
        assert_eq!(names(&[&format!("{bucket}/{{0..8}}.tar")]).len(), 9);
    }
    server.fault(RequestKind::List, RequestFault::Status(403), 1);
    let error = store::find(&[format!("{bucket}/*.tar")])
        .expect_err("rejected")
        .chain();
    assert!(error.contains("403"), "{error}");
}

#[test]
fn keys_with_special_characters_are_found_and_read() {
    let server = server();
    let bucket = as_bucket(&server, "names-four", &[]);
    let keys = ["a b.tar", "ä+ö.tar", "50%.tar", "a&b=c.tar", "q'\"<>.tar"];
    for key in keys {
        server.put(&format!("names-four/odd/{key}"), key.to_owned());
    }

    for key in keys {
        let blob = store::find(&[format!("{bucket}/odd/{key}")])
            .expect(key)
            .remove(0);
        assert_eq!(blob.read(0..blob.len()).expect(key), key.as_bytes());
    }
    let listed = store::find(&[format!("{bucket}/odd/*")]).expect("all");
    for blob in &listed {
        let key = blob.name().rsplit('/').next().expect("a name").to_owned();
        assert_eq!(blob.read(0..blob.len()).expect("reads"), key.as_bytes());
    }
    assert_eq!(listed.len(), keys.len());

    let web = format!("{}/names-four/odd/a%20b.tar", server.url());
    let blob = store::find(&[&web]).expect("by URL").remove(0);
    assert_eq!(blob.name(), web);
    assert_eq!(blob.read(0..7).expect("reads"), "a b.tar");
}

#[test]
fn a_bucket_folder_lists_its_direct_children() {
    let server = server();
    let bucket = as_bucket(&server, "names-five", &[]);
    for key in [
        "p/cat/1.jpg",
        "p/dog/2.jpg",
        "p/notes.txt",
        "p/.hidden",
        "p/",
        "q/x",
    ] {
        server.put(&format!("names-five/{key}"), "x");
    }
    let entry = |name: &str, is_folder| FolderEntry {
        name: name.to_owned(),
        is_folder,
    };

    let entries = store::entries(&format!("{bucket}/p")).expect("listed");

    assert_eq!(
        entries,
        [
            entry("cat", true),
            entry("dog", true),
            entry("notes.txt", false)
        ]
    );
}

#[test]
fn a_thread_inside_another_tokio_runtime_can_read() {
    let server = server();
    let bucket = as_bucket(&server, "runtime-one", &[]);
    server.put("runtime-one/a.tar", vec![3; 1000]);
    let runtime = tokio::runtime::Runtime::new().expect("threads");

    let bytes = runtime.block_on(async {
        let found = store::find(&[format!("{bucket}/a.tar")]).expect("it is there");
        found[0].read(10..20).expect("reads")
    });

    assert_eq!(bytes, vec![3; 10]);
}
