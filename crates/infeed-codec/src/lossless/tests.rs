use std::path::PathBuf;

use infeed_core::random::mix;
use infeed_core::sample::{Image, Region, Size};

use super::recode::pixels;
use super::*;
use crate::decode::lossless::planes::PlaneParts;
use crate::decode::lossless::{jpeg, plane_writer, record, varint};
use crate::decode::{ColorMode, DctScale, DecodeError, Decoder, Limits, Request};

mod planes;

/// Files of the conformance data with an extension, with their names.
fn files(extension: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == extension))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// JPEGs of the conformance data, with their names.
fn jpegs() -> Vec<(String, Vec<u8>)> {
    let files = files("jpg");
    assert!(files.len() >= 10);
    files
}

fn decode(bytes: &[u8], mode: ColorMode, region: Option<Region>, scale: DctScale) -> Image {
    let mut decoder = Decoder::new();
    let header = decoder.header(bytes, true, &Limits::default()).unwrap();
    let request = Request {
        region: region.unwrap_or(header.scaled_size(scale).whole()),
        scale,
        ..Request::whole(&header, mode)
    };
    decoder.check(bytes, &header, true).unwrap();
    let mut out = Image::default();
    decoder.decode(bytes, &header, &request, &mut out).unwrap();
    out
}

/// A record of a file, even if it is larger than the file.
fn record(file: &[u8]) -> Option<(Vec<u8>, bool)> {
    jpeg::encode(file).ok()
}

#[test]
fn a_record_has_the_pixels_of_its_jpeg_in_every_mode_scale_and_region() {
    let mut tried = 0;
    for (name, file) in jpegs() {
        let Some((bytes, _)) = record(&file) else {
            // Four components, and arithmetic coding.
            assert!(name.starts_with("cmyk") || name == "s420a.jpg", "{name}");
            continue;
        };
        tried += 1;
        for mode in [
            ColorMode::Rgb,
            ColorMode::Gray,
            ColorMode::Rgba,
            ColorMode::Stored,
        ] {
            for scale in DctScale::ALL {
                assert_eq!(
                    decode(&bytes, mode, None, scale),
                    decode(&file, mode, None, scale),
                    "{name} {mode:?} {scale:?}"
                );
            }
        }
        let Size { height, width } = decode(&file, ColorMode::Rgb, None, DctScale::Full).size;
        for (top, left) in [
            (0, 0),
            (1, 1),
            (height / 2, width / 3),
            (height - 1, width - 1),
        ] {
            for (rows, columns) in [(1, 1), (height / 3 + 1, width / 2 + 1), (height, width)] {
                let region = Some(Region {
                    top,
                    left,
                    size: Size {
                        height: rows.min(height - top),
                        width: columns.min(width - left),
                    },
                });
                assert_eq!(
                    decode(&bytes, ColorMode::Rgb, region, DctScale::Full),
                    decode(&file, ColorMode::Rgb, region, DctScale::Full),
                    "{name} {region:?}"
                );
            }
        }
    }
    assert!(tried >= 8);
}

#[test]
fn a_sequential_jpeg_is_restored_byte_for_byte() {
    let mut exact = 0;
    for (name, file) in jpegs() {
        let Some((bytes, restores_bytes)) = record(&file) else {
            continue;
        };
        let restored = restore(&bytes).unwrap();
        assert_eq!(restored.is_original, restores_bytes, "{name}");
        assert_eq!(restored.is_original, restored.bytes == file, "{name}");
        exact += usize::from(restored.is_original);
    }
    assert!(exact >= 5, "{exact}");
}

/// Files whose records are in `testdata/lossless`: with restart markers, progressive, gray, with
/// odd sampling factors.
const GOLDEN: [&str; 5] = ["s420r", "s444p", "gray", "s3121", "rgb"];

/// With `UPDATE_GOLDEN=1`, writes the records instead.
#[test]
fn golden_records_are_written_and_read_to_the_same_bits() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    for name in GOLDEN {
        let file = std::fs::read(data.join(format!("conformance/{name}.jpg"))).unwrap();
        let golden = data.join(format!("lossless/{name}.ifl"));
        let (bytes, _) = record(&file).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &bytes).unwrap();
        }
        let kept = std::fs::read(golden).unwrap();
        assert!(kept == bytes, "{name}");
        assert_eq!(
            decode(&kept, ColorMode::Stored, None, DctScale::Full),
            decode(&file, ColorMode::Stored, None, DctScale::Full),
            "{name}"
        );
    }
}

/// Sets the checksum of a changed record.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&[&bytes[4..8], &bytes[12..]].concat());
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Decodes bytes that may be damaged.
fn attempt(decoder: &mut Decoder, bytes: &[u8]) -> Result<Image, DecodeError> {
    let header = decoder.header(bytes, true, &Limits::default())?;
    decoder.check(bytes, &header, true)?;
    let mut out = Image::default();
    let request = Request::whole(&header, ColorMode::Rgb);
    decoder.decode(bytes, &header, &request, &mut out)?;
    Ok(out)
}

#[test]
fn every_change_of_a_record_is_an_error() {
    let mut decoder = Decoder::new();
    for (name, file) in jpegs() {
        let Some((bytes, _)) = record(&file) else {
            continue;
        };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            let found = attempt(&mut decoder, &changed);
            assert!(found.is_err(), "{name}: byte {at}");
            assert!(
                attempt(&mut decoder, &bytes[..at]).is_err(),
                "{name}: {at} bytes"
            );
            assert!(restore(&changed).is_err(), "{name}: byte {at}");
        }
    }
}

#[test]
fn a_record_with_a_valid_checksum_and_any_content_never_panics() {
    change_bytes(5);
}

#[test]
#[ignore = "long"]
fn a_record_with_a_valid_checksum_and_any_changed_byte_never_panics() {
    change_bytes(1);
}

/// Decodes records in which one byte is changed: each byte, or one in `every`.
fn change_bytes(every: usize) {
    let mut decoder = Decoder::new();
    let (mut errors, mut images) = (0, 0);
    let golden = |(name, _): &(String, Vec<u8>)| GOLDEN.contains(&name.trim_end_matches(".jpg"));
    for (_, file) in jpegs().into_iter().filter(golden) {
        let (bytes, _) = record(&file).unwrap();
        for at in (12..bytes.len()).step_by(every) {
            for value in [0, 0x7F, 0xFF, bytes[at] ^ 0x10] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let changed = with_checksum(changed);
                match attempt(&mut decoder, &changed) {
                    Err(error) => {
                        let text = error.to_string();
                        assert!(!text.contains("panicked"), "{text}");
                        errors += 1;
                    }
                    Ok(_) => images += 1,
                }
                let _ = restore(&changed);
            }
        }
    }
    assert!(
        errors > 1000 / every && images > 1000 / every,
        "{errors} errors, {images} images"
    );
}

#[test]
fn a_changed_file_is_kept_or_its_record_has_its_pixels() {
    let originals = [files("jpg"), files("png")].concat();
    let mut decoder = Decoder::new();
    let (mut kept, mut records) = (0, 0);
    for number in 0..10_000 {
        let mut random = mix(number);
        let mut below = |limit: usize| {
            random = mix(random);
            (random % limit as u64) as usize
        };
        let (name, original) = &originals[below(originals.len())];
        let mut file = original.clone();
        for _ in 0..=below(3) {
            let at = below(file.len());
            match below(4) {
                0 => file[at] = below(256) as u8,
                1 => file[at] ^= 1 << below(8),
                2 => file.truncate(at.max(1)),
                _ => file.insert(at, below(256) as u8),
            }
        }

        match encode(&file, &mut decoder) {
            Ok(record) => {
                let before = attempt(&mut decoder, &file).expect("pixels of the file");
                let after = attempt(&mut decoder, &record.bytes).expect("pixels of the record");
                assert!(before == after, "{name}, change {number}");
                records += 1;
            }
            Err(_) => kept += 1,
        }
    }
    assert!(
        kept > 1000 && records > 300,
        "{kept} kept, {records} records"
    );
}
