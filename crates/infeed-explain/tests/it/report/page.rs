//! Tests of the HTML report's text.

use std::fs;
use std::path::Path;

use infeed_explain::report;
use infeed_explain::{Explanation, Interval, Span};
use serde_json::Value;

use super::device::on_device;
use super::{HOSTILE, hostile, synthetic};

/// Returns a page without its scripts.
fn without_scripts(page: &str) -> String {
    let mut parts = page.split("<script");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once("</script>").expect("a script ends");
        out += rest;
    }
    out
}

/// Returns the numbers of the plots.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("numbers");
    let (json, _) = rest.split_once("</script>").expect("an end");
    assert!(
        !json.contains('<'),
        "nothing in the numbers looks like markup"
    );
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn the_page_is_complete_without_scripts() {
    let e = synthetic::usual();
    let page = without_scripts(&report::html(&e));

    let sentences = [
        &e.verdict.claim,
        &e.verdict.evidence[1],
        &e.resources[1].arithmetic,
        &e.remedies[1].command,
        &e.remedies[2].quality,
        &e.not_tried[0].why,
        &e.notes[0],
        &e.machine.cpu,
    ];
    for sentence in sentences {
        let escaped = sentence.replace('\'', "&#39;");
        assert!(page.contains(&escaped), "{sentence}");
    }
    let facts = ["5.1 ms", "2.22x to 2.55x", "-11 %", "prep stall", "2.53 GB"];
    for fact in facts {
        assert!(page.contains(fact), "{fact}");
    }
    assert!(
        page.contains("Of the 2 s shown, steps took"),
        "overlap in words"
    );
    assert!(
        page.contains("type = &quot;random-crop&quot;"),
        "the pipeline"
    );
}

#[test]
fn names_from_a_dataset_cannot_break_out_of_the_page() {
    let page = report::html(&hostile());

    assert!(!page.contains("<b onclick"), "no markup of theirs");
    let clean = report::html(&on_device());
    for mark in ["<script", "</script", "<!--", "<b>"] {
        let count = |page: &str| page.matches(mark).count();
        assert_eq!(count(&page), count(&clean), "{mark}");
    }
    let data = data(&page);
    let name = data["remedies"][0]["name"].as_str().expect("a name");
    assert!(name.ends_with(HOSTILE), "{name}");
}

#[test]
fn the_page_loads_nothing_and_is_small() {
    let page = report::html(&synthetic::usual());

    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(page.contains("content=\"default-src 'none';"));
    let own = without_scripts(&page);
    for reference in ["src=", "url(", "@import", "href=\"http"] {
        assert!(!own.contains(reference), "{reference}");
    }
}

#[test]
fn every_opened_element_is_closed() {
    for e in [
        synthetic::usual(),
        synthetic::tie(),
        synthetic::no_remedies(),
        synthetic::step_bound(),
        on_device(),
    ] {
        let page = without_scripts(&report::html(&e));
        for name in [
            "section", "div", "table", "tr", "td", "dl", "ul", "li", "span",
        ] {
            let open = page.matches(&format!("<{name}>")).count()
                + page.matches(&format!("<{name} ")).count();
            let closed = page.matches(&format!("</{name}>")).count();
            assert_eq!(open, closed, "{name}");
        }
    }
}

#[test]
fn remedies_that_may_gain_nothing_are_last_and_keep_their_numbers() {
    let mut e = synthetic::usual();
    e.remedies.rotate_right(2);
    let page = report::html(&e);

    let data = data(&page);
    let remedies = data["remedies"].as_array().expect("a list");
    let names: Vec<&str> = remedies.iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(names[0], "3. keep decoded pixels on disk");
    assert_eq!(names[5], "2. 3 workers instead of 2");
    assert!(
        !page.contains("<code>set workers = 3"),
        "no remedy is worth running"
    );
}

#[test]
fn a_tie_is_reported_as_a_tie() {
    let page = report::html(&synthetic::tie());

    assert!(page.contains("Tie: storage at 271 samples/s, too close to decode"));
}

#[test]
fn empty_sections_are_left_out() {
    let page = without_scripts(&report::html(&synthetic::no_remedies()));

    for title in [
        "Remedies and their gain",
        "Predicted against",
        "Threads in the first seconds",
        "Pipeline",
    ] {
        assert!(!page.contains(title), "{title}");
    }
}

#[test]
fn missing_numbers_are_words_in_tables_and_null_in_plots() {
    let mut e = synthetic::usual();
    e.resources[3].rate = Interval::exact(f64::INFINITY);
    e.remedies[0].gain.high = f64::NAN;
    let page = report::html(&e);

    assert!(page.contains("no limit"));
    assert_eq!(data(&page)["resources"][3]["mid"], Value::Null);
    let own = without_scripts(&page);
    for none in ["NaN", ">inf<", ">inf "] {
        assert!(!own.contains(none), "{none}");
    }
}

#[test]
fn a_long_timeline_is_truncated_and_the_page_reports_where() {
    let mut e = synthetic::usual();
    let what = ["decode", "transform", "write"];
    let span = |n: u64| Span {
        thread: format!("infeed-work-{}", n % 8),
        what: what[(n / 8 % 3) as usize].to_owned(),
        start_us: n / 8 * 30,
        length_us: 29,
        batch: Some(n / 64),
    };
    e.timeline = (0..100_000).map(span).collect();

    let page = report::html(&e);

    let drawn = data(&page)["spans"].as_array().expect("spans").len();
    assert_eq!(drawn, 6000);
    assert!(page.contains("Truncated at 22.5 ms."));
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn spans_too_short_to_be_seen_are_drawn_as_one() {
    let mut e = synthetic::usual();
    let span = |n: u64| Span {
        thread: "infeed-work-0".to_owned(),
        what: "decode".to_owned(),
        start_us: n * 20,
        length_us: 19,
        batch: Some(n / 50_000),
    };
    e.timeline = (0..100_000).map(span).collect();

    let data = data(&report::html(&e));

    let spans = data["spans"].as_array().expect("spans");
    assert_eq!(spans.len(), 2, "one a batch");
    assert_eq!(spans[0][5], 50_000, "and it knows how many it stands for");
}

#[test]
fn a_long_run_has_no_more_points_than_can_be_seen() {
    let mut e: Explanation = synthetic::usual();
    let point = e.run.queue[0];
    e.run.queue = vec![point; 100_000];

    let data = data(&report::html(&e));

    let points = data["queue"].as_array().expect("points");
    assert!((700..=1500).contains(&points.len()), "{}", points.len());
}

#[test]
fn licences_and_versions_of_the_plots_are_listed() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let vendor = crate_root.join("src/report/html/vendor");
    let read = |path: &Path| fs::read_to_string(path).expect("a file of the repository");
    let license = read(&vendor.join("LICENSE.txt"));
    let all = read(&crate_root.join("../../LICENSE-THIRD-PARTY"));

    assert!(all.contains(&license), "LICENSE-THIRD-PARTY has all of it");
    assert!(
        report::html(&synthetic::usual()).contains(&license),
        "and so has a report"
    );
    let notes = license + &read(&vendor.join("README.md"));
    for (file, name) in [("d3.min.js", "D3"), ("plot.umd.min.js", "Observable Plot")] {
        let script = read(&vendor.join(file));
        let head = script.lines().next().unwrap_or_default().to_owned();
        let mut words = head.split_whitespace();
        let version = words
            .find_map(|word| word.strip_prefix('v'))
            .unwrap_or_else(|| panic!("{file} contains its version: {head}"));
        assert_eq!(
            notes.matches(&format!("{name} {version}")).count(),
            2,
            "{file}"
        );
        for mark in ["</script", "<!--"] {
            assert!(!script.contains(mark), "{file} can stand in a page");
        }
    }
}
