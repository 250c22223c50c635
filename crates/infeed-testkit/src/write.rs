//! Simple writers for shards of each format.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crc_fast::crc32_iscsi;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use serde_json::json;
use tar::{Builder, Header};

/// Returns a tar of these files.
pub fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, &content[..])
            .expect("writes to memory");
    }
    builder.into_inner().expect("writes to memory")
}

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    let sum = crc32_iscsi(bytes);
    sum.rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

/// Returns one record of a TFRecord file.
pub fn frame_record(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [
        &length[..],
        &masked_crc(&length),
        record,
        &masked_crc(record),
    ]
    .concat()
}

/// Returns a length-delimited field of a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// Returns a `tf.train.Example` of an image and a label below 128.
pub fn example(image: &[u8], label: u8) -> Vec<u8> {
    let feature = |name: &str, list: u8, values: &[u8]| {
        let value = field(2, &field(list, &field(1, values)));
        field(1, &[field(1, name.as_bytes()), value].concat())
    };
    let image = feature("image/encoded", 1, image);
    let label = feature("image/class/label", 3, &[label]);
    field(1, &[image, label].concat())
}

/// Compresses bytes with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).expect("writes to memory");
    gzip.finish().expect("writes to memory")
}

/// Writes MDS shards of images and labels, each a list of records, and their `index.json`.
pub fn mds(root: &Path, shards: &[Vec<(Vec<u8>, i64)>], zstd: bool) {
    let mut listed = Vec::new();
    for (number, records) in shards.iter().enumerate() {
        let record = |(image, label): &(Vec<u8>, i64)| {
            let size = (image.len() as u32).to_le_bytes();
            [&size[..], image, &label.to_le_bytes()].concat()
        };
        let records: Vec<Vec<u8>> = records.iter().map(record).collect();
        let mut at = 4 * (records.len() as u32 + 2);
        let mut shard = (records.len() as u32).to_le_bytes().to_vec();
        shard.extend(at.to_le_bytes());
        for record in &records {
            at += record.len() as u32;
            shard.extend(at.to_le_bytes());
        }
        shard.extend(records.concat());
        let name = format!("shard.{number:05}.mds");
        let raw = json!({"basename": name, "bytes": shard.len(), "hashes": {}});
        let mut zip = json!(null);
        if zstd {
            let packed = zstd::encode_all(&shard[..], 3).expect("writes to memory");
            let name = format!("{name}.zstd");
            zip = json!({"basename": name, "bytes": packed.len(), "hashes": {}});
            fs::write(root.join(name), packed).expect("writes");
        } else {
            fs::write(root.join(name), shard).expect("writes");
        }
        listed.push(json!({
            "version": 2, "format": "mds", "samples": records.len(), "hashes": [],
            "column_names": ["image", "label"], "column_encodings": ["jpeg", "int"],
            "column_sizes": [null, 8], "compression": zstd.then_some("zstd:3"),
            "raw_data": raw, "zip_data": zip, "size_limit": 1 << 26,
        }));
    }
    let index = json!({"version": 2, "shards": listed});
    fs::write(root.join("index.json"), index.to_string()).expect("writes");
}

/// Returns an array of bytes in NumPy's format.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (text.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), elements].concat()
}

/// Returns an archive of images of one size and labels, as `np.savez` or `np.savez_compressed`
/// write it. Flips a bit of the stored images if they should be damaged.
pub fn npz(
    images: &[Vec<u8>],
    side: u32,
    first_label: i64,
    deflate: bool,
    is_damaged: bool,
) -> Vec<u8> {
    let count = images.len();
    let labels: Vec<u8> = (first_label..)
        .take(count)
        .flat_map(i64::to_le_bytes)
        .collect();
    let shape = format!("({count}, {side}, {side}, 3)");
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in [
        ("image.npy", npy("|u1", &shape, &images.concat())),
        ("label.npy", npy("<i8", &format!("({count},)"), &labels)),
    ] {
        let mut stored = content.clone();
        if deflate {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&content).expect("writes to memory");
            stored = encoder.finish().expect("writes to memory");
        }
        if is_damaged && name == "image.npy" {
            let late = stored.len() * 3 / 4;
            stored[late] ^= 4;
        }
        let begin = file.len() as u32;
        let mut about = (if deflate { 8_u16 } else { 0 }).to_le_bytes().to_vec();
        about.extend([0; 4]);
        about.extend(crc32fast::hash(&content).to_le_bytes());
        about.extend((stored.len() as u32).to_le_bytes());
        about.extend((content.len() as u32).to_le_bytes());
        about.extend((name.len() as u16).to_le_bytes());
        file.extend(b"PK\x03\x04\x14\x00\x00\x00");
        file.extend(&about);
        file.extend([0; 2]);
        file.extend(name.as_bytes());
        file.extend(stored);
        directory.extend(b"PK\x01\x02\x14\x00\x14\x00\x00\x00");
        directory.extend(&about);
        directory.extend([0; 12]);
        directory.extend(begin.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let begin = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06\x00\x00\x00\x00\x02\x00\x02\x00");
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(begin.to_le_bytes());
    file.extend([0; 2]);
    file
}
