//! The results that commands print with `--json`.

use infeed_explain::report;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::error::CliError;
use crate::terminal::put_json_text;

/// Version of all results. It changes if a key is removed or gets another meaning, and stays if a key
/// is added.
const VERSION: u32 = infeed_explain::VERSION;

/// A result with the version of its format.
#[derive(JsonSchema, Serialize)]
struct VersionedJson<T> {
    /// Version of the format: another number if a key was removed or has another meaning. A new key
    /// does not change it.
    version: u32,
    #[serde(flatten)]
    result: T,
}

/// Prints a result as one JSON object on one line.
///
/// # Errors
///
/// As [`put_json_text`].
pub(crate) fn put_json(result: &impl Serialize) -> Result<(), CliError> {
    let versioned = VersionedJson {
        version: VERSION,
        result,
    };
    // serde_json writes infinite numbers as null. Nothing else can fail, because all keys are
    // strings.
    let text = serde_json::to_string(&versioned).expect("plain data with string keys");
    put_json_text(&text)
}

/// Returns the JSON schema of a result with its version.
pub(crate) fn schema_of<T: JsonSchema>() -> Schema {
    let mut schema = report::schema_of::<VersionedJson<T>>();
    if let Some(description) = report::schema_of::<T>().get("description") {
        schema.insert("description".to_owned(), description.clone());
    }
    schema
}
