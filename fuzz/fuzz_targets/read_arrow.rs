//! Arrow IPC files and streams: any bytes give records or an error, and point nowhere outside.
#![no_main]

use infeed_fuzz::{first_records, input};
use infeed_source::arrow::Arrow;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(source) = Arrow::open(input(bytes), &[]) {
        first_records(&source);
    }
});
