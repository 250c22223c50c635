//! The JSON report.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::findings::{Explanation, Verdict};
use crate::model::stages::StageCost;
use crate::recording::Recording;

/// Result of `infeed explain`. Rates are in samples per second, times in seconds, sizes in bytes.
/// Unknown and infinite numbers are null.
#[derive(JsonSchema, Serialize)]
struct JsonReport<'a> {
    #[serde(flatten)]
    e: &'a Explanation,
    /// As in `run`, for scripts that also read `infeed bench --json`.
    stages: &'a [StageCost],
}

/// Returns one JSON object on one line. Keys are the fields of [`Explanation`], rates are in
/// samples per second, times in seconds, sizes in bytes. `stages` is also at the top level, as in
/// `infeed bench --json`. Infinite and unknown numbers are `null`.
pub fn json(e: &Explanation) -> String {
    let report = JsonReport {
        e,
        stages: &e.run.stages,
    };
    // serde_json writes numbers that JSON lacks as null. Nothing else can fail, because all keys
    // are strings.
    serde_json::to_string(&report).expect("plain data with string keys")
}

/// Returns the JSON schema of [`json`].
pub fn json_schema() -> Schema {
    schema_of::<JsonReport<'_>>()
}

/// Returns the JSON schema of [`recording_json`].
pub fn recording_json_schema() -> Schema {
    schema_of::<Recording>()
}

/// Returns the JSON schema of a type as it is written: keys that are always there are required.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Returns a verdict as one JSON object, with the fields of [`Verdict`] as keys.
pub fn verdict_json(v: &Verdict) -> String {
    // As above, nothing can fail.
    serde_json::to_string(v).expect("plain data with string keys")
}

/// Returns a recording as one JSON object on one line, with the fields of [`Recording`] as keys.
pub fn recording_json(r: &Recording) -> String {
    // As above, nothing can fail.
    serde_json::to_string(r).expect("plain data with string keys")
}
