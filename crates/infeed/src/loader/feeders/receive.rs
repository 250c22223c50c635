//! Rows of a batch that come from a feeder, into the rows of a tray.

use std::io::Read;

use crate::batch::{Cell, PADDING};
use crate::exec::Job;
use crate::exec::lend::{Begun, Lender};
use crate::loader::digest::Digest;
use crate::loader::made::Done;
use crate::loader::parcel::BadRecord;
use crate::loader::records::Records;
use crate::order::partition::Tail;
use crate::wire::WireError;
use crate::wire::frame::{self, Checksum};
use crate::wire::hello::Policy;
use crate::wire::rows::{Column, KeptRow, Layout, RowsHead};

/// Bytes that are read at once of what nobody wants.
const DISCARDED: usize = 16 << 10;

/// What came of a frame of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// The batch is made; so many bytes.
    Filled(u64),
    /// Somebody else had made it, or nobody wants it any more.
    Unwanted,
    /// Bytes of a column were changed on the way.
    Corrupt,
}

/// Checks what a feeder says of rows against what it may say.
pub(super) fn check(head: &RowsHead, job: &Records, policy: Policy) -> Result<(), WireError> {
    let pads = job.partition().tail() == Tail::Pad;
    let records = job.source().len();
    for row in &head.rows {
        match &row.kept {
            Some(kept) if kept.record < records || (pads && kept.record == PADDING) => {}
            None if policy == Policy::Skip => {}
            Some(KeptRow { record, .. }) => {
                let what = format!("record {record} where there are {records}");
                return Err(WireError::malformed(what));
            }
            None => return Err(WireError::malformed("a batch that lacks a row")),
        }
        if policy == Policy::Stop && !row.notes.is_empty() {
            let what = "a batch with a bad record, at which the run stops";
            return Err(WireError::malformed(what));
        }
    }
    Ok(())
}

/// Reads the columns behind a head. Without a tray to fill they are read and dropped, since what comes
/// next lies behind them.
pub(super) fn columns(
    mut from: impl Read,
    head: RowsHead,
    layout: &Layout,
    mut begun: Option<Begun<'_, Records>>,
    lender: &Lender<Records>,
    tray: u64,
) -> Result<Came, WireError> {
    let (mut whole, mut bytes) = (true, 0);
    let mut own = 0;
    for (at, column) in layout.columns.iter().enumerate() {
        let mut sum = Checksum::default();
        for (number, row) in head.rows.iter().enumerate() {
            let Some(kept) = &row.kept else { continue };
            if begun.is_some() && lender.is_stopping() {
                // A reset waits for these rows.
                begun = None;
            }
            let cell = begun
                .as_mut()
                .map(|begun| &mut begun.rows[number].cells[at]);
            bytes += match column {
                Column::Slab { row_bytes } => slab(&mut from, *row_bytes, cell, &mut sum)?,
                Column::Own { .. } => own_cell(&mut from, &kept.own[own], cell, &mut sum)?,
            };
        }
        whole &= frame::checked(&mut from, &sum)?;
        own += usize::from(matches!(column, Column::Own { .. }));
    }
    let Some(mut begun) = begun else {
        return Ok(Came::Unwanted);
    };
    if !whole {
        return Ok(Came::Corrupt);
    }
    let done = done(head, &mut begun, lender.job(), tray)?;
    begun.finish(done.into_iter().map(Ok).collect());
    Ok(Came::Filled(bytes))
}

/// Reads a row of a slab.
fn slab(
    from: &mut impl Read,
    row_bytes: usize,
    cell: Option<&mut Cell>,
    sum: &mut Checksum,
) -> Result<u64, WireError> {
    match cell {
        Some(Cell::Slab(row)) if row.bytes().len() == row_bytes => {
            let row = row.bytes_mut();
            from.read_exact(row)?;
            sum.add(row);
        }
        _ => discard(from, row_bytes as u64, sum)?,
    }
    Ok(row_bytes as u64)
}

/// Reads a row that lies by itself.
fn own_cell(
    from: &mut impl Read,
    (axes, len): &(Vec<u64>, u64),
    cell: Option<&mut Cell>,
    sum: &mut Checksum,
) -> Result<u64, WireError> {
    match cell {
        Some(Cell::Own { shape, bytes }) => {
            bytes.clear();
            frame::exactly(from, *len, bytes)?;
            sum.add(bytes);
            *shape = axes.iter().map(|&length| length as usize).collect();
        }
        _ => discard(from, *len, sum)?,
    }
    Ok(*len)
}

fn discard(from: &mut impl Read, len: u64, sum: &mut Checksum) -> Result<(), WireError> {
    let mut part = [0; DISCARDED];
    let mut left = len;
    while left > 0 {
        let now = left.min(part.len() as u64);
        let part = &mut part[..now as usize];
        from.read_exact(part)?;
        sum.add(part);
        left -= now;
    }
    Ok(())
}

/// What the rows leave for their batch, as own threads would leave it.
fn done(
    head: RowsHead,
    begun: &mut Begun<'_, Records>,
    job: &Records,
    tray: u64,
) -> Result<Vec<Done>, WireError> {
    let source = &**job.source();
    let first = job.first(tray);
    let epoch = head.epoch;
    let mut done = Vec::with_capacity(head.rows.len());
    for (number, (told, row)) in head.rows.into_iter().zip(&mut begun.rows).enumerate() {
        let position = job.spot(first + number as u64).position;
        let mut bad = Vec::with_capacity(told.notes.len());
        for note in told.notes {
            let (record, reason) = note.error(source)?;
            bad.push(BadRecord {
                record,
                epoch,
                position,
                reason,
            });
        }
        let digest = |kept: &KeptRow| Digest {
            ids: kept.ids,
            pixels: kept.pixels,
        };
        done.push(Done {
            unknown_pixels: told.kept.as_ref().map_or(0, |kept| kept.unknown_pixels),
            digest: match &told.kept {
                Some(kept) => digest(kept),
                None => Digest::empty(job.digested()),
            },
            row: told.kept.map(|kept| row.finish(kept.record)),
            bad,
        });
    }
    Ok(done)
}
