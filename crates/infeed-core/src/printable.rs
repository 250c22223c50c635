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

/// Like [`printable`], but for several lines of text: keeps newlines, [`BOLD`], [`DIM`] and
/// [`RESET`].
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
    fn a_page_keeps_only_line_ends_and_styles() {
        let page = "\x1b[1mtitle\x1b[0m\nname \x1b[8mhidden\r";

        assert_eq!(
            printable_page(page),
            "\x1b[1mtitle\x1b[0m\nname \\u{1b}[8mhidden\\r"
        );
    }
}
