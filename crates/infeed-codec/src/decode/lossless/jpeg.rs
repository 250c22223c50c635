//! Records of kind `J`: a JPEG file as its segments and its coefficients.

use std::borrow::Cow;
use std::fmt;

use infeed_raw::jpeg::{JpegError, JpegTask};
use infeed_raw::jpeg_coefficients::{self as native, CoefficientsError, ComponentBlocks, McuGrid};
use zstd::bulk::{Compressor, Decompressor};

use super::coefficients::{self, CoefficientImage, Grid, MAX_BLOCKS, StripScratch};
use super::keep_reason::KeepReason;
use super::record::{LosslessRecord, RecordKind, RecordWriter};
use super::segments::{self, ScanHeader};
use super::varint;

/// Most scans of a progressive original, as for decoding.
const MAX_SCANS: u16 = 100;

/// Most bytes of the segments before the scan data.
const MAX_HEAD: usize = 16 << 20;

/// Level of zstd for the segments.
const LEVEL: i32 = 9;

/// The record restores the original file byte for byte.
const RESTORES_BYTES: u16 = 1;
/// The original fills the last bytes of the scan with zeros instead of ones.
const PADS_WITH_ZEROS: u16 = 2;

/// Encodes a JPEG file. The second result is whether the record restores the file byte for byte;
/// otherwise it restores a JPEG with the same coefficients and metadata.
///
/// Verifies that the record holds the segments and coefficients of which it was made.
pub(crate) fn encode(file: &[u8]) -> Result<(Vec<u8>, bool), KeepReason> {
    let header = ScanHeader::read(file)
        .filter(|header| header.length <= MAX_HEAD)
        .ok_or(KeepReason::Unsupported)?;
    header.grid.blocks().ok_or(KeepReason::Unsupported)?;
    let components = native::read(file, MAX_SCANS, MAX_BLOCKS).map_err(|error| match error {
        CoefficientsError::Incomplete => KeepReason::Incomplete,
        other => KeepReason::Damaged(other.to_string()),
    })?;
    if components.len() != header.grid.sampling.len() {
        return Err(KeepReason::Unsupported);
    }
    if let Some((flags, tail)) = exact_tail(file, &header, &components) {
        let head = &file[..header.length];
        let record = record(flags, head, tail, &header.grid, &components)?;
        return Ok((record, true));
    }
    let head = baseline_head(file).ok_or(KeepReason::Unsupported)?;
    let header = ScanHeader::read(&head).ok_or(KeepReason::Unsupported)?;
    // The tables have codes for everything that a baseline file can hold.
    segments::write_scan(&header, &components, true).ok_or(KeepReason::Unsupported)?;
    let record = record(0, &head, &[0xFF, 0xD9], &header.grid, &components)?;
    Ok((record, false))
}

/// Flags of a record that restores the file, and the bytes after the scan data.
fn exact_tail<'a>(
    file: &'a [u8],
    header: &ScanHeader,
    components: &[ComponentBlocks],
) -> Option<(u16, &'a [u8])> {
    if !header.is_sequential {
        return None;
    }
    let after = &file[header.length..];
    for (pad, flags) in [
        (true, RESTORES_BYTES),
        (false, RESTORES_BYTES | PADS_WITH_ZEROS),
    ] {
        let scan = segments::write_scan(header, components, pad)?;
        if let Some(tail) = after.strip_prefix(&scan[..]) {
            return Some((flags, tail));
        }
    }
    None
}

/// Makes a record, and reads it back.
fn record(
    flags: u16,
    head: &[u8],
    tail: &[u8],
    grid: &Grid,
    components: &[ComponentBlocks],
) -> Result<Vec<u8>, KeepReason> {
    let mut out = RecordWriter::new(RecordKind::Jpeg, flags);
    let body = out.body();
    write_head(head, body);
    varint::write(body, tail.len() as u64);
    body.extend(tail);
    coefficients::write(grid, components, body);
    let record = out.finish();
    match holds(&record, flags, head, tail, components) {
        Ok(true) => Ok(record),
        _ => Err(KeepReason::OtherPixels),
    }
}

/// Whether a record restores a file of these segments and coefficients.
fn holds(
    record: &[u8],
    flags: u16,
    head: &[u8],
    tail: &[u8],
    components: &[ComponentBlocks],
) -> Result<bool, &'static str> {
    let record = LosslessRecord::read(record)?;
    let parts = JpegParts::read(record.flags, record.body).ok_or("a record that ends early")?;
    let header = ScanHeader::read(head).ok_or("segments of another kind of JPEG")?;
    let mut scratch = JpegRecordScratch::default();
    let strips = &mut scratch.strips;
    let image = CoefficientImage::read(&header.grid, parts.coefficients, strips)?;
    Ok(record.is_intact()
        && (record.kind, parts.flags) == (RecordKind::Jpeg, flags)
        && (&parts.head(&mut scratch.segments)?[..], parts.tail) == (head, tail)
        && image.has(components, strips))
}

/// Appends the segments, compressed if that makes them shorter.
fn write_head(head: &[u8], body: &mut Vec<u8>) {
    let compressed = Compressor::with_dictionary(LEVEL, super::tables::ALL)
        .and_then(|mut compressor| compressor.compress(head))
        .unwrap_or_default();
    let is_shorter = (1..head.len()).contains(&compressed.len());
    let stored = if is_shorter { &compressed } else { head };
    varint::write(body, head.len() as u64);
    varint::write(body, stored.len() as u64);
    body.extend(stored);
}

/// Segments of an extended sequential JPEG with one scan and the usual tables, with the metadata of
/// another file.
fn baseline_head(file: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0xFF, 0xD8];
    let mut frame: Option<&[u8]> = None;
    let mut at = 2;
    // Quantisation tables may follow the first scan, but then they belong to later components.
    loop {
        let found = segments::segment(file, at)?;
        match found.marker {
            0xC0..=0xC2 => frame = Some(found.body),
            0xDB | 0xE0..=0xEF | 0xFE => out.extend(&file[found.start..found.end]),
            0xDA => break,
            _ => {}
        }
        at = found.end;
    }
    let frame = frame?;
    let append = |out: &mut Vec<u8>, marker: u8, body: &[u8]| {
        out.extend([0xFF, marker]);
        out.extend((body.len() as u16 + 2).to_be_bytes());
        out.extend(body);
    };
    append(&mut out, 0xC1, frame);
    append(&mut out, 0xC4, super::tables::ALL);
    let components = frame.get(6..)?.chunks_exact(3);
    let mut scan = vec![components.len() as u8];
    for (index, component) in components.enumerate() {
        scan.extend([component[0], if index == 0 { 0 } else { 0x11 }]);
    }
    scan.extend([0, 63, 0]);
    append(&mut out, 0xDA, &scan);
    Some(out)
}

/// Context that decompresses segments, reused from record to record.
#[derive(Default)]
pub(crate) struct SegmentScratch(Option<Decompressor<'static>>);

impl fmt::Debug for SegmentScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentScratch").finish_non_exhaustive()
    }
}

/// Buffers of a decoder, reused from record to record.
#[derive(Debug, Default)]
pub(crate) struct JpegRecordScratch {
    pub(crate) segments: SegmentScratch,
    pub(crate) strips: StripScratch,
}

/// The parts of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JpegParts<'a> {
    /// Segments of a JPEG with one scan, up to the scan data, as they are stored.
    head: &'a [u8],
    /// Bytes of the segments.
    head_length: usize,
    /// Bytes after the scan data.
    tail: &'a [u8],
    /// Codes, directory and strips.
    coefficients: &'a [u8],
    flags: u16,
}

impl<'a> JpegParts<'a> {
    /// Splits the body of a record. Checks nothing but the lengths.
    pub(crate) fn read(flags: u16, mut body: &'a [u8]) -> Option<JpegParts<'a>> {
        let head_length = varint::read(&mut body).filter(|&length| length <= MAX_HEAD)?;
        let head = varint::read_bytes(&mut body)?;
        let tail = varint::read_bytes(&mut body)?;
        Some(JpegParts {
            head,
            head_length,
            tail,
            coefficients: body,
            flags,
        })
    }

    /// Returns the segments of a JPEG with one scan, up to the scan data.
    pub(crate) fn head(&self, scratch: &mut SegmentScratch) -> Result<Cow<'a, [u8]>, &'static str> {
        if self.head.len() == self.head_length {
            return Ok(Cow::Borrowed(self.head));
        }
        let zstd = match &mut scratch.0 {
            Some(zstd) => zstd,
            slot => slot.insert(
                Decompressor::with_dictionary(super::tables::ALL)
                    .map_err(|_| "no memory for a zstd context")?,
            ),
        };
        zstd.decompress(self.head, self.head_length)
            .ok()
            .filter(|head| head.len() == self.head_length)
            .map(Cow::Owned)
            .ok_or("segments that do not decompress")
    }

    /// Bytes of the tables and of the symbols of a strip.
    pub(crate) fn scratch_bytes(&self, head: &[u8]) -> Result<u64, &'static str> {
        let header = ScanHeader::read(head)
            .filter(|header| header.is_sequential)
            .ok_or("segments of another kind of JPEG")?;
        StripScratch::bytes(&header.grid, self.coefficients)
    }

    /// Decodes a window; `head` is that of the record.
    pub(crate) fn decode(
        &self,
        head: &[u8],
        task: &JpegTask,
        scratch: &mut StripScratch,
        out: &mut [u8],
    ) -> Result<(), JpegError> {
        let damaged = |message: &str| JpegError::Damaged {
            message: message.to_owned(),
        };
        let header = ScanHeader::read(head)
            .filter(|header| header.is_sequential)
            .ok_or_else(|| damaged("segments of another kind of JPEG"))?;
        let grid = &header.grid;
        let image = CoefficientImage::read(grid, self.coefficients, scratch).map_err(damaged)?;
        let width = grid.max_across() * usize::from(task.eighths);
        let (left, right) = (task.window.left, task.window.left + task.window.width);
        let columns = left as usize / width..(right as usize).div_ceil(width);
        let shape = McuGrid {
            across: grid.across as u32,
            down: grid.down as u32,
            blocks: grid.mcu_blocks() as u32,
        };
        native::decode(head, task, shape, &mut image.mcus(columns, scratch), out)
    }

    /// Returns the JPEG file, and whether its bytes are those of the original.
    pub(crate) fn restore(
        &self,
        scratch: &mut JpegRecordScratch,
    ) -> Result<(Vec<u8>, bool), &'static str> {
        let head = self.head(&mut scratch.segments)?;
        let header = ScanHeader::read(&head).ok_or("segments of another kind of JPEG")?;
        let grid = &header.grid;
        let strips = &mut scratch.strips;
        let image = CoefficientImage::read(grid, self.coefficients, strips)?;
        let components = image.components(strips);
        let pad = self.flags & PADS_WITH_ZEROS == 0;
        let scan = segments::write_scan(&header, &components, pad)
            .ok_or("a coefficient without a code")?;
        let file = [&head[..], &scan[..], self.tail].concat();
        Ok((file, self.flags & RESTORES_BYTES != 0))
    }
}
