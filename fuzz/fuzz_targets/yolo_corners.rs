//! Lines of YOLO: corners of rotated boxes.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("yolo_corners", bytes));
