//! Sections of the page about the device: placement, decoding, transfers.

use super::figures::{plot_of, plot_of_curve};
use super::markup::{TableCell, TableRow, escaped, list, section, table};
use crate::findings::Explanation;
use crate::model::decoding::DecodingRate;
use crate::model::limit::Limit;
use crate::model::placement::{DeviceOrigin, PlacementRate, PlacementReport};
use crate::model::transfers::FieldTransfer;
use crate::report::numbers;
use crate::report::words::{busy, decoding_name, way_name, when_limited};

/// The placements and the answer.
pub(super) fn placement(e: &Explanation) -> String {
    let Some(placement) = &e.placement else {
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
    let rows: Vec<TableRow> = placement
        .ways
        .iter()
        .map(|way| row(placement, way))
        .collect();
    let known = known(placement.known);
    let said = match placement.devices {
        1 => format!("Samples per second on {}, {known}.", placement.device),
        n => format!(
            "Samples per second of one of {n} devices, {}, {known}.",
            placement.device
        ),
    };
    let caption = "Bars: what each resource allows, by placement. The limit of each is marked.";
    section(
        "Placement of the work",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escaped(&said),
            plot_of(rows.len(), "placement", caption),
            table("stacked", &heads, &rows),
            list(&placement.said).replacen("<ul>", "<ul class=\"notes\">", 1),
        ),
    )
}

/// The shares of JPEGs that the device could decode, with their rates.
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
    let row = |of: &DecodingRate| {
        let name = decoding_name(decoding, of);
        row_of(
            name,
            &of.way,
            &Limit::DEVICE_DECODING,
            of.share == decoding.share,
        )
    };
    let rows: Vec<TableRow> = decoding.ways.iter().map(row).collect();
    let said = format!(
        "Samples per second with JPEGs assigned to the decoder of {}, {}. Its pixels differ \
         slightly from the host's.",
        decoding.device,
        known(decoding.known)
    );
    let caption = "Bars: what each resource allows, by the number of records, out of 16, that the \
                   device decodes. The limit of each is marked.";
    section(
        "JPEG decoding",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escaped(&said),
            plot_of(rows.len(), "decoding", caption),
            table("stacked", &heads, &rows),
            list(&decoding.said).replacen("<ul>", "<ul class=\"notes\">", 1),
        ),
    )
}

fn known(known: DeviceOrigin) -> &'static str {
    match known {
        DeviceOrigin::Measured => "measured",
        DeviceOrigin::Simulated => "simulated",
        DeviceOrigin::Planned => "planned",
    }
}

fn row(placement: &PlacementReport, way: &PlacementRate) -> TableRow {
    let is_best = way.split == placement.chosen;
    row_of(
        way_name(placement, way),
        way,
        &Limit::HOST_DECODING,
        is_best,
    )
}

fn row_of(name: String, way: &PlacementRate, bounds: &[Limit], is_best: bool) -> TableRow {
    let mut cells = vec![TableCell::markup(escaped(&name).to_string())];
    let allows = bounds.iter().map(|&bound| when_limited(way, bound));
    cells.extend(allows.map(TableCell::number));
    cells.push(TableCell::number(numbers::interval(
        way.rate,
        numbers::figures,
    )));
    cells.push(TableCell::text(way.binding.placement_name()));
    let about = [&way.left, &way.arithmetic];
    let about: Vec<String> = about
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| escaped(text).to_string())
        .collect();
    TableRow {
        class: match is_best {
            true => "limit",
            false => "",
        },
        cells,
        below: (!about.is_empty())
            .then(|| format!("<span class=\"sub\">{}</span>", about.join("; "))),
    }
}

/// The transfers, by field.
pub(super) fn transfers(e: &Explanation) -> String {
    let Some(transfers) = &e.transfers else {
        return String::new();
    };
    let rows: Vec<TableRow> = transfers.fields.iter().map(field).collect();
    let heads = ["field", "over the bus, per row", "on the device, per row"];
    section(
        "Transfers over the bus",
        &format!(
            "<p>{}.</p>\n{}{}{}",
            escaped(&capital(&transfers.verdict)),
            table("", &heads, &rows),
            list(&transfers.seen).replacen("<ul>", "<ul class=\"notes\">", 1),
            watched(e),
        ),
    )
}

/// The line that readers of `nvidia-smi` know.
fn watched(e: &Explanation) -> String {
    let Some(utilisation) = &e.utilisation else {
        return String::new();
    };
    format!(
        "<p>{}.</p>\n{}",
        escaped(&capital(&busy(utilisation))),
        plot_of_curve(utilisation.looks.iter().map(|point| point.busy), "busy")
    )
}

fn field(field: &FieldTransfer) -> TableRow {
    let bytes = |count: u64| match count {
        0 => "stays on the host".to_owned(),
        count => numbers::bytes(count as f64),
    };
    let over = match field.files {
        // The row has room for more bytes than its file or crop.
        true => format!("at most {}", bytes(field.row_bytes)),
        false => bytes(field.row_bytes),
    };
    TableRow::plain(vec![
        TableCell::markup(escaped(&field.name).to_string()),
        TableCell::number(over),
        TableCell::number(bytes(field.device_bytes)),
    ])
}

/// Capitalizes the first letter of a sentence.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
