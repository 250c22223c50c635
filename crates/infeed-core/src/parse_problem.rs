//! Problems that `serde` finds in JSON and TOML, in plain words.

/// Returns the message of a `serde` error without the names of Rust types.
///
/// A text that is not known stays as it is. The position is left out if the text has one line,
/// because it then says nothing to a reader.
pub fn in_words(message: &str) -> String {
    let (problem, place) = without_position(message.trim());
    let words = translate(problem).unwrap_or_else(|| problem.to_owned());
    match place {
        Some(line) if line > 1 => format!("{words}, in line {line}"),
        _ => words,
    }
}

/// Divides a message of `serde_json` into the problem and the line.
fn without_position(message: &str) -> (&str, Option<u64>) {
    let divided = message
        .rsplit_once(" at line ")
        .and_then(|(problem, place)| {
            let (line, column) = place.split_once(" column ")?;
            column.parse::<u64>().ok()?;
            Some((problem, line.parse().ok()?))
        });
    match divided {
        Some((problem, line)) => (problem, Some(line)),
        None => (message, None),
    }
}

fn translate(problem: &str) -> Option<String> {
    if let Some(rest) = problem.strip_prefix("invalid type: ") {
        let (found, needed) = rest.split_once(", expected ")?;
        let (found, needed) = (value(found), describe_needed(needed));
        return Some(format!("found {found} where {needed} is needed"));
    }
    if let Some(rest) = problem.strip_prefix("invalid value: ") {
        let (found, needed) = rest.split_once(", expected ")?;
        return Some(format!(
            "{} is not {}",
            value(found),
            describe_needed(needed)
        ));
    }
    if let Some(rest) = problem.strip_prefix("invalid length ") {
        let (found, needed) = rest.split_once(", expected ")?;
        let needed = needed.strip_prefix("an array of length ");
        return needed.map(|needed| format!("a list has {found} values and needs {needed}"));
    }
    if let Some(name) = problem.strip_prefix("missing field ") {
        return Some(format!("{name} is missing"));
    }
    if let Some(name) = problem.strip_prefix("duplicate field ") {
        return Some(format!("{name} occurs twice"));
    }
    for kind in ["unknown field ", "unknown variant "] {
        let Some(rest) = problem.strip_prefix(kind) else {
            continue;
        };
        let (name, choices) = rest.split_once(", ")?;
        let choices = choices
            .trim_start_matches("expected ")
            .trim_start_matches("one of ");
        return Some(format!("{name} is not known; use {choices}"));
    }
    if problem.starts_with("data did not match any variant") {
        return Some("a value has another type than is needed".to_owned());
    }
    if let Some(what) = problem.strip_prefix("EOF while parsing ") {
        return Some(format!("it ends within {what}, so it may be truncated"));
    }
    let syntax = [
        "expected ",
        "trailing ",
        "key must be",
        "invalid escape",
        "control character",
    ];
    let is_syntax = syntax.iter().any(|start| problem.starts_with(start));
    is_syntax.then(|| format!("it is not valid JSON: {problem}"))
}

/// Describes a value that was found.
fn value(found: &str) -> String {
    let (kind, text) = found.split_once(' ').unwrap_or((found, ""));
    match (kind, text) {
        ("integer", number) => format!("the number {}", number.trim_matches('`')),
        ("floating", number) => {
            let number = number.trim_start_matches("point ");
            format!("the number {}", number.trim_matches('`'))
        }
        ("string", text) => format!("the text {text}"),
        ("boolean", truth) => truth.trim_matches('`').to_owned(),
        ("sequence", "") => "a list".to_owned(),
        ("map", "") => "a table".to_owned(),
        _ => found.to_owned(),
    }
}

/// Describes a value that is needed.
fn describe_needed(needed: &str) -> String {
    match needed {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "path string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        _ if needed.starts_with("struct ") || needed.contains(" enum ") => "a table".to_owned(),
        _ if needed.starts_with("a tuple of size ")
            || needed.starts_with("an array of length ") =>
        {
            let count = needed.rsplit(' ').next().unwrap_or_default();
            format!("a list of {count} values")
        }
        _ => needed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_types_of_rust_and_a_line_only_if_there_are_several() {
        for (message, expected) in [
            (
                "invalid type: integer `10`, expected a sequence at line 1 column 204",
                "found the number 10 where a list is needed",
            ),
            (
                "invalid type: string \"x, y\", expected u32 at line 7 column 2",
                "found the text \"x, y\" where an integer from 0 is needed, in line 7",
            ),
            (
                "invalid type: floating point `1.5`, expected usize",
                "found the number 1.5 where an integer from 0 is needed",
            ),
            (
                "invalid type: sequence, expected struct Crop",
                "found a list where a table is needed",
            ),
            (
                "invalid value: integer `-1`, expected u8",
                "the number -1 is not an integer from 0",
            ),
            (
                "invalid length 3, expected an array of length 4",
                "a list has 3 values and needs 4",
            ),
            ("missing field `path`", "`path` is missing"),
            ("duplicate field `size`", "`size` occurs twice"),
            (
                "unknown field `siez`, expected one of `size`, `at`",
                "`siez` is not known; use `size`, `at`",
            ),
            (
                "unknown variant `x`, expected `a` or `b`",
                "`x` is not known; use `a` or `b`",
            ),
            (
                "data did not match any variant of untagged enum Given",
                "a value has another type than is needed",
            ),
            (
                "EOF while parsing a list at line 2 column 0",
                "it ends within a list, so it may be truncated, in line 2",
            ),
            (
                "expected `,` or `}` at line 1 column 9",
                "it is not valid JSON: expected `,` or `}`",
            ),
            ("something else", "something else"),
        ] {
            assert_eq!(in_words(message), expected);
        }
    }
}
