//! Files of run records, and comparisons of runs.

use std::fs;

use infeed::loader::run_record::{
    ComparedSteps, KeyKind, RecordedStep, RowKey, RunDifference, RunRecord, RunWriter, compare_runs,
};

fn step(step: u64, ids: &[&str]) -> RecordedStep {
    RecordedStep {
        step,
        rows: ids.iter().map(|&id| RowKey::Id(id.into())).collect(),
        digest: None,
    }
}

/// A run of two rows per step.
fn run(ids: &[&str]) -> RunRecord {
    let mut run = RunRecord::default();
    for (number, ids) in (0..).zip(ids.chunks(2)) {
        run.push(step(number, ids)).expect("ids only");
    }
    run
}

fn difference(expected: &RunRecord, found: &RunRecord) -> RunDifference {
    let found = compare_runs(expected, found, ComparedSteps::All).expect("comparable");
    found.expect("they differ")
}

#[test]
fn lost_doubled_and_moved_samples_are_counted_and_the_first_one_is_named() {
    let expected = run(&["a", "b", "c", "d", "e", "f"]);
    assert_eq!(
        compare_runs(&expected, &expected, ComparedSteps::All).expect("comparable"),
        None
    );

    let found = difference(&expected, &run(&["a", "b", "b", "d", "f", "e"]));

    assert_eq!((found.step, found.row), (1, Some(0)));
    assert_eq!((found.lost, found.doubled, found.moved), (1, 1, 2));
    assert_eq!(
        found.text,
        "The runs differ first in step 1, row 0. Sample c, which is expected there, is lost. Sample b \
         is there a second time: it was already delivered in step 0, row 1. In 3 steps, 1 samples \
         are lost, 1 are delivered once more than expected, and 2 are in another place."
    );
}

#[test]
fn rows_that_only_one_run_has_are_lost_or_not_expected() {
    let (long, short) = (run(&["a", "b", "c"]), run(&["a", "b", "c", "d"]));

    let found = difference(&long, &short);
    assert_eq!((found.expected, found.found.as_deref()), (None, Some("d")));
    assert!(
        found
            .text
            .contains("Sample d is there, which the expected run does not have.")
    );

    let found = difference(&short, &long);
    assert_eq!((found.expected.as_deref(), found.found), (Some("d"), None));
    assert_eq!((found.step, found.row, found.lost), (1, Some(1), 1));
}

#[test]
fn a_found_run_may_go_on_after_the_last_expected_step() {
    let (short, long) = (run(&["a", "b"]), run(&["a", "b", "c", "d"]));

    let compared = compare_runs(&short, &long, ComparedSteps::UpToExpected);

    assert_eq!(compared.expect("comparable"), None);
    assert_eq!(difference(&short, &long).doubled, 2);
    let compared = compare_runs(&long, &short, ComparedSteps::Common);
    assert_eq!(compared.expect("comparable"), None);
}

#[test]
fn a_file_holds_ids_of_any_text_and_a_step_replaces_those_from_its_number_on() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    let odd = step(0, &["\"\\\n\u{1b}[2J", "", "猫"]);
    let mut writer = RunWriter::create(&file, None).expect("writes");
    for one in [&odd, &step(1, &["a"]), &step(5, &["b"]), &step(1, &["c"])] {
        writer.write(one).expect("writes");
    }
    drop(writer);

    let record = RunRecord::read(&file).expect("a record");

    assert_eq!(record.steps(), [odd, step(1, &["c"])]);
    assert_eq!(record.kind(), Some(KeyKind::Ids));
    let other = difference(&record, &run(&["x", "y", "z", "c"]));
    assert!(!other.text.contains('\u{1b}'), "{}", other.text);
    assert_eq!(other.expected.as_deref(), Some("\"\\\n\u{1b}[2J"));
}

#[test]
fn a_run_continues_only_a_record_and_cuts_its_unfinished_line() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    let mut writer = RunWriter::resume(&file).expect("creates");
    for number in 0..3 {
        // The second line is longer than a block of the search for its end.
        let long = "x".repeat(100_000);
        writer.write(&step(number, &[&long])).expect("writes");
    }
    drop(writer);
    let whole = fs::read(&file).expect("it is there");
    for left in [whole.len() - 1, whole.len() - 90_000, 5, 0] {
        fs::write(&file, &whole[..left]).expect("writes");
        let mut writer = RunWriter::resume(&file).expect("a record");
        writer.write(&step(7, &["y"])).expect("writes");
        drop(writer);
        let record = RunRecord::read(&file).expect("a record");
        let numbers: Vec<u64> = record.steps().iter().map(|step| step.step).collect();
        match left {
            0 | 5 => assert_eq!(numbers, [7]),
            _ => assert_eq!(numbers, [0, 1, 7]),
        }
    }
    for other in ["precious", "precious\n", "{\"infeed_certificate\":1}\n"] {
        fs::write(&file, other).expect("writes");
        RunWriter::resume(&file).expect_err("another file");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), other);
    }
}

#[test]
fn lines_that_are_no_steps_are_errors_with_their_number() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    for (line, problem) in [
        (r#"{"step":1}"#, "it needs either ids or hashes"),
        (r#"{"step":1,"ids":[],"hashes":""}"#, "it needs either"),
        (r#"{"step":-1,"ids":[]}"#, "the number -1"),
        (r#"{"step":1,"ids":[1]}"#, "where a text is needed"),
        (
            r#"{"step":1,"hashes":"0123456789a"}"#,
            "12 hexadecimal digits",
        ),
        (
            r#"{"step":1,"hashes":"+123456789ab"}"#,
            "12 hexadecimal digits",
        ),
        (
            r#"{"step":1,"hashes":"0123456789ab"}"#,
            "the steps before it have ids",
        ),
        (r#"{"step":1,"ids":[],"more":0}"#, "`more` is not known"),
        (r#"[1,["a"]]"#, "it is not a JSON object"),
    ] {
        let text = format!("{{\"infeed_run_record\":1}}\n{{\"step\":0,\"ids\":[\"a\"]}}\n{line}\n");
        fs::write(&file, text).expect("writes");
        let error = RunRecord::read(&file).expect_err(line).chain();
        assert!(
            error.contains("run.jsonl: line 3 is not a line of a run record: ")
                && error.contains(problem),
            "{error}"
        );
    }
}

#[test]
fn changed_bytes_of_a_record_give_a_record_or_an_error() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("run.jsonl");
    let good = "{\"infeed_run_record\":1}\n{\"step\":0,\"ids\":[\"a\",\"b\"]}\n\
                {\"step\":1,\"ids\":[\"c\"],\"digest\":\"0123456789abcdef\"}\n";
    fs::write(&file, good).expect("writes");
    let whole = RunRecord::read(&file).expect("a record");
    let mut read = 0;
    for at in 0..good.len() {
        for byte in [b'0', b'9', b'\n', b'"', 0xFF] {
            let mut changed = good.as_bytes().to_vec();
            changed[at] = byte;
            fs::write(&file, changed).expect("writes");
            if let Ok(record) = RunRecord::read(&file) {
                read += 1;
                for (one, other) in [(&whole, &record), (&record, &whole)] {
                    // An error if they have no step in common.
                    let _ = compare_runs(one, other, ComparedSteps::All);
                }
            }
        }
    }
    assert!(read > 20, "{read} records are read");
}
