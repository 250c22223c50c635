//! A tar of any bytes, and an index next to it of any text.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let shard = file("shard.tar", bytes);
    read_all(&SourceSpec::webdataset(shard.display().to_string()));
    // What follows the last block may be an index.
    let (_, text) = bytes.split_at(bytes.len() / 512 * 512);
    let index = file("shard.idx", text);
    read_all(&SourceSpec::webdataset(shard.display().to_string()));
    let _ = std::fs::remove_file(index);
});
