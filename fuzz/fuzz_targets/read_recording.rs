//! Recordings of any bytes: each is an error, or pages for a terminal and a browser.
#![no_main]

use infeed_explain::{Recording, report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = Recording::from_json(bytes) else {
        return;
    };
    for full in [false, true] {
        let page = report::recording(&recording, 80, false, full);
        assert!(!page.contains('\u{1b}'), "{page:?}");
    }
    report::recording_json(&recording);
    if let Some(explanation) = &recording.explanation {
        report::html(explanation);
    }
});
