//! A file of COCO with boxes and keypoints.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("coco_boxes", bytes));
