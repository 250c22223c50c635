//! The command as a user runs it.

mod sample;

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Runs `infeed` with arguments, without a terminal.
fn infeed<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
