//! Tests of a standard output whose reader has closed the pipe.

use std::process::{Command, Stdio};

use crate::photos;

#[cfg(unix)]
#[test]
fn every_command_ends_quietly_when_its_output_pipe_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 6);
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (ledger, packed, made) = (at("ledger.jsonl"), at("packed"), at("made"));
    let commands: [&[&str]; 7] = [
        &["bench", &photos, "--epochs", "1"],
        &[
            "explain",
            &photos,
            "--seconds",
            "0.2",
            "--no-remedies",
            "--ledger",
            &ledger,
        ],
        &["inspect", &photos],
        &["ledger", &ledger, "--json"],
        &["pack", &photos, &packed, "--to", "webdataset"],
        &["probe", "--list"],
        &["sample", "classification", &made, "--count", "3"],
    ];
    for args in commands {
        // Closes the reader before the command starts, because a quick command would finish first.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);

        let output = Command::new(env!("CARGO_BIN_EXE_infeed"))
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();

        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(141), "{args:?}: {text}");
        assert!(
            !text.contains("panicked") && !text.contains("closed"),
            "{text}"
        );
    }
}
