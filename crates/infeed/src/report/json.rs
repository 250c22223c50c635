//! An explanation for programs: one JSON object.

use serde::Serialize;

use crate::explain::{Explanation, StageCost};

/// One JSON object on one line: the fields of [`Explanation`] under their names, rates in samples
/// a second, times in seconds, sizes in bytes. `stages` stands at the top too, as `infeed bench
/// --json` has it. A number that is infinite or unknown is `null`.
pub fn json(e: &Explanation) -> String {
    #[derive(Serialize)]
    struct Told<'a> {
        #[serde(flatten)]
        e: &'a Explanation,
        stages: &'a [StageCost],
    }
    let told = Told {
        e,
        stages: &e.run.stages,
    };
    // serde_json writes what JSON has no number for as null; nothing else of an explanation could
    // fail: its keys are strings.
    serde_json::to_string(&told).expect("plain data with string keys")
}
