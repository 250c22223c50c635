//! Lossless records of PNGs: `lossless` decodes the rows, `png` converts them.

use infeed_raw::simd::Level;

use super::color::ColorMode;
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header, Planes};
use super::loss::NarrowedSamples;
use super::lossless::planes::{OUTSIDE_TABLE, PlaneLayout, PlaneParts, SampleShape};
use super::lossless::record::LosslessRecord;
use super::png::{self, Samples};
use super::png_chunks::{Ihdr, Metadata, SIGNATURE};
use super::scratch::Scratch;
use infeed_core::sample::{Image, Region};

fn parts(bytes: &[u8]) -> Result<PlaneParts<'_>, DecodeError> {
    let record = LosslessRecord::read(bytes).map_err(DecodeError::from_damage)?;
    PlaneParts::read(record.body).ok_or(DecodeError::Truncated)
}

/// Reads the chunks of the PNG in a record.
pub(super) fn header(bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let parts = parts(bytes)?;
    let mut header = png::header(parts.head, false)?;
    if orient {
        let mut metadata = Metadata::default();
        metadata.search(parts.head, SIGNATURE);
        metadata.search(parts.tail, 0);
        header.orientation = metadata.orientation();
    }
    let Detail::Png(ihdr) = header.detail else {
        return Err(DecodeError::from_damage("a record without a PNG"));
    };
    let layout = parts
        .layout(SampleShape::of(&ihdr))
        .map_err(DecodeError::from_damage)?;
    header.format = Format::Planes;
    header.detail = Detail::Planes(Planes {
        ihdr,
        strip_bytes: layout.scratch_bytes(),
    });
    Ok(header)
}

/// The rows of a record, and the conversion of its samples to a mode.
struct PlaneImage<'a> {
    shape: SampleShape,
    samples: Samples,
    layout: PlaneLayout<'a>,
}

impl<'a> PlaneImage<'a> {
    fn new(bytes: &'a [u8], ihdr: &Ihdr, mode: ColorMode) -> Result<PlaneImage<'a>, DecodeError> {
        let parts = parts(bytes)?;
        let shape = SampleShape::of(ihdr);
        let samples = Samples::of_whole_bytes(ihdr, parts.head, mode)?;
        let layout = parts.layout(shape).map_err(DecodeError::from_damage)?;
        Ok(PlaneImage {
            shape,
            samples,
            layout,
        })
    }

    /// Returns the pixels of `pixel` bytes that the values of the only plane stand for. None if the
    /// samples are converted by themselves.
    fn table(
        &self,
        pixel: usize,
        narrowed: &mut NarrowedSamples,
    ) -> Result<Option<PixelTable>, DecodeError> {
        PixelTable::new(self.layout.table(), &self.samples, pixel, narrowed)
    }
}

/// Returns the pixels in a mode of a record whose only plane holds their positions. None for other
/// records.
pub(super) fn table(
    bytes: &[u8],
    ihdr: &Ihdr,
    mode: ColorMode,
    pixel: usize,
) -> Result<Option<PixelTable>, DecodeError> {
    PlaneImage::new(bytes, ihdr, mode)?.table(pixel, &mut NarrowedSamples::default())
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
    let image = PlaneImage::new(bytes, ihdr, mode)?;
    if let Some(table) = image.table(out.pixel_bytes(), &mut scratch.narrowed)? {
        return each_row(image.layout, region, scratch, |y, row| {
            table.write(row, out.row_mut(y))
        });
    }
    let PlaneImage {
        shape,
        samples,
        layout,
    } = image;
    let mut strips = layout
        .open(&mut scratch.planes)
        .map_err(DecodeError::from_damage)?;
    let columns = region.left as usize..region.right() as usize;
    let count = columns.len();
    let level = Level::detect();
    let Scratch { wide, narrowed, .. } = scratch;
    wide.resize(count * shape.pixel_bytes(), 0);
    for y in 0..out.height() {
        let to = out.row_mut(y);
        let is_direct = samples.need_no_conversion();
        let row = if is_direct { &mut *to } else { &mut wide[..] };
        strips
            .read_row(region.top as usize + y, &columns, level, row)
            .map_err(DecodeError::from_damage)?;
        if !is_direct {
            samples.convert(wide, 0, count, to, narrowed)?;
        }
    }
    Ok(())
}

/// Decodes the positions of a region's pixels in the table of the record.
pub(super) fn decode_positions(
    bytes: &[u8],
    ihdr: &Ihdr,
    table: &PixelTable,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let layout = parts(bytes)?
        .layout(SampleShape::of(ihdr))
        .map_err(DecodeError::from_damage)?;
    each_row(layout, region, scratch, |y, row| {
        table.check(row)?;
        out.row_mut(y).copy_from_slice(row);
        Ok(())
    })
}

/// Calls `call` with each row of a region of the first plane, counted from 0.
fn each_row(
    layout: PlaneLayout<'_>,
    region: Region,
    scratch: &mut Scratch,
    mut call: impl FnMut(usize, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut strips = layout
        .open(&mut scratch.planes)
        .map_err(DecodeError::from_damage)?;
    let columns = region.left as usize..region.right() as usize;
    for y in 0..region.size.height as usize {
        let row = strips
            .first_plane(region.top as usize + y, &columns)
            .map_err(DecodeError::from_damage)?;
        call(y, row)?;
    }
    Ok(())
}

/// The different pixels of an image, in the mode that was requested. An image of positions holds the
/// position of each of its pixels here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PixelTable {
    /// 256 pixels, one after another.
    bytes: Vec<u8>,
    pixel: usize,
    /// Number of positions with a pixel.
    count: usize,
}

impl PixelTable {
    /// Converts the pixels of a table in the record, or the colours of a palette. None if the
    /// samples are converted by themselves.
    fn new(
        table: Option<&[u8]>,
        samples: &Samples,
        pixel: usize,
        narrowed: &mut NarrowedSamples,
    ) -> Result<Option<PixelTable>, DecodeError> {
        let numbers: Vec<u8>;
        let (stored, count) = match (table, samples.values()) {
            (Some(table), _) => (table, table.len() / samples.pixel_bytes()),
            (None, Some(values)) => {
                numbers = (0..values).map(|value| value as u8).collect();
                (&numbers[..], values)
            }
            (None, None) => return Ok(None),
        };
        let mut bytes = vec![0; 256 * pixel];
        samples.convert(stored, 0, count, &mut bytes[..count * pixel], narrowed)?;
        Ok(Some(PixelTable {
            bytes,
            pixel,
            count,
        }))
    }

    /// Returns the pixels in the order of their positions, at least 1 and at most 256. Each is the
    /// bytes of one pixel of an [`Image`] in the mode. Two positions may have equal pixels.
    pub fn pixels(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.pixel).take(self.count)
    }

    /// Checks that every position has a pixel.
    fn check(&self, positions: &[u8]) -> Result<(), DecodeError> {
        let last = positions.iter().fold(0, |last, &at| last.max(at));
        if usize::from(last) >= self.count {
            return Err(DecodeError::from_damage(OUTSIDE_TABLE));
        }
        Ok(())
    }

    /// Writes the pixels of a row of positions.
    fn write(&self, positions: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        self.check(positions)?;
        match self.pixel {
            1 => look_up::<1>(positions, &self.bytes, out),
            2 => look_up::<2>(positions, &self.bytes, out),
            3 => look_up::<3>(positions, &self.bytes, out),
            4 => look_up::<4>(positions, &self.bytes, out),
            6 => look_up::<6>(positions, &self.bytes, out),
            _ => look_up::<8>(positions, &self.bytes, out),
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
