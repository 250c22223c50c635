//! A batch of JPEGs as a pipeline sends it with `decode="gpu"`: decoded, cropped, resized and
//! mirrored on the device. Its pixels are compared with the host's after the same crop and resize.

use infeed_raw::jpeg::JpegDecoder;
use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, Figure, Figures, wrong};
use super::jpeg::{SAMPLINGS, SIZES, cut, distance, jpeg, on_host};
use crate::jpeg::ImagePosition;
use crate::ring::{Ring, RingSettings, Route, crops, files};
use infeed_core::batch::{Array, Batch, Column, ColumnKind, ColumnSpec, Values};
use infeed_core::random;
use infeed_core::sample::{DType, Region, Size};

const ROWS: usize = 48;

/// Size of every result.
const TO: Size = Size {
    height: 64,
    width: 80,
};

const CHANNELS: usize = 3;

/// Returns the crop and flips of a file.
fn part(key: usize, (height, width): (u32, u32)) -> files::ImageCrop {
    let number = |of: u64, below: u32| {
        let hash = random::hash(&[key as u64, of]);
        (hash % u64::from(below.max(1))) as u32
    };
    let size = Size {
        height: height / 4 + number(0, height / 4),
        width: width / 4 + number(1, width / 4),
    };
    let region = Region {
        top: number(2, height - size.height),
        left: number(3, width - size.width),
        size,
    };
    files::ImageCrop {
        image: Size { height, width },
        region,
        flips: (number(4, 2) == 1, number(5, 2) == 1),
    }
}

/// Returns two batches: one of files in which every fifth row holds constant pixels, and one of
/// pixels only.
fn batches(row_bytes: usize) -> Result<[Batch; 2], CheckFailure> {
    let mut host = JpegDecoder::new()?;
    let mut slabs = [
        Slab::zeroed(ROWS, row_bytes)?,
        Slab::zeroed(ROWS, row_bytes)?,
    ];
    let [files, pixels] = &mut slabs;
    let rows = files.as_mut().chunks_exact_mut(row_bytes);
    let rows = rows.zip(pixels.as_mut().chunks_exact_mut(row_bytes));
    for (row, (of_file, of_pixels)) in rows.enumerate() {
        let (height, width) = SIZES[row / SAMPLINGS.len() % SIZES.len()];
        let subsampling = SAMPLINGS[row % SAMPLINGS.len()].0;
        let file = jpeg(row as u64, (height, width), subsampling)?;
        let whole = on_host(&mut host, &file, &ImagePosition::dense(0, height, width))?;
        let part = part(row, (height, width));
        let Region { top, left, size } = part.region;
        let inside = ImagePosition {
            offset: (top as usize * width as usize + left as usize) * CHANNELS,
            row_bytes: width as usize * CHANNELS,
            height: size.height,
            width: size.width,
        };
        let too_long = || wrong(format!("row {row}: no room for {} bytes", file.len()));
        let position = crops::begin(of_pixels, size, CHANNELS, part.flips).ok_or_else(too_long)?;
        position.copy_from_slice(&cut(&whole, &inside));
        if row % 5 == 4 {
            of_file.copy_from_slice(of_pixels);
        } else if !part.write(&file, subsampling, of_file) {
            return Err(too_long());
        }
    }
    let [files, pixels] = slabs;
    Ok([batch(files, row_bytes, 0)?, batch(pixels, row_bytes, 1)?])
}

fn batch(slab: Slab, row_bytes: usize, step: u64) -> Result<Batch, CheckFailure> {
    let array = Array::of_slab(slab, vec![ROWS, row_bytes], DType::UInt8);
    let array = array.ok_or_else(|| wrong("a slab is shorter than its batch"))?;
    Ok(Batch {
        columns: vec![Column {
            name: "image".to_owned(),
            values: Values::Array(array),
        }],
        records: (0..ROWS as u64).collect(),
        epoch: 0,
        step,
    })
}

fn route(row_bytes: usize) -> Route {
    let column = |shape: Vec<usize>| ColumnSpec {
        name: "image".to_owned(),
        kind: ColumnKind::Fixed {
            dtype: DType::UInt8,
            shape,
        },
    };
    let (height, width) = (TO.height as usize, TO.width as usize);
    let kernel = Kernel::Resize {
        height,
        width,
        channels: CHANNELS,
        dtype: Dtype::U8,
        layout: Layout::Hwc,
        scale: [1.0; 4],
        bias: [0.0; 4],
    };
    let device = column(vec![height, width, CHANNELS]);
    Route::decode(column(vec![row_bytes]), kernel, device)
}

/// Returns the pixels of a batch on the device.
fn fetch_pixels<D: CheckedDevice>(
    device: &D,
    ring: &Ring<D>,
    batch: Batch,
) -> Result<Vec<u8>, CheckFailure> {
    let sent = ring.send(batch)?;
    if let Some(row) = sent.undecoded_records()?.first() {
        return Err(wrong(format!("row {row} is valid, but was not decoded")));
    }
    let batch = sent.hand_over(None)?;
    let array = batch.array("image")?;
    let array = array.ok_or_else(|| wrong("the images are not on the device"))?;
    let queue = device.stream()?;
    array.ready_on(queue)?;
    let seen = device.fetch(queue, array.memory(), Slab::zeroed(1, array.bytes())?)?;
    Ok(seen.as_ref().to_vec())
}

/// Sends both batches through a ring with the decoder, and compares the pixels.
pub(super) fn rows<D: CheckedDevice>(
    device: &D,
    decoder: D::Decoder,
    by: &str,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let row_bytes = crops::row_bytes(TO, CHANNELS).ok_or_else(|| wrong("a row is too large"))?;
    let before = device.complaints().len();
    let ring = Ring::new(
        device.clone(),
        vec![route(row_bytes)],
        RingSettings::new(ROWS),
    )?;
    let ring = ring.with_decoder(decoder);
    let [files, pixels] = batches(row_bytes)?;
    let (seen, expected) = (
        fetch_pixels(device, &ring, files)?,
        fetch_pixels(device, &ring, pixels)?,
    );
    let image = TO.pixels() as usize * CHANNELS;
    let mut worst = 0.0_f64;
    for (row, (seen, expected)) in seen.chunks(image).zip(expected.chunks(image)).enumerate() {
        let (_, mean) = distance(seen, expected);
        let allowed = match row % 5 {
            4 => 0.0,
            _ => D::APART.sampled,
        };
        if mean > allowed {
            return Err(wrong(format!(
                "row {row}: the mean distance from the host's pixels is {mean:.3} levels, over the \
                 limit of {allowed}"
            )));
        }
        worst = worst.max(mean);
    }
    figures.push(Figure {
        name: format!("jpeg/by={by}/resized/distance from the host's pixels/mean"),
        value: worst,
        unit: "levels",
    });
    let decoded = ring.stats()?.jpegs;
    ring.close()?;
    if let Some(first) = device.complaints().get(before) {
        return Err(wrong(first));
    }
    Ok(format!("{decoded} of {ROWS} rows decoded on the device"))
}

#[cfg(test)]
mod tests {
    use infeed_raw::jpeg_encode::Subsampling;

    use super::*;
    use crate::Device;
    use crate::sim::Sim;

    /// Returns a file of the conformance set, a crop that uses its whole image, and the host's
    /// pixels.
    fn progressive() -> (Vec<u8>, files::ImageCrop, Vec<u8>) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance");
        let file = std::fs::read(format!("{folder}/s420p.jpg")).expect("a file");
        let mut decoder = infeed_codec::decode::Decoder::new();
        let header = decoder
            .header(&file, false, &Default::default())
            .expect("a header");
        let request =
            infeed_codec::decode::Request::whole(&header, infeed_codec::decode::ColorMode::Rgb);
        let mut image = infeed_core::sample::Image::default();
        decoder
            .decode(&file, &header, &request, &mut image)
            .expect("it decodes");
        let cut = files::ImageCrop {
            image: header.size,
            region: header.size.whole(),
            flips: (true, false),
        };
        (file, cut, image.data)
    }

    #[test]
    fn files_rejected_by_the_device_are_decoded_on_the_host_and_undecodable_ones_are_named() {
        let sim = Sim::parse("sim:jitter=0.5,seed=3").expect("a device");
        let row_bytes = crops::row_bytes(TO, CHANNELS).expect("small");
        let settings = RingSettings::new(ROWS);
        let ring = Ring::new(sim.clone(), vec![route(row_bytes)], settings).expect("a ring");
        let [files, pixels] = batches(row_bytes).expect("they fit");
        let Err(rejected) = ring.send(files.clone()) else {
            panic!("the ring has no decoder");
        };
        assert!(rejected.to_string().contains("has no decoder"));
        let ring = ring.with_decoder(sim.decoder(&Default::default()).expect("one"));
        let slab = |batch: &Batch| {
            let array = batch.array("image").expect("images");
            let mut slab = Slab::zeroed(ROWS, row_bytes).expect("memory");
            slab.as_mut().copy_from_slice(array.bytes());
            slab
        };
        let (mut of_files, mut of_pixels) = (slab(&files), slab(&pixels));
        let (file, cut, whole) = progressive();
        for row in [0, 7, 9] {
            let at = row * row_bytes..(row + 1) * row_bytes;
            let row = &mut of_files.as_mut()[at.clone()];
            assert!(cut.write(&file, Subsampling::Quarter, row));
            let room = &mut of_pixels.as_mut()[at];
            let position = crops::begin(room, cut.image, CHANNELS, cut.flips);
            position.expect("it fits").copy_from_slice(&whole);
        }
        // The decoder accepts extended sequential files like baseline ones; a scan would reject
        // this one.
        let row = &mut of_files.as_mut()[row_bytes..2 * row_bytes];
        let frame = row.windows(2).position(|pair| pair == [0xFF, 0xC0]);
        row[frame.expect("a frame") + 1] = 0xC1;
        let made = |slab, step| batch(slab, row_bytes, step).expect("a batch");
        let expected = fetch_pixels(&sim, &ring, made(of_pixels, 0)).expect("sent");
        assert_eq!(ring.stats().expect("a device").jpegs, 0);

        let before = ring.stats().expect("a device").transfers;
        let whole = slab(&made(of_files, 1));
        let mut again = Slab::zeroed(ROWS, row_bytes).expect("memory");
        again.as_mut().copy_from_slice(whole.as_ref());
        let found = fetch_pixels(&sim, &ring, made(whole, 2)).expect("sent");
        assert!(found == expected);
        let jpegs = (0..ROWS).filter(|row| row % 5 != 4 && ![0, 7, 9].contains(row));
        let sent = ring.stats().expect("a device").jpegs;
        assert_eq!(sent, jpegs.count() as u64, "the host decodes three");
        let transfers = ring.stats().expect("a device").transfers - before;
        // One for the files, one for each of the three images decoded on the host, one for the rows
        // of pixels, and one for the table.
        assert_eq!(transfers, 1 + 3 + 1 + 1);

        // A file whose size differs from its header, and a truncated one.
        let other = files::ImageCrop {
            image: Size {
                height: cut.image.height + 1,
                ..cut.image
            },
            ..cut
        };
        let row = |n: usize| n * row_bytes..(n + 1) * row_bytes;
        let sampled = Subsampling::Quarter;
        assert!(other.write(&file, sampled, &mut again.as_mut()[row(3)]));
        let half = &file[..file.len() / 2];
        assert!(cut.write(half, sampled, &mut again.as_mut()[row(11)]));
        let sent = ring.send(made(again, 3)).expect("the others are whole");
        assert_eq!(sent.undecoded_records().expect("a device"), [3, 11]);
        drop(sent);
        ring.close().expect("a device");
        assert!(sim.complaints().is_empty(), "{:?}", sim.complaints());
    }
}
