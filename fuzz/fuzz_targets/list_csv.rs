//! A list of labels: it names files in the folder, and no others.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("list_csv", bytes));
