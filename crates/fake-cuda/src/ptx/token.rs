//! Splits PTX into words and signs, each with its line.

use super::error::BadPtx;

/// A token of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PtxToken<'a> {
    /// A name, a number, a directive or an opcode with its modifiers.
    Word(&'a str),
    /// Text between quotes.
    Text(&'a str),
    /// One of [`SIGNS`].
    Sign(char),
}

/// Characters that form a token each.
const SIGNS: &str = ",;:{}[]()<>+-@!";

/// Splits a text into tokens with their lines, from 1. Comments are left out.
pub(super) fn tokens(text: &str) -> Result<Vec<(u32, PtxToken<'_>)>, BadPtx> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if first == '\n' {
            line += 1;
            1
        } else if first.is_whitespace() {
            first.len_utf8()
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let Some(end) = rest.find("*/") else {
                return Err(BadPtx::new(line, "a comment does not end"));
            };
            line += lines(&rest[..end]);
            end + 2
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let Some(end) = quoted
                .find(['"', '\n'])
                .filter(|&end| quoted[end..].starts_with('"'))
            else {
                return Err(BadPtx::new(line, "a quoted text does not end on its line"));
            };
            tokens.push((line, PtxToken::Text(&quoted[..end])));
            end + 2
        } else if SIGNS.contains(first) {
            tokens.push((line, PtxToken::Sign(first)));
            1
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push((line, PtxToken::Word(&rest[..end])));
            end
        } else {
            return Err(BadPtx::new(line, format!("no token begins with `{first}`")));
        };
        rest = &rest[len..];
    }
    Ok(tokens)
}

fn lines(text: &str) -> u32 {
    text.bytes().filter(|&byte| byte == b'\n').count() as u32
}

/// A sequence of tokens with a current position.
pub(super) struct Tokens<'a> {
    all: Vec<(u32, PtxToken<'a>)>,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Result<Tokens<'a>, BadPtx> {
        Ok(Tokens {
            all: tokens(text)?,
            at: 0,
        })
    }

    /// Returns the line of the next token, or of the last one.
    pub(super) fn line(&self) -> u32 {
        let here = self.all.get(self.at).or(self.all.last());
        here.map_or(1, |&(line, _)| line)
    }

    /// Returns the next token, without consuming it.
    pub(super) fn peek(&self) -> Option<PtxToken<'a>> {
        self.all.get(self.at).map(|&(_, token)| token)
    }

    /// Returns the token after the next, without consuming it.
    pub(super) fn peek_second(&self) -> Option<PtxToken<'a>> {
        self.all.get(self.at + 1).map(|&(_, token)| token)
    }

    pub(super) fn next(&mut self) -> Option<PtxToken<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    /// Consumes the next token if it is this sign. Returns whether it was.
    pub(super) fn takes(&mut self, sign: char) -> bool {
        let is_next = self.peek() == Some(PtxToken::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn sign(&mut self, sign: char) -> Result<(), BadPtx> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.unexpected_token(&format!("`{sign}`")))
    }

    pub(super) fn word(&mut self) -> Result<&'a str, BadPtx> {
        match self.peek() {
            Some(PtxToken::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected_token("a word")),
        }
    }

    /// Consumes the next word, which must be this one.
    pub(super) fn keyword(&mut self, expected: &str) -> Result<(), BadPtx> {
        if self.peek() == Some(PtxToken::Word(expected)) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected_token(&format!("`{expected}`")))
    }

    /// Consumes a count: digits only.
    pub(super) fn count(&mut self) -> Result<usize, BadPtx> {
        let line = self.line();
        let word = self.word()?;
        let is_count = word.bytes().all(|byte| byte.is_ascii_digit());
        let count = word.parse().ok().filter(|_| is_count);
        count.ok_or_else(|| BadPtx::new(line, format!("`{word}` is not a count")))
    }

    /// Returns the error for an unexpected next token.
    pub(super) fn unexpected_token(&self, expected: &str) -> BadPtx {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(PtxToken::Word(word)) => format!("`{word}`"),
            Some(PtxToken::Text(text)) => format!("\"{text}\""),
            Some(PtxToken::Sign(sign)) => format!("`{sign}`"),
        };
        BadPtx::new(self.line(), format!("expected {expected}, found {found}"))
    }
}
