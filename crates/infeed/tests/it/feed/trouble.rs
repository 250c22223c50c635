//! What networks and machines do: latency, resets, cut links, changed bytes, feeders that die. The
//! trainer delivers the same batches in the same order, each once.

use std::time::{Duration, Instant};

use infeed::loader::feeders::Local;

use super::proxy::{Proxy, Weather};
use super::*;
use crate::data::photos;

/// Far more than a lost batch costs, and far less than waiting for ever.
const GENEROUS: Duration = Duration::from_secs(30);

/// Waits until something is so.
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < GENEROUS, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_weather_gives_the_batches_of_a_local_run() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let expected = locally(&pipeline, &Options::default(), 3);
    let weathers = [
        Weather {
            latency: Duration::from_millis(20),
            ..Weather::default()
        },
        Weather {
            reset_after: Some(40_000),
            ..Weather::default()
        },
        Weather {
            reset_after: Some(3_000),
            ..Weather::default()
        },
        Weather {
            cut_after: Some(40_000),
            ..Weather::default()
        },
        Weather {
            changed_every: Some(30_011),
            ..Weather::default()
        },
        Weather {
            changed_every: Some(997),
            ..Weather::default()
        },
    ];
    for weather in weathers {
        for local in [Local::Help, Local::Fallback] {
            let proxy = Proxy::new(feeder.address(), weather);
            let loader = open(&pipeline, &hurried([proxy.host()], local));
            assert!(epochs(&loader, 3) == expected, "{weather:?}, {local:?}");
        }
    }
}

#[test]
fn a_network_that_is_slower_than_its_feeders_has_nothing_made_twice() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    // A batch is a few parts of 4 kB, so three of them, as many as are asked for at once, are on the way for
    // longer than a feeder may say nothing.
    let slow = Weather {
        latency: HURRIED / 4,
        ..Weather::default()
    };
    let proxy = Proxy::new(feeder.address(), slow);
    let options = hurried([proxy.host()], Local::Fallback);

    let loader = open(&pipeline, &options);

    assert!(epochs(&loader, 2) == locally(&pipeline, &options, 2));
    let told = stats(&loader);
    assert_eq!((told[0].redone, told[0].lost), (0, 0), "{told:?}");
    assert!(told[0].batches >= 14, "{told:?}");
}

#[test]
fn feeders_killed_anywhere_cost_no_batch_and_give_none_twice() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let expected = locally(&pipeline, &Options::default(), 4);
    for seed in 0..6_u64 {
        for killed in 1..=2_usize {
            let mut feeders: Vec<_> = (0..2).map(|_| Some(feeder(&pipeline))).collect();
            let hosts: Vec<String> = feeders.iter().flatten().map(host).collect();
            let local = match seed % 2 {
                0 => Local::Help,
                _ => Local::Fallback,
            };
            let loader = open(&pipeline, &hurried(hosts, local));
            let places: Vec<usize> = (0..killed as u64)
                .map(|n| (infeed::random::hash(&[seed, n]) % 30) as usize)
                .collect();
            let mut found = Vec::new();
            while found.len() < expected.len() {
                for (feeder, place) in feeders.iter_mut().zip(&places) {
                    if *place == found.len() {
                        drop(feeder.take());
                    }
                }
                found.extend(loader.next_batch().expect("no bad record"));
            }

            assert!(bits(&found) == expected, "seed {seed}, {killed} killed");
        }
    }
}

#[test]
fn a_link_that_is_cut_without_a_word_costs_a_deadline_and_no_more() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let expected = locally(&pipeline, &Options::default(), 3);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let loader = open(&pipeline, &hurried([proxy.host()], Local::Fallback));
    let mut found = Vec::new();
    let mut longest = Duration::ZERO;
    while found.len() < expected.len() {
        if found.len() == 6 {
            proxy.cut(true);
        }
        let begun = Instant::now();
        found.extend(loader.next_batch().expect("no bad record"));
        longest = longest.max(begun.elapsed());
    }

    assert!(bits(&found) == expected);
    let told = &stats(&loader)[0];
    assert!(told.redone > 0 && !told.connected, "{told:?}");
    assert!(longest < GENEROUS, "{longest:?}");
}

#[test]
fn a_feeder_that_comes_back_is_asked_again() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let loader = open(&pipeline, &hurried([proxy.host()], Local::Fallback));
    let next = || loader.next_batch().expect("no bad record");
    for _ in 0..4 {
        next();
    }
    proxy.set(Weather {
        reset_after: Some(0),
        ..Weather::default()
    });
    let lost = || stats(&loader)[0].lost > 0;
    until("it is lost", || {
        next();
        lost()
    });
    proxy.set(Weather::default());
    until("it is back", || stats(&loader)[0].connected);
    let before = stats(&loader)[0].batches;
    until("it makes batches again", || {
        next();
        stats(&loader)[0].batches > before
    });

    assert!(proxy.connections() >= 2);
}

#[test]
fn a_feeder_that_is_not_there_when_a_pipeline_is_opened_may_come_later() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let expected = locally(&pipeline, &Options::default(), 1);
    let gone = {
        let feeder = feeder(&pipeline);
        host(&feeder)
    };
    let loader = open(&pipeline, &hurried([gone.clone()], Local::Fallback));
    assert!(epochs(&loader, 1) == expected, "own cores");
    assert!(!stats(&loader)[0].connected);

    let mut options = infeed::feed::FeedOptions::default();
    (options.token, options.listen) = (token(), gone);
    let _feeder = infeed::feed::serve(&pipeline, &[], &options).expect("the port is free again");

    until("it is found", || stats(&loader)[0].connected);
    loader.seek(0, 0).expect("there is one");
    assert!(epochs(&loader, 1) == expected);
    assert!(stats(&loader)[0].batches > 0);
}

#[test]
fn who_takes_nothing_keeps_nobody_else_waiting() {
    let root = photos(40);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let stuck = open(&pipeline, &hurried([proxy.host()], Local::Help));
    stuck.next_batch().expect("no bad record");
    proxy.cut(true);

    let loader = open(&pipeline, &asking([host(&feeder)], Local::Fallback));

    assert!(epochs(&loader, 2) == locally(&pipeline, &Options::default(), 2));
    assert!(stats(&loader)[0].batches > 10);
    drop(stuck);
}

#[test]
fn a_feeder_that_sends_in_drops_is_given_up() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let expected = locally(&pipeline, &Options::default(), 1);
    let proxy = Proxy::new(
        feeder.address(),
        Weather {
            drop_by_drop_after: Some(20_000),
            ..Weather::default()
        },
    );
    let mut options = hurried([proxy.host()], Local::Help);
    if let Some(feeders) = &mut options.feeders {
        feeders.deadline = Duration::from_millis(100);
    }
    let loader = open(&pipeline, &options);

    assert!(epochs(&loader, 1) == expected);
}
