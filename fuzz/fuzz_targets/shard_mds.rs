//! An `index.json`, a zero byte and the file `s` that it may name.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("shard_mds", bytes));
