//! An `index.json`, a zero byte and the file `s` that it may name.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let index = file("index.json", parts.next().unwrap_or_default());
    file("s", parts.next().unwrap_or_default());
    if let Some(folder) = index.parent() {
        read_all(&SourceSpec::mds(folder.display().to_string()));
    }
});
