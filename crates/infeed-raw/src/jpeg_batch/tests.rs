use std::sync::Arc;

use super::*;
use crate::jpeg_encode::{Subsampling, encode, encode_with_restarts};

/// A smooth picture with an edge.
fn picture(width: u32, height: u32) -> Vec<u8> {
    let pixel = |y: u32, x: u32| {
        let edge = if x > y { 90 } else { 0 };
        [(x * 3) as u8 / 2 + edge, (y * 5) as u8 / 3, 40 + edge]
    };
    let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(y, x)));
    pixels.collect()
}

fn jpeg(subsampling: Subsampling) -> Vec<u8> {
    encode(&picture(67, 45), 67, 45, 80, subsampling).unwrap()
}

fn read(bytes: &[u8]) -> Result<Baseline, NotBaseline> {
    Baseline::read(bytes, 1 << 20)
}

/// Index of the first marker of a kind.
fn find(bytes: &[u8], marker: u8) -> usize {
    let found = bytes.windows(2).position(|pair| pair == [0xFF, marker]);
    found.expect("the file has such a marker")
}

const ALL: [Subsampling; 5] = [
    Subsampling::None,
    Subsampling::Half,
    Subsampling::HalfRows,
    Subsampling::Quarter,
    Subsampling::Gray,
];

#[test]
fn baseline_files_of_every_subsampling_are_accepted() {
    for subsampling in ALL {
        let mut bytes = jpeg(subsampling);
        let len = bytes.len();
        bytes.extend(b"appended by a camera\xFF\xD8\xFF");

        let header = read(&bytes).unwrap();

        assert_eq!((header.width, header.height), (67, 45), "{subsampling:?}");
        assert_eq!((header.subsampling, header.len), (subsampling, len));
    }
    for interval in [1, 2, 15, 16, 1000] {
        let size = (67, 45, 80, Subsampling::Quarter);
        let bytes =
            encode_with_restarts(&picture(67, 45), size.0, size.1, size.2, size.3, interval);
        assert!(read(&bytes.unwrap()).is_ok(), "{interval}");
    }
}

#[test]
fn other_kinds_of_files_are_left_to_the_host_with_the_reason() {
    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../../../../testdata/conformance/", $name)).as_slice()
        };
    }
    for (bytes, word) in [
        (file!("s420p.jpg"), "is progressive"),
        (file!("grayp.jpg"), "is progressive"),
        (file!("cmyk.jpg"), "other than 1 or 3 components"),
        (file!("s411.jpg"), "has a chroma subsampling other"),
        (file!("s410.jpg"), "has a chroma subsampling other"),
        (file!("s441.jpg"), "has a chroma subsampling other"),
        (file!("rgb.jpg"), "red, green and blue"),
        (file!("s420a.jpg"), "arithmetically"),
    ] {
        let rejected = read(bytes).unwrap_err();

        assert!(rejected.to_string().contains(word), "{word}: {rejected}");
        assert!(rejected.is_for_the_host());
        assert!(Rejection::from(rejected).is_for_the_host());
    }
    for bytes in [
        file!("s420.jpg"),
        file!("s420r.jpg"),
        file!("s422.jpg"),
        file!("s440.jpg"),
        file!("s444.jpg"),
        file!("gray.jpg"),
        file!("orientation6.jpg"),
    ] {
        read(bytes).unwrap();
    }
}

#[test]
fn other_frame_headers_are_distinguished() {
    for (marker, word) in [
        (0xC1, "extended"),
        (0xC2, "progressive"),
        (0xC3, "lossless"),
        (0xC5, "hierarchical"),
        (0xC9, "arithmetically"),
    ] {
        let mut bytes = jpeg(Subsampling::None);
        let at = find(&bytes, 0xC0);
        bytes[at + 1] = marker;

        let rejected = read(&bytes).unwrap_err();

        assert!(rejected.to_string().contains(word), "{rejected}");
    }
    let mut deep = jpeg(Subsampling::None);
    let at = find(&deep, 0xC0);
    deep[at + 4] = 12;
    assert!(read(&deep).unwrap_err().to_string().contains("8 bits"));
}

#[test]
fn a_file_cut_anywhere_is_damaged() {
    for subsampling in [Subsampling::Quarter, Subsampling::Gray] {
        let bytes = jpeg(subsampling);
        for len in 0..bytes.len() {
            let rejected = read(&bytes[..len]).unwrap_err();

            assert!(!rejected.is_for_the_host(), "{len}: {rejected}");
        }
    }
}

#[test]
fn a_changed_byte_causes_no_panic_and_no_later_end() {
    let pixels = picture(67, 45);
    let bytes = encode_with_restarts(&pixels, 67, 45, 80, Subsampling::Quarter, 4).unwrap();
    for at in 0..bytes.len() {
        for value in [0x00, 0x01, 0x7F, 0xC4, 0xD0, 0xD9, 0xFF, !bytes[at]] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Ok(header) = read(&changed) {
                assert!(header.len <= changed.len());
                assert_eq!(changed[header.len - 2..header.len], [0xFF, 0xD9]);
            }
        }
    }
}

#[test]
fn limits_and_header_bombs_are_found_before_anything_is_allocated() {
    let bytes = jpeg(Subsampling::Quarter);
    assert!(Baseline::read(&bytes, 67 * 45).is_ok());
    let rejected = Baseline::read(&bytes, 67 * 45 - 1).unwrap_err();
    assert_eq!(rejected.to_string(), "67x45 pixels are more than 3014");

    let mut bomb = bytes;
    let at = find(&bomb, 0xC0);
    bomb[at + 5..at + 9].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF]);
    let rejected = Baseline::read(&bomb, u64::MAX).unwrap_err();
    assert!(rejected.to_string().contains("too few bytes"), "{rejected}");
}

#[test]
fn missing_or_misordered_restart_markers_are_damage() {
    let pixels = picture(67, 45);
    let bytes = encode_with_restarts(&pixels, 67, 45, 80, Subsampling::Quarter, 4).unwrap();
    let at = find(&bytes, 0xD1);

    let mut missing = bytes.clone();
    missing.drain(at..at + 2);
    assert!(read(&missing).unwrap_err().to_string().contains("restart"));
    let mut other = bytes;
    other[at + 1] = 0xD3;
    assert!(read(&other).unwrap_err().to_string().contains("restart"));
}

#[test]
fn impossible_code_lengths_are_damage() {
    let bytes = jpeg(Subsampling::Gray);
    let at = find(&bytes, 0xC4);
    // Replaces the counts with three codes of one bit and as many symbols as before.
    let mut over = bytes.clone();
    let counts = &mut over[at + 5..at + 21];
    let symbols: u8 = counts.iter().sum();
    counts.fill(0);
    counts[0] = 3;
    counts[15] = symbols - 3;

    let rejected = read(&over).unwrap_err();

    assert!(
        rejected.to_string().contains("impossible code lengths"),
        "{rejected}"
    );
    let mut many = bytes;
    many[at + 5..at + 21].fill(255);
    assert!(
        read(&many)
            .unwrap_err()
            .to_string()
            .contains("impossible code lengths")
    );
}

#[test]
fn a_missing_table_is_damage() {
    let mut bytes = jpeg(Subsampling::Gray);
    let scan = find(&bytes, 0xDA);
    bytes[scan + 6] = 0x11;

    let rejected = read(&bytes).unwrap_err();

    assert_eq!(
        rejected,
        NotBaseline::Damaged("lacks a table that it names")
    );
}

#[test]
fn positions_outside_of_the_memory_or_overlapping_are_rejected() {
    let position = |offset, row_bytes| ImagePosition {
        offset,
        row_bytes,
        height: 2,
        width: 3,
    };

    assert_eq!(span(&[position(32, 9), position(4, 12)], 50), Ok(4..50));
    assert_eq!(span(&[], 0), Ok(0..0));
    let outside = span(&[position(0, 9), position(33, 9)], 50).unwrap_err();
    assert!(matches!(outside, BadPositions::Outside { row: 1, .. }));
    assert!(outside.to_string().contains("do not fit into 50 bytes"));
    for narrow in [
        position(0, 8),
        position(usize::MAX, 9),
        position(0, usize::MAX),
    ] {
        assert!(span(&[narrow], 50).is_err(), "{narrow:?}");
    }
    assert!(span(&[ImagePosition::dense(0, 0, 3)], 50).is_err());
    assert!(span(&[ImagePosition::dense(0, u32::MAX, u32::MAX)], usize::MAX).is_err());
    let shared = span(&[position(18, 9), position(0, 10)], 50).unwrap_err();
    assert_eq!(shared, BadPositions::Shared { row: 1, other: 0 });
}

#[test]
fn a_scan_is_checked_against_the_position_and_the_file_length() {
    let bytes = jpeg(Subsampling::Half);
    let mut longer = bytes.clone();
    longer.extend(b"appended by a camera");
    let scanned = ScannedJpeg::scan(Arc::new(longer)).unwrap();

    assert_eq!(scanned.bytes(), bytes);
    assert_eq!(scanned.check(&ImagePosition::dense(7, 45, 67)), Ok(()));
    let other = scanned.check(&ImagePosition::dense(0, 45, 80)).unwrap_err();
    assert_eq!(
        other.to_string(),
        "the file is 67x45, but its position is for 80x45"
    );
    assert!(!other.is_for_the_host());
    let cut = ScannedJpeg {
        source: Arc::new(bytes[..bytes.len() - 1].to_vec()),
        ..scanned
    };
    let short = cut.check(&ImagePosition::dense(0, 45, 67)).unwrap_err();
    assert_eq!(short.to_string(), "the file is shorter than its scan");
    let none = ScannedJpeg::scan(Arc::new(b"GIF89a".to_vec())).unwrap_err();
    assert_eq!(none.to_string(), "the file is not a JPEG");
}
