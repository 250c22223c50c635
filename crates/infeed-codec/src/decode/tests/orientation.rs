//! Orientations in the metadata of each format.

use super::{Decoder, Image, Limits, Request, read};
use crate::decode::{ColorMode, Header, ImageFrame, exif_block};
use infeed_core::sample::Size;

const XMP: &[u8] = b"<x:xmpmeta tiff:Orientation=\"6\"/>";

fn header(bytes: &[u8], orient: bool) -> Header {
    Decoder::new()
        .header(bytes, orient, &Limits::default())
        .unwrap()
}

fn decode_gray(bytes: &[u8], orient: bool) -> Image {
    let mut out = Image::default();
    let header = header(bytes, orient);
    let request = Request::whole(&header, ColorMode::Gray);
    Decoder::new()
        .decode(bytes, &header, &request, &mut out)
        .unwrap();
    out
}

/// Inserts an APP1 segment after the start of a JPEG.
fn with_segment(jpeg: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], b"\xFF\xE1", &length, payload, &jpeg[2..]].concat()
}

/// Inserts a chunk before or after the pixels of a PNG.
fn with_chunk(png: &[u8], kind: &[u8; 4], data: &[u8], is_last: bool) -> Vec<u8> {
    let end_of_ihdr = 33;
    let start_of_iend = png.len() - 12;
    let at = if is_last { start_of_iend } else { end_of_ihdr };
    let covered = [&kind[..], data].concat();
    let length = (data.len() as u32).to_be_bytes();
    let crc = crc32fast::hash(&covered).to_be_bytes();
    [&png[..at], &length, &covered, &crc, &png[at..]].concat()
}

/// Inserts chunks after the picture of a simple WebP.
fn with_webp_chunk(webp: &[u8], kind: &[u8; 4], data: &[u8], size: Size) -> Vec<u8> {
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut chunk = [&kind[..], &(data.len() as u32).to_le_bytes(), data].concat();
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    };
    let flags = if kind == b"EXIF" { 0x08 } else { 0x04 };
    let (width, height) = (size.width - 1, size.height - 1);
    let side = |side: u32| side.to_le_bytes()[..3].to_vec();
    let canvas = [vec![flags, 0, 0, 0], side(width), side(height)].concat();
    let body = [
        b"WEBP".to_vec(),
        chunk(b"VP8X", &canvas),
        webp[12..].to_vec(),
        chunk(kind, data),
    ]
    .concat();
    [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// Returns a gray TIFF of 2 rows and 3 columns with an orientation.
fn tiff(orientation: u8) -> Vec<u8> {
    let entries: [(u16, u32); 9] = [
        (256, 3),
        (257, 2),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8 + 2 + 9 * 12 + 4),
        (274, orientation.into()),
        (278, 2),
        (279, 6),
    ];
    let mut bytes = b"II*\0\x08\0\0\0".to_vec();
    bytes.extend((entries.len() as u16).to_le_bytes());
    for (tag, value) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(4_u16.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend([1, 2, 3, 4, 5, 6]);
    bytes
}

#[test]
fn an_orientation_in_exif_or_xmp_of_any_container_turns() {
    let exif = exif_block(6);
    let jpeg = read("rgb.jpg");
    let png = read("c2b08.png");
    let webp = read("lossless.webp");
    let size = header(&webp, false).size;
    let in_jpeg = [b"Exif\0\0", &exif[..]].concat();
    let xmp_in_jpeg = [b"http://ns.adobe.com/xap/1.0/\0", XMP].concat();
    let xmp_in_png = [b"XML:com.adobe.xmp\0\0\0\0\0", XMP].concat();
    let files = [
        ("JPEG", with_segment(&jpeg, &in_jpeg)),
        ("JPEG, XMP", with_segment(&jpeg, &xmp_in_jpeg)),
        ("PNG", with_chunk(&png, b"eXIf", &exif, false)),
        ("PNG, last", with_chunk(&png, b"eXIf", &exif, true)),
        ("PNG, XMP", with_chunk(&png, b"iTXt", &xmp_in_png, false)),
        ("WebP", with_webp_chunk(&webp, b"EXIF", &exif, size)),
        ("WebP, XMP", with_webp_chunk(&webp, b"XMP ", XMP, size)),
    ];
    for (name, file) in files {
        let (plain, turned) = (header(&file, false), header(&file, true));
        assert_eq!(plain.orientation, 1, "{name}");
        assert_eq!(turned.orientation, 6, "{name}");
        assert_eq!(turned.frame().stored_size(), plain.size, "{name}");
    }
}

#[test]
fn a_lossless_record_turns_like_its_file() {
    let exif = exif_block(6);
    let jpeg = with_segment(&read("rgb.jpg"), &[b"Exif\0\0", &exif[..]].concat());
    let png = read("c2b08.png");
    for file in [
        jpeg,
        with_chunk(&png, b"eXIf", &exif, false),
        with_chunk(&png, b"eXIf", &exif, true),
    ] {
        let record = crate::lossless::encode(&file, &mut Decoder::new()).unwrap();
        for orient in [false, true] {
            let found = decode_gray(&record.bytes, orient);
            assert!(found == decode_gray(&file, orient), "{orient}");
        }
    }
}

#[test]
fn a_tiff_is_always_turned_and_counts_as_upright() {
    let expected: [&[u8]; 8] = [
        &[1, 2, 3, 4, 5, 6],
        &[3, 2, 1, 6, 5, 4],
        &[6, 5, 4, 3, 2, 1],
        &[4, 5, 6, 1, 2, 3],
        &[1, 4, 2, 5, 3, 6],
        &[4, 1, 5, 2, 6, 3],
        &[6, 3, 5, 2, 4, 1],
        &[3, 6, 2, 5, 1, 4],
    ];
    for (orientation, expected) in (1..=8).zip(expected) {
        let file = tiff(orientation);
        for orient in [false, true] {
            let image = decode_gray(&file, orient);
            assert_eq!(image.data, expected, "{orientation} {orient}");
            let frame = header(&file, orient).frame();
            assert_eq!(frame, ImageFrame::upright(image.size), "{orientation}");
        }
    }
}
