//! Tests of Ctrl-C before a command has a result.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use infeed_testkit::server::{RequestKind, Server};

use crate::{stderr, stdout};

const LIMIT: Duration = Duration::from_secs(60);

/// Starts `infeed` on a local server as S3, with the default action of Ctrl-C: a shell may start the
/// tests with Ctrl-C ignored, and a program inherits that.
fn start(server: &Server, home: &Path, args: &[&str]) -> Child {
    Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_infeed")])
        .args(args)
        .env("HOME", home)
        .env("AWS_ENDPOINT_URL", server.url())
        .env("AWS_ACCESS_KEY_ID", "any")
        .env("AWS_SECRET_ACCESS_KEY", "any")
        .env_remove("AWS_PROFILE")
        .env_remove("INFEED_CACHE_DIR")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a condition holds. Ends the command and fails after a time limit.
fn wait_until(child: &mut Child, what: &str, mut holds: impl FnMut(&mut Child) -> bool) {
    let begun = Instant::now();
    while !holds(child) {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("{what} took more than {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends Ctrl-C once the server has listed three pages, and returns the output of the command.
fn interrupt_listing(server: &Server, home: &Path, args: &[&str]) -> Output {
    // The command before listed more pages until it ended.
    server.take_log();
    let mut child = start(server, home, args);
    let mut pages = 0;
    wait_until(&mut child, "the third page", |child| {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        let log = server.take_log();
        pages += log
            .iter()
            .filter(|request| request.kind == RequestKind::List)
            .count();
        pages >= 3
    });
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success(), "{args:?} ended before the third page");
    wait_until(&mut child, "the end", |child| {
        child.try_wait().unwrap().is_some()
    });
    child.wait_with_output().unwrap()
}

#[test]
fn every_command_that_lists_ends_with_130_and_a_line_after_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().unwrap();
    for number in 0..2000 {
        server.put(&format!("bucket/photos/{number:04}.jpg"), &b"pixels"[..]);
    }
    // Listing takes 40 s.
    server.set_page(1);
    server.set_latency(Duration::from_millis(20));
    let url = "s3://bucket/photos";
    let pipeline = dir.path().join("p.toml");
    let text = format!("[source]\nkind = \"folder\"\npath = \"{url}\"\n[batch]\nsize = 1\n");
    std::fs::write(&pipeline, text).unwrap();
    let (pipeline, out) = (pipeline.to_str().unwrap(), dir.path().join("out"));
    let out = out.to_str().unwrap();
    for args in [
        &["bench", url][..],
        &["bench", pipeline, "--json"],
        &["inspect", url],
        &["inspect", pipeline, "--json"],
        &["explain", url],
        &["explain", pipeline],
        &["pack", url, out, "--to", "folder"],
        &["pack", pipeline, out, "--to", "webdataset"],
        &["unpack", pipeline, out],
        &["verify", pipeline],
        &["feed", pipeline, "--listen", "127.0.0.1:0"],
    ] {
        let done = interrupt_listing(&server, dir.path(), args);

        let notes = stderr(&done);
        assert_eq!(done.status.code(), Some(130), "{args:?}: {notes}");
        let lines = notes.lines().filter(|line| line.contains("interrupted"));
        assert_eq!(lines.count(), 1, "{args:?}: {notes}");
        assert_eq!(stdout(&done), "", "{args:?}");
    }
}
