//! Values of annotation files, as the tools that write them do: integers as `1.0`, truth values as
//! numbers. A value stays JSON text until it is used, so that an error can name its entry and show it.

use std::fmt;
use std::marker::PhantomData;

use crate::annotations::{AnnotationRoom, reserve};
use infeed_codec::decode::ForeignFile;
use infeed_core::printable::{excerpt, printable};
use infeed_core::sample::Size;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// Bytes that the text of a value may have, such as the outlines of an object. Its lists take up to 24
/// times as much memory, before they are counted.
const VALUE_BYTES: usize = 16 << 20;

/// Characters of a file in a message, before an error.
const NEAR: usize = 40;

/// Returns an integer, which may be written as `1.0`. None for other values.
pub(super) fn integer(value: &RawValue) -> Option<i64> {
    let text = value.get();
    // Larger numbers have no exact value as a float.
    let exact = |x: &f64| x.fract() == 0.0 && x.abs() <= (1_u64 << 53) as f64;
    let float = || number(value).filter(exact).map(|x| x as i64);
    text.parse().ok().or_else(float)
}

/// Returns a finite number. None for other values.
pub(super) fn number(value: &RawValue) -> Option<f64> {
    parse(value).filter(|x: &f64| x.is_finite())
}

/// Returns a truth value, which may be a number. None for other values.
pub(super) fn flag(value: &RawValue) -> Option<bool> {
    number(value).map(|x| x != 0.0).or_else(|| parse(value))
}

/// Returns a value of the type. None for other values, and for a text of more than [`VALUE_BYTES`].
pub(super) fn parse<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    let text = Some(value.get()).filter(|text| text.len() <= VALUE_BYTES);
    serde_json::from_str(text?).ok()
}

/// Returns the size of an image, 0x0 if a side is absent or no number of pixels.
pub(super) fn size(height: Option<&RawValue>, width: Option<&RawValue>) -> Size {
    let side = |value: Option<&RawValue>| {
        let side = value.and_then(integer);
        side.and_then(|side| u32::try_from(side).ok()).unwrap_or(0)
    };
    Size {
        height: side(height),
        width: side(width),
    }
}

/// Returns a value for a message, cut if it is long.
pub(super) fn show_value(value: &RawValue) -> String {
    excerpt(value.get()).into_owned()
}

/// Describes an error of the parser with a fix. `expected` describes the file, such as "annotations of
/// COCO".
pub(super) fn problem(error: &serde_json::Error, text: &[u8], expected: &str) -> String {
    if let Some(found) = ForeignFile::in_place_of_data(text) {
        return found.to_string();
    }
    let near = near(error, text);
    match error.classify() {
        Category::Eof => format!("the file is truncated{near}; download or write it again"),
        Category::Data => format!("it is not {expected}{near}; correct it, or write it again"),
        _ => format!("it is not JSON{near}; NaN and Infinity are not allowed, write numbers"),
    }
}

/// Returns the text before an error of the parser, with its line if there are several.
fn near(error: &serde_json::Error, text: &[u8]) -> String {
    let line = error.line().saturating_sub(1);
    let breaks = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let begins = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1));
    let begin = begins.into_iter().nth(line).unwrap_or(0);
    let end = begin.saturating_add(error.column()).min(text.len());
    let before = String::from_utf8_lossy(&text[end.saturating_sub(4 * NEAR)..end]);
    let skipped = before.chars().count().saturating_sub(NEAR);
    let before: String = before.chars().skip(skipped).collect();
    let before = printable(before.trim());
    match (before.is_empty(), line) {
        (true, _) => String::new(),
        (false, 0) => format!(", after `{before}`"),
        (false, _) => format!(", line {}, after `{before}`", line + 1),
    }
}

/// Parses a list. Calls `check` with each entry and its position, and returns the values. Only one
/// entry exists at a time, and the values are counted, so a list that does not fit into memory is an
/// error. `expected` describes the file.
///
/// # Errors
///
/// The first problem of `check`, and that of a value that is no list of such entries.
pub(super) fn list<'a, E: Deserialize<'a>, T>(
    list: &'a RawValue,
    room: &AnnotationRoom,
    expected: &str,
    check: impl FnMut(E, usize) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut values = Vec::new();
    let mut problem = None;
    let visitor = ListVisitor {
        values: &mut values,
        problem: &mut problem,
        room,
        check,
        entry: PhantomData,
    };
    let parsed = serde_json::Deserializer::from_str(list.get()).deserialize_seq(visitor);
    match (problem, parsed) {
        (Some(problem), _) => Err(problem),
        (None, Err(error)) => Err(self::problem(&error, list.get().as_bytes(), expected)),
        (None, Ok(())) => Ok(values),
    }
}

struct ListVisitor<'b, E, T, C> {
    values: &'b mut Vec<T>,
    /// Set if the visitor fails for another reason than the text.
    problem: &'b mut Option<String>,
    room: &'b AnnotationRoom,
    check: C,
    entry: PhantomData<E>,
}

impl<'a, E, T, C> Visitor<'a> for ListVisitor<'_, E, T, C>
where
    E: Deserialize<'a>,
    C: FnMut(E, usize) -> Result<T, String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut from: A) -> Result<(), A::Error> {
        while let Some(entry) = from.next_element::<E>()? {
            if let Err(problem) = self.add(entry) {
                *self.problem = Some(problem);
                return Err(A::Error::custom("a problem of the list"));
            }
        }
        Ok(())
    }
}

impl<E, T, C: FnMut(E, usize) -> Result<T, String>> ListVisitor<'_, E, T, C> {
    fn add(&mut self, entry: E) -> Result<(), String> {
        let value = (self.check)(entry, self.values.len())?;
        let bytes = (self.values.len() + 1) * size_of::<T>();
        let fits = self.room.check(bytes as u64);
        let fits = fits.and_then(|()| reserve(self.values, 1));
        fits.map_err(|problem| format!("it {problem}"))?;
        self.values.push(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_at_the_first_problem_and_at_the_limit_of_memory() {
        let text: Box<RawValue> = serde_json::from_str("[1, 2, 3, 4]").expect("JSON");
        let doubled = |room: u64, most: i64| {
            let room = AnnotationRoom::of(room);
            list(&text, &room, "numbers", |number: i64, at| {
                match number <= most {
                    true => Ok(2 * number),
                    false => Err(format!("number {at} is {number}")),
                }
            })
        };

        assert_eq!(doubled(32, 4), Ok(vec![2, 4, 6, 8]));
        assert_eq!(doubled(32, 2), Err("number 2 is 3".to_owned()));
        let error = doubled(31, 4).expect_err("too large");
        assert!(error.contains("more than 31 bytes"), "{error}");
    }

    #[test]
    fn another_value_than_a_list_is_a_problem_with_the_expected_file() {
        for text in ["3", "{}", "[1, \"a\"]"] {
            let value: Box<RawValue> = serde_json::from_str(text).expect("JSON");
            let room = AnnotationRoom::of(1 << 10);
            let found = list(&value, &room, "numbers", |number: i64, _| Ok(number));
            let problem = found.expect_err(text);
            assert!(problem.contains("it is not numbers"), "{problem}");
        }
    }
}
