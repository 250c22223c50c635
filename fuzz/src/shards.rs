//! Bytes taken for a shard: opened, and every record read, as a user's would be.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use infeed::pipeline::SourceSpec;
use infeed_source::read_one;
use tempfile::TempDir;

/// Records that are read of a shard that claims very many.
const RECORDS: u64 = 1000;

/// A folder of this process.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
    folder.path().to_owned()
}

/// A file of these bytes.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).expect("a temporary folder");
    }
    fs::write(&path, bytes).expect("a temporary file");
    path
}

/// A tar with these members.
pub fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, name, *bytes)
            .expect("writes to memory");
    }
    archive.into_inner().expect("writes to memory")
}

/// A TFRecord file with these records.
pub fn tfrecord(records: &[&[u8]]) -> Vec<u8> {
    let masked = |bytes: &[u8]| {
        let sum = crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8);
        sum.to_le_bytes()
    };
    let mut file = Vec::new();
    for bytes in records {
        let length = (bytes.len() as u64).to_le_bytes();
        file.extend([&length[..], &masked(&length), bytes, &masked(bytes)].concat());
    }
    file
}

/// CRC-32C of some bytes, by the definition.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg())
        })
    })
}

/// Opens a source and reads its records; any result is right, and nothing may panic.
pub fn read_all(spec: &SourceSpec) {
    let Ok(source) = spec.open(&[]) else {
        return;
    };
    for record in 0..source.len().min(RECORDS) {
        let Ok(found) = read_one(&*source, record) else {
            continue;
        };
        for (field, bytes) in source.fields().iter().zip(&found.fields) {
            let fits = field
                .kind
                .record_bytes()
                .is_none_or(|length| length == bytes.len());
            assert!(fits, "{field:?} has {} bytes", bytes.len());
        }
    }
}
