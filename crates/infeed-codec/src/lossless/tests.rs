use std::path::PathBuf;

use infeed_core::sample::{Image, Region, Size};

use super::*;
use crate::decode::DctScale;

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
        region: region.unwrap_or(header.scaled(scale).whole()),
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
