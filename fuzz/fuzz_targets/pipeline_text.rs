//! A description of a pipeline in TOML and in JSON: what is read is written, and read again.
#![no_main]

use infeed::Pipeline;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for pipeline in [Pipeline::from_toml(text), Pipeline::from_json(text)]
        .into_iter()
        .flatten()
    {
        let _ = pipeline.check_selection();
        let json = pipeline.to_json();
        let Ok(again) = Pipeline::from_json(&json) else {
            // JSON has no NaN and no infinity. TOML has both.
            assert!(json.contains("null"), "its own JSON");
            continue;
        };
        assert_eq!(again.to_json(), json);
        if let Ok(toml) = pipeline.to_toml() {
            let again = Pipeline::from_toml(&toml).expect("its own TOML");
            assert_eq!(again.to_toml().expect("as before"), toml);
        }
    }
});
