//! Tests of `infeed feed` in separate processes, some of which are killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{SECONDS, infeed, json, photos, stderr};

/// A feeder's process. Killed on drop.
struct Feeder {
    child: Child,
    address: String,
}

impl Feeder {
    fn start(pipeline: &Path, token: &Path) -> Feeder {
        let mut child = Command::new(env!("CARGO_BIN_EXE_infeed"))
            .arg("feed")
            .arg(pipeline)
            .args(["--listen", "127.0.0.1:0", "--workers", "1", "--token-file"])
            .arg(token)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("feeding at ").unwrap().to_owned();
        Feeder { child, address }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_run_continues_when_one_of_its_feeders_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 24);
    let (pipeline, token) = (dir.path().join("pipeline.toml"), dir.path().join("token"));
    let text = format!(
        "version = 1\n[source]\nkind = \"folder\"\npath = \"{photos}\"\n[shuffle]\nseed = 3\n\
         [decode]\n[[transforms]]\nkind = \"RandomResizedCrop\"\nsize = 16\n[batch]\nsize = 4\n"
    );
    fs::write(&pipeline, text).unwrap();
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let (one, two) = (
        Feeder::start(&pipeline, &token),
        Feeder::start(&pipeline, &token),
    );
    let hosts = format!("{},{}", one.address, two.address);
    let bench = |token: &Path| {
        infeed([
            "bench".as_ref(),
            pipeline.as_os_str(),
            "--feeders".as_ref(),
            hosts.as_ref(),
            "--local".as_ref(),
            "fallback".as_ref(),
            "--token-file".as_ref(),
            token.as_os_str(),
            "--epochs".as_ref(),
            "3".as_ref(),
            "--json".as_ref(),
        ])
    };

    let both = json(&bench(&token));
    drop(one);
    let left = json(&bench(&token));

    let made = |numbers: &serde_json::Value, feeder: usize| {
        numbers["feeders"][feeder]["batches"].as_u64().unwrap()
    };
    for numbers in [&both, &left] {
        assert_eq!(numbers["samples"], 72);
        assert!(made(numbers, 0) + made(numbers, 1) > 0);
    }
    assert_eq!(made(&left, 0), 0);
    assert!(!left["feeders"][0]["problem"].as_str().unwrap().is_empty());
    let wrong = dir.path().join("wrong");
    fs::write(&wrong, "fedcba9876543210\n").unwrap();
    let local = json(&bench(&wrong));
    assert_eq!(local["samples"], 72);
    assert_eq!(made(&local, 0) + made(&local, 1), 0);
    let problem = local["feeders"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("token"), "{problem}");
}

#[test]
fn feeders_that_run_are_explained_applied_and_kept_in_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 24);
    let path = |name: &str| dir.path().join(name);
    let (pipeline, token, ledger) = (path("pipeline.toml"), path("token"), path("ledger.jsonl"));
    let text = format!(
        "version = 1\n[source]\nkind = \"folder\"\npath = \"{photos}\"\n[decode]\n\
         [[transforms]]\nkind = \"RandomResizedCrop\"\nsize = 16\n[batch]\nsize = 4\n"
    );
    fs::write(&pipeline, text).unwrap();
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let feeder = Feeder::start(&pipeline, &token);

    let output = infeed([
        "explain".as_ref(),
        pipeline.as_os_str(),
        "--feeders".as_ref(),
        feeder.address.as_ref(),
        "--token-file".as_ref(),
        token.as_os_str(),
        "--seconds".as_ref(),
        SECONDS.as_ref(),
        "--apply".as_ref(),
        "feeders-1".as_ref(),
        "--ledger".as_ref(),
        ledger.as_os_str(),
        "--json".as_ref(),
    ]);

    assert!(output.status.success(), "{}", stderr(&output));
    let found = json(&output);
    let feeding = &found["feeding"];
    assert_eq!(feeding["origin"], "measured");
    assert_eq!(feeding["hosts"][0]["host"], feeder.address.as_str());
    assert!(feeding["measured"]["predicted"]["mid"].as_f64().unwrap() > 0.0);
    let kept = fs::read_to_string(&ledger).unwrap();
    let kept: serde_json::Value = serde_json::from_str(kept.trim()).unwrap();
    assert_eq!(kept["remedy"], "feeders-1");
    assert!(kept["measured"].as_f64().unwrap() > 0.0);
}
