//! Pairs of PNGs: decodes rows up to the end of the crop, without verifying checksums. Pairs of
//! lossless records: decodes the crop, and the classes of the mask from the numbers of its colours.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use infeed_codec::decode::{ColorMode, Decoder, Header, Limits, Request};
use infeed_core::sample::{Image, Size};
use infeed_raw::host::HostBytes;
use infeed_raw::simd::{
    Convert, Dtype, Layout, Level, SourcePixels, convert, one_hot as one_hot_rows,
};
use png::{BitDepth, ColorType, Reader};

use crate::records::{Turn, files, read};
use crate::{Job, Step};

const CROP: usize = 512;
const BATCH: usize = 3;
const WHOLE_BATCH: usize = 8;

/// Images to float in 0..1, masks to one-hot float32, both cropped at the top left.
pub fn pairs(root: &Path) -> Result<Job> {
    let (images, masks) = folders(root)?;
    let palette = palette(&root.join("class_dict.csv"))?;
    let records: Vec<_> = files(&images)?
        .into_iter()
        .map(|image| (masks.join(image.file_name().unwrap_or_default()), image))
        .collect();
    let shared = Arc::new((records, palette, Turn::default()));
    Ok(Box::new(move |_| {
        let shared = shared.clone();
        let classes = shared.1.len();
        let mut image_slab = vec![0f32; BATCH * CROP * CROP * 3];
        let mut mask_slab = vec![0f32; BATCH * CROP * CROP * classes];
        let mut bytes = Vec::new();
        let step = move || {
            let (records, palette, turn) = &*shared;
            let images = image_slab.chunks_exact_mut(CROP * CROP * 3);
            let masks = mask_slab.chunks_exact_mut(CROP * CROP * classes);
            for (image_out, mask_out) in images.zip(masks) {
                let (mask, image) = &records[turn.next(records.len())];
                read(image, &mut bytes)?;
                rows(&bytes, image_out, |row, out| {
                    for (value, byte) in out.iter_mut().zip(row) {
                        *value = f32::from(*byte) * (1.0 / 255.0);
                    }
                })?;
                read(mask, &mut bytes)?;
                rows(&bytes, mask_out, |row, out| one_hot(row, palette, out))?;
            }
            Ok(BATCH as u64)
        };
        Ok(Box::new(step) as Step)
    }))
}

/// The same for lossless records.
pub fn records(root: &Path) -> Result<Job> {
    let palette = palette(&root.join("class_dict.csv"))?;
    let images = files(&root.join("image"))?;
    let masks = files(&root.join("mask"))?;
    let records: Vec<_> = images.into_iter().zip(masks).collect();
    let shared = Arc::new((records, palette, Turn::default()));
    Ok(Box::new(move |_| {
        let shared = shared.clone();
        let classes = shared.1.len();
        let mut image_slab = HostBytes::zeroed(BATCH * CROP * CROP * 3 * 4)?;
        let mut mask_slab = HostBytes::zeroed(BATCH * CROP * CROP * classes * 4)?;
        let mut decoder = Decoder::new();
        let (mut bytes, mut pixels, mut indices) = (Vec::new(), Image::default(), Vec::new());
        let step = move || {
            let (records, palette, turn) = &*shared;
            let images = image_slab.chunks_exact_mut(CROP * CROP * 3 * 4);
            let masks = mask_slab.chunks_exact_mut(CROP * CROP * classes * 4);
            for (image_out, mask_out) in images.zip(masks) {
                let (image, mask) = &records[turn.next(records.len())];
                read(image, &mut bytes)?;
                let (header, request) = crop(&mut decoder, &bytes)?;
                decoder.decode(&bytes, &header, &request, &mut pixels)?;
                write_floats(&pixels.data, image_out);
                read(mask, &mut bytes)?;
                let (header, request) = crop(&mut decoder, &bytes)?;
                let table = decoder
                    .decode_positions(&bytes, &header, &request, &mut pixels)?
                    .context("a mask of more than 256 colours")?;
                let class = |pixel: &[u8]| palette.iter().position(|c| c == pixel);
                let mut class_of = [u8::MAX; 256];
                for (to, pixel) in class_of.iter_mut().zip(table.pixels()) {
                    *to = class(pixel).map_or(u8::MAX, |class| class as u8);
                }
                indices.clear();
                indices.extend(pixels.data.iter().map(|&at| class_of[usize::from(at)]));
                write_classes(&indices, classes, mask_out);
            }
            Ok(BATCH as u64)
        };
        Ok(Box::new(step) as Step)
    }))
}

/// Checks a record, and requests its crop.
fn crop(decoder: &mut Decoder, bytes: &[u8]) -> Result<(Header, Request)> {
    let header = decoder.header(bytes, true, &Limits::default())?;
    decoder.check(bytes, &header, true)?;
    let mut request = Request::whole(&header, ColorMode::Rgb);
    request.region.size = Size {
        height: CROP as u32,
        width: CROP as u32,
    };
    Ok((header, request))
}

fn write_floats(pixels: &[u8], out: &mut [u8]) {
    let source = SourcePixels {
        data: pixels,
        width: CROP,
        height: CROP,
        channels: 3,
        row_bytes: CROP * 3,
    };
    let pass = Convert {
        dtype: Dtype::F32,
        layout: Layout::Hwc,
        flip_x: false,
        flip_y: false,
        scale: [1.0 / 255.0; 4],
        bias: [0.0; 4],
    };
    convert(Level::detect(), &source, &pass, out);
}

fn write_classes(indices: &[u8], classes: usize, out: &mut [u8]) {
    let (level, dtype, layout) = (Level::detect(), Dtype::F32, Layout::Hwc);
    one_hot_rows(
        level, indices, classes, dtype, layout, CROP, CROP, false, false, out,
    );
}

/// Only the images, decoded completely to uint8.
pub fn whole(root: &Path) -> Result<Job> {
    let (images, _) = folders(root)?;
    let shared = Arc::new((files(&images)?, Turn::default()));
    Ok(Box::new(move |_| {
        let shared = shared.clone();
        let mut slab = Vec::new();
        let mut bytes = Vec::new();
        let step = move || {
            let (records, turn) = &*shared;
            for n in 0..WHOLE_BATCH {
                read(&records[turn.next(records.len())], &mut bytes)?;
                let mut reader = open(&bytes)?;
                let size = reader.output_buffer_size().context("image too large")?;
                slab.resize(WHOLE_BATCH * size, 0);
                let out = &mut slab[n * size..][..size];
                let line = reader.info().width as usize * 3;
                for row in out.chunks_exact_mut(line) {
                    reader.read_row(row)?;
                }
            }
            Ok(WHOLE_BATCH as u64)
        };
        Ok(Box::new(step) as Step)
    }))
}

fn open(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.ignore_checksums(true);
    let reader = decoder.read_info()?;
    if reader.output_color_type() != (ColorType::Rgb, BitDepth::Eight) {
        bail!("the bare loop supports only 8-bit RGB");
    }
    Ok(reader)
}

/// Calls `write` with each cropped row of pixels and its part of the output.
fn rows(bytes: &[u8], out: &mut [f32], mut write: impl FnMut(&[u8], &mut [f32])) -> Result<()> {
    let mut reader = open(bytes)?;
    let line = out.len() / CROP;
    for out in out.chunks_exact_mut(line) {
        let row = reader
            .next_row()?
            .context("the image is smaller than the crop")?;
        write(
            row.data()
                .get(..CROP * 3)
                .context("the image is narrower than the crop")?,
            out,
        );
    }
    Ok(())
}

/// Masks have areas of one colour, so the last colour usually matches.
fn one_hot(row: &[u8], palette: &[[u8; 3]], out: &mut [f32]) {
    let mut last = ([0u8; 3], palette.iter().position(|c| *c == [0; 3]));
    out.fill(0.0);
    for (pixel, hot) in row.chunks_exact(3).zip(out.chunks_exact_mut(palette.len())) {
        if pixel != last.0 {
            last.0.copy_from_slice(pixel);
            last.1 = palette.iter().position(|c| c == pixel);
        }
        if let Some(class) = last.1 {
            hot[class] = 1.0;
        }
    }
}

/// Returns the folders of images and of masks: NAME and NAME_labels, or images and masks.
fn folders(root: &Path) -> Result<(PathBuf, PathBuf)> {
    if root.join("masks").is_dir() {
        return Ok((root.join("images"), root.join("masks")));
    }
    for entry in root.read_dir()? {
        let masks = entry?.path();
        if let Some(name) = masks.to_str().and_then(|path| path.strip_suffix("_labels")) {
            return Ok((PathBuf::from(name), masks));
        }
    }
    bail!("{root:?} has neither images and masks nor NAME and NAME_labels")
}

/// Colours of the classes, from `name,r,g,b`.
fn palette(path: &Path) -> Result<Vec<[u8; 3]>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path:?}"))?;
    text.lines()
        .skip(1)
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let numbers: Vec<u8> = line
                .split(',')
                .skip(1)
                .map(|v| v.trim().parse())
                .collect::<Result<_, _>>()?;
            numbers
                .try_into()
                .map_err(|_| anyhow::anyhow!("{path:?}: {line:?} is not name,r,g,b"))
        })
        .collect()
}
