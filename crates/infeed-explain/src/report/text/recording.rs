//! A recording for a terminal: the verdict, the loop over time, events, machine and versions.

use super::page::{TextPage, clean, column};
use super::{summary, verdict};
use crate::recording::{RecordedEvent, Recording, RecordingPart};
use crate::report::numbers;
use crate::report::table::{ALWAYS, TableColumn, length, set, wrap};
use infeed_core::printable::BOLD;
use infeed_core::units::{figures, format_bytes, format_percent, format_seconds};

/// Number of parts of the loop in the answer, and in the full report.
const ANSWER_PARTS: usize = 8;
const FULL_PARTS: usize = 32;

/// Maximum number of kinds of events in the answer.
const ANSWER_EVENTS: usize = 3;

/// Maximum number of lines of advice about a watched loop in the answer.
const ANSWER_ADVICE: usize = 2;

/// Maximum indentation of a line of the plan.
const MAX_INDENT: usize = 16;

/// Returns a recording in at most 24 lines of 80 columns, or all of it if `full`.
pub fn recording(recording: &Recording, width: usize, colour: bool, full: bool) -> String {
    let mut page = TextPage::new(width, colour);
    match full {
        true => complete(&mut page, recording),
        false => answer(&mut page, recording),
    }
    page.out
}

fn answer(page: &mut TextPage, recording: &Recording) {
    if let Some(e) = &recording.explanation {
        summary::head(page, e, &e.warnings);
        summary::resources(page, e);
    } else if let Some(watch) = &recording.watch {
        let mut answer = watch.verdict.clone();
        answer.evidence.truncate(1);
        answer.advice.truncate(ANSWER_ADVICE);
        answer.not_worth.clear();
        verdict(page, &answer, None, None);
    } else {
        without_verdict(page);
    }
    page.line("");
    page.write_labelled("run", &[run(recording)]);
    let parts = recording.windows.parts(recording.seconds, ANSWER_PARTS);
    if let Some(first) = parts.first() {
        let shares = parts.iter().map(|part| format_percent(part.waiting()));
        let shares: Vec<String> = shares.collect();
        let each = format_seconds(first.to_s - first.from_s);
        page.one_line("waiting", &format!("{}, {each} each", shares.join(" ")));
    }
    let events = events(recording);
    for (at, event) in events.iter().take(ANSWER_EVENTS).enumerate() {
        page.one_line(if at == 0 { "events" } else { "" }, event);
    }
    page.one_line("machine", &machine(recording));
    page.one_line("versions", &versions(recording));
    let html = match recording.explanation.is_some() {
        true => ", --html FILE",
        false => "",
    };
    page.one_line("more", &format!("--full{html}, --json"));
}

fn complete(page: &mut TextPage, recording: &Recording) {
    if let Some(e) = &recording.explanation {
        page.out = super::text(e, page.width, page.colour);
    } else if let Some(watch) = &recording.watch {
        verdict(page, &watch.verdict, None, None);
    } else {
        without_verdict(page);
    }
    over_time(page, recording);
    page.line("");
    page.write_labelled("run", &[run(recording)]);
    page.write_labelled("events", &events(recording));
    let examples = recording.events.kinds().iter();
    let examples: Vec<String> = examples.flat_map(|event| event.examples.clone()).collect();
    page.write_labelled("examples", &examples);
    if let Some(e) = &recording.explanation {
        write_indented(page, "plan", &e.plan);
        write_indented(page, "pipeline", &e.subject.pipeline);
        page.line("");
    }
    page.write_labelled("machine", &[machine(recording)]);
    page.write_labelled("versions", &[versions(recording)]);
}

/// Writes a text below its name. Its lines keep their indentation, also where they are wrapped.
fn write_indented(page: &mut TextPage, name: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    page.line("");
    page.write_styled(BOLD, &format!("  {name}"));
    for line in text.lines() {
        let line = clean(line);
        let words = line.trim_start_matches(' ');
        let blanks = (line.len() - words.len()).min(MAX_INDENT);
        let mut margin = blanks + 4;
        let room = page.width - margin - 2;
        let parts = match length(words) <= room {
            true => vec![words.to_owned()],
            false => wrap(words, room),
        };
        for part in parts {
            page.line(&format!("{}{part}", " ".repeat(margin)));
            margin = blanks + 6;
        }
    }
}

fn without_verdict(page: &mut TextPage) {
    page.write_styled(BOLD, "no verdict: no batch was delivered yet");
}

/// Writes the table of the loop over time.
fn over_time(page: &mut TextPage, recording: &Recording) {
    const COLUMNS: [TableColumn; 7] = [
        column("from", ALWAYS),
        column("rate", ALWAYS),
        column("waiting", ALWAYS),
        column("ready", 3),
        column("held", 1),
        column("epochs", 2),
        column("bad", 4),
    ];
    let parts = recording.windows.parts(recording.seconds, FULL_PARTS);
    let rows: Vec<Vec<String>> = parts.iter().map(row).collect();
    if rows.is_empty() {
        return;
    }
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
}

fn row(part: &RecordingPart) -> Vec<String> {
    let seconds = (part.to_s - part.from_s).max(1e-9);
    let rate = match part.sum.samples {
        0 => format!("{} batches/s", figures(part.sum.batches as f64 / seconds)),
        samples => numbers::rate(samples as f64 / seconds),
    };
    let known = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
    vec![
        format_seconds(part.from_s),
        rate,
        format_percent(part.waiting()),
        known(part.sum.ready),
        known(part.sum.held),
        part.sum.epochs.to_string(),
        part.sum.bad.to_string(),
    ]
}

/// Describes the loop in one line.
fn run(recording: &Recording) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for source in &recording.sources {
        let text = format!("{} ({})", source.kind, source.location);
        if !kinds.contains(&text) {
            kinds.push(text);
        }
    }
    let over = match kinds.is_empty() {
        true => String::new(),
        false => format!(" over {}", kinds.join(", ")),
    };
    let parts = recording.windows.parts(recording.seconds, 1);
    let batches = parts.first().map_or(0, |all| all.sum.batches);
    let end = match recording.closed {
        true => "closed",
        false => "not closed at the last write",
    };
    format!(
        "{batches} batches in {}, {end}; {}{over}; {}",
        format_seconds(recording.seconds),
        recording.loader,
        numbers::moment(
            recording
                .began_at_s
                .saturating_add(recording.seconds as u64)
        ),
    )
}

/// Describes the events of each kind in one line.
fn events(recording: &Recording) -> Vec<String> {
    let events = recording.events.kinds().iter();
    let line = |event: &RecordedEvent| {
        let (first, last) = (format_seconds(event.first_s), format_seconds(event.last_s));
        let when = match first == last {
            true => format!("at {first}"),
            false => format!("from {first} to {last}"),
        };
        format!("{}: {}, {when}", event.kind, event.count)
    };
    events.map(line).collect()
}

fn machine(recording: &Recording) -> String {
    let machine = &recording.machine.machine;
    format!(
        "{}, {} cores, {}, {}, {}",
        machine.cpu,
        machine.cores,
        format_bytes(machine.memory_bytes as f64),
        machine.system,
        recording.machine.simd
    )
}

fn versions(recording: &Recording) -> String {
    let others = recording.versions.iter();
    let others = others.map(|(name, version)| format!(", {name} {version}"));
    format!("infeed {}{}", recording.infeed, others.collect::<String>())
}
