//! The full terminal report: the verdict, the cost of each stage, the gain of each remedy, and the
//! accuracy of earlier predictions.

mod device;
mod feeders;
mod page;
mod recording;
mod summary;
mod what_if;

pub use recording::recording;
pub use summary::summary;

use page::{TextPage, clean, column};

use super::numbers;
use super::table::{ALWAYS, TableColumn, set, wrap};
use super::words::{behind, error, stall, without_gain};
use crate::findings::ledger::LedgerEntry;
use crate::findings::{Explanation, Remedy, TrialSample, UntriedRemedy, Verdict};
use crate::model::stages::StageCost;
use infeed_core::printable::{BOLD, DIM};
use infeed_core::units::{figures, format_bytes, format_factor, format_percent, format_seconds};

/// Maximum number of ledger entries to show. The others are counted.
const SHOWN: usize = 5;

/// Returns the terminal report: verdict, stages, placement, decoding, transfers, feeders, remedies,
/// what-if questions, ledger, notes. Colour adds emphasis and no meaning.
///
/// Lines are at most `width` characters long. The exception is a command that cannot be broken for
/// the shell, because the user copies it.
pub fn text(e: &Explanation, width: usize, colour: bool) -> String {
    let mut page = TextPage::new(width, colour);
    page.write_labelled("warning", &e.warnings);
    let measured = match stall_text(e) {
        split if split.is_empty() => numbers::rate(e.run.samples_per_s),
        split => format!(
            "{}; the consumer: {split}",
            numbers::rate(e.run.samples_per_s)
        ),
    };
    let mut shown_verdict = e.verdict.clone();
    if e.remedies.iter().any(Remedy::gains) {
        // The table of remedies has them.
        shown_verdict.advice.clear();
    }
    verdict(
        &mut page,
        &shown_verdict,
        Some(measured),
        behind(&e.verdict),
    );
    what_if::crossovers(&mut page, e);
    stages(&mut page, &e.run.stages);
    device::placement(&mut page, e);
    device::decoding(&mut page, e);
    device::transfers(&mut page, e);
    feeders::feeders(&mut page, e);
    remedies(&mut page, e);
    page.write_labelled("trials", e.sample.map(trials).as_slice());
    what_if::prediction(&mut page, e);
    ledger(&mut page, &e.ledger);
    if !e.notes.is_empty() {
        page.line("");
        page.write_labelled("note", &e.notes);
    }
    page.out
}

/// Describes the records of the trials.
fn trials(sample: TrialSample) -> String {
    let size = |bytes: u64| format_bytes(bytes as f64);
    let mut text = format!(
        "{} records: {} encoded",
        sample.records,
        size(sample.encoded_bytes)
    );
    if sample.row_bytes > 0 {
        text += &format!(", {} as rows", size(sample.row_bytes));
    }
    if sample.cache_bytes > 0 {
        text += &format!("; cache {}", size(sample.cache_bytes));
    }
    text
}

/// Describes the consumer's time, largest share first.
fn stall_text(e: &Explanation) -> String {
    let mut parts = stall(e);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    let parts = parts.iter().filter(|part| part.share >= 0.005);
    let parts: Vec<String> = parts
        .map(|part| format!("{} {}", format_percent(part.share), part.what))
        .collect();
    parts.join(", ")
}

/// Returns a verdict for a terminal, without colour. It has no line about the next limit, because
/// the capacity of a watched loop has its rate.
///
/// Lines are at most `width` characters long.
pub fn verdict_text(v: &Verdict, width: usize) -> String {
    let mut page = TextPage::new(width, false);
    verdict(&mut page, v, None, None);
    page.out
}

/// Writes a verdict, with the measured rate and a description of the next limit if they are given.
fn verdict(page: &mut TextPage, v: &Verdict, measured: Option<String>, next: Option<String>) {
    for line in wrap(&clean(&v.claim), page.width) {
        page.write_styled(BOLD, &line);
    }
    page.write_labelled("measured", measured.as_slice());
    page.write_labelled("evidence", &v.evidence);
    page.write_labelled("capacity", &v.capacity);
    page.write_labelled(if v.tie { "tie" } else { "next" }, next.as_slice());
    page.write_labelled("try", &v.advice);
    page.write_labelled("not worth", &v.not_worth);
}

fn stages(page: &mut TextPage, stages: &[StageCost]) {
    const COLUMNS: [TableColumn; 8] = [
        column("stage", ALWAYS),
        column("per core", ALWAYS),
        column("CPU", ALWAYS),
        column("wall", 4),
        column("p99", 2),
        column("in", 1),
        column("out", 3),
        column("CPU share", 5),
    ];
    // A stage without samples has no cost, for example the decoding of pixels in memory.
    let rows: Vec<Vec<String>> = stages
        .iter()
        .filter(|stage| stage.samples > 0)
        .map(|stage| {
            let samples = stage.samples as f64;
            vec![
                clean(&stage.name),
                numbers::short_rate(stage.rate_per_core),
                format_seconds(stage.cpu_s / samples),
                format_seconds(stage.wall_s / samples),
                format_seconds(stage.p99_s),
                format_bytes(stage.bytes_in as f64 / samples),
                format_bytes(stage.bytes_out as f64 / samples),
                format_percent(stage.cpu_share),
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

fn remedies(page: &mut TextPage, e: &Explanation) {
    const COLUMNS: [TableColumn; 6] = [
        column("remedy", ALWAYS),
        column("gain", ALWAYS),
        column("samples/s", ALWAYS),
        column("step", ALWAYS),
        column("disk", COSTS),
        column("convert", COSTS),
    ];
    // Without room for these columns, the costs go below each remedy.
    const COSTS: u8 = 1;
    let (idle, useful): (Vec<_>, Vec<_>) = e.remedies.iter().partition(|r| !r.gains());
    if useful.is_empty() {
        page.line("");
        page.write_styled(BOLD, "  remedies");
        page.line(match idle.is_empty() {
            true => "  none was tried",
            false => "  none that was tried gains anything",
        });
    } else {
        // Numbered as in `Explanation::remedies`, because `infeed explain --apply N` uses the
        // number.
        let number = |remedy: &Remedy| {
            let at = e.remedies.iter().position(|r| std::ptr::eq(r, remedy));
            at.map_or(0, |at| at + 1)
        };
        let cells = |remedy: &&Remedy| {
            vec![
                format!("{:>2} {}", number(remedy), clean(&remedy.title())),
                numbers::factor_interval(remedy.gain),
                figures(remedy.rate.mid),
                format_seconds(remedy.step_time.mid),
                numbers::cost(remedy.disk_bytes as f64, format_bytes),
                numbers::cost(remedy.convert_s, format_seconds),
            ]
        };
        let rows: Vec<Vec<String>> = useful.iter().map(cells).collect();
        let table = set(&COLUMNS, &rows, page.width);
        page.line("");
        page.write_styled(BOLD, &table.head);
        for (lines, remedy) in table.rows.iter().zip(&useful) {
            lines.iter().for_each(|line| page.line(line));
            page.how(remedy, !table.kept[4]);
        }
    }
    let (idle, unclear) = without_gain(e);
    page.write_labelled("unclear", &unclear);
    page.write_labelled("no gain", &[idle.join(", ")]);
    let why = |r: &UntriedRemedy| format!("{}: {}", r.name, r.why);
    page.write_labelled(
        "not tried",
        &e.not_tried.iter().map(why).collect::<Vec<_>>(),
    );
}

fn ledger(page: &mut TextPage, entries: &[LedgerEntry]) {
    const COLUMNS: [TableColumn; 5] = [
        column("checked", ALWAYS),
        column("predicted", ALWAYS),
        column("measured", ALWAYS),
        column("error", ALWAYS),
        column("when", 1),
    ];
    if entries.is_empty() {
        return;
    }
    let cells = |entry: &LedgerEntry| {
        vec![
            clean(&entry.remedy),
            numbers::factor_interval(entry.predicted),
            format_factor(entry.measured),
            error(entry),
            numbers::day(entry.made_at_s),
        ]
    };
    let older = entries.len().saturating_sub(SHOWN);
    let rows: Vec<Vec<String>> = entries[older..].iter().map(cells).collect();
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
    if older > 0 {
        page.write_styled(DIM, &format!("  {older} older: see `infeed ledger`"));
    }
}
