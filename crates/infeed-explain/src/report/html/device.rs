//! Sections of the page about the device: placement, decoding, transfers.

use super::figures::{plot_of, plot_of_curve};
use super::markup::{TableCell, TableRow, escape, list, section, table};
use crate::findings::Explanation;
use crate::model::decoding::DecodingRate;
use crate::model::limit::Limit;
use crate::model::placement::{DeviceOrigin, PlacementRate, PlacementReport};
use crate::model::transfers::FieldTransfer;
use crate::report::numbers;
use crate::report::words::{allowed_rate, busy, decoding_name, placement_name};
use infeed_core::units::{figures, format_bytes};

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
        .candidates
        .iter()
        .map(|candidate| row(placement, candidate))
        .collect();
    let origin = origin_name(placement.origin);
    let intro = match placement.devices {
        1 => format!("Samples per second on {}, {origin}.", placement.device),
        n => format!(
            "Samples per second of one of {n} devices, {}, {origin}.",
            placement.device
        ),
    };
    let caption = "Bars: what each resource allows, by placement. The limit of each is marked.";
    section(
        "Placement of the work",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escape(&intro),
            plot_of(rows.len(), "placement", caption),
            table("stacked", &heads, &rows),
            list(&placement.notes).replacen("<ul>", "<ul class=\"notes\">", 1),
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
            &of.placement,
            &Limit::DEVICE_DECODING,
            of.share == decoding.share,
        )
    };
    let rows: Vec<TableRow> = decoding.candidates.iter().map(row).collect();
    let intro = format!(
        "Samples per second with JPEGs assigned to the decoder of {}, {}. Its pixels differ \
         slightly from the host's.",
        decoding.device,
        origin_name(decoding.origin)
    );
    let caption = "Bars: what each resource allows, by the number of records, out of 16, that the \
                   device decodes. The limit of each is marked.";
    section(
        "JPEG decoding",
        &format!(
            "<p>{}</p>\n{}{}{}",
            escape(&intro),
            plot_of(rows.len(), "decoding", caption),
            table("stacked", &heads, &rows),
            list(&decoding.notes).replacen("<ul>", "<ul class=\"notes\">", 1),
        ),
    )
}

fn origin_name(origin: DeviceOrigin) -> &'static str {
    match origin {
        DeviceOrigin::Measured => "measured",
        DeviceOrigin::Simulated => "simulated",
        DeviceOrigin::Planned => "planned",
    }
}

fn row(placement: &PlacementReport, candidate: &PlacementRate) -> TableRow {
    let is_best = candidate.split == placement.chosen;
    row_of(
        placement_name(placement, candidate),
        candidate,
        &Limit::HOST_DECODING,
        is_best,
    )
}

fn row_of(name: String, candidate: &PlacementRate, bounds: &[Limit], is_best: bool) -> TableRow {
    let mut cells = vec![TableCell::markup(escape(&name).to_string())];
    let allows = bounds.iter().map(|&bound| allowed_rate(candidate, bound));
    cells.extend(allows.map(TableCell::number));
    cells.push(TableCell::number(numbers::interval(
        candidate.rate,
        figures,
    )));
    cells.push(TableCell::text(candidate.binding.placement_name()));
    let about = [&candidate.left, &candidate.arithmetic];
    let about: Vec<String> = about
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| escape(text).to_string())
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
            escape(&capital(&transfers.verdict)),
            table("", &heads, &rows),
            list(&transfers.seen).replacen("<ul>", "<ul class=\"notes\">", 1),
            utilisation(e),
        ),
    )
}

/// The line that readers of `nvidia-smi` know.
fn utilisation(e: &Explanation) -> String {
    let Some(utilisation) = &e.utilisation else {
        return String::new();
    };
    format!(
        "<p>{}.</p>\n{}",
        escape(&capital(&busy(utilisation))),
        plot_of_curve(utilisation.samples.iter().map(|point| point.busy), "busy")
    )
}

fn field(field: &FieldTransfer) -> TableRow {
    let bytes = |count: u64| match count {
        0 => "stays on the host".to_owned(),
        count => format_bytes(count as f64),
    };
    let over = match field.files {
        // The row has room for more bytes than its file or crop.
        true => format!("at most {}", bytes(field.row_bytes)),
        false => bytes(field.row_bytes),
    };
    TableRow::plain(vec![
        TableCell::markup(escape(&field.name).to_string()),
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
