//! Faults of networks and machines: latency, resets, cut links, changed bytes, killed feeders. The
//! trainer delivers the same batches in the same order, each once.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use infeed_feed::Local;
use infeed_feed::wire::channel::UNENCRYPTED;
use infeed_feed::wire::hello;

use super::proxy::{Proxy, Weather};
use super::*;
use crate::data::photos;

/// Far longer than a lost batch takes, and far shorter than an endless wait.
const GENEROUS: Duration = Duration::from_secs(30);

/// Maximum number of batches that a trainer requests ahead of a feeder's responses.
const OPEN_REQUESTS: u64 = 3;

/// Waits until a condition holds.
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < GENEROUS, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_network_fault_gives_the_batches_of_a_local_run() {
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
            let loader = open(&pipeline, &with_short_deadline([proxy.host()], local));
            assert!(epochs(&loader, 3) == expected, "{weather:?}, {local:?}");
        }
    }
}

#[test]
fn a_slow_network_makes_no_feeder_repeat_a_batch() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    // A batch is a few parts of 4 kB. So the maximum of three open requests is in transfer for
    // longer than a feeder may be silent.
    let slow = Weather {
        latency: SHORT_DEADLINE / 4,
        ..Weather::default()
    };
    let proxy = Proxy::new(feeder.address(), slow);
    let options = with_short_deadline([proxy.host()], Local::Fallback);

    let loader = open(&pipeline, &options);

    assert!(epochs(&loader, 2) == locally(&pipeline, &options, 2));
    let reported = stats(&loader);
    assert_eq!(
        (reported[0].redone, reported[0].lost),
        (0, 0),
        "{reported:?}"
    );
    assert!(reported[0].batches >= 14, "{reported:?}");
}

#[test]
fn killed_feeders_lose_no_batch_and_repeat_none() {
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
            let loader = open(&pipeline, &with_short_deadline(hosts, local));
            let places: Vec<usize> = (0..killed as u64)
                .map(|n| (infeed_core::random::hash(&[seed, n]) % 30) as usize)
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
fn a_silently_cut_link_costs_one_timeout() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let expected = locally(&pipeline, &Options::default(), 3);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let loader = open(
        &pipeline,
        &with_short_deadline([proxy.host()], Local::Fallback),
    );
    let mut found = Vec::new();
    while found.len() < expected.len() {
        if found.len() == 6 {
            proxy.cut(true);
        }
        found.extend(loader.next_batch().expect("no bad record"));
    }

    assert!(bits(&found) == expected);
    let reported = &stats(&loader)[0];
    assert!(!reported.connected, "{reported:?}");
    // Those of the open requests, and the one that was being received.
    let lost = 1..=OPEN_REQUESTS + 1;
    assert!(lost.contains(&reported.redone), "{reported:?}");
}

#[test]
fn a_trainer_waits_for_a_feeder_that_opens_its_pipeline_slowly() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("a trainer");
            let peer = hello::accept_trainer(&stream, &token(), UNENCRYPTED).expect("a trainer");
            // Longer than a connection may take.
            std::thread::sleep(Duration::from_secs(4));
            hello::welcome(&stream, &token(), &peer).expect("it waits");
        });
        let loader = open(&pipeline, &options_for([address.clone()], Local::Help));

        // A connection is lost only after it was accepted.
        until("the feeder is connected and leaves", || {
            stats(&loader)[0].lost > 0
        });
    });
}

#[test]
fn a_feeder_that_returns_is_used_again() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let loader = open(
        &pipeline,
        &with_short_deadline([proxy.host()], Local::Fallback),
    );
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
    until("it reconnects", || stats(&loader)[0].connected);
    let before = stats(&loader)[0].batches;
    until("it makes batches again", || {
        next();
        stats(&loader)[0].batches > before
    });

    assert!(proxy.connections() >= 2);
}

#[test]
fn a_feeder_can_start_after_the_pipeline_is_opened() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let expected = locally(&pipeline, &Options::default(), 1);
    let gone = {
        let feeder = feeder(&pipeline);
        host(&feeder)
    };
    let loader = open(
        &pipeline,
        &with_short_deadline([gone.clone()], Local::Fallback),
    );
    assert!(epochs(&loader, 1) == expected, "own cores");
    assert!(!stats(&loader)[0].connected);

    let mut options = infeed_feed::FeedOptions::default();
    (options.token, options.listen) = (token(), gone);
    let _feeder = infeed_feed::serve(&pipeline, &[], &options).expect("the port is free again");

    until("it is found", || stats(&loader)[0].connected);
    loader.seek(0, 0).expect("there is one");
    assert!(epochs(&loader, 1) == expected);
    assert!(stats(&loader)[0].batches > 0);
}

#[test]
fn a_trainer_that_reads_nothing_does_not_block_others() {
    let root = photos(40);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let proxy = Proxy::new(feeder.address(), Weather::default());
    let stuck = open(&pipeline, &with_short_deadline([proxy.host()], Local::Help));
    stuck.next_batch().expect("no bad record");
    proxy.cut(true);

    let loader = open(&pipeline, &options_for([host(&feeder)], Local::Fallback));

    assert!(epochs(&loader, 2) == locally(&pipeline, &Options::default(), 2));
    assert!(stats(&loader)[0].batches > 10);
    drop(stuck);
}

#[test]
fn a_feeder_that_sends_too_slowly_is_dropped() {
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
    let mut feeders = feeders_at([proxy.host()], Local::Help);
    feeders.deadline = Duration::from_millis(100);
    let loader = open(&pipeline, &options_with(feeders));

    assert!(epochs(&loader, 1) == expected);
}
