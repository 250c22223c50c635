//! Reports of feeders. The numbers are invented and consistent.

use infeed_explain::report;
use infeed_explain::{
    Explanation, FeederCount, FeederGain, FeederHost, FeederOrigin, Feeding, Interval, Limit,
    Network, NetworkOrigin, Resource,
};
use serde_json::Value;

use super::synthetic;

fn count(feeders: u32, own: f64, from_feeders: f64, limit: Limit) -> FeederCount {
    let rate = own + from_feeders;
    let spread = |share: f64| Interval {
        low: own + from_feeders * (1.0 - share),
        mid: rate,
        high: own + from_feeders * (1.0 + share),
    };
    FeederCount {
        feeders,
        rate: spread(0.12),
        gain: spread(0.12).map(|rate| rate / 292.0),
        own,
        from_feeders,
        receive_cores: from_feeders * 0.0004,
        limit,
        arithmetic: format!("{own:.0} here + {from_feeders:.0} of feeders = {rate:.0} samples/s"),
    }
}

fn host(name: &str, batches: u64, share: f64) -> FeederHost {
    FeederHost {
        host: name.to_owned(),
        connected: true,
        batches,
        share,
        bytes: batches * 11_200_000,
        wait_s: 0.041,
        bytes_per_s: 640e6,
        busy: 0.42,
        alone: Some(Interval::exact(270.0)),
        redone: 0,
        problem: None,
    }
}

/// Two feeders, one of which is unreachable, and the rates with more.
pub(super) fn feeding() -> Feeding {
    let mut gone = host("10.0.0.8:7077", 0, 0.0);
    (gone.connected, gone.alone) = (false, None);
    gone.problem = Some("the connection failed: Connection refused".to_owned());
    Feeding {
        origin: FeederOrigin::Measured,
        feeder_cores: None,
        make_s: 0.0068,
        send_s: 0.0001,
        receive_s: 0.0004,
        sample_bytes: 1.4e6,
        small_bytes: None,
        network: Network {
            bytes_per_s: 1.175e9,
            origin: NetworkOrigin::Given,
        },
        parts: vec![Resource {
            limit: Limit::Wire,
            rate: Interval::exact(839.0),
            arithmetic: "1.18 GB/s / 1.40 MB per sample = 839 samples/s, the given rate of \
                         the network"
                .to_owned(),
        }],
        counts: vec![
            count(0, 292.0, 0.0, Limit::Decode),
            count(1, 280.0, 270.0, Limit::Feeders),
            count(2, 127.0, 540.0, Limit::Step),
        ],
        enough: Some(2),
        saturated: Some(2),
        hosts: vec![host("10.0.0.7:7077", 120, 0.48), gone],
        measured: Some(FeederGain {
            without: 292.0,
            with: 538.0,
            gain: Interval::exact(1.84),
            predicted: Interval::exact(1.88),
            limit: Limit::Feeders,
            busy: 0.42,
        }),
        notes: vec![
            "2 feeders keep the step fed: 667 samples/s of the 667 that it takes".to_owned(),
        ],
    }
}

fn with_feeders() -> Explanation {
    let mut e = synthetic::usual();
    e.feeding = Some(feeding());
    e
}

fn line_with(output: &str, begins: &str) -> String {
    let mut lines = output.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("{begins} in\n{output}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn remote_stages_have_their_own_heading_and_feeder_counts_follow() {
    let output = report::text(&with_feeders(), 100, false);

    assert_eq!(
        line_with(&output, "remote"),
        "remote batches share alone wait wire busy redone"
    );
    assert_eq!(
        line_with(&output, "10.0.0.7:7077"),
        "10.0.0.7:7077 120 48 % 270/s 41 ms 640 MB/s 42 % 0"
    );
    assert!(
        line_with(&output, "10.0.0.8:7077").contains("(not connected) 0 0 %"),
        "{output}"
    );
    assert_eq!(
        line_with(&output, "feeders "),
        "feeders gain samples/s here theirs receiving limit"
    );
    assert_eq!(
        line_with(&output, "1 (there)"),
        "1 (there) 1.88x (1.77-1.99) 550 280 270 0.11 cores feeders"
    );
    assert!(
        line_with(&output, "2 (enough)").ends_with("step"),
        "{output}"
    );
    assert!(
        output.contains("  parts      1.18 GB/s / 1.40 MB"),
        "{output}"
    );
    assert!(
        output.contains("  why        2 feeders keep the step fed"),
        "{output}"
    );
}

#[test]
fn narrow_terminals_keep_the_most_important_columns() {
    for width in [64, 80, 120] {
        let output = report::text(&with_feeders(), width, false);

        for line in output.lines() {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
        }
        assert!(line_with(&output, "feeders ").ends_with("limit"));
    }
}

#[test]
fn the_page_has_a_feeder_section_only_with_feeders() {
    let page = report::html(&with_feeders());

    for text in [
        "Feeders",
        "10.0.0.8:7077 (not connected)",
        "Connection refused",
        "Gain from other machines",
        "Measured with the existing feeders.",
        "280 here + 270 of feeders = 550 samples/s",
        "2 feeders keep the step fed",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let without = report::html(&synthetic::usual());
    assert!(!without.contains("Gain from other machines"));
}

#[test]
fn json_has_feeders_under_their_names_and_is_read_back() {
    let output: Value = serde_json::from_str(&report::json(&with_feeders())).expect("JSON");

    let feeding = &output["feeding"];
    assert_eq!(feeding["origin"], "measured");
    assert_eq!(feeding["network"]["origin"], "given");
    assert_eq!(feeding["counts"][1]["limit"], "feeders");
    assert_eq!(feeding["parts"][0]["limit"], "wire");
    assert_eq!(feeding["enough"], 2);
    assert_eq!(feeding["hosts"][0]["batches"], 120);
    assert_eq!(feeding["measured"]["with"], 538.0);
    let again: Explanation = serde_json::from_value(output).expect("it is read back");
    assert_eq!(again.feeding.map(|feeding| feeding.counts.len()), Some(3));
    let without: Value = serde_json::from_str(&report::json(&synthetic::usual())).expect("JSON");
    assert!(without.get("feeding").is_none() && without["stall"].get("wire").is_none());
}

#[test]
fn network_waits_are_reported_only_when_there_were_any() {
    let mut e = with_feeders();
    (e.stall.prep, e.stall.wire) = (0.2, 0.38);

    let output = report::text(&e, 120, false);

    assert!(
        output.contains("38 % waiting for feeders' network"),
        "{output}"
    );
    assert!(report::html(&e).contains("wire stall"));
    assert!(!report::html(&synthetic::usual()).contains("wire stall"));
}
