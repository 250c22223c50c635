//! Sections of the page about feeders.

use super::figures::plot_of;
use super::markup::{TableCell, TableRow, escape, list, section, table};
use crate::findings::Explanation;
use crate::model::feeders::{FeederCount, FeederHost, FeederOrigin, Feeding};
use crate::report::numbers;
use crate::report::words::{count_name, of_host};
use infeed_core::units::{figures, format_bytes, format_percent, format_seconds};

/// Remote stages: the statistics of each feeder.
pub(super) fn hosts(e: &Explanation) -> String {
    let hosts = e.feeding.as_ref().map_or(&[][..], |feeding| &feeding.hosts);
    if hosts.is_empty() {
        return String::new();
    }
    let heads = [
        "remote", "batches", "share", "alone", "wait", "bytes", "wire", "busy", "redone",
    ];
    let rows: Vec<TableRow> = hosts.iter().map(host).collect();
    section(
        "Feeders",
        &format!(
            "<p>Wait: from the request for a batch to its arrival. Wire: bytes per second while \
             bytes arrived; busy: the share of time in which they did.</p>\n{}",
            table("stacked", &heads, &rows)
        ),
    )
}

fn host(host: &FeederHost) -> TableRow {
    let alone = host
        .alone
        .map(|rate| numbers::interval(rate, numbers::short_rate));
    TableRow {
        class: "",
        cells: vec![
            TableCell::markup(escape(&of_host(host)).to_string()),
            TableCell::number(host.batches.to_string()),
            TableCell::number(format_percent(host.share)),
            TableCell::number(alone.unwrap_or_else(|| "unknown".to_owned())),
            TableCell::number(format_seconds(host.wait_s)),
            TableCell::number(format_bytes(host.bytes as f64)),
            TableCell::number(format!("{}/s", format_bytes(host.bytes_per_s))),
            TableCell::number(format_percent(host.busy)),
            TableCell::number(host.redone.to_string()),
        ],
        below: host
            .problem
            .as_ref()
            .map(|problem| format!("<span class=\"sub\">{}</span>", escape(problem))),
    }
}

/// The rates of several numbers of feeders, with the reasons.
pub(super) fn counts(e: &Explanation) -> String {
    let Some(feeding) = &e.feeding else {
        return String::new();
    };
    let origin = match feeding.origin {
        FeederOrigin::Planned => {
            "Planned from this machine's rates; no other machine was measured."
        }
        FeederOrigin::Measured => "Measured with the existing feeders.",
        FeederOrigin::Counted => {
            "Counted by the loop; a lower bound for a feeder that was not busy."
        }
    };
    let heads = [
        "feeders",
        "gain",
        "samples/s",
        "here",
        "theirs",
        "receiving",
        "limit",
    ];
    let rows: Vec<TableRow> = feeding.counts.iter().map(|one| row(feeding, one)).collect();
    let body = match rows.is_empty() {
        true => String::new(),
        false => {
            let caption = "Bars: samples per second by number of feeders; the dark part is made on \
                           this machine. Dashed: the rate of the step.";
            plot_of(rows.len(), "feeders", caption) + &table("stacked", &heads, &rows)
        }
    };
    let parts = feeding.parts.iter().map(|part| &part.arithmetic);
    let notes: Vec<String> = feeding.notes.iter().chain(parts).cloned().collect();
    section(
        "Gain from other machines",
        &format!(
            "<p>{origin}</p>\n{body}{}",
            list(&notes).replacen("<ul>", "<ul class=\"notes\">", 1)
        ),
    )
}

fn row(feeding: &Feeding, count: &FeederCount) -> TableRow {
    TableRow {
        class: match Some(count.feeders) == feeding.enough {
            true => "limit",
            false => "",
        },
        cells: vec![
            TableCell::markup(count_name(feeding, count)),
            TableCell::number(numbers::factor_interval(count.gain)),
            TableCell::number(numbers::interval(count.rate, figures)),
            TableCell::number(figures(count.own)),
            TableCell::number(figures(count.from_feeders)),
            TableCell::number(format!("{} cores", figures(count.receive_cores))),
            TableCell::text(count.limit.name()),
        ],
        below: Some(format!(
            "<span class=\"sub\">{}</span>",
            escape(&count.arithmetic)
        )),
    }
}
