use super::*;

#[test]
fn the_simulated_device_passes_every_check_and_gives_every_figure() {
    let report = run("sim", 0.3).unwrap();

    let failed: Vec<_> = report.checks.iter().filter(|check| !check.passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report.checks.len(), 13);
    for start in [
        "copy/to=device/memory=pinned",
        "copy/to=host",
        "kernel/expand",
        "host/call=take",
        "batch/copying/in=ring",
        "batch/expanding/alone",
        "jpeg/by=its threads/of=4:2:0, 80x60",
        "jpeg/by=a core of the host",
        "jpeg/by=its threads/overwritten/host waits=false",
    ] {
        let found = report.figures.iter().find(|f| f.name.starts_with(start));
        assert!(found.is_some_and(|figure| figure.value > 0.0), "{start}");
    }
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.contains("\"passed\":true"));
}

#[test]
fn a_release_left_out_is_found_by_the_device_or_by_its_bytes() {
    let sim = Sim::parse("sim:jitter=0.5,seed=4").unwrap();
    assert!(sim.complaints().is_empty());

    let Ok(found) = stress::without_release(&sim, Duration::ZERO) else {
        panic!("nobody noticed");
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
fn a_name_that_means_no_device_is_refused() {
    for name in ["", "cpu", "cuda:", "cuda:x", "cuda:-1", "simulated"] {
        let error = run(name, 1.0).unwrap_err().to_string();

        assert!(error.contains("names no device"), "{name}: {error}");
    }
    assert!(run("sim:speed=3", 1.0).is_err());
}

#[test]
fn a_device_without_a_decoder_passes_and_says_why_it_decoded_nothing() {
    let report = run("sim:jpeg=none", 0.1).unwrap();

    let of_jpegs = report
        .checks
        .iter()
        .filter(|check| check.name.contains("JPEG"));
    let details: Vec<_> = of_jpegs.map(|check| check.detail.as_str()).collect();
    assert_eq!(details.len(), 5);
    for detail in details {
        assert!(
            detail.contains("not checked: the simulated device was made without"),
            "{detail}"
        );
    }
    assert!(
        !report
            .figures
            .iter()
            .any(|figure| figure.name.contains("its threads"))
    );
}
