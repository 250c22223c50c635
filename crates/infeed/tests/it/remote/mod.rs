//! Data in buckets and on web servers, against a test server that injects faults.

mod faults;
mod hub;
mod loaders;
mod names;

use std::ops::Range;
use std::sync::Arc;

use infeed_core::random::mix;
use infeed_source::store::{self, Blob};
use infeed_testkit::server::Server;

/// Returns bytes that depend on their position.
fn noise(length: u64, seed: u64) -> Vec<u8> {
    (0..length)
        .map(|n| mix(n ^ seed.rotate_left(32)) as u8)
        .collect()
}

fn server() -> Server {
    Server::start().expect("a free port")
}

/// Makes `s3://bucket` one of the server's.
fn as_bucket(server: &Server, bucket: &str, more: &[(&str, &str)]) -> String {
    let url = format!("s3://{bucket}");
    let endpoint = server.url();
    let mut options = vec![
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_skip_signature", "true"),
        ("aws_region", "us-east-1"),
    ];
    options.extend(more);
    store::configure(&url, &options).expect("known options");
    url
}

/// Opens the single object of a URL.
fn open(url: &str) -> Arc<dyn Blob> {
    store::find(&[url]).expect("it is there").remove(0)
}

/// A read that must be correct if it succeeds.
fn read_checked(blob: &dyn Blob, range: Range<u64>, content: &[u8]) -> std::io::Result<()> {
    let bytes = blob.read(range.clone())?;
    let expected = &content[range.start as usize..range.end as usize];
    assert!(bytes == expected, "wrong bytes in {range:?}");
    Ok(())
}
