//! Lossless records of PNGs, without the checksum, so that damage reaches the planes: a region
//! gives what the whole gives, and no restored file has other pixels.
#![no_main]

use infeed_codec::decode::Format;
use infeed_codec::lossless;
use infeed_fuzz::{one_format, prepare, same_pixels};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    one_format(bytes, Format::Planes);
    if Format::of(bytes) == Some(Format::Planes)
        && prepare(bytes, true).is_some()
        && let Ok(restored) = lossless::restore(bytes)
    {
        same_pixels(&restored.bytes, bytes);
    }
});
