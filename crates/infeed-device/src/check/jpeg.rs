//! JPEG decoding on a device: distance of its pixels from the host's, rejected files, and speed.

use std::sync::Arc;
use std::time::Instant;

use infeed_raw::jpeg::{JpegDecoder, JpegTask};
use infeed_raw::jpeg_encode::{Subsampling, encode};
use infeed_raw::slab::Slab;

use super::bytes::{memory_with_bytes, noise};
use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, Figure, Figures, wrong};
use super::pace::Pace;
use super::plan::Effort;
use crate::DeviceError;
use crate::jpeg::{DecoderSettings, Decoding, ImagePosition, RejectedFile, Rejection, ScannedJpeg};
use infeed_core::error::with_causes;

pub(super) const SAMPLINGS: [(Subsampling, &str); 5] = [
    (Subsampling::None, "4:4:4"),
    (Subsampling::Half, "4:2:2"),
    (Subsampling::HalfRows, "4:4:0"),
    (Subsampling::Quarter, "4:2:0"),
    (Subsampling::Gray, "gray"),
];

/// Heights and widths: multiples of every subsampling's unit, and other sizes.
pub(super) const SIZES: [(u32, u32); 4] = [(32, 64), (149, 227), (71, 65), (240, 320)];

/// Files per batch. From a certain batch size on, a GPU decodes Huffman codes on its cores; this
/// exceeds it.
const BATCH: usize = 64;

/// Draws slopes, edges, stripes and noise, as in photographs.
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

pub(super) fn jpeg(
    key: u64,
    size: (u32, u32),
    subsampling: Subsampling,
) -> Result<Vec<u8>, CheckFailure> {
    let (height, width) = size;
    let rgb = picture(key, height, width);
    Ok(encode(&rgb, width, height, 88, subsampling)?)
}

/// Decodes a file on the host.
pub(super) fn on_host(
    decoder: &mut JpegDecoder,
    bytes: &[u8],
    position: &ImagePosition,
) -> Result<Vec<u8>, CheckFailure> {
    let ImagePosition { height, width, .. } = *position;
    let task = JpegTask::whole(width, height);
    let mut pixels = vec![0; height as usize * width as usize * 3];
    decoder.decode(bytes, &task, &mut pixels)?;
    Ok(pixels)
}

/// Returns positions with gaps between them and padded rows, and the total number of bytes.
pub(super) fn positions(
    sizes: impl IntoIterator<Item = (u32, u32)>,
) -> (Vec<ImagePosition>, usize) {
    let mut end = 256;
    let mut positions = Vec::new();
    for (height, width) in sizes {
        let row_bytes = (3 * width as usize).next_multiple_of(64);
        positions.push(ImagePosition {
            offset: end,
            row_bytes,
            height,
            width,
        });
        end += (row_bytes * height as usize).next_multiple_of(256) + 256;
    }
    (positions, end)
}

/// Returns the pixels at a position.
pub(super) fn cut(bytes: &[u8], position: &ImagePosition) -> Vec<u8> {
    let rows = bytes[position.offset..].chunks(position.row_bytes);
    let line = position.width as usize * 3;
    let rows = rows.take(position.height as usize);
    rows.flat_map(|row| row[..line].to_vec()).collect()
}

/// Returns the largest and the mean distance of two images' levels.
pub(super) fn distance(one: &[u8], other: &[u8]) -> (u8, f64) {
    let apart = || one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
    let total: u64 = apart().map(u64::from).sum();
    let most = apart().max().unwrap_or(0);
    (most, total as f64 / one.len().max(1) as f64)
}

/// Scans files that are all baseline JPEGs.
pub(super) fn scan_all(files: &[Vec<u8>]) -> Result<Vec<ScannedJpeg>, CheckFailure> {
    let scan = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(file.clone()));
    Ok(files.iter().map(scan).collect::<Result<_, _>>()?)
}

/// Waits on the host until a stream has run its commands.
pub(super) fn finish<D: CheckedDevice>(device: &D, queue: D::Queue) -> Result<(), DeviceError> {
    let end = device.event(false)?;
    device.record(&end, queue)?;
    device.synchronize(&end)
}

/// Decodes a batch. Returns the memory afterwards, and the files that the scan or the device
/// rejected.
fn decode_batch<D: CheckedDevice>(
    device: &D,
    decoder: &mut D::Decoder,
    files: &[Vec<u8>],
    positions: &[ImagePosition],
    len: usize,
) -> Result<(Slab, Vec<RejectedFile>), CheckFailure> {
    let queue = device.stream()?;
    // Old contents must not match the expected pixels by chance.
    let to = memory_with_bytes(device, queue, &noise(1 << 41, len))?;
    finish(device, queue)?;
    let (mut rows, mut jpegs, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut rejected = Vec::new();
    for (row, (file, position)) in files.iter().zip(positions).enumerate() {
        match ScannedJpeg::scan(Arc::new(file.clone())) {
            Ok(jpeg) => {
                rows.push(row);
                jpegs.push(jpeg);
                taken.push(*position);
            }
            Err(why) => rejected.push(RejectedFile {
                row,
                why: why.into(),
            }),
        }
    }
    let decoding = device.decode(queue, decoder, &jpegs, &to, &taken)?;
    let seen = device.fetch(queue, &to, Slab::zeroed(1, len)?)?;
    let by_device = decoding.rejected_files().into_iter();
    rejected.extend(by_device.map(|RejectedFile { row, why }| RejectedFile {
        row: rows[row],
        why,
    }));
    rejected.sort_by_key(|rejected| rejected.row);
    Ok((seen, rejected))
}

/// Opens a decoder. If the device has none, the check does not run.
pub(super) fn open_decoder<D: CheckedDevice>(
    device: &D,
    settings: &DecoderSettings,
) -> Result<D::Decoder, CheckFailure> {
    match device.decoder(settings) {
        Err(DeviceError::NoDecoder { source }) => Err(CheckFailure::NotRun(with_causes(&*source))),
        opened => Ok(opened?),
    }
}

/// Returns, for each subsampling, the reason why the decoder rejected all of its files, if it did: an
/// engine decodes some subsamplings only.
///
/// # Errors
///
/// If some files of a subsampling were rejected and others were not, or if all files were.
fn undecoded_kinds(
    rejected: &[RejectedFile],
) -> Result<[Option<&Rejection>; SAMPLINGS.len()], CheckFailure> {
    let mut kinds = [None; SAMPLINGS.len()];
    for (kind, why) in kinds.iter_mut().enumerate() {
        let of_kind = |row: usize| row % SAMPLINGS.len() == kind;
        let mut its_files = rejected.iter().filter(|file| of_kind(file.row));
        let Some(first) = its_files.next() else {
            continue;
        };
        let is_whole = 1 + its_files.count() == (0..BATCH).filter(|&row| of_kind(row)).count();
        if !is_whole || !matches!(first.why, Rejection::Decoder { .. }) {
            return Err(wrong(format!("row {}: {}", first.row, first.why)));
        }
        *why = Some(&first.why);
    }
    match kinds[0] {
        Some(why) if kinds.iter().all(Option::is_some) => Err(wrong(format!("all rows: {why}"))),
        _ => Ok(kinds),
    }
}

/// Decodes a batch of every subsampling and several sizes, and compares it with the host's pixels.
/// The result names the subsamplings that the decoder does not decode.
pub(super) fn pixels<D: CheckedDevice>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let kind = |n: usize| SAMPLINGS[n % SAMPLINGS.len()];
    let size = |n: usize| SIZES[n / SAMPLINGS.len() % SIZES.len()];
    let (positions, len) = positions((0..BATCH).map(size));
    let files = (0..BATCH).map(|n| jpeg(n as u64, size(n), kind(n).0));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut host = JpegDecoder::new()?;
    let expected = files.iter().zip(&positions);
    let expected = expected.map(|(file, position)| on_host(&mut host, file, position));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;

    let (seen, rejected) = decode_batch(device, decoder, &files, &positions, len)?;
    let undecoded = undecoded_kinds(&rejected)?;
    let mut worst = [(0_u8, 0.0_f64); SAMPLINGS.len()];
    for (n, (position, expected)) in positions.iter().zip(&expected).enumerate() {
        if undecoded[n % SAMPLINGS.len()].is_some() {
            continue;
        }
        let (most, mean) = distance(&cut(seen.as_ref(), position), expected);
        let (subsampling, name) = kind(n);
        let allowed = match subsampling {
            Subsampling::None | Subsampling::Gray => D::APART.full,
            _ => D::APART.sampled,
        };
        if mean > allowed {
            return Err(wrong(format!(
                "row {n}, {name}, {}x{}: the mean distance from the host's pixels is {mean:.3} \
                 levels, over the limit of {allowed}",
                position.width, position.height
            )));
        }
        let worst = &mut worst[n % SAMPLINGS.len()];
        *worst = (worst.0.max(most), worst.1.max(mean));
    }
    let mut text = format!("{} files near the host's pixels", BATCH - rejected.len());
    for (((_, name), (most, mean)), undecoded) in SAMPLINGS.iter().zip(worst).zip(undecoded) {
        if let Some(why) = undecoded {
            text += &format!("; not run for {name}: {why}");
            continue;
        }
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
    Ok(text)
}

/// Decodes a batch with some undecodable files, and checks that the other files are decoded
/// correctly.
pub(super) fn refusals<D: CheckedDevice>(
    device: &D,
    decoder: &mut D::Decoder,
) -> Result<String, CheckFailure> {
    const SIZE: (u32, u32) = (48, 64);
    let good = jpeg(7, SIZE, Subsampling::Quarter)?;
    let marker = |marker: u8| {
        let found = good.windows(2).position(|pair| pair == [0xFF, marker]);
        found.ok_or_else(|| wrong("the encoder wrote no such marker"))
    };
    let mut progressive = good.clone();
    progressive[marker(0xC0)? + 1] = 0xC2;
    // The markers are valid. The device may or may not detect that the entropy-coded data is not.
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
        (3, "80x48, but its position is for 64x48"),
        (5, "not a JPEG"),
    ];
    let (positions, len) = positions(files.iter().map(|_| SIZE));
    let whole = on_host(&mut JpegDecoder::new()?, &good, &positions[0])?;

    let (seen, rejected) = decode_batch(device, decoder, &files, &positions, len)?;
    let at = |row: usize| rejected.iter().find(|rejected| rejected.row == row);
    for (row, words) in expect {
        let text = at(row).map(|rejected| rejected.why.to_string());
        if !text.as_ref().is_some_and(|text| text.contains(words)) {
            return Err(wrong(format!(
                "row {row} should be rejected with {words:?}, but is: {text:?}"
            )));
        }
    }
    for row in [0, 6] {
        if let Some(rejected) = at(row) {
            return Err(wrong(format!("row {row} is whole: {}", rejected.why)));
        }
        let (_, mean) = distance(&cut(seen.as_ref(), &positions[row]), &whole);
        if mean > D::APART.sampled {
            return Err(wrong(format!(
                "row {row} is whole, and its mean distance from the host's pixels is {mean:.3} \
                 levels"
            )));
        }
    }
    let damaged = match at(4) {
        Some(rejected) => format!("rejected ({})", rejected.why),
        None => "not noticed".to_owned(),
    };
    Ok(format!("as expected; damage within a scan is {damaged}"))
}

/// Measures files per second at a common size, and the rate of one host core for comparison.
pub(super) fn rates<D: CheckedDevice>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let (size, batches) = match effort {
        Effort::Small => ((60, 80), 2),
        Effort::Full => ((480, 640), 16),
    };
    let files = (0..BATCH).map(|n| jpeg(n as u64, size, Subsampling::Quarter));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let (positions, len) = positions(files.iter().map(|_| size));
    let of = format!("of=4:2:0, {}x{}", size.1, size.0);
    let mut host = JpegDecoder::new()?;
    let start = Instant::now();
    for (file, position) in files.iter().zip(&positions) {
        on_host(&mut host, file, position)?;
    }
    let rate =
        |files: usize, start: Instant| files as f64 / start.elapsed().as_secs_f64().max(1e-9);
    figures.push(Figure {
        name: format!("jpeg/by=a core of the host/{of}"),
        value: rate(BATCH, start),
        unit: "images/s",
    });
    let jpegs = scan_all(&files)?;
    let queue = device.stream()?;
    let memories = [device.memory(len)?, device.memory(len)?];
    let ends = [device.event(false)?, device.event(false)?];
    let mut run = |batches: usize| -> Result<(), DeviceError> {
        let mut in_flight: Vec<Decoding<D::Transfer>> = Vec::new();
        for n in 0..batches {
            let (to, end) = (&memories[n % 2], &ends[n % 2]);
            // Decoders write as soon as they are called, so the previous batch in this memory must
            // be done.
            device.synchronize(end)?;
            in_flight.push(device.decode(queue, decoder, &jpegs, to, &positions)?);
            device.record(end, queue)?;
        }
        ends.iter().try_for_each(|end| device.synchronize(end))
    };
    // The library allocates its memory during the first batches, and the GPU raises its clocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reject_rows(rows: impl Iterator<Item = usize>) -> Vec<RejectedFile> {
        let why = Rejection::Decoder {
            decoder: "nvJPEG",
            what: "the engine does not support this file".to_owned(),
        };
        let file = |row| RejectedFile {
            row,
            why: why.clone(),
        };
        rows.map(file).collect()
    }

    #[test]
    fn a_subsampling_that_the_decoder_rejects_does_not_fail_the_check() {
        let kinds = SAMPLINGS.len();
        let one = reject_rows((0..BATCH).filter(|row| row % kinds == 2));

        let found = undecoded_kinds(&one).expect("one kind");

        let is_rejected = found.map(|why| why.is_some());
        assert_eq!(is_rejected, [false, false, true, false, false]);
        assert_eq!(undecoded_kinds(&[]).expect("no kind"), [None; 5]);
        assert!(undecoded_kinds(&one[1..]).is_err(), "some of its files");
        assert!(
            undecoded_kinds(&reject_rows(0..BATCH)).is_err(),
            "all files"
        );
        let other_reason = RejectedFile {
            why: Rejection::OtherSize {
                width: 1,
                height: 1,
                found_width: 2,
                found_height: 1,
            },
            ..one[0].clone()
        };
        let mut other = one;
        other[0] = other_reason;
        assert!(undecoded_kinds(&other).is_err());
    }
}
