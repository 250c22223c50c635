//! The answer on one screen: the limit, the resources, the best remedies, and what to run next.

use super::page::{SET_IN, TextPage, clean, column};
use super::{device, feeders, stall_text, what_if};
use crate::findings::{Explanation, Remedy};
use crate::model::limit::Limit;
use crate::report::numbers;
use crate::report::table::{ALWAYS, TableColumn, length, set, wrap};
use crate::report::words::{step_times, without_gain};
use infeed_core::printable::BOLD;
use infeed_core::units::{format_factor, format_percent};

/// Maximum number of lines of a summary that is at least 80 columns wide.
const LINES: usize = 24;

/// Maximum number of remedies with their command.
const REMEDIES: usize = 3;

/// Maximum number of resources. The lowest capacities come first.
const RESOURCES: usize = 5;

/// Returns the answer in at most 24 lines of 80 columns: the limit and the waiting, each resource
/// with its headroom, the best remedies, and the options that show more. [`text`](super::text) has
/// everything.
///
/// A remedy that does not fit is left out, and so are notes, the step time at which the limit
/// changes, and all but the first warning. Sections about a device and what-if questions follow if the explanation has them, and
/// those about feeders on request.
pub fn summary(e: &Explanation, width: usize, colour: bool, with_feeders: bool) -> String {
    let section = |write: &dyn Fn(&mut TextPage)| {
        let mut page = TextPage::new(width, colour);
        write(&mut page);
        page.out
    };
    let resources = section(&|page| resources(page, e));
    // The line about what is hidden is as long for any number.
    let tail_with = |hidden: usize| section(&|page| tail(page, e, hidden));
    let tail = tail_with(0);
    let lines = |text: &str| text.lines().count();
    let useful = useful(e);
    let first = useful.first().map_or(String::new(), |(number, remedy)| {
        section(&|page| one_remedy(page, *number, remedy, true))
    });
    // The best remedy and the blank line before it.
    let remedy_lines = lines(&first) + usize::from(!useful.is_empty());
    let needed = lines(&resources) + lines(&tail) + remedy_lines;
    let head_with = |count: usize| section(&|page| head(page, e, &first_warnings(e, count)));
    let mut head = head_with(e.warnings.len());
    for count in (1..e.warnings.len()).rev() {
        if lines(&head) + needed <= LINES {
            break;
        }
        head = head_with(count);
    }
    let mut room = LINES.saturating_sub(lines(&head) + lines(&resources) + lines(&tail));
    let mut shown = String::new();
    let steps: Vec<String> = step_times(&e.crossovers).into_iter().take(1).collect();
    let steps = section(&|page| page.write_labelled("step time", &steps));
    if lines(&steps) + remedy_lines <= room {
        room -= lines(&steps);
        shown += &steps;
    }
    let mut listed = 0;
    for (number, remedy) in &useful {
        let text = |with_command: bool| {
            section(&|page| {
                if listed == 0 {
                    page.line("");
                }
                one_remedy(page, *number, remedy, with_command);
            })
        };
        let fits = |text: &String| listed == 0 || lines(text) <= room;
        let full = Some(text(true)).filter(|text| listed < REMEDIES && fits(text));
        let Some(text) = full.or_else(|| Some(text(false)).filter(fits)) else {
            break;
        };
        room = room.saturating_sub(lines(&text));
        shown += &text;
        listed += 1;
    }
    for note in &e.notes {
        let text = section(&|page| page.write_labelled("note", std::slice::from_ref(note)));
        if lines(&text) <= room {
            room -= lines(&text);
            shown += &text;
        }
    }
    let details = section(&|page| {
        device::placement(page, e);
        device::decoding(page, e);
        device::transfers(page, e);
        if with_feeders {
            feeders::feeders(page, e);
        }
        what_if::prediction(page, e);
    });
    head + &resources + &shown + &tail_with(useful.len() - listed) + &details
}

/// Returns the remedies that gain, with their numbers for `--apply`. Feeders that do not exist are
/// left out.
fn useful(e: &Explanation) -> Vec<(usize, &Remedy)> {
    let numbered = e.remedies.iter().enumerate();
    let useful = numbered.filter(|(_, remedy)| remedy.gains() && !remedy.needs_feeders);
    useful.map(|(at, remedy)| (at + 1, remedy)).collect()
}

/// Returns the first warnings. The last of them has the number of the others.
fn first_warnings(e: &Explanation, count: usize) -> Vec<String> {
    let mut warnings: Vec<String> = e.warnings.iter().take(count).cloned().collect();
    let others = e.warnings.len() - warnings.len();
    if let (Some(last), 1..) = (warnings.last_mut(), others) {
        *last += &format!("; --full has {others} more");
    }
    warnings
}

/// Writes the limit, reasons to doubt the numbers, and the rate of the run.
pub(super) fn head(page: &mut TextPage, e: &Explanation, warnings: &[String]) {
    for line in wrap(&clean(&e.verdict.claim), page.width) {
        page.write_styled(BOLD, &line);
    }
    page.write_labelled("warning", warnings);
    let mut measured = format!("  {}", numbers::rate(e.run.samples_per_s));
    let stall = stall_text(e);
    if !stall.is_empty() {
        measured += &format!("; the consumer: {stall}");
    }
    wrap(&measured, page.width - 2)
        .iter()
        .for_each(|line| page.line(&format!("  {line}")));
}

pub(super) fn resources(page: &mut TextPage, e: &Explanation) {
    const COLUMNS: [TableColumn; 4] = [
        column("resource", ALWAYS),
        column("allows", ALWAYS),
        column("in use", 1),
        column("headroom", 1),
    ];
    let rows: Vec<Vec<String>> = e
        .resources
        .iter()
        .filter(|resource| resource.rate.mid.is_finite() && resource.rate.mid > 0.0)
        .take(RESOURCES)
        .map(|resource| {
            let used = e.run.samples_per_s / resource.rate.mid;
            vec![
                resource.limit.name().to_owned(),
                numbers::rate(resource.rate.mid),
                format_percent(used.min(1.0)),
                format_factor((1.0 / used.max(1e-9)).max(1.0)),
            ]
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
}

/// Writes number, name and gain on a line, and cost, effect and command below if there is room.
fn one_remedy(page: &mut TextPage, number: usize, remedy: &Remedy, with_command: bool) {
    let gain = numbers::factor_interval(remedy.gain);
    let name = clean(&remedy.title());
    let room = page.width.saturating_sub(length(&gain) + 2);
    let mut lines = wrap(&format!("{number}  {name}"), room - 2).into_iter();
    let first = lines.next().unwrap_or_default();
    let pad = " ".repeat(room.saturating_sub(2 + length(&first)));
    page.write_styled(BOLD, &format!("  {first}{pad}  {gain}"));
    lines.for_each(|line| page.write_styled(BOLD, &format!("{SET_IN}{line}")));
    if with_command {
        page.how(remedy, true);
    }
}

/// Writes the remedies that do not help and the options that show more. `hidden` is the number of
/// remedies that gain and have no room.
fn tail(page: &mut TextPage, e: &Explanation, hidden: usize) {
    let useful = useful(e);
    page.line("");
    if useful.is_empty() {
        page.line(match (e.remedies.is_empty(), e.verdict.limit) {
            (_, Limit::Step) => "  The loader keeps up. Make the step faster, or the batch larger.",
            (true, _) => "  No remedy was tried.",
            (false, _) => "  No tried remedy gains more than its trials vary.",
        });
    }
    let (idle, unclear) = without_gain(e);
    page.write_labelled("unclear", &unclear);
    if !idle.is_empty() {
        page.one_line("no gain", &idle.join(", "));
    }
    // The first sentence is about the step.
    let feeders = e.feeding.as_ref().filter(|_| e.subject.step_s.is_some());
    if let Some(first) = feeders.and_then(|feeding| feeding.notes.first()) {
        page.write_labelled("feeders", std::slice::from_ref(first));
    }
    let apply = match useful.first() {
        Some((number, _)) => format!("; --apply {number} applies and checks a remedy"),
        None => String::new(),
    };
    let hidden = match hidden {
        0 => String::new(),
        1 => " (1 more remedy)".to_owned(),
        count => format!(" ({count} more remedies)"),
    };
    page.one_line("more", &format!("--full{hidden}, --html FILE{apply}"));
}
