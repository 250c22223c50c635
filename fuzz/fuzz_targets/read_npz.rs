//! NumPy archives: any bytes give records or an error, within the memory that was asked for.
#![no_main]

use infeed_fuzz::{first_records, input};
use infeed_source::npz::Npz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(source) = Npz::open(input(bytes), &[]) {
        first_records(&source);
    }
});
