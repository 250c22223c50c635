//! JPEGs that a device decodes: how far its pixels are from the host's, what it refuses, how fast it
//! is.

use std::sync::Arc;
use std::time::Instant;

use infeed_raw::jpeg::{JpegDecoder, JpegTask, PixelFormat, Window};
use infeed_raw::jpeg_encode::{Subsampling, encode};
use infeed_raw::slab::Slab;

use super::pace::Pace;
use super::{Checked, Effort, Figure, Figures, Wrong, noise, with_causes, wrong};
use crate::device::DeviceError;
use crate::device::jpeg::{DecoderSettings, Decoding, Place, Refused, ScannedJpeg, Way};

/// How far a device's pixels may be from the host's, as the mean of all levels of an image. An image
/// that is missing, or another's, is tens of levels away.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Where every pixel has its own chroma, or none: the inverse transform and rounding are left.
    pub full: f64,
    /// Where chroma lies between the samples of the file.
    pub sampled: f64,
}

pub(super) const SAMPLINGS: [(Subsampling, &str); 5] = [
    (Subsampling::None, "4:4:4"),
    (Subsampling::Half, "4:2:2"),
    (Subsampling::HalfRows, "4:4:0"),
    (Subsampling::Quarter, "4:2:0"),
    (Subsampling::Gray, "gray"),
];

/// Heights and widths: whole units of every sampling, and none.
pub(super) const SIZES: [(u32, u32); 4] = [(32, 64), (149, 227), (71, 65), (240, 320)];

/// Files of a batch, above the number from which card's cores read the codes.
const BATCH: usize = 64;

/// Slopes, edges, stripes, and some noise: what photographs have.
fn picture(key: u64, height: u32, width: u32) -> Vec<u8> {
    let grain = noise(key, (height * width) as usize);
    let (period, phase) = (8 + key as u32 % 23, key as u32 % 64);
    let mut rgb = Vec::with_capacity(grain.len() * 3);
    for (n, grain) in (0_u32..).zip(grain) {
        let (y, x) = (n / width, n % width);
        let grain = u32::from(grain % 8);
        let stripe = if (x + y / 2 + phase) / period % 2 == 0 {
            70
        } else {
            20
        };
        let edge = if 2 * x > width + y { 60 } else { 0 };
        let slope = |along: u32, of: u32| 90 * along / of.max(1);
        rgb.extend([
            (stripe + slope(x, width) + grain) as u8,
            (edge + slope(y, height) + 40 + grain) as u8,
            (150 - stripe + edge / 2 + grain) as u8,
        ]);
    }
    rgb
}

pub(super) fn jpeg(key: u64, size: (u32, u32), subsampling: Subsampling) -> Result<Vec<u8>, Wrong> {
    let (height, width) = size;
    let rgb = picture(key, height, width);
    Ok(encode(&rgb, width, height, 88, subsampling)?)
}

/// What the host decodes.
pub(super) fn on_host(
    decoder: &mut JpegDecoder,
    bytes: &[u8],
    place: &Place,
) -> Result<Vec<u8>, Wrong> {
    let Place { height, width, .. } = *place;
    let task = JpegTask {
        width,
        height,
        eighths: 8,
        window: Window {
            top: 0,
            left: 0,
            height,
            width,
        },
        format: PixelFormat::Rgb,
        max_scans: 1,
        max_memory_mib: 64,
    };
    let mut pixels = vec![0; height as usize * width as usize * 3];
    decoder.decode(bytes, &task, &mut pixels)?;
    Ok(pixels)
}

/// Places one after another, with gaps, and rows longer than they need be; and the bytes of all.
pub(super) fn places(sizes: impl IntoIterator<Item = (u32, u32)>) -> (Vec<Place>, usize) {
    let mut end = 256;
    let mut places = Vec::new();
    for (height, width) in sizes {
        let row_bytes = (3 * width as usize).next_multiple_of(64);
        places.push(Place {
            offset: end,
            row_bytes,
            height,
            width,
        });
        end += (row_bytes * height as usize).next_multiple_of(256) + 256;
    }
    (places, end)
}

/// The pixels of a place.
pub(super) fn cut(bytes: &[u8], place: &Place) -> Vec<u8> {
    let rows = bytes[place.offset..].chunks(place.row_bytes);
    let line = place.width as usize * 3;
    let rows = rows.take(place.height as usize);
    rows.flat_map(|row| row[..line].to_vec()).collect()
}

/// The largest and the mean distance of two images' levels.
pub(super) fn distance(one: &[u8], other: &[u8]) -> (u8, f64) {
    let apart = || one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
    let total: u64 = apart().map(u64::from).sum();
    let most = apart().max().unwrap_or(0);
    (most, total as f64 / one.len().max(1) as f64)
}

/// Scans files that are plain.
pub(super) fn scanned(files: &[Vec<u8>]) -> Result<Vec<ScannedJpeg>, Wrong> {
    let scan = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(file.clone()));
    Ok(files.iter().map(scan).collect::<Result<_, _>>()?)
}

/// Waits on the host until a stream is done with its commands.
pub(super) fn finish<D: Checked>(device: &D, queue: D::Queue) -> Result<(), DeviceError> {
    let end = device.event(false)?;
    device.record(&end, queue)?;
    device.synchronize(&end)
}

/// Decodes a batch; the memory as it is then, and the files that the scan or the device refused.
fn decoded<D: Checked>(
    device: &D,
    decoder: &mut D::Decoder,
    files: &[Vec<u8>],
    places: &[Place],
    len: usize,
) -> Result<(Slab, Vec<Refused>), Wrong> {
    let queue = device.stream()?;
    // What was there before must not be what is expected by chance.
    let to = super::filled(device, queue, &noise(1 << 41, len))?;
    finish(device, queue)?;
    let (mut rows, mut jpegs, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut refused = Vec::new();
    for (row, (file, place)) in files.iter().zip(places).enumerate() {
        match ScannedJpeg::scan(Arc::new(file.clone())) {
            Ok(jpeg) => {
                rows.push(row);
                jpegs.push(jpeg);
                taken.push(*place);
            }
            Err(why) => refused.push(Refused {
                row,
                why: why.into(),
            }),
        }
    }
    let decoding = device.decode(queue, decoder, &jpegs, &to, &taken)?;
    let seen = device.fetch(queue, &to, Slab::zeroed(1, len)?)?;
    let by_device = decoding.refused().into_iter();
    refused.extend(by_device.map(|Refused { row, why }| Refused {
        row: rows[row],
        why,
    }));
    refused.sort_by_key(|refused| refused.row);
    Ok((seen, refused))
}

/// Opens a decoder; the check does not run where the device has none.
pub(super) fn opened<D: Checked>(
    device: &D,
    settings: &DecoderSettings,
) -> Result<D::Decoder, Wrong> {
    match device.decoder(settings) {
        Err(DeviceError::NoDecoder { source }) => Err(Wrong::NotRun(with_causes(&*source))),
        opened => Ok(opened?),
    }
}

/// Decodes a batch of every sampling and many sizes, and compares it with the host's pixels.
pub(super) fn pixels<D: Checked>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    figures: &mut Figures<'_>,
) -> Result<String, Wrong> {
    let kind = |n: usize| SAMPLINGS[n % SAMPLINGS.len()];
    let size = |n: usize| SIZES[n / SAMPLINGS.len() % SIZES.len()];
    let (places, len) = places((0..BATCH).map(size));
    let files = (0..BATCH).map(|n| jpeg(n as u64, size(n), kind(n).0));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut host = JpegDecoder::new()?;
    let expected = files.iter().zip(&places);
    let expected = expected.map(|(file, place)| on_host(&mut host, file, place));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;

    let (seen, refused) = decoded(device, decoder, &files, &places, len)?;
    if let Some(refused) = refused.first() {
        return Err(wrong(format!("row {}: {}", refused.row, refused.why)));
    }
    let mut worst = [(0_u8, 0.0_f64); SAMPLINGS.len()];
    for (n, (place, expected)) in places.iter().zip(&expected).enumerate() {
        let (most, mean) = distance(&cut(seen.as_ref(), place), expected);
        let (subsampling, name) = kind(n);
        let allowed = match subsampling {
            Subsampling::None | Subsampling::Gray => D::APART.full,
            _ => D::APART.sampled,
        };
        if mean > allowed {
            return Err(wrong(format!(
                "row {n}, {name}, {}x{}: the mean distance from the host's pixels is {mean:.3} \
                 levels, and {allowed} is allowed",
                place.width, place.height
            )));
        }
        let worst = &mut worst[n % SAMPLINGS.len()];
        *worst = (worst.0.max(most), worst.1.max(mean));
    }
    for ((_, name), (most, mean)) in SAMPLINGS.iter().zip(worst) {
        let start = format!("jpeg/by={by}/of={name}/distance from the host's pixels");
        figures.push(Figure {
            name: format!("{start}/most"),
            value: f64::from(most),
            unit: "levels",
        });
        figures.push(Figure {
            name: format!("{start}/mean"),
            value: mean,
            unit: "levels",
        });
    }
    Ok(format!("{BATCH} files near the host's pixels"))
}

/// Decodes a batch of which some files cannot be decoded, and looks at the others.
pub(super) fn refusals<D: Checked>(device: &D, decoder: &mut D::Decoder) -> Result<String, Wrong> {
    const SIZE: (u32, u32) = (48, 64);
    let good = jpeg(7, SIZE, Subsampling::Quarter)?;
    let marker = |marker: u8| {
        let found = good.windows(2).position(|pair| pair == [0xFF, marker]);
        found.ok_or_else(|| wrong("the encoder wrote no such marker"))
    };
    let mut progressive = good.clone();
    progressive[marker(0xC0)? + 1] = 0xC2;
    // Whole by its markers: whether the codes between them make sense is found, or is not.
    let mut damaged = good.clone();
    let scan = marker(0xDA)? + 14;
    let end = good.len() - 2;
    damaged[scan + (end - scan) / 2..end].fill(0x55);
    let files = [
        good.clone(),
        progressive,
        good[..good.len() / 2].to_vec(),
        jpeg(7, (48, 80), Subsampling::Quarter)?,
        damaged,
        b"<html>not found</html>".to_vec(),
        good.clone(),
    ];
    let expect = [
        (1, "progressive"),
        (2, "ends"),
        (3, "80x48, and its place is for 64x48"),
        (5, "no JPEG"),
    ];
    let (places, len) = places(files.iter().map(|_| SIZE));
    let whole = on_host(&mut JpegDecoder::new()?, &good, &places[0])?;

    let (seen, refused) = decoded(device, decoder, &files, &places, len)?;
    let at = |row: usize| refused.iter().find(|refused| refused.row == row);
    for (row, words) in expect {
        let text = at(row).map(|refused| refused.why.to_string());
        if !text.as_ref().is_some_and(|text| text.contains(words)) {
            return Err(wrong(format!(
                "row {row} should be rejected with {words:?}, and is: {text:?}"
            )));
        }
    }
    for row in [0, 6] {
        if let Some(refused) = at(row) {
            return Err(wrong(format!("row {row} is whole: {}", refused.why)));
        }
        let (_, mean) = distance(&cut(seen.as_ref(), &places[row]), &whole);
        if mean > D::APART.sampled {
            return Err(wrong(format!(
                "row {row} is whole, and its mean distance from the host's pixels is {mean:.3} \
                 levels"
            )));
        }
    }
    let damaged = match at(4) {
        Some(refused) => format!("rejected ({})", refused.why),
        None => "not noticed".to_owned(),
    };
    Ok(format!("as expected; damage within a scan is {damaged}"))
}

/// Files a second of a usual size, and what a core of the host does of them.
pub(super) fn rates<D: Checked>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, Wrong> {
    let (size, batches) = match effort {
        Effort::Small => ((60, 80), 2),
        Effort::Full => ((480, 640), 16),
    };
    let files = (0..BATCH).map(|n| jpeg(n as u64, size, Subsampling::Quarter));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let (places, len) = places(files.iter().map(|_| size));
    let of = format!("of=4:2:0, {}x{}", size.1, size.0);
    let mut host = JpegDecoder::new()?;
    let start = Instant::now();
    for (file, place) in files.iter().zip(&places) {
        on_host(&mut host, file, place)?;
    }
    let rate =
        |files: usize, start: Instant| files as f64 / start.elapsed().as_secs_f64().max(1e-9);
    figures.push(Figure {
        name: format!("jpeg/by=a core of the host/{of}"),
        value: rate(BATCH, start),
        unit: "images/s",
    });
    let jpegs = scanned(&files)?;
    let queue = device.stream()?;
    let memories = [device.memory(len)?, device.memory(len)?];
    let ends = [device.event(false)?, device.event(false)?];
    let mut run = |batches: usize| -> Result<(), DeviceError> {
        let mut under_way: Vec<Decoding<D::Transfer>> = Vec::new();
        for n in 0..batches {
            let (to, end) = (&memories[n % 2], &ends[n % 2]);
            // The last batch there: decoders write as soon as they are called.
            device.synchronize(end)?;
            under_way.push(device.decode(queue, decoder, &jpegs, to, &places)?);
            device.record(end, queue)?;
        }
        ends.iter().try_for_each(|end| device.synchronize(end))
    };
    // The first batches make the library allocate its memory, and the GPU raise its clocks.
    let pace = Pace::of(effort);
    let start = Instant::now();
    run(2)?;
    while start.elapsed() < pace.warm_up {
        run(2)?;
    }
    let start = Instant::now();
    run(batches)?;
    figures.push(Figure {
        name: format!("jpeg/by={by}/{of}"),
        value: rate(batches * BATCH, start),
        unit: "images/s",
    });
    Ok(format!("{} files", batches * BATCH))
}

/// The decoders that a GPU may have.
pub(super) const WAYS_OF_A_CARD: &[Option<Way>] = &[Some(Way::Engine), Some(Way::Cores)];
