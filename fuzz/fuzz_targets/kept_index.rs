//! The index of a shard that was kept in the cache folder, of any content under a checksum that is
//! right.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{crc32c, file, read_all, tar};
use libfuzzer_sys::fuzz_target;

/// A shard, the file that keeps its index, and the part of it that names the shard.
fn kept_index() -> &'static (SourceSpec, PathBuf, Vec<u8>) {
    static KEPT: OnceLock<(SourceSpec, PathBuf, Vec<u8>)> = OnceLock::new();
    KEPT.get_or_init(|| {
        let large = vec![7; 1 << 20];
        let shard = tar(&[("a.txt", b"one"), ("b.txt", b"two"), ("c.txt", &large)]);
        let shard = file("shard.tar", &shard);
        let cache = shard.with_file_name("cache");
        // SAFETY: this process has no other thread yet.
        unsafe { std::env::set_var("XDG_CACHE_HOME", &cache) };
        let spec = SourceSpec::webdataset(shard.display().to_string());
        spec.open(&[]).expect("a whole shard");
        let folder = cache.join("infeed/indexes");
        let entry = folder.read_dir().expect("an index was kept").next();
        let path = entry.expect("an index was kept").expect("readable").path();
        let bytes = std::fs::read(&path).expect("readable");
        let magic = b"infeed index 1\n".len();
        let owner = u32::from_le_bytes(bytes[magic..magic + 4].try_into().expect("four"));
        let head = bytes[..magic + 4 + owner as usize].to_vec();
        (spec, path, head)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (spec, path, head) = kept_index();
    let mut index = [head, bytes].concat();
    index.extend(crc32c(&index).to_le_bytes());
    std::fs::write(path, index).expect("a temporary file");
    read_all(spec);
});
