//! What other machines give, or would give, as sections of the page.

use super::markup::{Cell, Row, escaped, list, table};
use super::{figure, section};
use crate::explain::{Explanation, FedHost, FeederCount, FeederKnown, Feeding};
use crate::report::numbers;
use crate::report::words::{count_name, of_host};

/// Remote stages: what each feeder did.
pub(super) fn hosts(e: &Explanation) -> String {
    let hosts = e.feeding.as_ref().map_or(&[][..], |feeding| &feeding.hosts);
    if hosts.is_empty() {
        return String::new();
    }
    let heads = [
        "remote", "batches", "share", "alone", "wait", "bytes", "wire", "busy", "redone",
    ];
    let rows: Vec<Row> = hosts.iter().map(host).collect();
    section(
        "What feeders did",
        &format!(
            "<p>Wait: from asking for a batch to having it. Wire: bytes a second while they came, \
             and busy the share of the time in which they did.</p>\n{}",
            table("cards", &heads, &rows)
        ),
    )
}

fn host(host: &FedHost) -> Row {
    let alone = host
        .alone
        .map(|rate| numbers::interval(rate, numbers::short_rate));
    Row {
        class: "",
        cells: vec![
            Cell::markup(escaped(&of_host(host)).to_string()),
            Cell::number(host.batches.to_string()),
            Cell::number(numbers::percent(host.share)),
            Cell::number(alone.unwrap_or_else(|| "unknown".to_owned())),
            Cell::number(numbers::seconds(host.wait_s)),
            Cell::number(numbers::bytes(host.bytes as f64)),
            Cell::number(format!("{}/s", numbers::bytes(host.bytes_per_s))),
            Cell::number(numbers::percent(host.busy)),
            Cell::number(host.redone.to_string()),
        ],
        below: host
            .problem
            .as_ref()
            .map(|problem| format!("<span class=\"sub\">{}</span>", escaped(problem))),
    }
}

/// What so many of them give, and why.
pub(super) fn counts(e: &Explanation) -> String {
    let Some(feeding) = &e.feeding else {
        return String::new();
    };
    let known = match feeding.known {
        FeederKnown::Planned => {
            "Planned from what this machine does: nothing was asked of another."
        }
        FeederKnown::Measured => "From what was measured with the feeders that there are.",
        FeederKnown::Counted => {
            "From what the loop counted; a bound where a feeder was not kept busy."
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
    let rows: Vec<Row> = feeding.counts.iter().map(|one| row(feeding, one)).collect();
    let body = match rows.is_empty() {
        true => String::new(),
        false => {
            let caption = "Bars: samples a second with so many feeders, the part made here dark. \
                           Dashed: what the step takes.";
            figure("feeders", caption) + &table("cards", &heads, &rows)
        }
    };
    let parts = feeding.parts.iter().map(|part| &part.arithmetic);
    let said: Vec<String> = feeding.said.iter().chain(parts).cloned().collect();
    section(
        "What other machines would add",
        &format!(
            "<p>{known}</p>\n{body}{}",
            list(&said).replacen("<ul>", "<ul class=\"notes\">", 1)
        ),
    )
}

fn row(feeding: &Feeding, count: &FeederCount) -> Row {
    Row {
        class: match Some(count.feeders) == feeding.enough {
            true => "limit",
            false => "",
        },
        cells: vec![
            Cell::markup(count_name(feeding, count)),
            Cell::number(numbers::factor_interval(count.gain)),
            Cell::number(numbers::interval(count.rate, numbers::figures)),
            Cell::number(numbers::figures(count.own)),
            Cell::number(numbers::figures(count.fed)),
            Cell::number(format!("{} cores", numbers::figures(count.receive_cores))),
            Cell::text(count.limit.name()),
        ],
        below: Some(format!(
            "<span class=\"sub\">{}</span>",
            escaped(&count.arithmetic)
        )),
    }
}
