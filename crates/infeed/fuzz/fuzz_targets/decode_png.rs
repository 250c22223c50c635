//! PNG without checksums, so that damage reaches the rows: a region gives what the whole gives.
#![no_main]

use infeed::decode::{DctScale, Format};
use infeed_fuzz::{every_mode, prepared, region_equals_whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if Format::of(bytes) != Some(Format::Png) {
        return;
    }
    if let Some((mut decoder, header)) = prepared(bytes, true) {
        region_equals_whole(&mut decoder, bytes, &header, DctScale::Full);
        every_mode(&mut decoder, bytes, &header);
    }
});
