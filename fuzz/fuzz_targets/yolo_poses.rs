//! Lines of YOLO with numbers from 0 to 1, of which some are poses.
#![no_main]

use infeed_fuzz::annotations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annotations::run("yolo_poses", bytes));
