//! BMP: every mode, and a region gives what the whole gives.
#![no_main]

use infeed_codec::decode::Format;
use infeed_fuzz::one_format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| one_format(bytes, Format::Bmp));
