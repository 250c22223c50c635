//! Conformance and damage: every file of `testdata/conformance` against independent pixels, then
//! cut short, with flipped bits, and by region.

use std::path::PathBuf;

use serde::Deserialize;

use super::*;

mod damage;
mod regions;
mod tiles;

/// One line of `expected.json`.
#[derive(Debug, Deserialize)]
struct Case {
    file: String,
    mode: ColorMode,
    orient: bool,
    height: u32,
    width: u32,
    channels: usize,
    depth: usize,
    offset: usize,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance")
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn read(file: &str) -> Vec<u8> {
    std::fs::read(folder().join(file)).unwrap()
}

/// All files once, with a mode that decodes each.
fn files() -> Vec<(String, ColorMode)> {
    let mut files: Vec<_> = cases()
        .into_iter()
        .map(|case| (case.file, case.mode))
        .collect();
    files.dedup_by(|a, b| a.0 == b.0);
    files
}

/// xorshift64*: enough for test positions, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) * u64::from(n)) >> 32) as u32
    }

    fn region(&mut self, size: Size) -> Region {
        let mut side = |n: u32| {
            let length = 1 + self.below(n);
            (self.below(n - length + 1), length)
        };
        let ((top, height), (left, width)) = (side(size.height), side(size.width));
        Region {
            top,
            left,
            size: Size { height, width },
        }
    }
}

fn cut(whole: &Image, region: Region) -> Image {
    let mut part = Image::default();
    part.reset(region.size, whole.channels, whole.depth);
    let pixel = whole.pixel_bytes();
    for y in 0..part.height() {
        let row = whole.row(region.top as usize + y);
        let columns = region.left as usize * pixel..region.right() as usize * pixel;
        part.row_mut(y).copy_from_slice(&row[columns]);
    }
    part
}

/// Header, check and decode as the engine goes through them.
fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    mode: ColorMode,
    region: Option<Region>,
) -> Result<Image, DecodeError> {
    let header = decoder.header(bytes, false, &Limits::default())?;
    decoder.check(bytes, &header, true)?;
    let mut request = Request::whole(&header, mode);
    request.region = region.unwrap_or(request.region);
    let mut image = Image::default();
    decoder.decode(bytes, &header, &request, &mut image)?;
    Ok(image)
}

#[test]
fn every_conformance_file_decodes_to_the_pixels_of_an_independent_decoder() {
    let blob = std::fs::read(folder().join("expected.bin")).unwrap();
    let mut decoder = Decoder::new();
    let mut wrong = Vec::new();

    for case in cases() {
        let bytes = read(&case.file);
        let header = decoder
            .header(&bytes, case.orient, &Limits::default())
            .unwrap();
        decoder.check(&bytes, &header, true).unwrap();
        let request = Request::whole(&header, case.mode);
        let mut image = Image::default();
        let done = decoder.decode(&bytes, &header, &request, &mut image);

        let size = Size {
            height: case.height,
            width: case.width,
        };
        let length = case.height as usize * case.width as usize * case.channels * case.depth / 8;
        let mut expected = blob[case.offset..case.offset + length].to_vec();
        if case.depth == 16 {
            for sample in expected.chunks_exact_mut(2) {
                let value = u16::from_le_bytes([sample[0], sample[1]]);
                sample.copy_from_slice(&value.to_ne_bytes());
            }
        }
        let same = done == Ok(0)
            && (image.size, image.channels, image.depth.bytes() * 8)
                == (size, case.channels, case.depth)
            && image.data == expected;
        if !same {
            let worst = image
                .data
                .iter()
                .zip(&expected)
                .map(|(a, b)| a.abs_diff(*b))
                .max()
                .unwrap_or(0);
            wrong.push(format!(
                "{} {:?} orient={}: {done:?}, {}x{}, worst {worst}",
                case.file, case.mode, case.orient, image.size, image.channels
            ));
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_16_bit_file_in_mode_stored_names_the_mode_that_fits() {
    let error = decode(
        &mut Decoder::new(),
        &read("c0b16.png"),
        ColorMode::Stored,
        None,
    );

    assert_eq!(
        error.unwrap_err().to_string(),
        "16-bit samples in mode \"stored\" cannot be decoded; use mode \"stored16\""
    );
}

#[test]
fn the_format_is_told_from_the_bytes() {
    for (file, format) in [
        ("s420.jpg", Format::Jpeg),
        ("c2b08.png", Format::Png),
        ("lossy.webp", Format::WebP),
        ("rgb.bmp", Format::Bmp),
        ("palette.gif", Format::Gif),
        ("rgb.tif", Format::Tiff),
    ] {
        assert_eq!(Format::of(&read(file)), Some(format), "{file}");
    }
    assert_eq!(Format::of(b"<svg>"), None);
    assert_eq!(Format::of(b""), None);
}

#[test]
fn a_header_over_the_pixel_limit_is_refused_whatever_the_format() {
    let mut decoder = Decoder::new();
    for (file, _) in files() {
        let bytes = read(&file);
        let size = decoder
            .header(&bytes, false, &Limits::default())
            .unwrap()
            .size;

        let limits = Limits {
            max_pixels: size.pixels() - 1,
        };
        let refused = decoder.header(&bytes, false, &limits).unwrap_err();

        assert_eq!(
            refused,
            DecodeError::TooLarge {
                size,
                limit: limits.max_pixels
            },
            "{file}"
        );
    }
}

#[test]
fn a_region_that_leaves_the_image_is_refused() {
    let bytes = read("s420.jpg");
    let region = Region {
        top: 40,
        left: 0,
        size: Size {
            height: 6,
            width: 1,
        },
    };

    let error = decode(&mut Decoder::new(), &bytes, ColorMode::Rgb, Some(region)).unwrap_err();

    assert!(matches!(error, DecodeError::OutsideImage { .. }), "{error}");
}

#[test]
fn what_decoding_holds_stays_under_its_announced_bound() {
    for (file, mode) in files() {
        let bytes = read(&file);
        let mut decoder = Decoder::new();
        let header = decoder.header(&bytes, true, &Limits::default()).unwrap();
        let request = Request::whole(&header, mode);
        let mut image = Image::default();
        decoder
            .decode(&bytes, &header, &request, &mut image)
            .unwrap();

        let Scratch {
            wide,
            tiles,
            narrow,
            unturned,
        } = &decoder.scratch;
        let held = image.data.len()
            + wide.capacity()
            + tiles.capacity()
            + narrow.capacity()
            + unturned.data.capacity();

        assert!(
            held as u64 <= decoder.scratch_bytes(&header, &request),
            "{file}: {held}"
        );
    }
}

#[test]
fn trailing_bytes_and_thumbnails_do_not_decide_whether_a_jpeg_is_whole() {
    let mut decoder = Decoder::new();
    let bytes = read("s420.jpg");
    let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();

    let appended = [&bytes[..], b"a film follows"].concat();
    assert_eq!(
        decode(&mut decoder, &appended, ColorMode::Rgb, None),
        Ok(whole)
    );

    // A thumbnail with its own end of image, before the scan of a file that has none.
    let mut with_thumbnail = vec![
        0xFF, 0xD8, 0xFF, 0xE1, 0, 10, 0xFF, 0xD8, 0, 0, 0, 0, 0xFF, 0xD9,
    ];
    with_thumbnail.extend_from_slice(&bytes[2..bytes.len() - 2]);
    assert_eq!(
        decode(&mut decoder, &with_thumbnail, ColorMode::Rgb, None),
        Err(DecodeError::Truncated)
    );
}

#[test]
fn stray_bytes_between_segments_are_counted_and_change_no_pixel() {
    let mut decoder = Decoder::new();
    let bytes = read("s420.jpg");
    let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();
    let stray = [&bytes[..2], &[0, 1, 2], &bytes[2..]].concat();

    assert_eq!(
        Format::of(&stray),
        None,
        "a JPEG begins with a marker after its first"
    );
    let late = {
        let end = 4 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        [&bytes[..end], &[0, 1, 2], &bytes[end..]].concat()
    };
    let header = decoder.header(&late, false, &Limits::default()).unwrap();
    let mut image = Image::default();
    let warnings = decoder.decode(
        &late,
        &header,
        &Request::whole(&header, ColorMode::Rgb),
        &mut image,
    );

    assert_eq!(warnings, Ok(1));
    assert_eq!(image, whole);
}
