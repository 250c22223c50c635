//! Tests of the command as users run it.

// Clippy allows `unwrap` only in functions marked as tests, and helpers are not marked.
#![allow(clippy::unwrap_used)]

mod bench;
mod demo;
mod explain;
mod feed;
mod golden;
mod inspect;
#[cfg(target_os = "linux")]
mod interrupt;
mod json_schemas;
mod pack;
mod pipe;
mod probe;
mod recording;
mod remote;
mod sample;
mod verify;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Output};

/// Length of the plain run of an explanation, which also shortens its trials.
const SECONDS: &str = "0.05";

/// Runs `infeed` with arguments, without a terminal. Checks a result in JSON with its schema.
fn infeed<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    let args: Vec<OsString> = args
        .into_iter()
        .map(|arg| arg.as_ref().to_owned())
        .collect();
    let output = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(&args)
        .output()
        .unwrap();
    if args.iter().any(|arg| arg == "--json") && !output.stdout.is_empty() {
        json_schemas::check(&args, &output.stdout);
    }
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one JSON object a successful command printed.
fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether an explanation names the limit: one resource, or two that are too close to separate.
fn names_a_limit(text: &str) -> bool {
    text.contains("limits how fast this runs") || text.contains("limit this run together")
}

/// Small photographs of three classes; returns their folder.
fn photos(dir: &Path, count: u32) -> String {
    sample(
        dir,
        &["classification", "photos"],
        count,
        &["--classes", "3", "--size", "64x48"],
    )
}

/// Small street scenes of twelve classes; returns their folder.
fn streets(dir: &Path, count: u32) -> String {
    sample(
        dir,
        &["segmentation", "streets"],
        count,
        &["--size", "96x72"],
    )
}

fn sample(dir: &Path, kind: &[&str; 2], count: u32, more: &[&str]) -> String {
    let out = dir.join(kind[1]).to_str().unwrap().to_owned();
    let count = count.to_string();
    let args = ["sample", kind[0], &out, "--count", &count];
    let output = infeed(args.iter().chain(more));
    assert!(output.status.success(), "{}", stderr(&output));
    out
}
