//! Tables for a terminal. Columns that do not fit the width are dropped, least important first.

/// Priority of a column that is never dropped.
pub(super) const ALWAYS: u8 = u8::MAX;

/// Blanks before a table and between its columns.
const INDENT: usize = 2;
const GAP: usize = 2;
/// Minimum width of the first column.
const SQUEEZED: usize = 12;

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableColumn {
    pub(super) head: &'static str,
    /// Priority. The lowest is dropped first, together with all columns of the same priority.
    pub(super) keep: u8,
}

/// Header and rows of a table. A row is one line, or several if the first column is wrapped. The
/// first column is aligned left, the others right.
#[derive(Debug)]
pub(super) struct TableLines {
    pub(super) head: String,
    pub(super) rows: Vec<Vec<String>>,
    /// Whether each column is shown.
    pub(super) kept: Vec<bool>,
}

/// Lays out a table in at most `width` characters. Exceeds the width if the required columns do not
/// fit.
pub(super) fn set(columns: &[TableColumn], rows: &[Vec<String>], width: usize) -> TableLines {
    let mut widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let cells = rows.iter().map(|row| length(&row[i]));
            cells.max().unwrap_or(0).max(length(column.head))
        })
        .collect();
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let total = |kept: &[usize], widths: &[usize]| {
        let cells: usize = kept.iter().map(|&i| widths[i]).sum();
        INDENT + cells + GAP * kept.len().saturating_sub(1)
    };
    while total(&kept, &widths) > width {
        let least = kept.iter().copied().filter(|&i| columns[i].keep < ALWAYS);
        match least.min_by_key(|&i| columns[i].keep) {
            Some(least) => kept.retain(|&i| columns[i].keep != columns[least].keep),
            None => break,
        }
    }
    let over = total(&kept, &widths).saturating_sub(width);
    let first = widths[0].min(SQUEEZED);
    widths[0] = widths[0].saturating_sub(over).max(first);

    let line = |cells: &dyn Fn(usize) -> String| {
        let mut out = " ".repeat(INDENT);
        for (at, &i) in kept.iter().enumerate() {
            let cell = cells(i);
            let pad = " ".repeat(widths[i].saturating_sub(length(&cell)));
            match at {
                0 => out.extend([cell, pad]),
                _ => out.extend([" ".repeat(GAP), pad, cell]),
            }
        }
        out.trim_end().to_owned()
    };
    let row = |cells: &Vec<String>| {
        let mut names = wrap(&cells[0], widths[0]).into_iter();
        let first = names.next().unwrap_or_default();
        let mut lines = vec![line(&|i| match i {
            0 => first.clone(),
            _ => cells[i].clone(),
        })];
        lines.extend(names.map(|name| " ".repeat(INDENT) + &name));
        lines
    };
    TableLines {
        head: line(&|i| columns[i].head.to_owned()),
        rows: rows.iter().map(row).collect(),
        kept: (0..columns.len()).map(|i| kept.contains(&i)).collect(),
    }
}

/// Breaks text into lines of at most `width` characters, between words, or within a word that is
/// too long. Returns at least one line.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut filled = 0;
    for word in words(text) {
        let mut word: Vec<char> = word.chars().collect();
        if filled > 0 && filled + 1 + word.len() > width {
            lines.push(String::new());
            filled = 0;
        }
        while word.len() > width {
            let rest = word.split_off(width);
            extend(&mut lines, word);
            lines.push(String::new());
            word = rest;
        }
        if filled > 0 {
            extend(&mut lines, vec![' ']);
            filled += 1;
        }
        filled += word.len();
        extend(&mut lines, word);
    }
    lines
}

/// Splits a text into words. A number stays with its percent sign.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(number) if word.starts_with('%') => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn extend(lines: &mut [String], text: Vec<char>) {
    if let Some(last) = lines.last_mut() {
        last.extend(text);
    }
}

/// Number of characters. Each counts as one cell wide.
pub(super) fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 3] = [
        TableColumn {
            head: "name",
            keep: ALWAYS,
        },
        TableColumn {
            head: "spare",
            keep: 1,
        },
        TableColumn {
            head: "rate",
            keep: ALWAYS,
        },
    ];

    fn rows() -> Vec<Vec<String>> {
        vec![vec!["a long name of it".into(), "1".into(), "312/s".into()]]
    }

    #[test]
    fn columns_align_with_their_headers() {
        let lines = set(&COLUMNS, &rows(), 80);

        assert_eq!(lines.head, "  name               spare   rate");
        assert_eq!(lines.rows, [["  a long name of it      1  312/s"]]);
    }

    #[test]
    fn the_least_important_column_is_dropped_before_the_name_is_wrapped() {
        assert_eq!(
            set(&COLUMNS, &rows(), 30).rows,
            [["  a long name of it  312/s"]]
        );
        assert_eq!(
            set(&COLUMNS, &rows(), 22).rows,
            [["  a long name    312/s", "  of it"]]
        );
    }

    #[test]
    fn lines_break_between_words_and_within_one_that_is_too_long() {
        assert_eq!(wrap("what a line", 6), ["what a", "line"]);
        assert_eq!(wrap("incomprehensible", 10), ["incomprehe", "nsible"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("room 29 %; none", 8), ["room", "29 %;", "none"]);
    }
}
