//! Braces in shard names: `train-{0000..0146}.tar`, `{train,extra}.tar`.

use infeed_core::error::Error;

/// Maximum number of names that one pattern expands to.
pub const MAX_NAMES: usize = 1_000_000;

/// Expands a pattern to all its names, in order. As in a shell, braces without a comma and without
/// `..` are part of the name.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>, Error> {
    let wrong = |problem: &str| Error::config("source", format!("{pattern}: {problem}"));
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else {
            return Err(wrong("a brace is not closed"));
        };
        let choices = choices(&rest[open + 1..open + length]).map_err(|problem| wrong(&problem))?;
        if names.len().saturating_mul(choices.len()) > MAX_NAMES {
            return Err(wrong("it expands to more than a million names"));
        }
        names = names
            .iter()
            .flat_map(|name| {
                let head = &rest[..open];
                choices
                    .iter()
                    .map(move |choice| format!("{name}{head}{choice}"))
            })
            .collect();
        rest = &rest[open + length + 1..];
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// Expands the text between two braces: names between commas, or the numbers of a range.
fn choices(inner: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = inner.split_once("..") else {
        return Ok(match inner.contains(',') {
            true => inner.split(',').map(str::to_owned).collect(),
            false => vec![format!("{{{inner}}}")],
        });
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("`{text}` is not a number; write a range as {{0000..0146}}"))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to {
        return Err(format!("{first} is after {last}"));
    }
    if to - from >= MAX_NAMES as u64 {
        return Err("it expands to more than a million names".to_owned());
    }
    // As wide as the first number, as in shells.
    let width = first.len();
    Ok((from..=to)
        .map(|number| format!("{number:0width$}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_width_and_lists_their_order() {
        let names = expand("{b,a}/x-{08..10}.tar").expect("a pattern");

        assert_eq!(
            names,
            [
                "b/x-08.tar",
                "b/x-09.tar",
                "b/x-10.tar",
                "a/x-08.tar",
                "a/x-09.tar",
                "a/x-10.tar"
            ]
        );
        assert_eq!(expand("plain.tar").expect("a name"), ["plain.tar"]);
        assert_eq!(expand("{v1}/{}.tar").expect("a name"), ["{v1}/{}.tar"]);
    }

    #[test]
    fn invalid_patterns_are_rejected_with_the_reason() {
        for (pattern, reason) in [
            ("x-{0000..", "not closed"),
            ("x-{5..2}", "after"),
            ("x-{a..c}", "not a number"),
            ("{0..999999999}", "a million"),
            ("{0..9999}{0..9999}", "a million"),
        ] {
            let error = expand(pattern).expect_err("refused").to_string();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }
}
