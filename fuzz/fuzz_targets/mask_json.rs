//! Masks of COCO: those that are accepted can be painted.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("mask_json", bytes));
