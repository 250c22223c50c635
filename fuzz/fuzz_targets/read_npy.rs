//! A `.npy` file by itself, and as the member of a tar, whose arrays become fields.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all, tar};
use infeed_source::npy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = npy::header(bytes) {
        assert!(
            header.length <= bytes.len(),
            "the header ends behind the file"
        );
        let _ = header.file_bytes();
    }
    let shard = file("arrays.tar", &tar(&[("a.npy", bytes), ("b.npy", bytes)]));
    read_all(&SourceSpec::webdataset(shard.display().to_string()));
});
