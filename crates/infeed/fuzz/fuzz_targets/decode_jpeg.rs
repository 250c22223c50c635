//! JPEG: a region at every scale gives what the whole gives, or one of the two errs.
#![no_main]

use infeed::decode::{DctScale, Format};
use infeed_fuzz::{prepared, region_equals_whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if Format::of(bytes) != Some(Format::Jpeg) {
        return;
    }
    if let Some((mut decoder, header)) = prepared(bytes, true) {
        for scale in DctScale::ALL {
            region_equals_whole(&mut decoder, bytes, &header, scale);
        }
    }
});
