//! Any bytes through every mode of whatever format they claim to be.
#![no_main]

use infeed_fuzz::{every_mode, prepare};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((mut decoder, header)) = prepare(bytes, false) {
        every_mode(&mut decoder, bytes, &header);
    }
});
