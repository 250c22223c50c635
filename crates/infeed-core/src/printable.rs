//! Text that is safe to show on a terminal and in a log.
//!
//! File, class and field names come from the data and can contain anything. Control characters
//! control a terminal, a newline forges a log line, and directional formatting characters reorder
//! the displayed text.

use std::borrow::Cow;
use std::fmt::Write;

/// Begins bold text on a terminal.
pub const BOLD: &str = "\x1b[1m";

/// Begins dim text on a terminal.
pub const DIM: &str = "\x1b[2m";

/// Ends bold and dim text on a terminal.
pub const RESET: &str = "\x1b[0m";

/// The escape sequences that reports use.
const STYLES: [&str; 3] = [BOLD, DIM, RESET];

/// Most characters of an [`excerpt`].
pub const EXCERPT: usize = 200;

/// Returns `text` with each control and directional formatting character escaped as in Rust's
/// string literals, such as `\n` or `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push(&mut out, c);
    }
    Cow::Owned(out)
}

/// Returns the beginning of a text of any length for a message: up to [`EXCERPT`] characters, as
/// [`printable`] returns them, and an ellipsis for the others.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => Cow::Owned(format!("{}…", printable(&text[..end]))),
        None => printable(text),
    }
}

/// Like [`printable`], but for several lines of text: keeps newlines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    Cow::Owned(lines.join("\n"))
}

/// Like [`printable_lines`], but for a report whose names are [`printable`]: keeps [`BOLD`], [`DIM`]
/// and [`RESET`] too.
pub fn printable_page(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(style) = STYLES.iter().find(|style| rest.starts_with(**style)) {
            out.push_str(style);
            rest = &rest[style.len()..];
            continue;
        }
        match c {
            '\n' => out.push(c),
            _ => push(&mut out, c),
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// Like [`printable`], but for JSON, which stays valid and equal: escapes as JSON does, such as
/// `\u009b`, and keeps newlines, which JSON has only between values.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if !is_unsafe(c) || c == '\n' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            write!(out, "\\u{unit:04x}").unwrap_or_default();
        }
    }
    Cow::Owned(out)
}

fn push(out: &mut String, c: char) {
    match is_unsafe(c) {
        // Writing to a String cannot fail.
        true => write!(out, "{}", c.escape_default()).unwrap_or_default(),
        false => out.push(c),
    }
}

/// Whether `c` is a control character, a line separator, or a directional formatting character
/// (Unicode Standard Annex 9, explicit formatting characters and implicit marks).
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "cat\u{1b}]0;title\u{7}\n2 good\u{9b}2J\u{202e}gpj.exe";

        assert_eq!(
            printable(hostile),
            r"cat\u{1b}]0;title\u{7}\n2 good\u{9b}2J\u{202e}gpj.exe"
        );
    }

    #[test]
    fn ordinary_text_of_any_language_is_not_changed() {
        for text in ["cat 7.jpg", "Größe", "猫/01.png", "שלום", "a\\b"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn json_stays_valid_and_equal() {
        let text =
            "\u{1b}[2J\n\u{7f}\u{9b}\u{202e}\u{2028}\u{2069} Größe 猫 \u{feff}\"\\ \u{1f408}";
        let value = serde_json::json!({ text: [text, 1] });
        for json in [
            value.to_string(),
            serde_json::to_string_pretty(&value).expect("JSON"),
        ] {
            let shown = printable_json(&json);

            assert!(shown.chars().all(|c| c == '\n' || !is_unsafe(c)), "{shown}");
            let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            assert_eq!(read, value);
        }
        assert!(matches!(printable_json("{\"猫\":1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn lines_keep_only_line_ends() {
        let text = "name \x1b[1mbold\x1b[0m\r\nnext\u{202e}";

        assert_eq!(
            printable_lines(text),
            "name \\u{1b}[1mbold\\u{1b}[0m\\r\nnext\\u{202e}"
        );
        assert!(matches!(printable_lines("a\nb"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_page_keeps_only_line_ends_and_styles() {
        let page = "\x1b[1mtitle\x1b[0m\nname \x1b[8mhidden\r";

        assert_eq!(
            printable_page(page),
            "\x1b[1mtitle\x1b[0m\nname \\u{1b}[8mhidden\\r"
        );
    }
}
