//! What belongs on a device, who could decode, and what crossed, for a terminal.

use super::super::numbers;
use super::super::table::{ALWAYS, Column, set};
use super::super::words::{busy, decoding_name, way_name, when_limited};
use super::{BOLD, Page, clean, column};
use crate::explain::{Bound, Explanation, Placing};

/// A table of the ways there are, and the answer in sentences.
pub(super) fn placement(page: &mut Page, e: &Explanation) {
    const COLUMNS: [Column; 8] = [
        column("placement", ALWAYS),
        column("storage", 2),
        column("host", 3),
        column("bus", 4),
        column("device", 5),
        column("step", 1),
        column("samples/s", ALWAYS),
        column("limit", ALWAYS),
    ];
    let Some(placing) = &e.placement else { return };
    let rows: Vec<Vec<String>> = rows(placing);
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
    page.labelled("why", &placing.said);
}

fn rows(placing: &Placing) -> Vec<Vec<String>> {
    let row = |way: &crate::explain::Way| {
        let mut row = vec![clean(&way_name(placing, way))];
        row.extend(Bound::PLACING.map(|bound| when_limited(way, bound)));
        row.push(numbers::figures(way.rate.mid));
        row.push(way.binding.name().to_owned());
        row
    };
    placing.ways.iter().map(row).collect()
}

/// A table of who could decode JPEGs, and the answer in sentences.
pub(super) fn decoding(page: &mut Page, e: &Explanation) {
    const COLUMNS: [Column; 9] = [
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
    let row = |of: &crate::explain::DecodingWay| {
        let mut row = vec![decoding_name(decoding, of)];
        row.extend(Bound::DECODING.map(|bound| when_limited(&of.way, bound)));
        row.push(numbers::figures(of.way.rate.mid));
        row.push(of.way.binding.name().to_owned());
        row
    };
    let rows: Vec<Vec<String>> = decoding.ways.iter().map(row).collect();
    let table = set(&COLUMNS, &rows, page.width);
    page.line("");
    page.styled(BOLD, &table.head);
    table.rows.iter().flatten().for_each(|line| page.line(line));
    page.labelled("JPEGs", &decoding.said);
}

/// What crossed, in a line, and what else was seen.
pub(super) fn transfers(page: &mut Page, e: &Explanation) {
    let Some(transfers) = &e.transfers else {
        return;
    };
    page.line("");
    page.labelled("transfers", std::slice::from_ref(&transfers.verdict));
    page.labelled("", &transfers.seen);
    if let Some(utilisation) = &e.utilisation {
        page.labelled("", &[busy(utilisation)]);
    }
}
