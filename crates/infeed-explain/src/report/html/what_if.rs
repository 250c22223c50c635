//! Sections of the page about what-if questions and the step times at which the limit changes.

use super::markup::{TableCell, TableRow, escape, list, section, table};
use crate::findings::Explanation;
use crate::model::limit::Resource;
use crate::report::numbers;
use crate::report::words::{predicted_rates, step_times};

/// The step times at which the limit changes.
pub(super) fn crossovers(e: &Explanation) -> String {
    let sentences = step_times(&e.crossovers);
    match sentences.is_empty() {
        true => String::new(),
        false => section("Step time and limit", &list(&sentences)),
    }
}

/// The prediction for other cores, memory, storage or batches.
pub(super) fn prediction(e: &Explanation) -> String {
    let Some(report) = &e.what_if else {
        return String::new();
    };
    let fact = |(label, lines): (&str, &[String])| match lines.is_empty() {
        true => String::new(),
        false => format!("<dt>{}</dt><dd>{}</dd>\n", escape(label), list(lines)),
    };
    let mut facts: String = predicted_rates(report)
        .into_iter()
        .map(|(label, text)| fact((label, &[text])))
        .collect();
    for change in &report.changes {
        facts += &fact((&change.option, &change.arithmetic));
    }
    facts += &fact(("step time", &step_times(&report.crossovers)));
    let assumed = report
        .changes
        .iter()
        .flat_map(|change| change.assumptions.iter());
    facts += &fact(("assumed", &assumed.cloned().collect::<Vec<_>>()));
    let rows: Vec<TableRow> = report.resources.iter().map(row).collect();
    let rows = match rows.is_empty() {
        true => String::new(),
        false => table("", &["resource then", "allows"], &rows),
    };
    section(
        "What if",
        &format!(
            "<p>{}</p>\n<dl class=\"verdict\">\n{facts}</dl>\n{rows}",
            escape(&report.question)
        ),
    )
}

fn row(resource: &Resource) -> TableRow {
    TableRow::plain(vec![
        TableCell::markup(resource.limit.name().to_owned()),
        TableCell::number(numbers::interval(resource.rate, numbers::short_rate)),
    ])
}
