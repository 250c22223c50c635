//! Lossless records of PNGs: `lossless` decodes the rows, `png` converts them.

use infeed_raw::simd::Level;

use super::png::{self, Ihdr, Samples};
use super::{ColorMode, DecodeError, Detail, Format, Header, Scratch};
use crate::lossless::planes::{OUTSIDE_TABLE, PlaneParts, SampleShape};
use crate::lossless::record::LosslessRecord;
use infeed_core::sample::{Image, Region};

/// Properties of a record from its chunks and its layout.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    pub(super) ihdr: Ihdr,
    /// Bytes of the directory and of a strip.
    pub(super) strip_bytes: u64,
}

fn parts(bytes: &[u8]) -> Result<PlaneParts<'_>, DecodeError> {
    let record = LosslessRecord::read(bytes).map_err(DecodeError::damaged)?;
    PlaneParts::read(record.body).ok_or(DecodeError::Truncated)
}

/// Reads the chunks of the PNG in a record.
pub(super) fn header(bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let parts = parts(bytes)?;
    let mut header = png::header(parts.head, orient)?;
    let Detail::Png(ihdr) = header.detail else {
        return Err(DecodeError::damaged("a record without a PNG"));
    };
    let layout = parts
        .layout(SampleShape::of(&ihdr))
        .map_err(DecodeError::damaged)?;
    header.format = Format::Planes;
    header.detail = Detail::Planes(Planes {
        ihdr,
        strip_bytes: layout.scratch_bytes(),
    });
    Ok(header)
}

/// Decodes a region.
pub(super) fn decode(
    bytes: &[u8],
    ihdr: &Ihdr,
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let parts = parts(bytes)?;
    let shape = SampleShape::of(ihdr);
    let samples = Samples::of_whole_bytes(ihdr, parts.head, mode)?;
    let layout = parts.layout(shape).map_err(DecodeError::damaged)?;
    let mut strips = layout
        .open(&mut scratch.lossless.planes)
        .map_err(DecodeError::damaged)?;
    let columns = region.left as usize..region.right() as usize;
    let count = columns.len();
    let top = region.top as usize;

    if let Some(table) = PixelTable::new(strips.table(), &samples, out.pixel_bytes())? {
        for y in 0..out.height() {
            let row = strips
                .first_plane(top + y, &columns)
                .map_err(DecodeError::damaged)?;
            table.write(row, out.row_mut(y))?;
        }
        return Ok(());
    }
    let level = Level::detect();
    let wide = &mut scratch.wide;
    wide.resize(count * shape.pixel_bytes(), 0);
    for y in 0..out.height() {
        let to = out.row_mut(y);
        let is_direct = samples.are_as_wanted();
        let row = if is_direct { &mut *to } else { &mut wide[..] };
        strips
            .read_row(top + y, &columns, level, row)
            .map_err(DecodeError::damaged)?;
        if !is_direct {
            samples.convert(wide, 0, count, to)?;
        }
    }
    Ok(())
}

/// Converted pixels by the value of a plane.
struct PixelTable {
    /// 256 pixels, one after another.
    pixels: Vec<u8>,
    pixel: usize,
    /// Number of values with a pixel.
    values: usize,
}

impl PixelTable {
    /// Converts the pixels of a table in the record, or the colours of a palette. None if the
    /// samples are converted by themselves.
    fn new(
        table: Option<&[u8]>,
        samples: &Samples,
        pixel: usize,
    ) -> Result<Option<PixelTable>, DecodeError> {
        let numbers: Vec<u8>;
        let (stored, values) = match (table, samples.values()) {
            (Some(table), _) => (table, table.len() / samples.pixel_bytes()),
            (None, Some(values)) => {
                numbers = (0..values).map(|value| value as u8).collect();
                (&numbers[..], values)
            }
            (None, None) => return Ok(None),
        };
        let mut pixels = vec![0; 256 * pixel];
        samples.convert(stored, 0, values, &mut pixels[..values * pixel])?;
        Ok(Some(PixelTable {
            pixels,
            pixel,
            values,
        }))
    }

    /// Writes the pixels of a row of values.
    fn write(&self, values: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let last = values.iter().fold(0, |last, &value| last.max(value));
        if usize::from(last) >= self.values {
            return Err(DecodeError::damaged(OUTSIDE_TABLE));
        }
        match self.pixel {
            1 => look_up::<1>(values, &self.pixels, out),
            2 => look_up::<2>(values, &self.pixels, out),
            3 => look_up::<3>(values, &self.pixels, out),
            4 => look_up::<4>(values, &self.pixels, out),
            6 => look_up::<6>(values, &self.pixels, out),
            _ => look_up::<8>(values, &self.pixels, out),
        }
        Ok(())
    }
}

/// Writes the pixel of each value. Masks consist of runs of one value, which are copied in eights.
fn look_up<const N: usize>(values: &[u8], pixels: &[u8], out: &mut [u8]) {
    let (pixels, _) = pixels.as_chunks::<N>();
    let (out, _) = out.as_chunks_mut::<N>();
    let (eights, rest) = values.as_chunks::<8>();
    let (out_eights, out_rest) = out.as_chunks_mut::<8>();
    let mut run = [0; 8];
    let mut run_pixels = [pixels[0]; 8];
    for (eight, to) in eights.iter().zip(out_eights) {
        if *eight == run {
            *to = run_pixels;
        } else {
            *to = eight.map(|value| pixels[usize::from(value)]);
            run = [eight[7]; 8];
            run_pixels = [to[7]; 8];
        }
    }
    for (&value, to) in rest.iter().zip(out_rest) {
        *to = pixels[usize::from(value)];
    }
}
