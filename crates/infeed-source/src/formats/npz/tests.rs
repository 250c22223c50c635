//! Archives in NumPy's layout, valid and damaged.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::*;
use crate::columns::table::tests::{RemoteBlob, read_run};
use crate::store::find;
use infeed_core::sample::{FieldKind, Pixels};

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(10 + dict.len() + 1).is_multiple_of(64) {
        dict.push(' ');
    }
    dict.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((dict.len() as u16).to_le_bytes());
    file.extend(dict.as_bytes());
    file.extend(data);
    file
}

/// An archive of these members. Local headers leave the sizes to a Zip64 field, like NumPy's.
fn archive(members: &[(&str, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in members {
        let stored = match deflate {
            true => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(content).expect("deflates");
                encoder.finish().expect("deflates")
            }
            false => content.clone(),
        };
        let method: u16 = if deflate { 8 } else { 0 };
        let crc = crc32fast::hash(content).to_le_bytes();
        let begin = bytes.len() as u32;
        bytes.extend(b"PK\x03\x04\x2d\x00\x00\x00");
        bytes.extend(method.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(crc);
        bytes.extend([0xFF; 8]);
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend(20_u16.to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend((stored.len() as u64).to_le_bytes());
        directory.extend(b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00");
        directory.extend(method.to_le_bytes());
        directory.extend([0; 4]);
        directory.extend(crc);
        directory.extend((stored.len() as u32).to_le_bytes());
        directory.extend((content.len() as u32).to_le_bytes());
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend([0; 12]);
        directory.extend(begin.to_le_bytes());
        directory.extend(name.as_bytes());
        bytes.extend(stored);
    }
    let offset = bytes.len() as u32;
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\x00\x00\x00\x00");
    bytes.extend((members.len() as u16).to_le_bytes());
    bytes.extend((members.len() as u16).to_le_bytes());
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Records `from..to`: images of 2x2 pixels, and labels.
fn batch(from: usize, to: usize) -> Vec<(&'static str, Vec<u8>)> {
    let count = to - from;
    let pixels: Vec<u8> = (from..to).flat_map(pixels).collect();
    let labels: Vec<u8> = (from..to)
        .flat_map(|record| (record as i32 - 5).to_le_bytes())
        .collect();
    vec![
        (
            "image.npy",
            npy("|u1", &format!("({count}, 2, 2, 3)"), &pixels),
        ),
        ("label.npy", npy("<i4", &format!("({count},)"), &labels)),
    ]
}

fn pixels(record: usize) -> Vec<u8> {
    (0..12).map(|at| (record * 5 + at) as u8).collect()
}

fn open(path: &Path) -> Result<Npz, Error> {
    Npz::open(find(&[path.display().to_string()])?, &[])
}

#[test]
fn stored_and_deflated_archives_give_their_records_over_all_files() {
    for deflate in [false, true] {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (at, (from, to)) in [(0, 4), (4, 5), (5, 11)].into_iter().enumerate() {
            let bytes = archive(&batch(from, to), deflate);
            fs::write(root.path().join(format!("{at}.npz")), bytes).expect("writes");
        }

        let source = open(&root.path().join("*.npz")).expect("three archives");

        assert_eq!((source.len(), source.mapped), (11, !deflate));
        assert_eq!(source.groups().is_some(), deflate);
        let raw = Pixels::raw(DType::UInt8, &[2, 2, 3]).expect("pixels");
        assert_eq!(source.fields()[0].kind, FieldKind::Image(raw));
        let run: Vec<u64> = (0..22).map(|at| at * 5 % 11).collect();
        for (found, record) in read_run(&source, &run).into_iter().zip(run) {
            let found = found.expect("a record");
            assert_eq!(found[0], pixels(record as usize));
            assert_eq!(found[1][..], (record as i64 - 5).to_le_bytes(), "widened");
        }
        let name = source.id(5, Some(1)).name;
        assert!(
            name.contains("row 0 of array `label`") && name.contains("2.npz"),
            "{name}"
        );
    }
}

#[test]
fn windows_and_fingerprint_do_not_depend_on_the_location() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let bytes = archive(&batch(0, 9), true);
    let path = root.path().join("0.npz");
    fs::write(&path, &bytes).expect("writes");
    let near = open(&path).expect("an archive");
    let far = RemoteBlob {
        name: "s3://bucket/0.npz",
        bytes: bytes.into(),
        missing: 0..0,
    };

    let far = Npz::open(vec![Arc::new(far)], &[]).expect("an archive");

    let groups = [&near, &far].map(|source| source.groups().expect("an archive each"));
    assert_eq!(groups[0], groups[1], "windows follow from groups");
    assert_eq!(near.fingerprint(), far.fingerprint());
    let held = far.plan(&[0, 3], u64::MAX)[0].bytes.expect("known");
    assert!(
        held > groups[1].bytes[0] + (1 << 20),
        "{held} bytes are held"
    );
    // `read_run` checks that a read requests as many bytes as it planned.
    assert!(read_run(&far, &[0, 3]).iter().all(Result::is_ok));
}

#[test]
fn other_lengths_of_archives_change_the_fingerprint() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let of = |lengths: [usize; 2]| {
        let mut from = 0;
        for (at, length) in lengths.into_iter().enumerate() {
            let bytes = archive(&batch(from, from + length), false);
            fs::write(root.path().join(format!("{at}.npz")), bytes).expect("writes");
            from += length;
        }
        open(&root.path().join("*.npz"))
            .expect("archives")
            .fingerprint()
    };

    assert_eq!(of([3, 4]), of([3, 4]));
    assert_ne!(of([3, 4]), of([4, 3]));
}

#[test]
fn arrays_of_unequal_length_or_shape_are_rejected_by_name() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("0.npz");
    let mut uneven = batch(0, 4);
    uneven[1] = batch(0, 3).remove(1);
    fs::write(&path, archive(&uneven, false)).expect("writes");
    let error = open(&path).expect_err("uneven").chain();
    assert!(
        error.contains("`image` has 4 records and `label` has 3"),
        "{error}"
    );

    fs::write(&path, archive(&batch(0, 4), false)).expect("writes");
    let other = vec![
        ("image.npy", npy("|u1", "(1, 3, 4, 1)", &[0; 12])),
        batch(0, 1).remove(1),
    ];
    fs::write(root.path().join("1.npz"), archive(&other, false)).expect("writes");
    let error = open(&root.path().join("*.npz"))
        .expect_err("differs")
        .chain();
    assert!(
        error.contains("1.npz") && error.contains("[3, 4, 1]"),
        "{error}"
    );
}

#[test]
fn a_flipped_bit_in_deflated_arrays_is_a_bad_record_that_names_the_member() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("0.npz");
    let whole = archive(&batch(0, 50), true);
    fs::write(&path, &whole).expect("writes");
    let member = open(&path).expect("an archive").files[0].arrays[0]
        .member
        .clone();
    let mut damaged = whole.clone();
    damaged[member.span.end as usize - 9] ^= 4;
    fs::write(&path, &damaged).expect("writes");

    let source = open(&path).expect("its headers are whole");
    let error = crate::read_one(&source, 3).expect_err("damaged").chain();

    assert!(
        error.contains("image.npy") && error.contains("0.npz"),
        "{error}"
    );
}

#[test]
fn cut_and_damaged_archives_never_panic() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("0.npz");
    for deflate in [false, true] {
        let whole = archive(&batch(0, 4), deflate);
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("writes");
            let error = open(&path).expect_err("cut").chain();
            assert!(error.contains("0.npz"), "{error}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).expect("writes");
            if let Ok(source) = open(&path) {
                let run: Vec<u64> = (0..source.len().min(8)).collect();
                let _ = read_run(&source, &run);
            }
        }
    }
}

#[test]
fn a_length_that_deflate_cannot_reach_is_rejected() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("0.npz");
    let mut bytes = archive(&batch(0, 4), true);
    let entry = bytes
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .expect("a directory");
    bytes[entry + 24..entry + 28].copy_from_slice(&(1_u32 << 30).to_le_bytes());
    fs::write(&path, &bytes).expect("writes");

    let error = open(&path).expect_err("a bomb").chain();

    assert!(error.contains("cannot have"), "{error}");
}
