//! What belongs on a device and what crossed to it, as sections of the page.

use super::markup::{Cell, Row, escaped, list, table};
use super::{figure, section};
use crate::explain::{Bound, Explanation, Known, Placing, Way};
use crate::report::numbers;
use crate::report::words::{busy, way_name, when_limited};

/// The ways there are, and the answer.
pub(super) fn placement(e: &Explanation) -> String {
    let Some(placing) = &e.placement else {
        return String::new();
    };
    let heads = [
        "placement",
        "storage",
        "host",
        "bus",
        "device",
        "step",
        "samples/s",
        "limit",
    ];
    let rows: Vec<Row> = placing.ways.iter().map(|way| row(placing, way)).collect();
    let known = match placing.known {
        Known::Measured => "measured",
        Known::Simulated => "simulated",
        Known::Planned => "planned",
    };
    let said = match placing.devices {
        1 => format!("Samples a second on {}, {known}.", placing.device),
        n => format!(
            "Samples a second of one of {n} devices, {}, {known}.",
            placing.device
        ),
    };
    let caption = "Bars: what each resource allows, by the side on which rows are finished. The limit \
                   of each is marked.";
    section(
        "Which side of the bus the work belongs on",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escaped(&said),
            figure("placement", caption),
            table("cards", &heads, &rows),
            list(&placing.said).replacen("<ul>", "<ul class=\"notes\">", 1),
        ),
    )
}

fn row(placing: &Placing, way: &Way) -> Row {
    let mut cells = vec![Cell::markup(escaped(&way_name(placing, way)).to_string())];
    let allows = Bound::ALL.map(|bound| Cell::number(when_limited(way, bound)));
    cells.extend(allows);
    cells.push(Cell::number(numbers::interval(way.rate, numbers::figures)));
    cells.push(Cell::text(way.binding.name()));
    let about = [&way.left, &way.arithmetic];
    let about: Vec<String> = about
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| escaped(text).to_string())
        .collect();
    Row {
        class: match way.split == placing.chosen {
            true => "limit",
            false => "",
        },
        cells,
        below: (!about.is_empty())
            .then(|| format!("<span class=\"sub\">{}</span>", about.join("; "))),
    }
}

/// What crossed, field by field.
pub(super) fn transfers(e: &Explanation) -> String {
    let Some(transfers) = &e.transfers else {
        return String::new();
    };
    let rows: Vec<Row> = transfers.fields.iter().map(field).collect();
    let heads = ["field", "over the bus, a row", "on the device, a row"];
    section(
        "What crossed the bus",
        &format!(
            "<p>{}.</p>\n{}{}{}",
            escaped(&capital(&transfers.verdict)),
            table("", &heads, &rows),
            list(&transfers.seen).replacen("<ul>", "<ul class=\"notes\">", 1),
            watched(e),
        ),
    )
}

/// The line that watchers of `nvidia-smi` know.
fn watched(e: &Explanation) -> String {
    let Some(utilisation) = &e.utilisation else {
        return String::new();
    };
    format!(
        "<p>{}.</p>\n{}",
        escaped(&capital(&busy(utilisation))),
        figure("busy", "")
    )
}

fn field(field: &crate::explain::Carried) -> Row {
    let bytes = |count: u64| match count {
        0 => "stays on the host".to_owned(),
        count => numbers::bytes(count as f64),
    };
    Row::plain(vec![
        Cell::markup(escaped(&field.name).to_string()),
        Cell::number(bytes(field.row_bytes)),
        Cell::number(bytes(field.device_bytes)),
    ])
}

/// A sentence with a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
