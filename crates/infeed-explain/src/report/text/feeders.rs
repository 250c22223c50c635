//! Terminal sections about feeders.

use super::page::{TextPage, clean, column};
use crate::findings::Explanation;
use crate::model::feeders::{FeederCount, FeederHost, Feeding};
use crate::report::numbers;
use crate::report::table::{ALWAYS, TableColumn, set};
use crate::report::words::{count_name, of_host};
use infeed_core::printable::BOLD;
use infeed_core::units::{figures, format_bytes, format_percent, format_seconds};

/// Writes the existing feeders, the rates of several numbers of feeders, and the reasons.
pub(super) fn feeders(page: &mut TextPage, e: &Explanation) {
    let Some(feeding) = &e.feeding else { return };
    hosts(page, &feeding.hosts);
    counts(page, feeding);
    let parts: Vec<String> = feeding.parts.iter().map(|p| p.arithmetic.clone()).collect();
    page.write_labelled("parts", &parts);
    page.write_labelled("why", &feeding.notes);
}

/// Writes the remote stages: the statistics of each feeder.
fn hosts(page: &mut TextPage, hosts: &[FeederHost]) {
    const COLUMNS: [TableColumn; 8] = [
        column("remote", ALWAYS),
        column("batches", ALWAYS),
        column("share", ALWAYS),
        column("alone", 5),
        column("wait", 3),
        column("wire", 4),
        column("busy", 2),
        column("redone", 1),
    ];
    if hosts.is_empty() {
        return;
    }
    let row = |host: &FeederHost| {
        let mut cells = vec![clean(&of_host(host))];
        cells.push(host.batches.to_string());
        cells.push(format_percent(host.share));
        cells.push(
            host.alone
                .map_or("unknown".to_owned(), |rate| numbers::short_rate(rate.mid)),
        );
        cells.push(format_seconds(host.wait_s));
        cells.push(format!("{}/s", format_bytes(host.bytes_per_s)));
        cells.push(format_percent(host.busy));
        cells.push(host.redone.to_string());
        cells
    };
    let rows: Vec<Vec<String>> = hosts.iter().map(row).collect();
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
}

/// Writes the rates of several numbers of feeders.
fn counts(page: &mut TextPage, feeding: &Feeding) {
    const COLUMNS: [TableColumn; 7] = [
        column("feeders", ALWAYS),
        column("gain", ALWAYS),
        column("samples/s", ALWAYS),
        column("here", 2),
        column("theirs", 2),
        column("receiving", 1),
        column("limit", ALWAYS),
    ];
    if feeding.counts.is_empty() {
        return;
    }
    let row = |count: &FeederCount| {
        vec![
            count_name(feeding, count),
            numbers::factor_interval(count.gain),
            figures(count.rate.mid),
            figures(count.own),
            figures(count.from_feeders),
            format!("{} cores", figures(count.receive_cores)),
            count.limit.name().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = feeding.counts.iter().map(row).collect();
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
}
