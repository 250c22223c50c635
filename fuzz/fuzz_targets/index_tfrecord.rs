//! A text index next to a TFRecord file that is whole.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("index_tfrecord", bytes));
