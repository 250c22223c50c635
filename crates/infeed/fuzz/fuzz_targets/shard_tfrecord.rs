//! A TFRecord file of any bytes; and any bytes as the Example in a record that is whole.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed_fuzz::shards::{file, read_all};
use libfuzzer_sys::fuzz_target;

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg())
        })
    })
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

fuzz_target!(|bytes: &[u8]| {
    let shard = file("shard.tfrecord", bytes);
    read_all(&SourceSpec::tfrecord(shard.display().to_string()));
    let length = (bytes.len() as u64).to_le_bytes();
    let framed = [&length[..], &masked(&length), bytes, &masked(bytes)].concat();
    let shard = file("framed.tfrecord", &framed);
    read_all(&SourceSpec::tfrecord(shard.display().to_string()));
});
