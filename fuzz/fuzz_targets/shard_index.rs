//! A text index of any content next to a tar and a TFRecord file that are whole.
#![no_main]

use std::sync::OnceLock;

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all, tar, tfrecord};
use libfuzzer_sys::fuzz_target;

/// The two shards, each with the name of its index.
fn shards() -> &'static [(SourceSpec, &'static str); 2] {
    static SHARDS: OnceLock<[(SourceSpec, &str); 2]> = OnceLock::new();
    SHARDS.get_or_init(|| {
        let members: [(&str, &[u8]); 3] =
            [("a.txt", b"one"), ("b.txt", b"two"), ("c.txt", b"three")];
        let archive = file("members.tar", &tar(&members));
        let example = b"\x0a\x0d\x0a\x0b\x0a\x01x\x12\x06\x0a\x04\x0a\x02hi";
        let examples = file("examples.tfrecord", &tfrecord(&[example, example]));
        let shards = [
            (
                SourceSpec::webdataset(archive.display().to_string()),
                "members.idx",
            ),
            (
                SourceSpec::tfrecord(examples.display().to_string()),
                "examples.idx",
            ),
        ];
        for (spec, _) in &shards {
            assert!(!spec.open(&[]).expect("a whole shard").is_empty());
        }
        shards
    })
}

fuzz_target!(|bytes: &[u8]| {
    for (spec, index) in shards() {
        let path = file(index, bytes);
        read_all(spec);
        let _ = std::fs::remove_file(path);
    }
});
