//! Terminal sections about the device: placement, decoding, transfers.

use super::page::{TextPage, clean, column};
use crate::findings::Explanation;
use crate::model::decoding::DecodingRate;
use crate::model::limit::Limit;
use crate::model::placement::{PlacementRate, PlacementReport};
use crate::report::table::{ALWAYS, TableColumn, set};
use crate::report::words::{allowed_rate, busy, decoding_name, placement_name};
use infeed_core::printable::BOLD;
use infeed_core::units::figures;

/// Writes the table of placements and the answer in sentences.
pub(super) fn placement(page: &mut TextPage, e: &Explanation) {
    const COLUMNS: [TableColumn; 8] = [
        column("placement", ALWAYS),
        column("storage", 2),
        column("host", 3),
        column("bus", 4),
        column("device", 5),
        column("step", 1),
        column("samples/s", ALWAYS),
        column("limit", ALWAYS),
    ];
    let Some(placement) = &e.placement else {
        return;
    };
    let rows: Vec<Vec<String>> = rows(placement);
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
    page.write_labelled("why", &placement.notes);
}

fn rows(placement: &PlacementReport) -> Vec<Vec<String>> {
    let row = |candidate: &PlacementRate| {
        let mut row = vec![clean(&placement_name(placement, candidate))];
        row.extend(Limit::HOST_DECODING.map(|bound| allowed_rate(candidate, bound)));
        row.push(figures(candidate.rate.mid));
        row.push(candidate.binding.placement_name().to_owned());
        row
    };
    placement.candidates.iter().map(row).collect()
}

/// Writes the table of decode shares and the answer in sentences.
pub(super) fn decoding(page: &mut TextPage, e: &Explanation) {
    const COLUMNS: [TableColumn; 9] = [
        column("decode", ALWAYS),
        column("storage", 2),
        column("host", 3),
        column("bus", 4),
        column("decoder", 6),
        column("device", 5),
        column("step", 1),
        column("samples/s", ALWAYS),
        column("limit", ALWAYS),
    ];
    let Some(decoding) = &e.decoding else { return };
    let row = |of: &DecodingRate| {
        let mut row = vec![decoding_name(decoding, of)];
        row.extend(Limit::DEVICE_DECODING.map(|bound| allowed_rate(&of.placement, bound)));
        row.push(figures(of.placement.rate.mid));
        row.push(of.placement.binding.placement_name().to_owned());
        row
    };
    let rows: Vec<Vec<String>> = decoding.candidates.iter().map(row).collect();
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.write_styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
    page.write_labelled("JPEGs", &decoding.notes);
}

/// Writes the transfers in a line, and other observations below.
pub(super) fn transfers(page: &mut TextPage, e: &Explanation) {
    let Some(transfers) = &e.transfers else {
        return;
    };
    page.line("");
    page.write_labelled("transfers", std::slice::from_ref(&transfers.verdict));
    page.write_labelled("", &transfers.seen);
    if let Some(utilisation) = &e.utilisation {
        page.write_labelled("", &[busy(utilisation)]);
    }
}
