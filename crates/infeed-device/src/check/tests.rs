use std::time::Duration;

use super::*;
use crate::Sim;

#[test]
fn the_simulated_device_passes_every_check_and_reports_every_figure() {
    let mut streamed = Vec::new();

    let report = run("sim", &CheckPlan::new(0.3), &mut |finding| {
        streamed.push(serde_json::to_value(finding).unwrap());
    });

    let report = report.unwrap();
    let passed = |check: &CheckResult| check.outcome == Outcome::Passed;
    assert!(report.checks.iter().all(passed), "{:#?}", report.checks);
    assert_eq!(report.checks.len(), 13);
    let of_kind = |kind: &str| streamed.iter().filter(|f| f["kind"] == kind).count();
    assert_eq!(of_kind("check"), report.checks.len());
    assert_eq!(of_kind("figure"), report.figures.len());
    assert_eq!(of_kind("fact"), report.facts.len());
    for start in [
        "copy/to=device/memory=pinned",
        "copy/to=host",
        "kernel/expand",
        "host/call=take",
        "batch/copying/in=ring",
        "batch/expanding/alone",
        "kernel/one_hot/to=f16/layout=hwc",
        "kernel/resize/with=table/to=u8/layout=chw",
        "kernel/widen/to=i64",
        "open/device",
        "jpeg/by=the simulated device/of=4:2:0, 80x60",
        "jpeg/by=a core of the host",
        "jpeg/by=the simulated device/overwritten/host waits=false",
    ] {
        let found = report.figures.iter().find(|f| f.name.starts_with(start));
        assert!(found.is_some_and(|figure| figure.value > 0.0), "{start}");
    }
    let check = streamed.iter().find(|finding| finding["kind"] == "check");
    assert_eq!(check.unwrap()["outcome"], "passed");
}

#[test]
fn a_group_runs_without_the_others() {
    let plan = CheckPlan {
        groups: vec!["stress".parse().unwrap()],
        ..CheckPlan::new(0.1)
    };

    let report = run("sim", &plan, &mut |_| {}).unwrap();

    assert_eq!(report.checks.len(), 2);
    let error = "stres".parse::<Group>().unwrap_err().to_string();
    assert!(
        error.contains("kernels, rates, stress, ordering, jpegs"),
        "{error}"
    );
}

#[test]
fn a_release_left_out_is_found_by_the_device_or_by_its_bytes() {
    let sim = Sim::parse("sim:jitter=0.5,seed=4").unwrap();
    assert!(sim.complaints().is_empty());

    let Ok(found) = stress::without_release(&sim, Duration::ZERO) else {
        panic!("the missing release was not found");
    };

    assert!(found.contains("uses out of order"), "{found}");
    let complaints = sim.complaints();
    assert!(
        complaints[0].contains("was overwritten"),
        "{}",
        complaints[0]
    );
}

#[test]
fn an_unknown_device_name_is_rejected() {
    for name in ["", "cpu", "cuda:", "cuda:x", "cuda:-1", "simulated"] {
        let error = run(name, &CheckPlan::new(1.0), &mut |_| {});
        let error = error.unwrap_err().to_string();

        assert!(error.contains("is not a device"), "{name}: {error}");
    }
    assert!(run("sim:speed=3", &CheckPlan::new(1.0), &mut |_| {}).is_err());
}

#[test]
fn checks_of_a_decoder_that_the_device_lacks_are_not_run() {
    let report = run("sim:jpeg=none", &CheckPlan::new(0.1), &mut |_| {}).unwrap();

    let (not_run, run): (Vec<_>, Vec<_>) = report
        .checks
        .iter()
        .partition(|check| check.outcome == Outcome::NotRun);
    assert!(run.iter().all(|check| check.outcome == Outcome::Passed));
    assert_eq!(not_run.len(), 5);
    for check in not_run {
        assert!(
            check.detail.contains("the simulated device has no decoder"),
            "{check:?}"
        );
    }
    let of_jpegs = |figure: &Figure| figure.name.starts_with("jpeg/");
    assert!(!report.figures.iter().any(of_jpegs));
}
