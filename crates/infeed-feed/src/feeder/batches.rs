//! Batches of a feeder: made on request, and sent as rows.

use std::io::Write;
use std::sync::Arc;

use crate::facts;
use crate::wire::WireError;
use crate::wire::bytes::Put;
use crate::wire::content_hashes::ContentHash;
use crate::wire::frame::{self, Checksum, Kind};
use crate::wire::hello::Fact;
use crate::wire::note::Note;
use crate::wire::rows::{ColumnLayout, HEAD_BYTES, KeptRow, RowHead, RowsHead, RowsLayout};
use infeed::loader::Options;
use infeed::loader::remote::{
    BatchMaker, BatchRequest, FilledRows, UnassembledBatch, UnassembledRows,
};
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_source::Source;

/// Makes batches for trainers of one world size and row layout.
#[derive(Debug)]
pub(super) struct RowsMaker {
    maker: BatchMaker,
    facts: Vec<Fact>,
}

impl RowsMaker {
    /// Opens a pipeline, as [`Pipeline::open_on_request`]. `hashes` are those of some records of the source.
    pub(super) fn open(
        pipeline: &Pipeline,
        source: Arc<dyn Source>,
        handles: &[Handle],
        hashes: &[ContentHash],
        options: &Options,
        for_device: bool,
    ) -> Result<RowsMaker, Error> {
        let maker = pipeline.open_on_request(source, handles, options, for_device)?;
        let facts = facts::facts(maker.run(), hashes)?;
        Ok(RowsMaker { maker, facts })
    }

    pub(super) fn batches(&self) -> &BatchMaker {
        &self.maker
    }

    /// Facts on which trainers must agree.
    pub(super) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Writes the rows of a batch, or a message that this feeder declines it. Returns the written
    /// bytes, and whether they were rows.
    ///
    /// # Errors
    ///
    /// The errors of the connection.
    pub(super) fn send(
        &self,
        batch: &UnassembledBatch,
        mut to: impl Write,
    ) -> Result<(u64, bool), WireError> {
        let request = &batch.request;
        let layout = RowsLayout::of(self.maker.run(), request.rules.digested);
        let made = match &batch.rows {
            Ok(rows) => head(rows, request, &*self.maker.run().source).map(|head| (rows, head)),
            Err(error) => Err(error.chain()),
        };
        let made = made.and_then(|(rows, head)| {
            let body = head.encode(&layout);
            match body.len() as u64 <= u64::from(HEAD_BYTES) {
                true => Ok((rows, head, body)),
                false => Err("its list of bad records is too long".to_owned()),
            }
        });
        match made {
            Ok((rows, head, body)) => {
                frame::write(&mut to, Kind::Rows, &body)?;
                let bytes = write(rows, &head, &layout, &mut to)?;
                to.flush()?;
                Ok((bytes + body.len() as u64, true))
            }
            Err(why) => {
                let mut put = Put::default();
                let body = put.u64(request.epoch).u64(request.step).text(&why, 1024);
                frame::write(&mut to, Kind::Declined, &body.finish())?;
                to.flush()?;
                Ok((0, false))
            }
        }
    }
}

/// Returns the head of the rows, or the reason why the trainer has to make them.
fn head(
    made: &UnassembledRows,
    request: &BatchRequest,
    source: &dyn Source,
) -> Result<RowsHead, String> {
    let row = |done: &FilledRows| {
        let notes = done.bad.iter().map(|bad| {
            Note::of(&bad.reason, source)
                .ok_or_else(|| format!("the trainer has to decide: {}", bad.reason.chain()))
        });
        let kept = done.rows.iter().flatten().next().map(|row| {
            let own = row.own.iter().flatten();
            let own = own.map(|(shape, bytes)| {
                let shape = shape.iter().map(|&length| length as u64);
                (shape.collect(), bytes.len() as u64)
            });
            KeptRow {
                record: row.record,
                ids: done.digest.ids,
                pixels: done.digest.pixels,
                unknown_pixels: done.unknown_pixels,
                own: own.collect(),
            }
        });
        Ok(RowHead {
            kept,
            notes: notes.collect::<Result<_, String>>()?,
        })
    };
    Ok(RowsHead {
        epoch: request.epoch,
        step: request.step,
        rows: made.rows.iter().map(row).collect::<Result<_, String>>()?,
    })
}

/// Writes the columns of the rows.
fn write(
    made: &UnassembledRows,
    head: &RowsHead,
    layout: &RowsLayout,
    to: &mut impl Write,
) -> Result<u64, WireError> {
    let mut written = 0;
    for (at, column) in layout.columns.iter().enumerate() {
        let mut sum = Checksum::default();
        let mut put = |bytes: &[u8]| {
            sum.add(bytes);
            written += bytes.len() as u64;
            to.write_all(bytes)
        };
        match (column, &made.slabs[at]) {
            (&ColumnLayout::Slab { row_bytes }, Some(slab)) => {
                let slab = slab.bytes();
                // Consecutive rows are written at once.
                let kept = head.rows.iter().map(|row| row.kept.is_some());
                let kept: Vec<bool> = kept.collect();
                for run in runs(&kept) {
                    put(&slab[run.start * row_bytes..run.end * row_bytes])?;
                }
            }
            _ => {
                let rows = made.rows.iter().flat_map(|done| done.rows.iter().flatten());
                for (_, bytes) in rows.filter_map(|row| row.own[at].as_ref()) {
                    put(bytes)?;
                }
            }
        }
        to.write_all(&sum.finish().to_le_bytes())?;
    }
    Ok(written)
}

/// Returns the ranges of kept rows.
fn runs(kept: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for row in (0..kept.len()).filter(|&row| kept[row]) {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_kept_go_out_in_runs() {
        assert_eq!(runs(&[true, true, false, true]), [0..2, 3..4]);
        assert_eq!(runs(&[false, false]), []);
    }
}
