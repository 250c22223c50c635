//! Conformance and damage: decodes every file of `testdata/conformance` and compares it with
//! independent pixels. Then truncates the file, flips bits, and decodes regions.

use std::path::PathBuf;

use serde::Deserialize;

use super::scratch::Scratch;
use super::*;
use infeed_core::sample::{Depth, Image, Region, Size};

mod damage;
mod losses;
mod orientation;
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

/// Returns each file once, with a mode that decodes it.
fn files() -> Vec<(String, ColorMode)> {
    let mut files: Vec<_> = cases()
        .into_iter()
        .map(|case| (case.file, case.mode))
        .collect();
    files.dedup_by(|a, b| a.0 == b.0);
    files
}

/// xorshift64*: enough for test positions, and the same on every machine.
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

/// Fails if an error hides a panic of a codec. No codec should panic on these files.
fn assert_no_panic(error: &DecodeError) {
    assert!(!matches!(error, DecodeError::Panicked { .. }), "{error}");
}

/// Calls header, check and decode, like the engine.
fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    mode: ColorMode,
    region: Option<Region>,
) -> Result<Image, DecodeError> {
    check_and_decode(decoder, bytes, mode, region).inspect_err(assert_no_panic)
}

fn check_and_decode(
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
fn a_panic_of_a_codec_is_an_error_of_its_record_and_leaves_the_decoder_usable() {
    let mut decoder = Decoder::new();
    for file in ["s420.jpg", "c2b08.png", "lossy.webp", "rgb.bmp", "lzw.tif"] {
        let bytes = read(file);
        let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();

        let panicking = [&bytes[..], PANIC].concat();
        let header = decoder.header(&bytes, false, &Limits::default()).unwrap();
        let request = Request::whole(&header, ColorMode::Rgb);
        let mut image = Image::default();
        let error = decoder
            .decode(&panicking, &header, &request, &mut image)
            .unwrap_err();

        let name = header.format.name();
        let text = format!("the {name} decoder failed internally (injected); ");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert!(decoder.jpeg.is_none() && decoder.scratch.wide.is_empty());
        assert_eq!(
            decode(&mut decoder, &bytes, ColorMode::Rgb, None),
            Ok(whole),
            "{file}"
        );
    }
}

#[test]
fn a_tiff_that_cannot_be_decoded_is_an_error_with_its_kind_and_the_fix() {
    let error = |file: &str| {
        let bytes = read(&format!("tiff_x_{file}.tif"));
        let error = decode(&mut Decoder::new(), &bytes, ColorMode::Rgb, None).unwrap_err();
        assert!(matches!(error, DecodeError::Unsupported { .. }), "{error}");
        error.to_string()
    };
    let fix = " cannot be decoded; save it again as an 8-bit or 16-bit gray or RGB file, for \
               example with ImageMagick: convert 'in.tif[0]' -colorspace sRGB -depth 8 out.png";

    for (file, what) in [
        ("lab", "a Lab TIFF with 3 8-bit samples per pixel"),
        ("lzma", "a TIFF with LZMA compression"),
        ("ycbcr", "a YCbCr TIFF with 3 8-bit samples per pixel"),
        ("reversed", "a TIFF with reversed bit order (FillOrder 2)"),
    ] {
        assert_eq!(error(file), format!("{what}{fix}"));
    }
    assert_eq!(
        error("float"),
        "a gray TIFF of 32-bit floating-point samples cannot be decoded; scale its values to 8 or \
         16 bits, because their range is not known here, or store them as arrays (`npy` in \
         shards, `sources.Memory`)"
    );
}

#[test]
fn a_tile_far_larger_than_its_image_is_an_error_with_the_limit() {
    let mut bytes = read("tiff_tiled.tif");
    // Values of TileWidth and TileLength, which the writer stores as LONG.
    for tag in [322_u16, 323] {
        let [low, high] = tag.to_le_bytes();
        let entry = [low, high, 4, 0, 1, 0, 0, 0];
        let at = bytes.windows(8).position(|w| w == entry).unwrap() + 8;
        bytes[at..at + 4].copy_from_slice(&4096_u32.to_le_bytes());
    }
    for tag in [324_u16, 325] {
        let [low, high] = tag.to_le_bytes();
        let entry = [low, high, 4, 0];
        let at = bytes.windows(4).position(|w| w == entry).unwrap() + 4;
        bytes[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
    }

    let error = decode(&mut Decoder::new(), &bytes, ColorMode::Rgb, None).unwrap_err();

    let text = error.to_string();
    assert!(
        text.starts_with(
            "a TIFF with a strip or tile that needs more than 4207180 bytes, the fixed limit for \
             its number of pixels, cannot be decoded; save it again"
        ),
        "{text}"
    );
}

#[test]
fn the_format_is_detected_from_the_bytes() {
    for (file, format) in [
        ("s420.jpg", Format::Jpeg),
        ("c2b08.png", Format::Png),
        ("lossy.webp", Format::WebP),
        ("rgb.bmp", Format::Bmp),
        ("palette.gif", Format::Gif),
        ("rgb.tif", Format::Tiff),
        ("tiff_big_l.tif", Format::Tiff),
        ("tiff_big_b.tif", Format::Tiff),
    ] {
        assert_eq!(Format::of(&read(file)), Some(format), "{file}");
    }
    assert_eq!(Format::of(b"<svg>"), None);
    assert_eq!(Format::of(b""), None);
}

#[test]
fn a_header_over_the_pixel_limit_is_rejected_in_every_format() {
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
fn a_region_that_leaves_the_image_is_rejected() {
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
fn decoding_stays_below_its_memory_bound() {
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
            coefficients: _,
            planes: _,
            narrowed: _,
            losses: _,
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
fn trailing_bytes_and_thumbnails_do_not_make_a_jpeg_complete() {
    let mut decoder = Decoder::new();
    let bytes = read("s420.jpg");
    let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();

    let appended = [&bytes[..], b"a film follows"].concat();
    assert_eq!(
        decode(&mut decoder, &appended, ColorMode::Rgb, None),
        Ok(whole)
    );

    // A download that stopped in a file of full length ends with zeros, too.
    let zeros = [&bytes[..bytes.len() - 2], &[0; 500]].concat();
    assert_eq!(
        decode(&mut decoder, &zeros, ColorMode::Rgb, None),
        Err(DecodeError::Truncated)
    );

    // A thumbnail with its own end of image, before the scan of a file that has no end of image.
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
fn stray_bytes_between_segments_are_a_warning_and_change_no_pixel() {
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
