//! Feeders with other data under the same names.

use std::fs;
use std::path::Path;

use infeed::Error;
use infeed_source::store;
use infeed_testkit::server::Server;
use tempfile::TempDir;

use super::*;
use crate::data::{photo, photos};

/// Returns the error of opening a pipeline, if there is one.
fn open_error(pipeline: &Pipeline, feeder: &Feeder) -> Option<String> {
    match pipeline.open(&options_for([host(feeder)], Local::Help)) {
        Err(error @ Error::Config { .. }) => Some(error.to_string()),
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    }
}

/// Returns another folder with the same files.
fn copy_photos(root: &Path, count: u64) -> TempDir {
    let copy = photos(0);
    for n in 0..count {
        fs::copy(photo(root, n), photo(copy.path(), n)).expect("copies");
    }
    copy
}

#[test]
fn a_copy_with_other_pixels_under_the_same_names_is_rejected() {
    let root = photos(60);
    let feeder = feeder(&pipeline(root.path()));
    let copy = copy_photos(root.path(), 60);
    assert_eq!(
        open_error(&pipeline(copy.path()), &feeder),
        None,
        "it is one"
    );
    // Each file gets the content of the next file in its class.
    for n in 0..58 {
        fs::copy(photo(root.path(), n + 2), photo(copy.path(), n)).expect("copies");
    }

    let text = open_error(&pipeline(copy.path()), &feeder).expect("other pixels");

    assert!(text.contains("`contents` differs: record 0 is "), "{text}");
    assert!(text.contains("byte for byte"), "{text}");
}

#[test]
fn four_replaced_files_are_detected() {
    let root = photos(200);
    let feeder = feeder(&pipeline(root.path()));
    let copy = copy_photos(root.path(), 200);
    for n in [101, 121, 141, 163] {
        fs::copy(photo(root.path(), n - 60), photo(copy.path(), n)).expect("copies");
    }

    let text = open_error(&pipeline(copy.path()), &feeder).expect("other pixels");

    assert!(
        text.contains("`contents` differs: a sample of records "),
        "{text}"
    );
}

#[test]
fn a_record_that_differs_is_named_by_its_number_in_the_whole() {
    let root = photos(40);
    let copy = copy_photos(root.path(), 40);
    let dogs = |root: &Path| {
        let mut made = pipeline(root);
        made.filter = vec![toml::from_str("label = \"dog\"").expect("a filter")];
        made
    };
    let feeder = feeder(&dogs(root.path()));
    // The first dog comes after twenty cats.
    fs::copy(photo(root.path(), 3), photo(copy.path(), 1)).expect("copies");

    let text = open_error(&dogs(copy.path()), &feeder).expect("another dog");

    assert!(text.contains("`contents` differs: record 20 is "), "{text}");
}

#[test]
fn a_folder_and_its_copy_in_a_bucket_are_the_same() {
    let root = photos(40);
    let server = Server::start().expect("a free port");
    let endpoint = server.url();
    let options = [
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_skip_signature", "true"),
        ("aws_region", "us-east-1"),
    ];
    store::configure("s3://feed-contents", &options).expect("known options");
    let put = server.put_folder("feed-contents/photos", root.path());
    put.expect("reads");
    let there = pipeline(Path::new("s3://feed-contents/photos"));
    let feeder = feeder(&there);
    let here = pipeline(root.path());

    assert_eq!(open_error(&here, &feeder), None);

    server.put("feed-contents/photos/cat/0000.jpg", "no image");
    let changed = super::feeder(&there);
    let text = open_error(&here, &changed).expect("one is no image");
    assert!(text.contains("`contents` differs: record 0 is"), "{text}");
}
