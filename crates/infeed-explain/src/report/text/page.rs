//! A page for a terminal: lines of limited width, with labels and emphasis.

use crate::findings::Remedy;
use crate::report::table::{TableColumn, length, wrap};
use infeed_core::printable::{DIM, RESET, printable};
use infeed_core::units::{format_bytes, format_seconds};

/// Width of the labels of the verdict's lines, with the blanks around them.
const LABEL: usize = 13;
/// Minimum width. Narrower terminals get lines of this width.
const NARROWEST: usize = 40;
/// Indentation of the lines below a remedy's name.
pub(super) const SET_IN: &str = "     ";

pub(super) const fn column(head: &'static str, keep: u8) -> TableColumn {
    TableColumn { head, keep }
}

/// Returns printable text on one line, with blanks for line ends and tabs, so that it can be
/// wrapped.
pub(super) fn clean(text: &str) -> String {
    let blank = |c: char| if c.is_whitespace() { ' ' } else { c };
    printable(&text.chars().map(blank).collect::<String>()).into_owned()
}

/// The output and its settings.
pub(super) struct TextPage {
    pub(super) width: usize,
    pub(super) colour: bool,
    pub(super) out: String,
}

impl TextPage {
    pub(super) fn new(width: usize, colour: bool) -> TextPage {
        TextPage {
            width: width.max(NARROWEST),
            colour,
            out: String::new(),
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    pub(super) fn write_styled(&mut self, style: &str, line: &str) {
        match self.colour && !line.is_empty() {
            true => self.line(&format!("{style}{line}{RESET}")),
            false => self.line(line),
        }
    }

    /// Writes `  evidence   text`: wraps each text next to the label and writes the label once.
    pub(super) fn write_labelled(&mut self, label: &str, texts: &[String]) {
        let texts = texts.iter().filter(|text| !text.trim().is_empty());
        let room = self.width - LABEL;
        // Continuation lines are indented to separate the texts.
        let set_in = |(at, line)| if at == 0 { line } else { format!("  {line}") };
        let lines = texts.flat_map(|text| {
            let text = clean(text);
            let lines = match length(&text) <= room {
                true => vec![text],
                false => wrap(&text, room - 2),
            };
            lines.into_iter().enumerate().map(set_in)
        });
        let mut label = format!("  {label:<width$}", width = LABEL - 2);
        for line in lines.collect::<Vec<_>>() {
            let head = match self.colour {
                true => format!("{DIM}{label}{RESET}"),
                false => label,
            };
            self.line(&format!("{head}{line}"));
            label = " ".repeat(LABEL);
        }
    }

    /// Writes `  label   text` on one line, and cuts the text with `…` where the line ends.
    pub(super) fn one_line(&mut self, label: &str, text: &str) {
        let room = self.width - LABEL;
        let text = clean(text);
        let text = match length(&text) <= room {
            true => text,
            false => text.chars().take(room - 1).chain(['…']).collect(),
        };
        self.write_labelled(label, &[text]);
    }

    /// Writes below a remedy's row its effect on the pixels, its cost if no column has it, and the
    /// command that applies it.
    pub(super) fn how(&mut self, remedy: &Remedy, with_costs: bool) {
        let room = self.width - SET_IN.len();
        let mut about = vec![clean(&remedy.quality)];
        if with_costs && remedy.disk_bytes > 0 {
            about.push(format!(
                "{} on disk",
                format_bytes(remedy.disk_bytes as f64)
            ));
        }
        if with_costs && remedy.convert_s > 0.0 {
            about.push(format!("{} to convert", format_seconds(remedy.convert_s)));
        }
        about.retain(|part| !part.is_empty());
        let about = about.join(", ");
        let command = clean(&remedy.command);
        let mut lines = match about.is_empty() {
            true => Vec::new(),
            false => wrap(&about, room),
        };
        match lines.as_mut_slice() {
            [about] if length(about) + 3 + length(&command) <= room && !command.is_empty() => {
                about.push_str(";  ");
                about.push_str(&command);
            }
            _ => lines.extend(command_lines(&command, room)),
        }
        for line in lines {
            self.write_styled(DIM, &format!("{SET_IN}{line}"));
        }
    }
}

/// Breaks a command into lines that a shell joins again: between words outside quotes, with a
/// backslash.
fn command_lines(command: &str, width: usize) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut escaped = false;
    for c in command.chars() {
        if c == ' ' && quote.is_none() && !escaped {
            words.push(String::new());
            continue;
        }
        match quote {
            _ if escaped => {}
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            _ => {}
        }
        escaped = c == '\\' && !escaped && quote != Some('\'');
        words.last_mut().into_iter().for_each(|word| word.push(c));
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words.iter().filter(|word| !word.is_empty()) {
        // Keeps two characters for the backslash, also on the last line.
        match lines.last_mut() {
            Some(line) if length(line) + 1 + length(word) + 2 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(format!("  {word}"));
            }
            None => lines.push(word.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_broken_where_a_shell_joins_it() {
        let command = "infeed pack 'my photos' out --short-side 256 --to folder";

        let lines = command_lines(command, 30);

        assert_eq!(
            lines,
            [
                "infeed pack 'my photos' out \\",
                "  --short-side 256 --to \\",
                "  folder"
            ]
        );
    }

    #[test]
    fn a_command_is_not_broken_inside_quotes_or_behind_a_backslash() {
        let lines = command_lines(r#"pack "a long name of it" b\ c"#, 12);

        assert_eq!(lines, ["pack \\", r#"  "a long name of it" \"#, r"  b\ c"]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\tc\u{9b}"), r"a\u{1b}[2Jb c\u{9b}");
    }
}
