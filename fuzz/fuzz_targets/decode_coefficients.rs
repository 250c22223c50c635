//! Lossless records of JPEGs without the checksum, so that damage reaches the streams: a region
//! gives what the whole gives, and the file can be restored or is damaged.
#![no_main]

use infeed_codec::decode::Format;
use infeed_fuzz::one_format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    one_format(bytes, Format::Coefficients);
    let _ = infeed_codec::lossless::restore(bytes);
});
