//! Every fault of a response ends in an error or a correct retry, never in wrong bytes.

use std::thread;
use std::time::Duration;

use infeed_core::random::mix;
use infeed_source::store;
use infeed_testkit::server::{RequestFault, RequestKind, Server};

use super::{as_bucket, noise, open, read_checked, server};

const LENGTH: u64 = 300_000;

/// A server with one object, and its URL.
fn with_object(options: &[(&str, &str)]) -> (Server, String, Vec<u8>) {
    let server = server();
    let content = noise(LENGTH, 1);
    server.put("data/shard.tar", content.clone());
    store::configure(&server.url(), options).expect("known options");
    let url = format!("{}/data/shard.tar", server.url());
    (server, url, content)
}

const FAULTS: [RequestFault; 13] = [
    RequestFault::Status(503),
    RequestFault::Status(500),
    RequestFault::Status(429),
    RequestFault::Status(408),
    RequestFault::Cut(0),
    RequestFault::Cut(70_000),
    RequestFault::Short(1),
    RequestFault::Short(90_000),
    RequestFault::Long(1),
    RequestFault::Trailing(3),
    RequestFault::Endless,
    RequestFault::OtherRange,
    RequestFault::Delay(Duration::from_millis(30)),
];

#[test]
fn a_request_that_fails_twice_succeeds_at_the_third_attempt() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);

    for fault in FAULTS {
        for range in [0..LENGTH, 5..200_005, 299_000..LENGTH, 77..78] {
            server.fault(RequestKind::Read, fault, 2);
            let read = read_checked(&*blob, range.clone(), &content);
            read.unwrap_or_else(|error| panic!("{fault:?} {range:?}: {error}"));
        }
    }
}

#[test]
fn a_persistent_failure_names_object_range_attempts_and_cause() {
    let (server, url, content) = with_object(&[("attempts", "2")]);
    let blob = open(&url);

    for (fault, cause) in [
        (RequestFault::Status(503), "503"),
        (RequestFault::Cut(100), "after 100 of 1000 bytes"),
        (RequestFault::Short(1), "bytes"),
        (RequestFault::OtherRange, "1010"),
    ] {
        server.take_log();
        server.fault(RequestKind::Read, fault, 2);
        let error = read_checked(&*blob, 10..1010, &content).expect_err("both attempts fail");
        let text = error.to_string();
        for part in [url.as_str(), "bytes 10..1010", "2 attempts", cause] {
            assert!(text.contains(part), "{fault:?}: `{part}` in {text}");
        }
        assert_eq!(server.take_log().len(), 2, "{fault:?}");
    }
    read_checked(&*blob, 10..1010, &content).expect("nothing is wrong any more");
}

#[test]
fn a_token_in_a_url_is_sent_and_never_shown() {
    let (server, url, content) = with_object(&[("attempts", "2")]);
    let secret = "keep-me-quiet";
    let url = format!("{url}?token={secret}");
    let blob = open(&url);
    assert!(!blob.name().contains(secret), "{}", blob.name());
    let faults = [400, 401, 403, 404, 410, 416, 500, 503].map(RequestFault::Status);
    let more = [
        RequestFault::Cut(10),
        RequestFault::Short(1),
        RequestFault::OtherRange,
    ];

    for fault in faults.into_iter().chain(more) {
        server.fault(RequestKind::Read, fault, 2);
        let error = read_checked(&*blob, 10..1010, &content).expect_err("it stays wrong");
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
        server.take_faults();
    }
    server.remove("data/shard.tar");
    let error = store::find(&[&url]).expect_err("it is not there any more");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    let text = format!("{error} {cause:?} {error:?}");
    assert!(!text.contains(secret), "{text}");
    drop(server);
    let error = read_checked(&*blob, 10..1010, &content).expect_err("no server");
    assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
}

#[test]
fn words_in_object_and_server_names_are_not_parsed_as_causes() {
    let server = server();
    let content = noise(1000, 5);
    // Long enough that a text with it would be cut before its end.
    let key = format!("non-partial/{}/status code: 503.tar", "long-".repeat(80));
    server.put(&format!("words-one/{key}"), content.clone());
    let bucket = as_bucket(&server, "words-one", &[("attempts", "3")]);
    let blob = open(&format!("{bucket}/{key}"));

    for (status, requests) in [(503, 2), (400, 1), (410, 1)] {
        server.take_log();
        server.fault(RequestKind::Read, RequestFault::Status(status), 1);
        let read = read_checked(&*blob, 0..1000, &content);
        assert_eq!(read.is_ok(), status == 503, "{status}: {read:?}");
        assert_eq!(server.take_log().len(), requests, "{status}");
    }
}

#[test]
fn permanent_failures_are_not_retried() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);

    for status in [400, 401, 403, 404, 410, 416, 501] {
        server.take_log();
        server.fault(RequestKind::Read, RequestFault::Status(status), 1);
        read_checked(&*blob, 0..10, &content).expect_err("rejected");
        assert_eq!(server.take_log().len(), 1, "{status}");
    }
}

#[test]
fn only_the_rest_of_an_interrupted_response_is_requested() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);
    server.take_log();
    server.fault(RequestKind::Read, RequestFault::Cut(100_000), 1);

    read_checked(&*blob, 10..250_010, &content).expect("the rest is requested");

    let ranges: Vec<_> = server.take_log().iter().map(|one| one.range).collect();
    assert_eq!(ranges, [Some((10, 250_010)), Some((100_010, 250_010))]);
}

#[test]
fn a_changed_object_is_an_error_and_never_mixed() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);
    server.put("data/shard.tar", noise(LENGTH, 2));

    let error = read_checked(&*blob, 0..1000, &content).expect_err("another tag");
    assert!(error.to_string().contains("changed since"), "{error}");

    // During a response: its first part is old, the rest would be new.
    let blob = open(&url);
    server.fault(RequestKind::Read, RequestFault::Cut(100_000), 1);
    server.put_after_read("data/shard.tar", noise(LENGTH, 3));
    let error = blob.read(0..LENGTH).expect_err("mixed");
    assert!(error.to_string().contains("changed since"), "{error}");
}

#[test]
fn an_object_that_became_shorter_is_an_error() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);
    server.put("data/shard.tar", content[..1000].to_vec());

    read_checked(&*blob, 0..2000, &content).expect_err("changed");
    read_checked(&*blob, 5000..6000, &content).expect_err("beyond its end");
    server.remove("data/shard.tar");
    let error = read_checked(&*blob, 0..1000, &content).expect_err("gone");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_stalled_response_is_requested_a_second_time() {
    // A request that waits for a timeout exceeds the time limit of a test.
    let timeouts = [("deadline_s", "3600"), ("idle_s", "3600")];
    let (server, url, content) = with_object(&timeouts);
    let blob = open(&url);
    (0..40).for_each(|n| read_checked(&*blob, n..n + 100, &content).expect("reads"));
    let before = store::requests();

    for fault in [
        RequestFault::Stall,
        RequestFault::Drip(1, Duration::from_secs(1)),
    ] {
        server.fault(RequestKind::Read, fault, 1);
        read_checked(&*blob, 1000..1100, &content).expect("by the second request");
    }

    let after = store::requests();
    assert!(after.hedges >= before.hedges + 2);
    assert!(after.hedges_won >= before.hedges_won + 2);
}

#[test]
fn a_slow_server_does_not_get_twice_the_requests() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);
    server.take_log();
    (0..60).for_each(|n| read_checked(&*blob, n..n + 100, &content).expect("reads"));

    server.set_latency(Duration::from_millis(60));
    (0..60).for_each(|n| read_checked(&*blob, n..n + 100, &content).expect("reads"));

    let extra = server.take_log().len() - 120;
    assert!(extra <= 4 + 120 / 20, "{extra} more than needed");
}

#[test]
fn a_trickling_or_silent_response_ends_at_the_timeout() {
    for (fault, options) in [
        (
            RequestFault::Drip(1, Duration::from_millis(50)),
            [("deadline_s", "1"), ("idle_s", "20"), ("hedge", "false")],
        ),
        (
            RequestFault::Stall,
            [("deadline_s", "1"), ("idle_s", "0.2"), ("hedge", "true")],
        ),
    ] {
        let (server, url, content) = with_object(&options);
        let blob = open(&url);
        server.fault(RequestKind::Read, fault, 1000);

        read_checked(&*blob, 0..10_000, &content).expect_err("the timeout is far shorter");
    }
}

#[test]
fn a_complete_file_in_response_to_a_range_request_is_requested_again() {
    let (server, url, content) = with_object(&[]);
    let blob = open(&url);
    server.fault(RequestKind::Read, RequestFault::WholeFile, 2);

    read_checked(&*blob, 5..10, &content).expect("the third attempt");

    assert_eq!(
        server
            .take_log()
            .iter()
            .filter(|r| r.kind == RequestKind::Read)
            .count(),
        3
    );
}

#[test]
fn a_server_without_ranges_serves_complete_files_and_parts_are_an_error() {
    let (server, url, content) = with_object(&[]);
    server.without_ranges();
    let blob = open(&url);

    read_checked(&*blob, 0..LENGTH, &content).expect("the whole");
    server.fault(RequestKind::Read, RequestFault::Cut(1000), 1);
    read_checked(&*blob, 0..LENGTH, &content).expect("the whole, from its beginning");
    let error = read_checked(&*blob, 5..10, &content).expect_err("a part");

    let text = error.to_string();
    assert!(
        text.contains("use a server that supports range requests"),
        "{text}"
    );
}

/// Pseudo-random faults: every result is correct or an error. The message contains the seed.
#[test]
fn random_faults_give_the_right_bytes_or_an_error() {
    for seed in 0..3_u64 {
        let (server, url, content) = with_object(&[("attempts", "3")]);
        let blob = open(&url);
        server.chaos(seed, 40);
        let results: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..16_u64)
                .map(|thread| {
                    let (blob, content) = (&blob, &content);
                    scope.spawn(move || {
                        let one = |n: u64| {
                            let dice = mix(seed << 32 | thread << 16 | n);
                            let begin = dice % LENGTH;
                            let length = mix(dice) % (LENGTH - begin + 1);
                            read_checked(&**blob, begin..begin + length, content).is_ok()
                        };
                        (0..15).map(one).collect::<Vec<_>>()
                    })
                })
                .collect();
            let joined = threads.into_iter().flat_map(|thread| match thread.join() {
                Ok(results) => results,
                Err(_) => panic!("wrong bytes with seed {seed}"),
            });
            joined.collect()
        });
        let right = results.iter().filter(|right| **right).count();
        // 40 of 100 attempts fail, so 6 of 100 fail three times in a row.
        assert!(
            right > results.len() * 3 / 4,
            "seed {seed}: {right} of {}",
            results.len()
        );
    }
}
