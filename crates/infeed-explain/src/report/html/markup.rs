//! Escapes text for HTML and builds sections, lists and tables.

use std::fmt;

/// Escapes text for HTML content and quoted attributes.
pub(super) fn escape(text: &str) -> impl fmt::Display + '_ {
    struct EscapedText<'a>(&'a str);
    impl fmt::Display for EscapedText<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for c in self.0.chars() {
                match c {
                    '&' => f.write_str("&amp;")?,
                    '<' => f.write_str("&lt;")?,
                    '>' => f.write_str("&gt;")?,
                    '"' => f.write_str("&quot;")?,
                    '\'' => f.write_str("&#39;")?,
                    // Not allowed in HTML, not even as a character reference.
                    c if c.is_control() && !c.is_whitespace() => f.write_str("\u{fffd}")?,
                    c => fmt::Write::write_char(f, c)?,
                }
            }
            Ok(())
        }
    }
    EscapedText(text)
}

/// A list of texts, without empty ones.
pub(super) fn list(texts: &[String]) -> String {
    let items = texts.iter().filter(|text| !text.trim().is_empty());
    let items: String = items
        .map(|text| format!("<li>{}</li>", escape(text)))
        .collect();
    format!("<ul>{items}</ul>")
}

/// One cell of a table.
#[derive(Debug)]
pub(super) struct TableCell {
    class: &'static str,
    markup: String,
}

impl TableCell {
    /// Words, aligned left.
    pub(super) fn text(text: &str) -> TableCell {
        TableCell {
            class: "text",
            markup: escape(text).to_string(),
        }
    }

    /// A number with its unit, which stay on one line.
    pub(super) fn number(number: String) -> TableCell {
        TableCell {
            class: "nowrap",
            markup: escape(&number).to_string(),
        }
    }

    /// Gives the cell the whole width of a narrow screen.
    pub(super) fn over_all(mut self) -> TableCell {
        self.class = match self.class {
            "text" => "text wide",
            "nowrap" => "nowrap wide",
            _ => "wide",
        };
        self
    }

    /// Raw markup. The caller must escape text from a dataset.
    pub(super) fn markup(markup: String) -> TableCell {
        TableCell { class: "", markup }
    }
}

/// One row of a table.
#[derive(Debug)]
pub(super) struct TableRow {
    pub(super) class: &'static str,
    pub(super) cells: Vec<TableCell>,
    /// Markup below the cells, over the whole width.
    pub(super) below: Option<String>,
}

impl TableRow {
    pub(super) fn plain(cells: Vec<TableCell>) -> TableRow {
        TableRow {
            class: "",
            cells,
            below: None,
        }
    }
}

/// A table. Each cell repeats its column's header, for screens too narrow for columns.
pub(super) fn table(class: &str, heads: &[&str], rows: &[TableRow]) -> String {
    let texts = |at: usize| {
        rows.first()
            .is_some_and(|row| row.cells[at].class.starts_with("text"))
    };
    let head = |(at, head): (usize, &&str)| match texts(at) {
        true => format!("<th class=\"text\" scope=\"col\">{head}</th>"),
        false => format!("<th scope=\"col\">{head}</th>"),
    };
    let head: String = heads.iter().enumerate().map(head).collect();
    let row = |row: &TableRow| {
        let cell = |(cell, head): (&TableCell, &&str)| {
            let TableCell { class, markup } = cell;
            match *class {
                "" => format!("<td data-is=\"{head}\">{markup}</td>"),
                class => format!("<td class=\"{class}\" data-is=\"{head}\">{markup}</td>"),
            }
        };
        let cells: String = row.cells.iter().zip(heads).map(cell).collect();
        let class = row.class;
        match &row.below {
            None => format!("<tr class=\"{class}\">{cells}</tr>\n"),
            Some(below) => format!(
                "<tr class=\"above {class}\">{cells}</tr>\n\
                 <tr class=\"below {class}\"><td colspan=\"{}\">{below}</td></tr>\n",
                heads.len()
            ),
        }
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<table class=\"{class}\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )
}

/// A section with its heading.
pub(super) fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{body}</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&\u{1b}\n").to_string(),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}\n"
        );
    }
}
