//! A TFRecord file of any bytes; and any bytes as the Example in a record that is whole.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all, tfrecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let shard = file("shard.tfrecord", bytes);
    read_all(&SourceSpec::tfrecord(shard.display().to_string()));
    let shard = file("framed.tfrecord", &tfrecord(&[bytes]));
    read_all(&SourceSpec::tfrecord(shard.display().to_string()));
});
