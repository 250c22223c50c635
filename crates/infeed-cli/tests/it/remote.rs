//! Tests of commands on data in a bucket.

use std::path::Path;
use std::process::{Command, Output};

use infeed::Pipeline;
use infeed::pipeline::SourceSpec;
use infeed_codec::transform::CenterCrop;
use infeed_testkit::server::{RequestFault, RequestKind, Server};

use crate::{SECONDS, json, names_a_limit, photos, stderr, stdout, streets};

/// Runs `infeed` with a local server as S3 and without the user's own settings.
fn infeed(server: &Server, home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(args)
        .env("HOME", home)
        .env_remove("AWS_PROFILE")
        .env_remove("INFEED_CACHE_DIR")
        .env("AWS_ENDPOINT_URL", server.url())
        .env("AWS_ACCESS_KEY_ID", "any")
        .env("AWS_SECRET_ACCESS_KEY", "any")
        .output()
        .unwrap()
}

#[test]
fn a_bucket_folder_can_be_run_inspected_and_explained_like_a_local_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = photos(dir.path(), 24);
    let server = Server::start().unwrap();
    server
        .put_folder("bucket/photos", Path::new(&root))
        .unwrap();
    server.set_page(5);
    let run = |args: &[&str]| infeed(&server, dir.path(), args);

    let bench = json(&run(&[
        "bench",
        "s3://bucket/photos",
        "--epochs",
        "2",
        "--json",
    ]));
    assert_eq!(bench["samples"], 48);

    let inspect = json(&run(&["inspect", "s3://bucket/photos", "--json"]));
    let local = json(&run(&["inspect", &root, "--json"]));
    assert_eq!(inspect["classes"], local["classes"]);
    assert_eq!(inspect["images"]["bytes"], local["images"]["bytes"]);

    let explain = run(&[
        "explain",
        "s3://bucket/photos",
        "--seconds",
        SECONDS,
        "--no-remedies",
        "--full",
    ]);
    assert!(explain.status.success(), "{}", stderr(&explain));
    let text = stdout(&explain);
    assert!(names_a_limit(&text), "{text}");
    for part in ["  read ", "every epoch"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let explain = json(&run(&[
        "explain",
        "s3://bucket/photos",
        "--seconds",
        SECONDS,
        "--no-remedies",
        "--json",
    ]));
    assert_eq!(explain["subject"]["fits_in_memory"], false);
    let mut limits = explain["resources"].as_array().unwrap().iter();
    assert!(limits.any(|one| one["limit"] == "storage"), "{explain}");
}

#[test]
fn images_and_masks_in_a_bucket_are_paired_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = streets(dir.path(), 6);
    let server = Server::start().unwrap();
    server
        .put_folder("bucket/streets", Path::new(&root))
        .unwrap();

    let output = infeed(
        &server,
        dir.path(),
        &["bench", "s3://bucket/streets/", "--epochs", "1", "--plan"],
    );

    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("pairs"), "{}", stdout(&output));
}

#[test]
fn a_bucket_that_denies_access_or_is_empty_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().unwrap();
    server.put("bucket/notes.txt", "no image");
    let run = |args: &[&str]| infeed(&server, dir.path(), args);

    let output = run(&["bench", "s3://bucket/photos"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("s3://bucket/photos"),
        "{}",
        stderr(&output)
    );

    server.fault(RequestKind::List, RequestFault::Status(403), 1);
    let output = run(&["bench", "s3://bucket/photos"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("403"), "{}", stderr(&output));
}

#[test]
fn a_pipeline_file_can_be_in_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let root = photos(dir.path(), 6);
    let server = Server::start().unwrap();
    server
        .put_folder("bucket/photos", Path::new(&root))
        .unwrap();
    let pipeline = Pipeline::new(SourceSpec::folder("s3://bucket/photos"))
        .decode()
        .transform(CenterCrop::new(32))
        .batch(2);
    let text = pipeline.to_toml().unwrap();
    server.put("bucket/pipeline.toml", text);

    let output = infeed(
        &server,
        dir.path(),
        &[
            "bench",
            "s3://bucket/pipeline.toml",
            "--epochs",
            "1",
            "--json",
        ],
    );

    assert_eq!(json(&output)["samples"], 6);
}
