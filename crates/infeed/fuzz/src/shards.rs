//! Bytes taken for a shard: opened, and every record read, as a user's would be.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use infeed::pipeline::SourceSpec;
use infeed::source::read_one;
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
    fs::write(&path, bytes).expect("a temporary file");
    path
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
            let fits = field.kind.record_bytes().is_none_or(|length| length == bytes.len());
            assert!(fits, "{field:?} has {} bytes", bytes.len());
        }
    }
}
