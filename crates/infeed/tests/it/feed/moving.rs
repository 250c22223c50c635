//! Feeders that come, move and go while a run goes on: whoever places them tells the loader.

use std::time::{Duration, Instant};

use infeed::loader::feeders::{Feeders, Hosts, Local, Place};

use super::*;
use crate::data::photos;

/// Far more than a feeder needs to be found.
const GENEROUS: Duration = Duration::from_secs(30);

/// Where a feeder is, with a token of its own.
fn place(feeder: &Feeder, node: &str) -> Place {
    Place {
        host: host(feeder),
        node: node.to_owned(),
        token: Some(token()),
    }
}

/// Options of a trainer whose feeders have no token in common.
fn awaiting(hosts: &Hosts, local: Local) -> Options {
    let mut feeders = Feeders::at(hosts.clone());
    (feeders.local, feeders.deadline) = (local, DEADLINE);
    let mut options = asking(["unused:1"], local);
    options.feeders = Some(feeders);
    options
}

/// Delivers until something is so, at most to the end of a run.
fn deliver(loader: &Loader, found: &mut Vec<Batch>, is: impl Fn(&FeederStats) -> bool, of: usize) {
    let begun = Instant::now();
    while !is(&stats(loader)[of]) {
        assert!(begun.elapsed() < GENEROUS, "{:?}", stats(loader));
        found.extend(loader.next_batch().expect("no bad record"));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn hosts_that_come_move_and_go_change_nothing_but_who_makes_batches() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    for local in [Local::Help, Local::Fallback] {
        let hosts = Hosts::awaited(2);
        let begun = Instant::now();
        let loader = open(&pipeline, &awaiting(&hosts, local));
        let mut found = Vec::new();
        found.extend(loader.next_batch().expect("no bad record"));
        assert!(begun.elapsed() < GENEROUS, "it waited for feeders");
        assert!(stats(&loader).iter().all(|told| told.host.is_empty()));

        // One comes.
        let first = feeder(&pipeline);
        hosts.set(0, place(&first, "one")).expect("there is a 0");
        deliver(&loader, &mut found, |told| told.batches > 2, 0);
        let told = &stats(&loader)[0];
        assert_eq!((told.node.as_str(), told.connected), ("one", true));
        assert_eq!((told.lost, told.redone), (0, 0), "{told:?}");

        // It moves, and another comes.
        let (second, third) = (feeder(&pipeline), feeder(&pipeline));
        hosts.set(0, place(&second, "two")).expect("there is a 0");
        hosts.set(1, place(&third, "three")).expect("there is a 1");
        deliver(&loader, &mut found, |told| told.batches > 2, 1);
        let before = stats(&loader)[0].batches;
        deliver(&loader, &mut found, |told| told.batches > before + 3, 0);
        assert!(second.stats().batches > 0);
        assert_eq!(stats(&loader)[0].host, host(&second));

        // Both go, one told, one not.
        hosts.set(0, Place::default()).expect("there is a 0");
        drop(third);
        deliver(&loader, &mut found, |told| !told.connected, 0);
        deliver(&loader, &mut found, |told| !told.connected, 1);
        while found.len() % 8 != 0 {
            found.extend(loader.next_batch().expect("no bad record"));
        }
        for told in stats(&loader) {
            assert_eq!(told.refused, 0, "{told:?}");
        }
        assert_eq!(stats(&loader)[0].problem, None, "its move is no failure");

        let epochs = found.len() / 8;
        let expected = locally(&pipeline, &Options::default(), epochs);
        assert!(bits(&found) == expected, "{local:?}");
    }
}

#[test]
fn a_feeder_that_comes_later_and_refuses_is_told_by_its_node_and_costs_nothing() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let other = feeder(&pipeline.clone().shuffle(6));
    let hosts = Hosts::awaited(1);
    let loader = open(&pipeline, &awaiting(&hosts, Local::Fallback));
    let expected = locally(&pipeline, &Options::default(), 1);

    hosts.set(0, place(&other, "an odd one")).expect("a 0");
    let begun = Instant::now();
    while stats(&loader)[0].refused == 0 {
        assert!(begun.elapsed() < GENEROUS);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(epochs(&loader, 1) == expected);

    let told = &stats(&loader)[0];
    assert_eq!((told.node.as_str(), told.batches), ("an odd one", 0));
    let problem = told.problem.as_deref().unwrap_or_default();
    assert!(problem.contains("`seed` differs"), "{problem}");
}

#[test]
fn there_are_as_many_feeders_as_were_awaited() {
    let hosts = Hosts::awaited(2);
    let error = hosts.set(2, Place::default()).expect_err("0 and 1");

    assert!(error.to_string().contains("no feeder 2 among 2"), "{error}");
    let named = Place {
        host: "10.0.0.7:7077".to_owned(),
        node: "0123456789abcdef".to_owned(),
        token: None,
    };
    assert_eq!(named.to_string(), "10.0.0.7:7077 (node 0123456789ab)");
}
