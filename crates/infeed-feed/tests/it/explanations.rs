//! Feeders in explanations: planned, measured over loopback, applied, counted by a running loop.
//! The tests check that entries exist and are consistent, not rates.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use infeed::pipeline::{Handle, MemoryField};
use infeed_core::sample::DType;
use infeed_explain::{
    Case, Conditions, Explanation, FeederOrigin, Limit, NetworkOrigin, apply, explain, remedy,
    running,
};

use super::*;
use crate::data::photos;

fn conditions() -> Conditions {
    let mut conditions = Conditions::default();
    conditions.seconds = 0.05;
    conditions.try_remedies = false;
    conditions.open.workers = Some(2);
    conditions.open.memory = Some(256 << 20);
    conditions
}

fn explain_case(pipeline: &Pipeline, conditions: Conditions) -> Explanation {
    let case = Case::new("data", pipeline, &[], conditions).expect("a case");
    explain(&case, &|_, _| true).expect("an explanation")
}

/// Bytes of a row of [`pipeline`]: 16 x 16 pixels of three floats, a class number, and the row's
/// head.
const ROW: f64 = 16.0 * 16.0 * 12.0 + 8.0 + 17.0;

/// A pipeline with a selection, so that a feeder rejects a trainer without it.
fn select_photos(root: &Path) -> Pipeline {
    pipeline(root).take(20)
}

#[test]
fn feeders_are_planned_for_the_given_network_before_one_starts() {
    let root = photos(12);
    let mut conditions = conditions();
    conditions.network = Some(1e6);
    conditions.feeder_cores = Some(64);
    conditions.step = Some(Duration::from_nanos(1));

    let found = explain_case(&pipeline(root.path()), conditions);

    let feeding = found.feeding.expect("it was asked for");
    assert_eq!(
        (feeding.origin, feeding.feeder_cores),
        (FeederOrigin::Planned, Some(64))
    );
    assert_eq!(feeding.network.origin, NetworkOrigin::Given);
    assert_eq!(feeding.sample_bytes, ROW);
    assert_eq!(feeding.small_bytes, Some(16.0 * 16.0 * 3.0 + 8.0 + 17.0));
    let wire = feeding.parts.iter().find(|part| part.limit == Limit::Wire);
    let wire = wire.expect("the wire is a part").rate.mid;
    assert!((wire / (1e6 / ROW) - 1.0).abs() < 1e-9, "{wire}");
    assert_eq!(feeding.counts[0].feeders, 0);
    assert!(
        feeding
            .counts
            .iter()
            .all(|count| count.from_feeders <= 1.0001 * wire)
    );
    assert_eq!(feeding.enough, None, "no step is as short as a nanosecond");
    assert!(feeding.receive_s > 0.0 && feeding.send_s > 0.0 && feeding.make_s > 0.0);
    assert!(feeding.hosts.is_empty() && feeding.measured.is_none());
    let planned = found.remedies.iter().find(|r| r.id.starts_with("feeders-"));
    assert!(planned.expect("a remedy").command.contains("infeed feed"));
}

#[test]
fn running_feeders_are_measured_and_compared_with_the_prediction() {
    let root = photos(30);
    let pipeline = select_photos(root.path());
    let feeders = [feeder(&pipeline), feeder(&pipeline)];
    let mut conditions = conditions();
    conditions.feeders = Some(feeders_at(feeders.iter().map(host), Local::Help));

    let found = explain_case(&pipeline, conditions);

    let feeding = found.feeding.expect("feeders were named");
    assert_eq!(feeding.origin, FeederOrigin::Measured, "{:?}", found.notes);
    assert_eq!(feeding.hosts.len(), 2);
    for (reported, feeder) in feeding.hosts.iter().zip(&feeders) {
        assert_eq!(reported.host, host(feeder));
        assert!(reported.connected, "{reported:?}");
        assert!(
            reported.alone.is_some_and(|rate| rate.mid > 0.0),
            "{reported:?}"
        );
        assert!(
            reported.bytes_per_s > 0.0 && (0.0..=1.0).contains(&reported.busy),
            "{reported:?}"
        );
        assert_eq!(reported.problem, None);
    }
    // Rows are reported without headers here: only their bytes enter batches.
    assert!(
        (feeding.sample_bytes - (ROW - 17.0)).abs() < 1e-6,
        "{}",
        feeding.sample_bytes
    );
    let measured = feeding.measured.expect("they were there");
    assert!(measured.with > 0.0 && measured.without > 0.0);
    assert!(measured.gain.low <= measured.gain.mid && measured.predicted.mid > 0.0);
    assert!(feeding.counts.iter().any(|count| count.feeders == 2));
    assert!(
        feeding
            .notes
            .iter()
            .any(|note| note.contains("measured, in turn"))
    );
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.contains("shares its cores"))
    );
}

#[test]
fn a_feeder_that_cannot_be_reached_is_reported_and_others_are_planned() {
    let root = photos(12);
    let mut conditions = conditions();
    conditions.feeders = Some(feeders_at(["127.0.0.1:1"], Local::Help));

    let found = explain_case(&pipeline(root.path()), conditions);

    let feeding = found.feeding.expect("a feeder was named");
    assert_eq!(feeding.origin, FeederOrigin::Planned);
    assert!(feeding.measured.is_none() && !feeding.hosts[0].connected);
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.starts_with("127.0.0.1:1: ")),
        "{:?}",
        found.notes
    );
}

#[test]
fn applied_feeders_enter_prediction_and_measurement_in_the_ledger() {
    let root = photos(30);
    let pipeline = select_photos(root.path());
    let feeder = feeder(&pipeline);
    let mut conditions = conditions();
    conditions.feeders = Some(feeders_at([host(&feeder)], Local::Help));
    let case = Case::new("data", &pipeline, &[], conditions.clone()).expect("a case");
    let found = explain(&case, &|_, _| true).expect("an explanation");
    let one = remedy(&found, "feeders-1").expect("as many as are there");
    let out = root.path().with_extension("none");

    let applied = apply(&case, &found, one, &out, &|_, _| true).expect("applied");

    assert_eq!(applied.entry.remedy, "feeders-1");
    assert_eq!(applied.entry.predicted, one.gain);
    assert!(applied.entry.measured > 0.0 && applied.entry.rate_after > 0.0);
    assert!(applied.out.is_none() && !out.exists(), "nothing is written");
    assert_eq!(applied.pipeline, *case.pipeline());

    conditions.feeders = None;
    let alone = Case::new("data", &pipeline, &[], conditions).expect("a case");
    let refused = apply(&alone, &found, one, &out, &|_, _| true).expect_err("none is named");
    assert!(refused.to_string().contains("0 are named"), "{refused}");
}

#[test]
fn a_running_loop_reports_each_feeder_and_the_wire_as_a_limit() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeders = [feeder(&pipeline), feeder(&pipeline)];
    let loader = open(
        &pipeline,
        &options_for(feeders.iter().map(host), Local::Fallback),
    );
    epochs(&loader, 4);

    let found = running("data", &pipeline, &loader).expect("explained");

    let feeding = found.feeding.expect("it has feeders");
    assert_eq!(feeding.origin, FeederOrigin::Counted);
    let reported: Vec<&str> = feeding
        .hosts
        .iter()
        .map(|host| host.host.as_str())
        .collect();
    assert_eq!(reported, [host(&feeders[0]), host(&feeders[1])]);
    let share: f64 = feeding.hosts.iter().map(|host| host.share).sum();
    assert!(share > 0.9, "{:?}", feeding.hosts);
    let limits: Vec<Limit> = found.resources.iter().map(|found| found.limit).collect();
    for limit in [Limit::Feeders, Limit::Wire, Limit::Receive, Limit::Step] {
        assert!(limits.contains(&limit), "{limit:?} of {limits:?}");
    }
    let wire = found
        .resources
        .iter()
        .find(|found| found.limit == Limit::Wire);
    assert!(wire.is_some_and(|wire| wire.arithmetic.contains("% of the time")));
    assert!(feeding.receive_s > 0.0 && feeding.sample_bytes > 0.0);
    let stall = found.stall;
    let all = stall.fetch + stall.prep + stall.wire + stall.copy + stall.compute;
    assert!((all - 1.0).abs() < 1e-6, "{stall:?}");
}

#[test]
fn records_in_memory_are_reported_as_the_reason_against_feeders() {
    let field = MemoryField::array("image", "image", DType::UInt8, vec![8, 8, 3], 0);
    let pipeline = Pipeline::new(SourceSpec::Memory {
        fields: vec![field],
    })
    .batch(4);
    let pixels = Handle::from(Bytes::from(vec![7; 16 * 8 * 8 * 3]));
    let mut conditions = conditions();
    conditions.network = Some(1e9);
    let case = Case::new("data", &pipeline, &[pixels], conditions).expect("a case");

    let found = explain(&case, &|_, _| true).expect("an explanation");

    assert!(found.feeding.is_none());
    let not = found.not_tried.iter().find(|not| not.id == "feeders");
    assert!(not.is_some_and(|not| not.why.contains("memory of this process")));
}
