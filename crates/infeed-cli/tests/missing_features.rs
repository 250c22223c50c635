//! Tests of the command without the cargo feature `feed`. `scripts/features all` runs them.
#![cfg(not(feature = "feed"))]

use std::process::Command;

const REASON: &str = "this build was compiled without the cargo feature `feed`; build infeed with \
                      its default features, or install the wheel, which has it";

/// Runs `infeed` with invalid arguments; returns its message.
fn message(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .args(args)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn the_command_feed_names_the_missing_feature() {
    for args in [
        &["feed"][..],
        &["feed", "train.toml", "--listen", "10.0.0.7:7077"],
        &["feed", "--help"],
    ] {
        let message = message(args);
        assert_eq!(
            message.trim_end(),
            format!("infeed: cannot run a feeder: {REASON}")
        );
    }
}

#[test]
fn each_option_of_feeders_names_the_missing_feature() {
    for (option, value) in [
        ("--feeders", "10.0.0.7:7077"),
        ("--token-file", "token"),
        ("--local", "help"),
    ] {
        for command in ["bench", "explain"] {
            let message = message(&[command, "photos", option, value]);
            assert!(message.contains(option), "{message}");
            assert!(message.contains(REASON), "{message}");
        }
    }
}

#[test]
fn the_help_lists_nothing_of_feeders() {
    for command in ["bench", "explain"] {
        let output = Command::new(env!("CARGO_BIN_EXE_infeed"))
            .args([command, "--help"])
            .output()
            .expect("the command starts");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            !help.contains("--feeders") && !help.contains("--token-file"),
            "{help}"
        );
    }
}
