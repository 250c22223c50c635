//! Tests of the terminal report, JSON and trace events.

use infeed_explain::report;
use infeed_explain::{Explanation, Interval, Limit};
use serde_json::Value;

use super::synthetic;

fn all() -> [Explanation; 4] {
    [
        synthetic::usual(),
        synthetic::tie(),
        synthetic::no_remedies(),
        synthetic::step_bound(),
    ]
}

/// Returns the line that begins with a text after its indentation, with single blanks.
fn line(output: &str, begins: &str) -> Option<String> {
    let found = |line: &&str| line.trim_start().starts_with(begins);
    let line = output.lines().rfind(found)?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn at(output: &str, text: &str) -> usize {
    output
        .find(text)
        .unwrap_or_else(|| panic!("{text:?} in\n{output}"))
}

#[test]
fn the_verdict_is_first_with_its_evidence() {
    let output = report::text(&synthetic::usual(), 80, false);

    assert!(output.starts_with("decode limits this run: prep stall 58 % of the time\n"));
    let order = [
        "  measured   258 samples/s; the consumer: 58 % waiting for cores",
        "  evidence   2 workers busy 97 % of the run",
        "  capacity   2 cores / 6.84 ms",
        "  next       storage at 655 samples/s, 2.48x as much",
        "  not worth  8 I/O threads",
        "  stage ",
        "  remedy ",
        "  checked ",
        "  note       Reads came from",
    ];
    let places: Vec<usize> = order.iter().map(|text| at(&output, text)).collect();
    assert!(places.is_sorted(), "{output}");
}

#[test]
fn a_stage_is_a_line_with_rate_times_and_bytes() {
    let output = report::text(&synthetic::usual(), 100, false);

    assert_eq!(
        line(&output, "decode ").as_deref(),
        Some("decode 196/s 5.1 ms 5.2 ms 9.4 ms 1.09 MB 1.05 MB 75 %"),
        "{output}"
    );
}

#[test]
fn a_remedy_is_a_line_with_its_command_below() {
    let output = report::text(&synthetic::usual(), 100, false);

    assert_eq!(
        line(&output, "1 keep decoded").as_deref(),
        Some("1 keep decoded pixels on disk 2.40x (2.22-2.55) 619 12.9 ms 2.53 GB 9.4 s"),
        "{output}"
    );
    assert_eq!(
        line(&output, "4 class").as_deref(),
        Some("4 class indices instead of one-hot 1.06x (1.03-1.09) 273 29.3 ms none none")
    );
    assert_eq!(
        line(&output, "identical;").as_deref(),
        Some("identical; set one_hot = false in pipeline.toml")
    );
    let output = report::text(&synthetic::usual(), 80, false);
    assert_eq!(
        line(&output, "infeed pack").as_deref(),
        Some("infeed pack streets streets-90 --to folder --image-format jpeg --quality \\")
    );
    assert_eq!(
        line(&output, "identical, 1.62").as_deref(),
        Some("identical, 1.62 GB on disk, 34 s to convert")
    );
}

#[test]
fn remedies_that_may_gain_nothing_are_listed_once_without_a_command() {
    let output = report::text(&synthetic::usual(), 80, false);

    let idle = "8 I/O threads instead of 4";
    assert!(at(&output, "  not worth") < at(&output, idle), "{output}");
    assert_eq!(output.matches(idle).count(), 1, "{output}");
    assert!(!output.contains("set readers = 8"), "{output}");
}

#[test]
fn all_reports_list_the_same_remedies_in_the_same_order_with_lossy_ones_marked() {
    let mut e = synthetic::usual();
    e.remedies.truncate(3);
    for (remedy, id) in e.remedies.iter_mut().zip(["one", "two", "three"]) {
        (remedy.id, remedy.name) = (id.to_owned(), format!("remedy {id}"));
        remedy.lossy = id == "two";
        remedy.gain = Interval::exact(1.5);
    }

    for output in [
        report::text(&e, 100, false),
        report::summary(&e, 100, false, false),
        report::html(&e),
    ] {
        let marked = ["remedy one", "remedy two (lossy)", "remedy three"];
        let places: Vec<usize> = marked.iter().map(|name| at(&output, name)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(!output.contains("one (lossy)"));
    }
}

#[test]
fn a_large_gain_that_may_be_none_is_unclear() {
    let mut e = synthetic::usual();
    e.remedies.truncate(2);
    for remedy in &mut e.remedies {
        (remedy.gain.low, remedy.gain.mid, remedy.gain.high) = (0.8, 1.52, 2.4);
    }
    e.remedies[1].gain.mid = 1.1;
    e.remedies[0].id = "cache".to_owned();
    e.remedies[1].id = "readers-8".to_owned();

    for output in [
        report::text(&e, 100, false),
        report::summary(&e, 100, false, false),
    ] {
        let unclear = line(&output, "unclear").expect("a line");
        assert_eq!(
            unclear,
            "unclear cache, 1.52x (0.80-2.40): the machine is too busy to tell"
        );
        assert_eq!(
            line(&output, "no gain").as_deref(),
            Some("no gain readers-8")
        );
    }
    let page = report::html(&e);
    assert_eq!(
        page.matches("Unclear: the machine is too busy to tell.")
            .count(),
        1
    );
}

#[test]
fn limits_that_cannot_be_separated_are_reported_as_a_tie() {
    let output = report::text(&synthetic::tie(), 80, false);

    let tie = "  tie        storage at 271 samples/s, too close to decode";
    assert!(output.contains(tie), "{output}");
}

#[test]
fn a_short_explanation_has_no_empty_sections() {
    let output = report::text(&synthetic::no_remedies(), 80, false);

    for absent in ["next", "try", "not worth", "checked", "note"] {
        assert!(
            !output.contains(&format!("  {absent} ")),
            "{absent}:\n{output}"
        );
    }
    assert!(output.contains("none was tried"));
    let output = report::text(&synthetic::step_bound(), 80, false);
    assert!(
        output.contains("none that was tried gains anything"),
        "{output}"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal_and_a_usual_case_fits_a_screen() {
    for width in [60, 80, 100, 160] {
        for e in all() {
            let output = report::text(&e, width, false);

            for line in output.lines() {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
                assert_eq!(line.trim_end(), line);
            }
            assert!(width < 80 || output.lines().count() <= 52, "{output}");
        }
    }
}

#[test]
fn colour_changes_no_word() {
    let e = synthetic::usual();
    let plain = report::text(&e, 80, false);
    let mut coloured = report::text(&e, 80, true);

    assert!(!plain.contains('\u{1b}'));
    assert!(coloured.contains("\u{1b}[1mdecode limits"));
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m"] {
        coloured = coloured.replace(code, "");
    }
    assert_eq!(coloured, plain);
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let output: Value = serde_json::from_str(&report::json(&synthetic::usual())).expect("JSON");

    assert_eq!(output["version"], 1);
    let verdict = &output["verdict"];
    assert_eq!(verdict["limit"], "decode");
    assert_eq!(verdict["rate"], 264.0);
    assert_eq!(verdict["next_limit"], "storage");
    assert_eq!(verdict["next_rate"], 655.0);
    let stage = &output["run"]["stages"][1];
    for key in [
        "samples",
        "wall_s",
        "cpu_s",
        "wait_s",
        "bytes_in",
        "bytes_out",
    ] {
        assert!(stage[key].is_number(), "{key}: {stage}");
    }
    assert_eq!(
        output["stages"], output["run"]["stages"],
        "as in `bench --json`"
    );
    let remedy = &output["remedies"][0];
    for key in ["id", "name", "command", "quality"] {
        assert!(remedy[key].is_string(), "{key}: {remedy}");
    }
    assert!(remedy["disk_bytes"].is_number());
    for end in ["low", "mid", "high"] {
        assert!(remedy["rate"][end].is_number() && remedy["gain"][end].is_number());
    }
}

#[test]
fn json_writes_null_for_infinite_and_missing_numbers() {
    let mut e = synthetic::usual();
    e.verdict.rate = f64::INFINITY;
    e.resources[0].rate = Interval {
        low: 1.0,
        mid: f64::NAN,
        high: f64::INFINITY,
    };

    let output: Value = serde_json::from_str(&report::json(&e)).expect("JSON");

    assert_eq!(output["verdict"]["rate"], Value::Null);
    assert_eq!(output["resources"][0]["rate"]["high"], Value::Null);
    assert_eq!(output["resources"][0]["rate"]["low"], 1.0);
    let text = report::text(&e, 80, false);
    assert!(!text.contains("inf ") && !text.contains("NaN"), "{text}");
}

#[test]
fn a_trace_has_a_track_per_thread_and_for_steps_and_waits() {
    let e = synthetic::usual();
    let output: Value = serde_json::from_str(&report::trace(&e)).expect("JSON");
    let events = output["traceEvents"].as_array().expect("an array");
    let of = |phase: &str| {
        events
            .iter()
            .filter(|event| event["ph"] == phase)
            .collect::<Vec<_>>()
    };

    let mut tracks: Vec<(&Value, &Value, &str)> = of("M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| {
            let name = event["args"]["name"].as_str().expect("a name");
            (&event["pid"], &event["tid"], name)
        })
        .collect();
    let spans = of("X");
    let names: Vec<&str> = tracks.iter().map(|(_, _, name)| *name).collect();
    assert_eq!(names.len(), 4 + 2 + 2, "{names:?}");
    assert_eq!(spans.len(), e.timeline.len());
    let track = |name: &str| {
        tracks
            .iter()
            .find(|track| track.2 == name)
            .expect("a track")
    };
    let whats = |name: &str| {
        let (pid, tid, _) = track(name);
        let on = spans
            .iter()
            .filter(|s| &s["pid"] == *pid && &s["tid"] == *tid);
        let mut whats: Vec<&str> = on.filter_map(|s| s["name"].as_str()).collect();
        whats.sort_unstable();
        whats.dedup();
        whats
    };
    assert_eq!(whats("training step"), ["step"]);
    assert_eq!(whats("waiting for a batch"), ["wait"]);
    assert_eq!(whats("infeed-read-3"), ["read"]);
    assert_eq!(whats("infeed-work-1"), ["decode", "transform", "write"]);
    let first = &e.timeline[0];
    let same = |s: &&&Value| s["ts"] == first.start_us && s["dur"] == first.length_us;
    assert!(spans.iter().any(|s| same(&s)), "times are microseconds");
    tracks.dedup_by_key(|track| (track.0.clone(), track.1.clone()));
    assert_eq!(tracks.len(), names.len(), "no two tracks share a number");
}

#[test]
fn a_span_of_an_unknown_batch_has_no_arguments() {
    let mut e = synthetic::usual();
    e.timeline.truncate(1);
    e.timeline[0].batch = None;

    let output: Value = serde_json::from_str(&report::trace(&e)).expect("JSON");

    let events = output["traceEvents"].as_array().expect("an array");
    let span = events
        .iter()
        .find(|event| event["ph"] == "X")
        .expect("the span");
    assert_eq!(span["args"], serde_json::json!({}));
}

#[test]
fn a_limit_has_one_name_in_text_and_json() {
    let json = serde_json::to_value(Limit::Transform).expect("a name");

    assert_eq!(json, Limit::Transform.name());
}

#[test]
fn a_summary_has_at_most_24_lines_of_80_columns() {
    let busy = [
        "stopped early: 3 remedies were tried",
        "two runs of the unchanged pipeline in the same turns differed by 81 %: this machine is \
         too busy now for narrow intervals; close other programs and repeat",
        "other processes used 1.1 cores meanwhile; rates and gains are less certain than their \
         intervals",
        "the run reached 3497 samples/s, and the limits predict 5175: the machine was busy, or a \
         resource that is not listed is the limit; repeat on a quiet machine",
    ];
    let mut left_out = 0;
    for e in all() {
        let mut on_busy_machine = e.clone();
        on_busy_machine.warnings = busy.map(str::to_owned).to_vec();
        for e in [e, on_busy_machine] {
            let output = report::summary(&e, 80, false, false);

            assert!(output.lines().count() <= 24, "{output}");
            for line in output.lines() {
                assert!(line.chars().count() <= 80, "{line:?}");
                assert_eq!(line.trim_end(), line);
            }
            left_out += usize::from(output.contains("--full has"));
        }
    }
    assert!(left_out > 0, "some warnings do not fit");
}

#[test]
fn a_summary_has_the_limit_then_resources_then_remedies() {
    let output = report::summary(&synthetic::usual(), 80, false, false);

    assert!(output.starts_with("decode limits this run: prep stall 58 % of the time\n"));
    let order = [
        "258 samples/s; the consumer: 58 % waiting for cores",
        "  resource ",
        "  decode ",
        "  storage ",
        "  1 keep decoded pixels on disk",
        "  no gain    more-readers",
        "  more       --full",
    ];
    let places: Vec<usize> = order.iter().map(|text| at(&output, text)).collect();
    assert!(places.is_sorted(), "{output}");
    assert_eq!(
        line(&output, "decode ").as_deref(),
        Some("decode 264 samples/s 98 % 1.02x"),
        "{output}"
    );
    let output = report::summary(&synthetic::step_bound(), 80, false, false);
    assert!(output.contains("The loader keeps up."), "{output}");
}

#[test]
fn the_step_time_at_which_the_limit_changes_is_in_every_report() {
    let e = synthetic::usual();
    let first = "with a step under 30.3 ms decoding becomes the limit";

    for output in [
        report::summary(&e, 80, false, false),
        report::text(&e, 80, false),
        report::html(&e),
    ] {
        assert!(output.contains(first), "{output}");
    }
    let output = report::text(&e, 160, false);
    let others = "storage with a step under 12.2 ms, then memory bandwidth with a step under 5.19";
    assert!(output.contains(others), "{output}");
}

#[test]
fn a_what_if_question_has_both_rates_arithmetic_and_assumptions() {
    let e = synthetic::with_what_if();
    let summary = report::summary(&e, 80, false, false);

    let order = [
        "  what if: 16 cores, storage s3",
        "  now        264 samples/s, limited by decoding",
        "  then       360 samples/s (180 to 450), limited by storage; 1.36x (0.68-1.70)",
        "  resource then",
        "  storage         360 samples/s    180 to 450",
        "  cores      16 cores: 1900 samples/s",
        "  storage    latency: 64 reads in flight",
        "  step time  with a step under 22.2 ms storage becomes the limit",
        "  assumed    the additional cores",
    ];
    for output in [&summary, &report::text(&e, 80, false)] {
        let places: Vec<usize> = order.iter().map(|text| at(output, text)).collect();
        assert!(places.is_sorted(), "{output}");
        let wide = |line: &&str| line.chars().count() > 80 || line.trim_end() != *line;
        assert_eq!(output.lines().find(wide), None, "{output}");
    }
    let page = report::html(&e);
    assert!(page.contains("<h2>What if</h2>") && page.contains("extrapolated from 2 cores"));
    let json: Value = serde_json::from_str(&report::json(&e)).expect("JSON");
    assert_eq!(json["what_if"]["limit"], "storage");
    assert_eq!(json["what_if"]["changes"][0]["option"], "cores");
    assert_eq!(
        json["what_if"]["changes"][0]["values"]["measured_cores"],
        2.0
    );
    assert_eq!(json["crossovers"][0]["limit"], "decode");
}
