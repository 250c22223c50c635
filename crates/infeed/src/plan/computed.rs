//! Samples after user functions, for the cache of decoded records.
//!
//! A function is deterministic if its user says so with a version. If no transform draws at random,
//! the columns after the leading deterministic functions are the same in every epoch, and a record of
//! the cache holds them in place of its fields.
//!
//! Bytes of a record: as of a prepared record ([`super::prepared`]), with a field per column: the
//! number of axes (u32) and their lengths (u64), then the bytes. The last field is the number of
//! pixels of unknown class (u64).

use super::Plan;
use super::added;
use super::failure::StageFailure;
use super::function::{FunctionCall, own_cells};
use super::prepared::{KeptContent, VERSION, damaged, layout};
use super::sample::{Position, SampleScratch, cell_bytes};
use infeed_codec::transform::Transform;
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::counters::{Meter, Stage, ThreadCounters};
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Record;

/// Destination of what a cache keeps of a sample.
pub(super) struct KeptSample<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    /// Pixels of unknown class in the masks of the sample.
    pub(super) unknown_pixels: u64,
}

impl KeptSample<'_> {
    /// Writes the columns of a sample, which are in own cells. Writes nothing for over 4 GiB.
    pub(super) fn write(self, cells: &[RowCell]) {
        self.bytes.clear();
        let axes = |cell: &RowCell| match cell {
            RowCell::Own { shape, .. } => shape.clone(),
            RowCell::Slab(_) => Vec::new(),
        };
        let lengths = cells.iter().map(|cell| {
            let header = 4 + 8 * axes(cell).len();
            header + cell_bytes(cell) as usize
        });
        let lengths: Vec<usize> = lengths.chain([8]).collect();
        let Some((starts, total)) = layout(&lengths) else {
            return;
        };
        self.bytes.resize(total, 0);
        let mut put = |at: usize, bytes: &[u8]| {
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            at + bytes.len()
        };
        put(0, &(lengths.len() as u32).to_le_bytes());
        for (field, length) in lengths.iter().enumerate() {
            put(4 + 4 * field, &(*length as u32).to_le_bytes());
        }
        for (cell, &start) in cells.iter().zip(&starts) {
            let axes = axes(cell);
            let mut at = put(start, &(axes.len() as u32).to_le_bytes());
            for axis in axes {
                at = put(at, &(axis as u64).to_le_bytes());
            }
            if let RowCell::Own { bytes, .. } = cell {
                put(at, bytes);
            }
        }
        if let Some(&last) = starts.last() {
            put(last, &self.unknown_pixels.to_le_bytes());
        }
    }
}

/// Splits a kept column into its shape and its bytes. `None` for other bytes.
fn column(field: &[u8]) -> Option<(Vec<usize>, &[u8])> {
    let (count, rest) = field.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (axes, bytes) = rest.split_at_checked(count.checked_mul(8)?)?;
    let axis = |bytes: &[u8]| {
        let number = u64::from_le_bytes(bytes.try_into().ok()?);
        usize::try_from(number).ok()
    };
    Some((
        axes.chunks_exact(8).map(axis).collect::<Option<_>>()?,
        bytes,
    ))
}

/// Copies a column to a cell. Returns false if the cell has another length.
fn put(shape: &[usize], bytes: &[u8], cell: &mut RowCell) -> bool {
    match cell {
        RowCell::Slab(row) => {
            let to = row.bytes_mut();
            let fits = to.len() == bytes.len();
            if fits {
                to.copy_from_slice(bytes);
            }
            fits
        }
        RowCell::Own {
            shape: to_shape,
            bytes: to,
        } => {
            to_shape.clear();
            to_shape.extend_from_slice(shape);
            to.clear();
            to.extend_from_slice(bytes);
            true
        }
    }
}

impl Plan {
    /// Number of leading functions whose results a cache keeps.
    pub(super) fn kept_functions(&self) -> usize {
        let is_fixed = self.mixer.is_none()
            && !self.joins()
            && !self.transforms.iter().any(Transform::is_random);
        let kept = self.sample_calls().iter();
        let kept = kept.take_while(|call| call.version.is_some()).count();
        if is_fixed { kept } else { 0 }
    }

    /// Returns everything that decides the columns after the kept functions.
    pub(super) fn computed_content(&self) -> KeptContent {
        let calls = &self.sample_calls()[..self.kept_functions()];
        let before = format!(
            "{} {:?} {:?} {:?} {:?} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            self.fields,
            self.columns,
            self.transforms,
            self.decode,
            self.boxes,
            self.points,
        );
        let mut parts = vec![VERSION, hash_bytes(before.as_bytes())];
        let mut only_here = None;
        for call in calls {
            let location = call.location();
            if location.is_none() {
                only_here.get_or_insert_with(|| call.name.clone());
            }
            let text = format!(
                "{location:?} {:?} {:?} {:?} {:?}",
                call.version, call.takes, call.gives, call.columns
            );
            parts.push(hash_bytes(text.as_bytes()));
        }
        KeptContent {
            identity: hash(&parts),
            only_here,
        }
    }

    /// Makes the sample of a record that holds the columns after the kept functions.
    pub(super) fn run_computed(
        &self,
        record: &Record,
        at: Position,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        scratch.meter.start();
        let (first, rest) = self.sample_calls().split_at(self.kept_functions());
        let Some((unknown, fields)) = record.fields.split_last() else {
            return Err(damaged().in_field(0));
        };
        let count = first.last().map_or(0, |call| call.columns.len());
        let unknown = <[u8; 8]>::try_from(&unknown[..]).ok();
        let Some(unknown) = unknown.filter(|_| fields.len() == count) else {
            return Err(damaged().in_field(0));
        };
        scratch.unknown_pixels = u64::from_le_bytes(unknown);
        let mut between = own_cells(if rest.is_empty() { 0 } else { count });
        let cells = match rest.is_empty() {
            true => &mut row.cells[..],
            false => &mut between[..],
        };
        let mut copied = 0;
        for (field, (bytes, cell)) in fields.iter().zip(cells).enumerate() {
            let found = column(bytes).filter(|(shape, bytes)| put(shape, bytes, cell));
            found.ok_or_else(|| damaged().in_field(field))?;
            copied += bytes.len() as u64;
        }
        counters.count(Stage::Write, scratch.counted, copied, copied);
        scratch.meter.lap(Stage::Write, counters);
        if !rest.is_empty() {
            let meter = &mut scratch.meter;
            self.after_kept_functions(rest, &mut between, at, &mut row.cells, meter, counters)?;
        }
        scratch.meter.settle(counters);
        added::measure(&self.lists, row);
        Ok(())
    }

    /// Makes a row of the columns after the kept functions, which are in own cells.
    pub(super) fn after_kept_functions(
        &self,
        rest: &[FunctionCall],
        kept: &mut [RowCell],
        at: Position,
        row: &mut [RowCell],
        meter: &mut Meter,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        let first = self.sample_calls()[..self.kept_functions()].last();
        if let Some(call) = first.filter(|_| !rest.is_empty()) {
            let values = (call.values(kept)?, None);
            return self.call_functions(rest, values, at, row, meter, counters);
        }
        for (field, (from, to)) in kept.iter().zip(row).enumerate() {
            let is_put = match from {
                RowCell::Own { shape, bytes } => put(shape, bytes, to),
                RowCell::Slab(_) => false,
            };
            if !is_put {
                return Err(damaged().in_field(field));
            }
        }
        Ok(())
    }
}
