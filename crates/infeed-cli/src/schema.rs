//! `infeed schema`: prints the JSON schemas of the results that other commands print with `--json`.

use clap::Parser;
use infeed_explain::report;
use schemars::Schema;
use serde_json::{Map, Value};

use crate::bench::json::BenchJson;
use crate::cache::CacheListJson;
use crate::error::{CliError, CommandResult};
use crate::inspect::json::InspectJson;
use crate::json::schema_of;
use crate::ledger::LedgerJson;
use crate::pack::PackJson;
use crate::probe::json::{ProbeJson, ProfilesJson};
use crate::terminal::put_json_text;
use crate::verify::VerifyJson;

type SchemaFn = fn() -> Schema;

/// Results by the command that prints them, with their JSON schemas.
const SCHEMAS: [(&str, SchemaFn); 11] = [
    ("bench", schema_of::<BenchJson>),
    ("cache ls", schema_of::<CacheListJson>),
    ("explain", report::json_schema),
    ("explain RECORDING", report::recording_json_schema),
    ("inspect", schema_of::<InspectJson>),
    ("ledger", schema_of::<LedgerJson>),
    ("pack", schema_of::<PackJson>),
    ("probe", schema_of::<ProbeJson<'_>>),
    ("probe --list", schema_of::<ProfilesJson>),
    ("unpack", schema_of::<PackJson>),
    ("verify", schema_of::<VerifyJson>),
];

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed schema                    all schemas, by the command that prints the result
  infeed schema bench              the result of `infeed bench --json`
  infeed schema cache ls           the result of `infeed cache ls --json`
  infeed schema explain RECORDING  the result of `infeed explain --json` for a recording

The schemas follow JSON Schema 2020-12. Each result has a key `version`. It changes if another key
is removed or gets another meaning, and stays if a key is added.")]
pub(crate) struct Args {
    /// Command whose result is described [default: all]
    #[arg(allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let wanted = args.command.join(" ");
    let all = SCHEMAS
        .iter()
        .map(|(name, schema)| (*name, with_title(name, schema())));
    let schema = match wanted.as_str() {
        "" => Value::Object(
            all.map(|(name, schema)| (name.to_owned(), schema.to_value()))
                .collect::<Map<String, Value>>(),
        ),
        _ => find(&wanted, all)?.to_value(),
    };
    put_json_text(&format!("{schema:#}"))
}

/// Replaces the name of the Rust type by the command.
fn with_title(command: &str, mut schema: Schema) -> Schema {
    schema.insert(
        "title".to_owned(),
        format!("infeed {command} --json").into(),
    );
    schema
}

/// Returns the schema of a command's result.
///
/// # Errors
///
/// Lists the commands if none has this name.
fn find(
    wanted: &str,
    mut all: impl Iterator<Item = (&'static str, Schema)>,
) -> Result<Schema, CliError> {
    let found = all.find_map(|(name, schema)| (name == wanted).then_some(schema));
    found.ok_or_else(|| {
        let names = SCHEMAS.map(|(name, _)| name).join(", ");
        CliError::Usage(format!(
            "{wanted}: no such result; the commands with --json are {names}"
        ))
    })
}
