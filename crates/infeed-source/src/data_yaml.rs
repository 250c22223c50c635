//! Names of classes in the `data.yaml` of Ultralytics: a list or a map from numbers to names.
//!
//! Reads only the key `names`, in the notations that the tools write: a line per name, or brackets.

use infeed_core::printable::excerpt;

/// Returns the names, by class.
///
/// # Errors
///
/// The problem, if there is no key `names`, or if its value is neither a list nor a map with a name
/// for each number from 0.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    let mut lines = text.lines().map(without_comment);
    let first = lines.find_map(|line| line.strip_prefix("names:"));
    let Some(first) = first else {
        let problem = "it has no key `names`; add it, or give a text file with a name per line";
        return Err(problem.to_owned());
    };
    let mut value = first.trim().to_owned();
    let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', '\t', '-', ']', '}']);
    let more: Vec<&str> = lines.take_while(is_inside).collect();
    let entries: Vec<String> = match value.chars().next() {
        None => more.iter().map(|line| line.trim().to_owned()).collect(),
        Some(open) => {
            for line in more {
                value.push(' ');
                value.push_str(line.trim());
            }
            let close = if open == '[' { ']' } else { '}' };
            let inner = value.trim().strip_prefix(['[', '{']);
            let inner = inner.and_then(|inner| inner.strip_suffix(close));
            let inner = inner.ok_or_else(|| wrong(&value))?;
            split(inner).into_iter().map(str::to_owned).collect()
        }
    };
    let mut found = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_empty()) {
        let name = match entry.strip_prefix("- ") {
            Some(item) => item,
            None if value.starts_with('[') => entry,
            None => {
                let (key, name) = entry.split_once(':').ok_or_else(|| wrong(entry))?;
                let key: Option<usize> = unquote(key).and_then(|key| key.parse().ok());
                if key != Some(found.len()) {
                    return Err(format!(
                        "`{}` is not the name of class {}; number the names from 0 in order",
                        excerpt(entry),
                        found.len()
                    ));
                }
                name
            }
        };
        let name = unquote(name).filter(|name| !name.is_empty());
        found.push(name.ok_or_else(|| wrong(entry))?);
    }
    match found.is_empty() {
        true => Err(wrong(first)),
        false => Ok(found),
    }
}

fn wrong(entry: &str) -> String {
    format!(
        "`names` has `{}`, which is no name; write a list such as [cat, dog], or give a text file \
         with a name per line",
        excerpt(entry.trim())
    )
}

/// Calls `visit` with each character outside quotes, and its position, until it returns true.
fn outside_quotes(text: &str, mut visit: impl FnMut(usize, char) -> bool) {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            // A quotation mark inside a word is an apostrophe.
            None if matches!(c, '\'' | '"') && !before.is_alphanumeric() => quote = Some(c),
            None if visit(at, c) => return,
            None => {}
        }
        before = c;
    }
}

/// Returns the line without a comment and spaces at its end.
fn without_comment(line: &str) -> &str {
    let mut end = line.len();
    outside_quotes(line, |at, c| {
        let is_comment = c == '#'
            && line[..at]
                .chars()
                .next_back()
                .is_none_or(char::is_whitespace);
        if is_comment {
            end = at;
        }
        is_comment
    });
    line[..end].trim_end()
}

/// Splits at commas.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    outside_quotes(text, |at, c| {
        if c == ',' {
            parts.push(text[begin..at].trim());
            begin = at + 1;
        }
        false
    });
    parts.push(text[begin..].trim());
    parts
}

/// Returns a plain or quoted text. None for other values.
fn unquote(text: &str) -> Option<String> {
    let text = text.trim();
    match text.chars().next() {
        Some(quote @ ('\'' | '"')) => {
            let inner = text[1..].strip_suffix(quote)?;
            // Escapes other than a doubled quotation mark do not occur in names.
            let is_plain = quote == '\'' || !inner.contains('\\');
            is_plain.then(|| inner.replace("''", "'"))
        }
        Some('[' | '{' | '&' | '*' | '!' | '|' | '>' | '%' | '@') => None,
        _ => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_each_notation() {
        for text in [
            "nc: 3\nnames: ['cat', \"polar bear\", dog's]\n",
            "path: x\nnames:\n  0: cat  # a comment\n  1: polar bear\n\n  2: dog's\nnc: 3\n",
            "names:\n- cat\n- 'polar bear'\n- 'dog''s'\ntrain: a\n",
            "names: {0: cat, 1: \"polar bear\", 2: dog's}\r\n",
            "names: [ 'cat',\n         'polar bear',\n  'dog''s' ]  # three\nnc: 3",
            "names: [\n  cat,\n  polar bear,\n  dog's,\n]\n",
        ] {
            let expected = ["cat", "polar bear", "dog's"].map(str::to_owned);
            assert_eq!(names(text), Ok(expected.into()), "{text}");
        }
        let special = names("names: ['a, b', 'c: d', 'e # f']").expect("quoted");
        assert_eq!(special, ["a, b", "c: d", "e # f"]);
    }

    #[test]
    fn other_values_raise_the_entry_and_the_fix() {
        for (text, part) in [
            ("nc: 3\n", "has no key `names`"),
            ("names:\n", "a list such as [cat, dog]"),
            ("names: [cat\nnc: 3", "a list such as"),
            ("names:\n  0: cat\n  2: dog\n", "not the name of class 1"),
            ("names: [cat, [dog]]", "`[dog]`"),
            ("names: &anchor", "which is no name"),
        ] {
            let problem = names(text).expect_err(text);
            assert!(problem.contains(part), "{problem}");
        }
    }
}
