//! Datasets of the Hugging Face Hub: commits, links, tokens and limits.

use std::path::Path;
use std::time::{Duration, Instant};

use infeed_source::store;
use infeed_testkit::hub::{HubAccess, HubLimit, HubRequest, HubServer};

use super::{noise, open, read_checked};

fn hub() -> HubServer {
    HubServer::start().expect("two free ports")
}

/// Makes a dataset one of the server's.
fn at(hub: &HubServer, dataset: &str, more: &[(&str, &str)]) -> String {
    let url = format!("hf://datasets/{dataset}");
    let endpoint = hub.url();
    let mut options = vec![
        ("hf_endpoint", endpoint.as_str()),
        // No token of the machine.
        ("hf_token", ""),
        ("hf_token_path", "/nowhere/token"),
    ];
    options.extend(more);
    store::configure(&url, &options).expect("known options");
    url
}

/// Paths of the requests to the Hub or, if `elsewhere`, to the host of large files.
fn paths(log: &[HubRequest], elsewhere: bool) -> Vec<String> {
    log.iter()
        .filter(|request| request.is_elsewhere == elsewhere)
        .map(|request| format!("{} {}", request.method, request.path))
        .collect()
}

fn failure(pattern: &str) -> String {
    store::find(&[pattern]).expect_err(pattern).chain()
}

#[test]
fn a_dataset_is_listed_page_by_page_and_read_by_kept_links() {
    let hub = hub();
    let url = at(&hub, "tests/listed", &[]);
    let shards: Vec<(String, Vec<u8>)> = (0..25)
        .map(|n| (format!("data/train-{n:04}.tar"), noise(2000 + n, n)))
        .collect();
    let mut files: Vec<(&str, Vec<u8>)> = shards
        .iter()
        .map(|(path, bytes)| (path.as_str(), bytes.clone()))
        .collect();
    files.push(("data/below/deep one.tar", noise(1500, 99)));
    files.push(("README.md", b"small".to_vec()));
    hub.publish("tests/listed", "main", &files);
    hub.set_page(4);

    let listed = store::find(&[format!("{url}/data/train-*.tar")]).expect("they are there");
    assert_eq!(listed.len(), 25);
    assert_eq!(listed[7].name(), format!("{url}/data/train-0007.tar"));
    assert_eq!(listed[7].len(), 2007);
    let requested = paths(&hub.take_log(), false);
    assert_eq!(requested.len(), 1 + 26_usize.div_ceil(4), "{requested:?}");

    for range in [0..2007, 5..10, 1000..2007] {
        read_checked(&*listed[7], range, &shards[7].1).expect("reads");
    }
    let log = hub.take_log();
    assert_eq!(paths(&log, false).len(), 1, "one request for the link");
    assert_eq!(paths(&log, true).len(), 3, "one request per read");

    let found = store::find(&[format!("{url}/data/train-{{0003..0004}}.tar")]);
    let found = found.expect("they are there");
    assert_eq!(found[0].stamp(), listed[3].stamp());
    read_checked(&*found[1], 10..20, &shards[4].1).expect("reads");
    let log = hub.take_log();
    let requested = paths(&log, false);
    assert!(
        requested.iter().all(|path| path.starts_with("HEAD")),
        "{requested:?}"
    );
    assert_eq!((requested.len(), paths(&log, true).len()), (2, 1));

    let below = store::find(&[format!("{url}/data/*/*.tar")]).expect("it is there");
    read_checked(&*below[0], 100..1500, &noise(1500, 99)).expect("reads");
    let small = open(&format!("{url}/README.md"));
    read_checked(&*small, 1..4, b"small").expect("reads");
    let entries = store::entries(&url).expect("a folder");
    let names: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_str(), e.is_folder))
        .collect();
    assert_eq!(names, [("README.md", false), ("data", true)]);
    let (_, _, all) = store::below(Path::new(&format!("{url}/data"))).expect("a folder");
    assert_eq!(all.len(), 26);
    let mut versions: Vec<_> = all.iter().map(|object| object.version).collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 26, "versions follow from contents");
}

#[test]
fn a_process_reads_one_commit_of_a_revision() {
    let hub = hub();
    let url = at(&hub, "tests/pinned", &[]);
    let (old, new) = (noise(3000, 1), noise(3000, 2));
    let first = hub.publish("tests/pinned", "main", &[("a.tar", old.clone())]);
    let blob = open(&format!("{url}/a.tar"));

    let second = hub.publish("tests/pinned", "main", &[("a.tar", new.clone())]);
    hub.publish("tests/pinned", "refs/pr/7", &[("a.tar", new.clone())]);

    read_checked(&*blob, 0..3000, &old).expect("the old commit");
    read_checked(&*open(&format!("{url}/a.tar")), 0..3000, &old).expect("the same process");
    for (revision, content) in [
        (first.as_str(), &old),
        (&second, &new),
        ("refs/pr/7", &new),
        ("refs%2Fpr%2F7", &new),
    ] {
        let blob = open(&format!("{url}@{revision}/a.tar"));
        read_checked(&*blob, 0..3000, content).expect(revision);
    }
    hub.take_log();
    open(&format!("{url}@{second}/a.tar"));
    assert_eq!(
        hub.take_log().len(),
        1,
        "a commit needs no request to be found"
    );
}

#[test]
fn an_expired_link_is_requested_again_once() {
    let hub = hub();
    let url = at(&hub, "tests/links", &[]);
    let content = noise(50_000, 3);
    hub.publish("tests/links", "main", &[("a.tar", content.clone())]);
    let blob = open(&format!("{url}/a.tar"));
    read_checked(&*blob, 0..9, &content).expect("reads");
    hub.expire_links();
    hub.take_log();

    std::thread::scope(|scope| {
        for n in 0..8_u64 {
            let (blob, content) = (&blob, &content);
            scope.spawn(move || {
                read_checked(&**blob, n * 5000..n * 5000 + 5000, content).expect("reads")
            });
        }
    });

    let log = hub.take_log();
    assert_eq!(paths(&log, false).len(), 1, "{log:?}");
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let hub = hub();
    let token = hub.token();
    let content = noise(5000, 4);
    hub.publish("tests/private", "main", &[("a.tar", content.clone())]);
    hub.set_access("tests/private", HubAccess::Private);
    let url = at(&hub, "tests/private", &[]);

    let error = failure(&format!("{url}/a.tar"));
    assert!(error.contains("set HF_TOKEN"), "{error}");
    at(&hub, "tests/private", &[("hf_token", "hf_wrong")]);
    let error = failure(&format!("{url}/a.tar"));
    assert!(error.contains("check HF_TOKEN"), "{error}");
    assert!(!error.contains("hf_wrong"), "{error}");
    at(&hub, "tests/private", &[("hf_token", token.as_str())]);
    hub.take_log();

    read_checked(&*open(&format!("{url}/a.tar")), 0..5000, &content).expect("reads");

    let log = hub.take_log();
    assert_eq!(log.len(), 3, "the commit, the link, the bytes: {log:?}");
    for request in log {
        assert_eq!(
            request.token.is_some(),
            !request.is_elsewhere,
            "{request:?}"
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("token");
    std::fs::write(&path, format!("{token}\n")).expect("writes");
    let path = path.to_str().expect("Unicode");
    at(&hub, "tests/private", &[("hf_token_path", path)]);
    open(&format!("{url}/a.tar"));
}

#[test]
fn a_mirror_redirects_to_the_hub_which_redirects_again() {
    let (mirror, origin) = (hub(), hub());
    mirror.mirror(&origin);
    let url = at(
        &mirror,
        "tests/mirrored",
        &[("hf_token", "hf_of_the_mirror")],
    );
    let content = noise(5000, 9);
    for hub in [&mirror, &origin] {
        hub.publish("tests/mirrored", "main", &[("a.tar", content.clone())]);
    }

    let (_, _, listed) = store::below(Path::new(&url)).expect("a folder");
    assert_eq!(listed.len(), 1);
    for blob in [open(&format!("{url}/a.tar")), open(&format!("{url}/*.tar"))] {
        read_checked(&*blob, 0..5000, &content).expect("reads");
        read_checked(&*blob, 10..20, &content).expect("reads");
    }

    let log = origin.take_log();
    assert!(log.iter().all(|request| request.token.is_none()), "{log:?}");
    assert_eq!(paths(&log, true).len(), 4, "{log:?}");
}

#[test]
fn a_dataset_that_cannot_be_read_raises_with_the_fix() {
    let hub = hub();
    let url = at(&hub, "tests/missing", &[]);
    hub.publish("tests/missing", "main", &[("a.tar", noise(5000, 5))]);
    hub.publish("tests/gated", "main", &[("a.tar", noise(5000, 5))]);
    hub.set_access("tests/gated", HubAccess::Gated);
    let gated = at(&hub, "tests/gated", &[]);
    let absent = at(&hub, "tests/absent", &[("hf_token", "hf_other")]);

    for (pattern, part) in [
        (format!("{url}/b.tar"), "has no `b.tar`"),
        (format!("{url}/b/*.tar"), "has no `b`"),
        (format!("{url}/*.zip"), "no object matches"),
        (format!("{url}@v9/a.tar"), "no revision `v9`"),
        (format!("{absent}/a.tar"), "no dataset `tests/absent`"),
        (format!("{gated}/a.tar"), "accept the terms"),
        (
            "hf://tests/missing/a.tar".to_owned(),
            "hf://datasets/OWNER/NAME/PATH",
        ),
    ] {
        let error = failure(&pattern);
        assert!(error.contains(part), "{pattern}: {error}");
    }
    let error = store::BucketFolder::of(Path::new(&format!("{url}/out"))).expect_err("read-only");
    assert!(error.chain().contains("read-only"), "{error}");
}

#[test]
fn all_requests_wait_while_the_hub_limits_them() {
    let hub = hub();
    // This limit is beyond its deadline.
    let url = at(&hub, "tests/limited", &[("deadline_s", "0.5")]);
    let other = at(&hub, "tests/limited-too", &[]);
    let content = noise(5000, 6);
    for dataset in ["tests/limited", "tests/limited-too"] {
        hub.publish(
            dataset,
            "main",
            &[("a.tar", content.clone()), ("b.tar", content.clone())],
        );
    }
    let kept = open(&format!("{url}/b.tar"));
    hub.take_log();
    hub.limit(HubLimit::RetryAfter(1), 1);
    let begun = Instant::now();

    failure(&format!("{url}/a.tar"));
    open(&format!("{other}/a.tar"));

    assert!(begun.elapsed() >= Duration::from_secs(1));
    // One of the first dataset; the revision and the link of the other, after the wait.
    let log = hub.take_log();
    assert_eq!(
        paths(&log, false).len(),
        3,
        "none was made in vain: {log:?}"
    );

    // Waiting for this limit would exceed the time limit of a test.
    hub.limit(HubLimit::RetryAfter(3600), 1);
    failure(&format!("{url}/a.tar"));
    read_checked(&*kept, 0..5000, &content).expect("a known link needs no request to the Hub");
}

#[test]
fn a_limit_beyond_the_deadline_is_an_error_at_once() {
    for (number, limit) in [HubLimit::RetryAfter(250), HubLimit::RateLimit(250)]
        .iter()
        .enumerate()
    {
        let hub = hub();
        let dataset = format!("tests/blocked-{number}");
        let url = at(&hub, &dataset, &[("deadline_s", "5")]);
        hub.publish(&dataset, "main", &[("a.tar", noise(5000, 7))]);
        hub.limit(*limit, 1);

        let error = failure(&format!("{url}/a.tar"));

        assert!(error.contains("limits the number of requests"), "{error}");
        assert!(
            error.contains("250 s") && error.contains("HF_TOKEN"),
            "{error}"
        );
        failure(&format!("{url}/a.tar"));
        assert_eq!(hub.take_log().len(), 1, "the second made no request");
    }
}

#[test]
fn no_request_follows_the_last_one_that_a_limit_allows() {
    let hub = hub();
    let url = at(&hub, "tests/last", &[("deadline_s", "5")]);
    hub.publish("tests/last", "main", &[("a.tar", noise(5000, 8))]);
    hub.limit(HubLimit::LastRequest(200), 1);

    let error = failure(&format!("{url}/a.tar"));

    assert!(error.contains("200 s"), "{error}");
    assert_eq!(hub.take_log().len(), 1);
}
