//! Records of kind `P`: the samples of a PNG as compressed planes of differences.
//!
//! See `docs/formats/pixel-planes.md`.

use std::fmt;
use std::ops::Range;

use infeed_core::sample::Size;
use infeed_raw::simd::{Level, PlaneColors, merge_planes};
use png::{BitDepth, Compression};
use zstd::bulk::Decompressor;
use zstd::zstd_safe;

use super::varint;
use crate::decode::png_chunks::{Chunk, Ihdr, SIGNATURE, ihdr_of};
use crate::decode::{DecodeError, Format, Limits};

/// Maximum bytes of the samples of a strip with several rows.
const MAX_STRIP: u64 = 1 << 20;

/// First bytes of a zstd frame. The library also reads frames of old versions, which no record has.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Rows, columns and bytes of the samples of a PNG. Samples of fewer than 8 bits have one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleShape {
    pub(crate) size: Size,
    pub(crate) channels: usize,
    /// Bytes of a sample, 1 or 2.
    pub(crate) bytes: usize,
}

impl SampleShape {
    /// Returns the shape of the pixels of a PNG.
    pub(crate) fn of(ihdr: &Ihdr) -> SampleShape {
        SampleShape {
            size: ihdr.size,
            channels: ihdr.color.samples(),
            bytes: if ihdr.bits == BitDepth::Sixteen { 2 } else { 1 },
        }
    }

    pub(crate) fn pixel_bytes(self) -> usize {
        self.channels * self.bytes
    }
}

/// Meaning of the planes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// One plane per byte of a pixel, after a colour transform.
    Samples(PlaneColors),
    /// One plane of positions in a table of pixels.
    Table,
}

impl Coding {
    /// All codings; the position is the byte in the record.
    pub(super) const ALL: [Coding; 4] = [
        Coding::Samples(PlaneColors::Stored),
        Coding::Samples(PlaneColors::MinusGreen),
        Coding::Samples(PlaneColors::YCoCg),
        Coding::Table,
    ];

    /// Returns the byte in the record.
    pub(super) fn byte(self) -> Option<u8> {
        let at = Coding::ALL.iter().position(|coding| *coding == self)?;
        u8::try_from(at).ok()
    }

    /// Whether pixels of this shape can have the coding.
    pub(super) fn suits(self, shape: SampleShape) -> bool {
        match self {
            Coding::Samples(PlaneColors::Stored) => true,
            Coding::Samples(_) => shape.channels >= 3,
            Coding::Table => shape.pixel_bytes() >= 2,
        }
    }

    /// Returns the shape of the planes.
    pub(super) fn planes(self, shape: SampleShape) -> SampleShape {
        let (channels, bytes) = match self {
            Coding::Samples(_) => (shape.channels, shape.bytes),
            Coding::Table => (1, 1),
        };
        SampleShape {
            channels,
            bytes,
            ..shape
        }
    }
}

/// Prediction of the samples of one channel in a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predictor {
    /// Zero.
    None,
    /// The sample above; in the first row, the sample to the left.
    Up,
}

/// The parts of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneParts<'a> {
    /// The PNG up to its pixels: signature and chunks, without interlacing.
    pub(crate) head: &'a [u8],
    /// Bytes after the last chunk of pixels.
    pub(crate) tail: &'a [u8],
    /// Coding, directory and strips.
    strips: &'a [u8],
}

impl<'a> PlaneParts<'a> {
    /// Splits the body of a record. Checks nothing but the lengths and the signature of the PNG.
    pub(crate) fn read(mut body: &'a [u8]) -> Option<PlaneParts<'a>> {
        let head = varint::read_bytes(&mut body)?;
        let tail = varint::read_bytes(&mut body)?;
        (Format::of(head) == Some(Format::Png)).then_some(PlaneParts {
            head,
            tail,
            strips: body,
        })
    }

    /// Returns a PNG with the pixels and the chunks of the original.
    pub(crate) fn restore(&self) -> Result<Vec<u8>, DecodeError> {
        let ihdr = &ihdr_of(self.head)?;
        Limits::default().check(ihdr.size)?;
        let pixels = self.pixels(ihdr).map_err(DecodeError::from_damage)?;
        let mut file = Vec::new();
        let mut png = png::Encoder::new(&mut file, ihdr.size.width, ihdr.size.height);
        png.set_color(ihdr.color);
        png.set_depth(ihdr.bits);
        png.set_compression(Compression::Balanced);
        // The encoder requires a palette, but only the chunks of the pixels are used.
        png.set_palette([0; 3].as_slice());
        let failed = |error: png::EncodingError| DecodeError::from_damage(error.to_string());
        let mut png = png.write_header().map_err(failed)?;
        png.write_image_data(&pixels).map_err(failed)?;
        png.finish().map_err(failed)?;
        let mut out = self.head.to_vec();
        let mut at = SIGNATURE;
        while let Some(chunk) = Chunk::at(&file, at) {
            if &chunk.kind == b"IDAT" {
                out.extend(&file[at..chunk.end]);
            }
            at = chunk.end;
        }
        out.extend(self.tail);
        Ok(out)
    }

    /// Returns the rows of the PNG before they are filtered.
    fn pixels(&self, ihdr: &Ihdr) -> Result<Vec<u8>, &'static str> {
        let shape = SampleShape::of(ihdr);
        let Size { height, width } = shape.size;
        let mut scratch = PlaneScratch::default();
        let mut strips = self.layout(shape)?.open(&mut scratch)?;
        let mut row = vec![0; width as usize * shape.pixel_bytes()];
        let mut out = Vec::new();
        let bits = ihdr.bits as usize;
        for y in 0..height as usize {
            strips.read_row(y, &(0..width as usize), Level::detect(), &mut row)?;
            if bits < 8 && row.iter().any(|&sample| sample >> bits != 0) {
                return Err("a sample of more bits than the image has");
            }
            match bits {
                // The samples of a byte, first sample in the highest bits.
                1 | 2 | 4 => out.extend(row.chunks(8 / bits).map(|samples| {
                    let shifts = (0..8).step_by(bits).map(|shift| 8 - bits - shift);
                    let bytes = samples.iter().zip(shifts);
                    bytes.fold(0, |byte, (sample, shift)| byte | sample << shift)
                })),
                _ => out.extend(&row),
            }
        }
        Ok(out)
    }

    /// Reads the layout of the strips.
    pub(crate) fn layout(&self, shape: SampleShape) -> Result<PlaneLayout<'a>, &'static str> {
        PlaneLayout::read(shape, self.strips)
    }
}

/// Layout of the strips of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneLayout<'a> {
    shape: SampleShape,
    coding: Coding,
    /// Pixels of the table, empty without one.
    table: &'a [u8],
    /// Rows of a strip. The last one may have fewer.
    rows: usize,
    /// Directory and strips.
    rest: &'a [u8],
}

impl<'a> PlaneLayout<'a> {
    fn read(shape: SampleShape, mut bytes: &'a [u8]) -> Result<PlaneLayout<'a>, &'static str> {
        const EARLY: &str = "a record that ends early";
        if shape.size.pixels() == 0 {
            return Err("an image without pixels");
        }
        let (&coding, rest) = bytes.split_first().ok_or(EARLY)?;
        bytes = rest;
        let coding = Coding::ALL
            .get(usize::from(coding))
            .filter(|coding| coding.suits(shape))
            .ok_or("an unknown coding of planes")?;
        let mut table: &[u8] = &[];
        if *coding == Coding::Table {
            let (&last, rest) = bytes.split_first().ok_or(EARLY)?;
            let length = (usize::from(last) + 1) * shape.pixel_bytes();
            (table, bytes) = rest.split_at_checked(length).ok_or(EARLY)?;
        }
        let rows = varint::read(&mut bytes).ok_or(EARLY)?;
        let planes = coding.planes(shape);
        let row = u64::from(shape.size.width) * planes.pixel_bytes() as u64;
        let is_small = rows == 1 || (rows as u64).saturating_mul(row) <= MAX_STRIP;
        if rows == 0 || rows > shape.size.height as usize || !is_small {
            return Err("strips of an invalid number of rows");
        }
        Ok(PlaneLayout {
            shape,
            coding: *coding,
            table,
            rows,
            rest: bytes,
        })
    }

    /// Returns the pixels of the table, if the planes are positions in one.
    pub(crate) fn table(&self) -> Option<&'a [u8]> {
        (self.coding == Coding::Table).then_some(self.table)
    }

    fn planes(&self) -> SampleShape {
        self.coding.planes(self.shape)
    }

    fn strips(&self) -> usize {
        (self.shape.size.height as usize).div_ceil(self.rows)
    }

    /// Returns the bytes of the directory and of a strip.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let planes = self.planes();
        let entries = (self.strips() * planes.pixel_bytes()) as u64;
        // A record that is too short for this number of entries is rejected.
        let entries = entries.min(self.rest.len() as u64);
        let row = u64::from(self.shape.size.width) * planes.pixel_bytes() as u64;
        entries * size_of::<PlaneEntry>() as u64 + self.rows as u64 * row + CONTEXT_BYTES
    }

    /// Reads the directory.
    pub(crate) fn open<'s>(
        self,
        scratch: &'s mut PlaneScratch,
    ) -> Result<PlaneStrips<'a, 's>, &'static str> {
        const EARLY: &str = "a directory that ends early";
        let planes = self.planes();
        let mut bytes = self.rest;
        // An entry takes at least one byte.
        let entries = self.strips() * planes.pixel_bytes();
        if entries > bytes.len() {
            return Err(EARLY);
        }
        let directory = &mut scratch.directory;
        directory.clear();
        directory.reserve(entries);
        let mut predictor = Predictor::None;
        let mut end = 0;
        for entry in 0..entries {
            if entry % planes.bytes == 0 {
                let (&byte, rest) = bytes.split_first().ok_or(EARLY)?;
                bytes = rest;
                predictor = match byte {
                    0 => Predictor::None,
                    1 => Predictor::Up,
                    _ => return Err("an unknown predictor"),
                };
            }
            let start = end;
            end += varint::read(&mut bytes).ok_or(EARLY)?;
            directory.push(PlaneEntry {
                predictor,
                range: (start, end),
            });
        }
        if end != bytes.len() {
            return Err("strips of another length than their directory says");
        }
        Ok(PlaneStrips {
            layout: self,
            data: bytes,
            scratch,
            current: None,
        })
    }
}

/// One plane of a strip in the directory.
#[derive(Clone, Copy, Debug)]
struct PlaneEntry {
    predictor: Predictor,
    /// Start and end in the data.
    range: (usize, usize),
}

/// Bytes of a zstd context.
const CONTEXT_BYTES: u64 = 256 << 10;

/// Buffers of a decoder, reused from record to record.
#[derive(Default)]
pub(crate) struct PlaneScratch {
    directory: Vec<PlaneEntry>,
    /// The planes of a strip, one after another.
    strip: Vec<u8>,
    zstd: Option<Decompressor<'static>>,
}

impl fmt::Debug for PlaneScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaneScratch")
            .field("strip", &self.strip.len())
            .finish_non_exhaustive()
    }
}

/// The strips of a record, to read rows from.
#[derive(Debug)]
pub(crate) struct PlaneStrips<'a, 's> {
    layout: PlaneLayout<'a>,
    data: &'a [u8],
    scratch: &'s mut PlaneScratch,
    /// The strip in the scratch.
    current: Option<usize>,
}

impl PlaneStrips<'_, '_> {
    /// Returns row `y` of a plane of the strip in the scratch, in these columns.
    fn row(&self, y: usize, columns: &Range<usize>, plane: usize) -> &[u8] {
        let width = self.layout.shape.size.width as usize;
        let strip = y / self.layout.rows;
        let row = plane * self.rows_of(strip) + y - strip * self.layout.rows;
        &self.scratch.strip[row * width..][columns.clone()]
    }

    /// Returns row `y` of the first plane: the positions of the pixels in the table, or the samples
    /// of an image with one plane.
    pub(crate) fn first_plane(
        &mut self,
        y: usize,
        columns: &Range<usize>,
    ) -> Result<&[u8], &'static str> {
        self.decode(y, columns)?;
        Ok(self.row(y, columns, 0))
    }

    /// Writes the pixels of row `y` as PNG stores them, but with at least one byte per sample.
    pub(crate) fn read_row(
        &mut self,
        y: usize,
        columns: &Range<usize>,
        level: Level,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let PlaneLayout {
            shape,
            coding,
            table,
            ..
        } = self.layout;
        self.decode(y, columns)?;
        let row = |plane| self.row(y, columns, plane);
        let pixel = shape.pixel_bytes();
        match coding {
            Coding::Table => {
                for (&index, to) in row(0).iter().zip(out.chunks_exact_mut(pixel)) {
                    let at = usize::from(index) * pixel;
                    let from = table.get(at..at + pixel).ok_or(OUTSIDE_TABLE)?;
                    to.copy_from_slice(from);
                }
            }
            Coding::Samples(colors) if shape.bytes == 1 => {
                let planes: [&[u8]; 4] = std::array::from_fn(|at| row(at.min(shape.channels - 1)));
                merge_planes(level, colors, &planes[..shape.channels], out);
            }
            Coding::Samples(colors) => {
                let planes: [&[u8]; 8] = std::array::from_fn(|at| row(at.min(pixel - 1)));
                for (x, to) in out.chunks_exact_mut(pixel).enumerate() {
                    let mut samples: [u16; 4] = std::array::from_fn(|at| {
                        u16::from_be_bytes([planes[2 * at][x], planes[2 * at + 1][x]])
                    });
                    restore_colors(colors, &mut samples);
                    for (to, sample) in to.as_chunks_mut::<2>().0.iter_mut().zip(samples) {
                        *to = sample.to_be_bytes();
                    }
                }
            }
        }
        Ok(())
    }

    fn rows_of(&self, strip: usize) -> usize {
        let height = self.layout.shape.size.height as usize;
        self.layout.rows.min(height - strip * self.layout.rows)
    }

    /// Decodes the strip of row `y`, and undoes the prediction in these columns. All rows must be
    /// read in the same columns.
    fn decode(&mut self, y: usize, columns: &Range<usize>) -> Result<(), &'static str> {
        let strip = y / self.layout.rows;
        if self.current == Some(strip) {
            return Ok(());
        }
        self.current = None;
        let width = self.layout.shape.size.width as usize;
        let plane_bytes = self.rows_of(strip) * width;
        let planes = self.layout.planes();
        let PlaneScratch {
            directory,
            strip: buffer,
            zstd,
        } = &mut *self.scratch;
        let count = planes.pixel_bytes();
        let entries = &directory[strip * count..][..count];
        buffer.resize(count * plane_bytes, 0);
        for (entry, plane) in entries.iter().zip(buffer.chunks_exact_mut(plane_bytes)) {
            let stored = &self.data[entry.range.0..entry.range.1];
            if stored.len() == plane.len() {
                plane.copy_from_slice(stored);
            } else {
                expand(stored, plane, zstd)?;
            }
        }
        for (entry, samples) in entries
            .iter()
            .step_by(planes.bytes)
            .zip(buffer.chunks_exact_mut(planes.bytes * plane_bytes))
        {
            match entry.predictor {
                Predictor::None => {}
                Predictor::Up if planes.bytes == 1 => add_up(samples, width, columns),
                Predictor::Up => {
                    let (high, low) = samples.split_at_mut(plane_bytes);
                    add_up_16(high, low, width, columns);
                }
            }
        }
        self.current = Some(strip);
        Ok(())
    }
}

/// Error of a position that is not in the table, as for a PNG with a palette.
pub(crate) const OUTSIDE_TABLE: &str = "a pixel's index is not in the palette";

/// Expands one zstd frame to exactly `out`.
fn expand(
    frame: &[u8],
    out: &mut [u8],
    zstd: &mut Option<Decompressor<'static>>,
) -> Result<(), &'static str> {
    let damaged = "a plane that cannot be expanded";
    let is_one_frame = frame.starts_with(&FRAME_MAGIC)
        && zstd_safe::find_frame_compressed_size(frame) == Ok(frame.len());
    if !is_one_frame {
        return Err(damaged);
    }
    let zstd = match zstd {
        Some(zstd) => zstd,
        slot => slot.insert(Decompressor::new().map_err(|_| "no memory for a zstd context")?),
    };
    match zstd.decompress_to_buffer(frame, out) {
        Ok(length) if length == out.len() => Ok(()),
        _ => Err(damaged),
    }
}

/// Adds the row above to each row, and the sample to the left in the first row.
fn add_up(plane: &mut [u8], width: usize, columns: &Range<usize>) {
    let mut rows = plane.chunks_exact_mut(width);
    let Some(first) = rows.next() else { return };
    let mut left = 0u8;
    for sample in &mut first[..columns.end] {
        left = left.wrapping_add(*sample);
        *sample = left;
    }
    let mut above = &first[columns.clone()];
    for row in rows {
        let row = &mut row[columns.clone()];
        for (sample, above) in row.iter_mut().zip(above) {
            *sample = sample.wrapping_add(*above);
        }
        above = row;
    }
}

/// Like [`add_up`], for the high and low bytes of zigzag-coded differences.
fn add_up_16(high: &mut [u8], low: &mut [u8], width: usize, columns: &Range<usize>) {
    for at in 0..high.len() {
        let (y, x) = (at / width, at % width);
        let before = match y {
            0 if x == 0 => None,
            0 => Some(at - 1),
            _ if !columns.contains(&x) => continue,
            _ => Some(at - width),
        };
        let before = before.map_or(0, |before| u16::from_be_bytes([high[before], low[before]]));
        let code = u16::from_be_bytes([high[at], low[at]]);
        let difference = code >> 1 ^ (code & 1).wrapping_neg();
        [high[at], low[at]] = before.wrapping_add(difference).to_be_bytes();
    }
}

/// Undoes the colour transform of a pixel of 16-bit samples.
fn restore_colors(colors: PlaneColors, samples: &mut [u16; 4]) {
    let half = |value: u16| (value as i16 >> 1) as u16;
    let [first, second, third, _] = *samples;
    match colors {
        PlaneColors::Stored => {}
        PlaneColors::MinusGreen => {
            samples[0] = first.wrapping_add(second);
            samples[2] = third.wrapping_add(second);
        }
        PlaneColors::YCoCg => {
            let t = second.wrapping_sub(half(third));
            let blue = t.wrapping_sub(half(first));
            samples[0] = blue.wrapping_add(first);
            samples[1] = third.wrapping_add(t);
            samples[2] = blue;
        }
    }
}
