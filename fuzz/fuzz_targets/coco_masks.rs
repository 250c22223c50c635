//! A file of COCO with masks.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("coco_masks", bytes));
