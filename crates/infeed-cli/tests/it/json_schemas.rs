//! The results of commands with `--json` follow the schemas that `infeed schema` prints.

use std::ffi::OsString;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::{infeed, json, stderr};

/// The schemas by command. Their objects have no other keys than those in the schema.
static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut all = print_schema(&[]);
    close_objects(&mut all);
    all.as_object().unwrap().clone()
});

fn print_schema(command: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .arg("schema")
        .args(command)
        .output()
        .unwrap();
    json(&output)
}

/// Forbids keys that a schema does not have. Schemas allow them, because a new key is no new version.
fn close_objects(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            if keys.contains_key("properties") && !keys.contains_key("additionalProperties") {
                keys.insert("additionalProperties".to_owned(), false.into());
            }
            keys.values_mut().for_each(close_objects);
        }
        Value::Array(parts) => parts.iter_mut().for_each(close_objects),
        _ => {}
    }
}

/// Checks the result of a command.
pub(crate) fn check(args: &[OsString], stdout: &[u8]) {
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let result: Value = serde_json::from_slice(stdout).unwrap();
    let command = match args[0].to_str().unwrap() {
        "cache" => "cache ls",
        "probe" if has("--list") => "probe --list",
        "explain" if result["format"] == "infeed recording" => "explain RECORDING",
        command => command,
    };
    let schema = SCHEMAS.get(command);
    let schema = schema.unwrap_or_else(|| panic!("`infeed schema` has no {command}"));
    let problems = problems(schema, &result);
    assert!(problems.is_empty(), "{command}: {problems:#?}\n{result:#}");
}

fn problems(schema: &Value, result: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).unwrap();
    let found = validator.iter_errors(result);
    found
        .map(|problem| format!("{}: {problem}", problem.instance_path()))
        .collect()
}

#[test]
fn a_result_with_another_key_or_type_does_not_follow_its_schema() {
    let ledger = json(&infeed(["ledger", "no-such-file", "--json"]));
    let schema = &SCHEMAS["ledger"];
    assert_eq!(problems(schema, &ledger), [""; 0]);

    for (key, value) in [
        ("entries", Value::Null),
        ("version", "1".into()),
        ("new", 1.into()),
    ] {
        let mut changed = ledger.clone();
        changed[key] = value;

        assert_eq!(problems(schema, &changed).len(), 1, "{key}");
    }
    let mut shorter = ledger.clone();
    shorter.as_object_mut().unwrap().remove("accuracy");
    assert_eq!(problems(schema, &shorter).len(), 1);
}

#[test]
fn every_command_with_json_has_a_schema() {
    let help = Command::new(env!("CARGO_BIN_EXE_infeed"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let commands = listed.lines().filter(|line| !line.starts_with("    "));
    let mut found = 0;
    for command in commands.map(|line| line.split_whitespace().next().unwrap()) {
        let help = Command::new(env!("CARGO_BIN_EXE_infeed"))
            .args([command, "--help"])
            .output()
            .unwrap();
        if String::from_utf8(help.stdout).unwrap().contains("  --json") {
            assert!(SCHEMAS.contains_key(command), "{command}");
            found += 1;
        }
    }
    assert!(found > 5, "{listed}");
}

#[test]
fn the_schema_of_one_command_is_printed() {
    assert_eq!(
        print_schema(&["cache", "ls"])["title"],
        "infeed cache ls --json"
    );
    assert_eq!(
        print_schema(&["probe", "--list"]),
        print_schema(&[])["probe --list"]
    );

    let unknown = infeed(["schema", "sample"]);

    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains("bench, cache ls"),
        "{}",
        stderr(&unknown)
    );
}
