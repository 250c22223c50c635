//! Feeders that join, move and leave during a run.

use std::time::{Duration, Instant};

use infeed_feed::{FeederAddress, Feeders, Hosts, Local};

use super::*;
use crate::data::photos;

/// Far longer than the trainer needs to find a feeder.
const GENEROUS: Duration = Duration::from_secs(30);

/// Returns a feeder's address with its own token.
fn place(feeder: &Feeder, node: &str) -> FeederAddress {
    FeederAddress {
        host: host(feeder),
        node: node.to_owned(),
        token: Some(token()),
    }
}

/// Options of a trainer whose feeders have different tokens.
fn awaiting(hosts: &Hosts, local: Local) -> Options {
    let mut feeders = Feeders::at(hosts.clone());
    (feeders.local, feeders.deadline) = (local, DEADLINE);
    options_with(feeders)
}

/// Delivers batches until a condition holds, at most to the end of the run.
fn deliver(
    loader: &Loader,
    found: &mut Vec<Batch>,
    is: impl Fn(&RemoteWorkerStats) -> bool,
    of: usize,
) {
    let begun = Instant::now();
    while !is(&stats(loader)[of]) {
        assert!(begun.elapsed() < GENEROUS, "{:?}", stats(loader));
        found.extend(loader.next_batch().expect("no bad record"));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn hosts_that_join_move_and_leave_change_no_batch() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    for local in [Local::Help, Local::Fallback] {
        let hosts = Hosts::without_addresses(2);
        let begun = Instant::now();
        let loader = open(&pipeline, &awaiting(&hosts, local));
        let mut found = Vec::new();
        found.extend(loader.next_batch().expect("no bad record"));
        assert!(begun.elapsed() < GENEROUS, "it waited for feeders");
        assert!(stats(&loader).iter().all(|feeder| feeder.host.is_empty()));

        // One feeder joins.
        let first = feeder(&pipeline);
        hosts.set(0, place(&first, "one")).expect("there is a 0");
        deliver(&loader, &mut found, |feeder| feeder.batches > 2, 0);
        let reported = &stats(&loader)[0];
        assert_eq!((reported.node.as_str(), reported.connected), ("one", true));
        assert_eq!((reported.lost, reported.redone), (0, 0), "{reported:?}");

        // It moves, and another feeder joins.
        let (second, third) = (feeder(&pipeline), feeder(&pipeline));
        hosts.set(0, place(&second, "two")).expect("there is a 0");
        hosts.set(1, place(&third, "three")).expect("there is a 1");
        deliver(&loader, &mut found, |feeder| feeder.batches > 2, 1);
        let before = stats(&loader)[0].batches;
        deliver(&loader, &mut found, |feeder| feeder.batches > before + 3, 0);
        assert!(second.stats().batches > 0);
        assert_eq!(stats(&loader)[0].host, host(&second));

        // Both leave: the caller removes one, and the other is killed.
        hosts
            .set(0, FeederAddress::default())
            .expect("there is a 0");
        drop(third);
        deliver(&loader, &mut found, |feeder| !feeder.connected, 0);
        deliver(&loader, &mut found, |feeder| !feeder.connected, 1);
        while found.len() % 8 != 0 {
            found.extend(loader.next_batch().expect("no bad record"));
        }
        for reported in stats(&loader) {
            assert_eq!(reported.refused, 0, "{reported:?}");
        }
        assert_eq!(stats(&loader)[0].problem, None, "its move is no failure");

        let epochs = found.len() / 8;
        let expected = locally(&pipeline, &Options::default(), epochs);
        assert!(bits(&found) == expected, "{local:?}");
    }
}

#[test]
fn a_late_feeder_that_rejects_the_run_is_reported_by_node_and_changes_no_batch() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let other = feeder(&pipeline.clone().shuffle(6));
    let hosts = Hosts::without_addresses(1);
    let loader = open(&pipeline, &awaiting(&hosts, Local::Fallback));
    let expected = locally(&pipeline, &Options::default(), 1);

    hosts.set(0, place(&other, "an odd one")).expect("a 0");
    let begun = Instant::now();
    while stats(&loader)[0].refused == 0 {
        assert!(begun.elapsed() < GENEROUS);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(epochs(&loader, 1) == expected);

    let reported = &stats(&loader)[0];
    assert_eq!(
        (reported.node.as_str(), reported.batches),
        ("an odd one", 0)
    );
    let problem = reported.problem.as_deref().unwrap_or_default();
    assert!(problem.contains("`seed` differs"), "{problem}");
}

#[test]
fn the_pipeline_opens_with_the_awaited_number_of_feeders() {
    let hosts = Hosts::without_addresses(2);
    let error = hosts.set(2, FeederAddress::default()).expect_err("0 and 1");

    assert!(
        error.to_string().contains("no feeder 2; there are 2"),
        "{error}"
    );
    let named = FeederAddress {
        host: "10.0.0.7:7077".to_owned(),
        node: "0123456789abcdef".to_owned(),
        token: None,
    };
    assert_eq!(named.to_string(), "10.0.0.7:7077 (node 0123456789ab)");
}
