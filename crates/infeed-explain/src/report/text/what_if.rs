//! Terminal sections about what-if questions and the step times at which the limit changes.

use super::page::{TextPage, clean, column};
use crate::findings::Explanation;
use crate::model::limit::Resource;
use crate::report::numbers;
use crate::report::table::{ALWAYS, TableColumn, set};
use crate::report::words::{predicted_rates, step_times};
use infeed_core::printable::BOLD;
use infeed_core::units::figures;

/// Writes the step times at which the limit changes.
pub(super) fn crossovers(page: &mut TextPage, e: &Explanation) {
    page.write_labelled("step time", &step_times(&e.crossovers));
}

/// Writes the prediction for other cores, memory, storage or batches: rates, resources, arithmetic
/// and assumptions.
pub(super) fn prediction(page: &mut TextPage, e: &Explanation) {
    let Some(report) = &e.what_if else { return };
    page.line("");
    page.write_styled(BOLD, &format!("  what if: {}", clean(&report.question)));
    for (label, text) in predicted_rates(report) {
        page.write_labelled(label, &[text]);
    }
    resources(page, &report.resources);
    page.line("");
    for change in &report.changes {
        page.write_labelled(&clean(&change.option), &change.arithmetic);
    }
    page.write_labelled("step time", &step_times(&report.crossovers));
    let assumed = report
        .changes
        .iter()
        .flat_map(|change| change.assumptions.iter());
    page.write_labelled("assumed", &assumed.cloned().collect::<Vec<_>>());
}

fn resources(page: &mut TextPage, resources: &[Resource]) {
    const COLUMNS: [TableColumn; 3] = [
        column("resource then", ALWAYS),
        column("allows", ALWAYS),
        column("interval", 1),
    ];
    let shown = resources
        .iter()
        .filter(|resource| resource.rate.mid.is_finite());
    let rows: Vec<Vec<String>> = shown
        .map(|resource| {
            vec![
                resource.limit.name().to_owned(),
                numbers::rate(resource.rate.mid),
                format!(
                    "{} to {}",
                    figures(resource.rate.low),
                    figures(resource.rate.high)
                ),
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
