//! A file with a name of a class in each line.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("class_names", bytes));
