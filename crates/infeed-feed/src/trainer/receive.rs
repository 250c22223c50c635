//! Reads rows of a feeder's batch into the rows of an in-flight batch.

use std::io::Read;

use crate::wire::WireError;
use crate::wire::frame::{self, Checksum};
use crate::wire::hello::Policy;
use crate::wire::rows::{ColumnLayout, KeptRow, RowsHead, RowsLayout};
use infeed::loader::BadRecord;
use infeed::loader::digest::Digest;
use infeed::loader::remote::{FilledRows, RemoteBatch, RemoteBatches};
use infeed_core::batch::{PADDING, RowCell};
use infeed_core::order::partition::Tail;

/// Buffer size in bytes for discarding rows.
const DISCARDED: usize = 16 << 10;

/// Result of reading the rows of a batch.
pub(super) enum ReceiveOutcome<'a> {
    /// The batch is filled.
    Filled(FilledBatch<'a>),
    /// Another thread or feeder made the batch first, or it is no longer needed.
    Unwanted,
    /// Bytes of a column are corrupt.
    Corrupt,
}

/// A filled batch, which no consumer has yet.
pub(super) struct FilledBatch<'a> {
    begun: RemoteBatch<'a>,
    rows: Vec<FilledRows>,
    /// Number of bytes that were read.
    pub(super) bytes: u64,
}

impl FilledBatch<'_> {
    /// Delivers the batch.
    pub(super) fn finish(self) {
        self.begun.finish(self.rows);
    }
}

/// Checks the head of a feeder's rows.
pub(super) fn check(
    head: &RowsHead,
    batches: &RemoteBatches,
    policy: Policy,
) -> Result<(), WireError> {
    let pads = batches.partition().tail() == Tail::Pad;
    let records = batches.source().len();
    for row in &head.rows {
        match &row.kept {
            Some(kept) if kept.record < records || (pads && kept.record == PADDING) => {}
            None if policy == Policy::Skip => {}
            Some(KeptRow { record, .. }) => {
                let what = format!("record {record} of {records}");
                return Err(WireError::malformed(what));
            }
            None => return Err(WireError::malformed("a batch without one of its rows")),
        }
        if policy == Policy::Stop && !row.notes.is_empty() {
            let what = "a batch with a bad record, at which the run stops";
            return Err(WireError::malformed(what));
        }
    }
    Ok(())
}

/// Reads the columns after a head. Without an in-flight batch, the bytes are read and discarded to
/// reach the next message.
pub(super) fn columns<'a>(
    mut from: impl Read,
    head: RowsHead,
    layout: &RowsLayout,
    mut begun: Option<RemoteBatch<'a>>,
    batches: &RemoteBatches,
    in_flight: u64,
) -> Result<ReceiveOutcome<'a>, WireError> {
    let (mut whole, mut bytes) = (true, 0);
    let mut own = 0;
    for (at, column) in layout.columns.iter().enumerate() {
        let mut sum = Checksum::default();
        for (number, row) in head.rows.iter().enumerate() {
            let Some(kept) = &row.kept else { continue };
            if begun.is_some() && batches.is_stopping() {
                // A reset waits for these rows.
                begun = None;
            }
            let cell = begun
                .as_mut()
                .map(|begun| &mut begun.rows()[number].cells[at]);
            bytes += match column {
                ColumnLayout::Slab { row_bytes } => slab(&mut from, *row_bytes, cell, &mut sum)?,
                ColumnLayout::Own { .. } => own_cell(&mut from, &kept.own[own], cell, &mut sum)?,
            };
        }
        whole &= frame::verify_checksum(&mut from, &sum)?;
        own += usize::from(matches!(column, ColumnLayout::Own { .. }));
    }
    let Some(mut begun) = begun else {
        return Ok(ReceiveOutcome::Unwanted);
    };
    if !whole {
        return Ok(ReceiveOutcome::Corrupt);
    }
    let rows = filled_rows(head, &mut begun, batches, in_flight)?;
    Ok(ReceiveOutcome::Filled(FilledBatch { begun, rows, bytes }))
}

/// Reads a row into a slab.
fn slab(
    from: &mut impl Read,
    row_bytes: usize,
    cell: Option<&mut RowCell>,
    sum: &mut Checksum,
) -> Result<u64, WireError> {
    match cell {
        Some(RowCell::Slab(row)) if row.bytes().len() == row_bytes => {
            let row = row.bytes_mut();
            from.read_exact(row)?;
            sum.add(row);
        }
        _ => discard(from, row_bytes as u64, sum)?,
    }
    Ok(row_bytes as u64)
}

/// Reads a row outside slabs.
fn own_cell(
    from: &mut impl Read,
    (axes, len): &(Vec<u64>, u64),
    cell: Option<&mut RowCell>,
    sum: &mut Checksum,
) -> Result<u64, WireError> {
    match cell {
        Some(RowCell::Own { shape, bytes }) => {
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

/// Returns the result of each row, equal to the result of local threads.
fn filled_rows(
    head: RowsHead,
    begun: &mut RemoteBatch<'_>,
    batches: &RemoteBatches,
    in_flight: u64,
) -> Result<Vec<FilledRows>, WireError> {
    let source = &**batches.source();
    let epoch = head.epoch;
    let mut done = Vec::with_capacity(head.rows.len());
    for (number, (received, row)) in head.rows.into_iter().zip(begun.rows()).enumerate() {
        let position = batches.position(in_flight, number);
        let mut bad = Vec::with_capacity(received.notes.len());
        for note in received.notes {
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
        done.push(FilledRows {
            unknown_pixels: received.kept.as_ref().map_or(0, |kept| kept.unknown_pixels),
            digest: match &received.kept {
                Some(kept) => digest(kept),
                None => Digest::empty(batches.digest_scope()),
            },
            rows: vec![received.kept.map(|kept| row.finish(kept.record))],
            bad,
        });
    }
    Ok(done)
}
