//! What belongs on a device, who could decode, and what crossed, as sections of the page.

use super::markup::{Cell, Row, escaped, list, table};
use super::{figure, section};
use crate::explain::{Bound, DecodingWay, Explanation, Known, Placing, Way};
use crate::report::numbers;
use crate::report::words::{busy, decoding_name, way_name, when_limited};

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
    let known = known(placing.known);
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

/// Who could decode JPEGs, and what each share would give.
pub(super) fn decoding(e: &Explanation) -> String {
    let Some(decoding) = &e.decoding else {
        return String::new();
    };
    let heads = [
        "decode",
        "storage",
        "host",
        "bus",
        "decoder",
        "device",
        "step",
        "samples/s",
        "limit",
    ];
    let row = |of: &DecodingWay| {
        let name = decoding_name(decoding, of);
        row_of(name, &of.way, &Bound::DECODING, of.share == decoding.share)
    };
    let rows: Vec<Row> = decoding.ways.iter().map(row).collect();
    let said = format!(
        "Samples a second with JPEGs left to the decoder of {}, {}. Its pixels are near the host's, and \
         not the same.",
        decoding.device,
        known(decoding.known)
    );
    let caption = "Bars: what each resource allows, by the records of 16 that the device decodes. The \
                   limit of each is marked.";
    section(
        "Who decodes JPEGs",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escaped(&said),
            figure("decoding", caption),
            table("cards", &heads, &rows),
            list(&decoding.said).replacen("<ul>", "<ul class=\"notes\">", 1),
        ),
    )
}

fn known(known: Known) -> &'static str {
    match known {
        Known::Measured => "measured",
        Known::Simulated => "simulated",
        Known::Planned => "planned",
    }
}

fn row(placing: &Placing, way: &Way) -> Row {
    let is_best = way.split == placing.chosen;
    row_of(way_name(placing, way), way, &Bound::PLACING, is_best)
}

fn row_of(name: String, way: &Way, bounds: &[Bound], is_best: bool) -> Row {
    let mut cells = vec![Cell::markup(escaped(&name).to_string())];
    let allows = bounds.iter().map(|&bound| when_limited(way, bound));
    cells.extend(allows.map(Cell::number));
    cells.push(Cell::number(numbers::interval(way.rate, numbers::figures)));
    cells.push(Cell::text(way.binding.name()));
    let about = [&way.left, &way.arithmetic];
    let about: Vec<String> = about
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| escaped(text).to_string())
        .collect();
    Row {
        class: match is_best {
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
    let over = match field.files {
        // A row has room for more than the file in it, or the crop.
        true => format!("at most {}", bytes(field.row_bytes)),
        false => bytes(field.row_bytes),
    };
    Row::plain(vec![
        Cell::markup(escaped(&field.name).to_string()),
        Cell::number(over),
        Cell::number(bytes(field.device_bytes)),
    ])
}

/// A sentence with a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
