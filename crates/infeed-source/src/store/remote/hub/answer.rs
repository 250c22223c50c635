//! Answers of the Hub: JSON, headers, and problems with their fixes.

use std::fmt;
use std::io;
use std::ops::Range;

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LINK, LOCATION};
use reqwest::{Response, Url as Link};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use infeed_core::error::with_causes;

/// Maximum length of a JSON answer. A page of a list has up to 1000 files of a few hundred bytes.
const MAX_JSON: usize = 16 << 20;

/// Maximum length of an address of a next page.
const MAX_QUERY: usize = 16 << 10;

/// Reason why a request has no result.
#[derive(Clone, Debug)]
pub(in super::super) enum HubProblem {
    /// A temporary failure.
    Passing(String),
    /// The Hub accepts no request before this time.
    Limited(Instant, String),
    /// The whole file came instead of a range.
    WholeFile,
    /// A permanent failure, with its fix.
    Final(io::ErrorKind, String),
}

impl HubProblem {
    /// A failed connection. The caller has removed the address from the error.
    pub(super) fn connection(error: &reqwest::Error) -> HubProblem {
        HubProblem::Passing(with_causes(error))
    }
}

impl fmt::Display for HubProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HubProblem::Passing(text)
            | HubProblem::Limited(_, text)
            | HubProblem::Final(_, text) => f.write_str(text),
            HubProblem::WholeFile => f.write_str("the whole file came instead of a range"),
        }
    }
}

impl std::error::Error for HubProblem {}

impl From<HubProblem> for object_store::Error {
    fn from(problem: HubProblem) -> object_store::Error {
        object_store::Error::Generic {
            store: "Hub",
            source: Box::new(problem),
        }
    }
}

/// The commit of a revision.
#[derive(Debug, Deserialize)]
pub(super) struct Commit {
    pub(super) sha: String,
}

/// A file or folder of a list.
#[derive(Debug, Deserialize)]
pub(super) struct TreeEntry {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) path: String,
    #[serde(default)]
    size: u64,
    oid: Option<String>,
    lfs: Option<LargeFile>,
}

/// Content of a file that is stored outside the repository.
#[derive(Debug, Deserialize)]
struct LargeFile {
    oid: Option<String>,
    size: Option<u64>,
}

impl TreeEntry {
    /// Length and tag of the content. The tag is the one of an answer for the file.
    pub(super) fn content(self) -> (u64, Option<String>) {
        match self.lfs {
            Some(LargeFile { oid, size }) => (size.unwrap_or(self.size), oid.or(self.oid)),
            None => (self.size, self.oid),
        }
    }
}

/// Reads a JSON answer of limited length.
pub(super) async fn json<T: DeserializeOwned>(mut answer: Response) -> object_store::Result<T> {
    let mut bytes = Vec::new();
    let lost = |error: reqwest::Error| HubProblem::connection(&error.without_url());
    while let Some(piece) = answer.chunk().await.map_err(lost)? {
        if bytes.len() + piece.len() > MAX_JSON {
            let problem = format!("the Hub's answer is longer than {} MiB", MAX_JSON >> 20);
            return Err(HubProblem::Final(io::ErrorKind::InvalidData, problem).into());
        }
        bytes.extend_from_slice(&piece);
    }
    let invalid = |error| HubProblem::Passing(format!("the Hub's answer is invalid: {error}"));
    Ok(serde_json::from_slice(&bytes).map_err(invalid)?)
}

/// Value of a header.
pub(super) fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Length of a file, as the Hub reports it or, in an answer with the file, the length of the answer.
pub(super) fn size(answer: &Response) -> Option<u64> {
    let linked = header(answer, "x-linked-size");
    let own = || {
        let own = header(answer, CONTENT_LENGTH.as_str());
        own.filter(|_| answer.status().is_success())
    };
    linked.or_else(own)?.parse().ok()
}

/// Tag of a file, as the Hub reports it.
pub(super) fn tag(answer: &Response) -> Option<String> {
    let linked = header(answer, "x-linked-etag");
    let own = || header(answer, ETAG.as_str()).filter(|_| answer.status().is_success());
    linked.or_else(own).map(str::to_owned)
}

/// Target of a redirect.
pub(super) fn redirect(answer: &Response, url: &Link) -> Option<Link> {
    let target = url.join(header(answer, LOCATION.as_str())?).ok()?;
    let is_known = answer.status().is_redirection() && ["http", "https"].contains(&target.scheme());
    is_known.then_some(target)
}

/// Range of an answer, and the length of the whole file.
pub(super) fn content_range(answer: &Response) -> Option<(Range<u64>, u64)> {
    parsed_range(header(answer, CONTENT_RANGE.as_str())?)
}

fn parsed_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((first.parse().ok()?..end, length.parse().ok()?))
}

/// Query of the next page of a list. Only the query is used: it is sent to the Hub's own address.
pub(super) fn next_page(answer: &Response, url: &Link) -> Option<String> {
    let target = next_target(header(answer, LINK.as_str())?)?;
    let next = url.join(target).ok()?;
    let query = next.query().filter(|query| query.len() <= MAX_QUERY)?;
    Some(query.to_owned())
}

/// Target with `rel="next"` of a header `Link`.
fn next_target(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let (target, after) = rest.split_once('<')?.1.split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let is_next = after[..end].split([';', ',']).any(|kind| {
            let kind = kind.trim();
            kind.eq_ignore_ascii_case("rel=\"next\"") || kind.eq_ignore_ascii_case("rel=next")
        });
        if is_next {
            return Some(target);
        }
        rest = &after[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_link_marked_so() {
        for (text, expected) in [
            (
                "<https://hub/x?cursor=a>; rel=\"next\"",
                Some("https://hub/x?cursor=a"),
            ),
            ("</x?a=1>; rel=\"prev\", </x?a=2>; rel=next", Some("/x?a=2")),
            ("</x?a=1,2>; rel=\"next\"", Some("/x?a=1,2")),
            ("</x?a=1>; rel=\"prev\"", None),
            ("https://hub/x; rel=\"next\"", None),
            ("<", None),
            ("", None),
        ] {
            assert_eq!(next_target(text), expected, "{text}");
        }
    }

    #[test]
    fn a_range_of_an_answer_is_half_open() {
        for (text, expected) in [
            ("bytes 0-9/100", Some((0..10, 100))),
            ("bytes 5-5/6", Some((5..6, 6))),
            ("bytes */100", None),
            ("bytes 0-18446744073709551615/1", None),
            ("bytes 0-9/*", None),
            ("0-9/100", None),
        ] {
            assert_eq!(parsed_range(text), expected, "{text}");
        }
    }

    #[test]
    fn a_large_file_has_the_length_and_tag_of_its_content() {
        let text = r#"[
            {"type":"directory","path":"data","oid":"d1","size":0},
            {"type":"file","path":"data/a.tar","oid":"p1","size":5,
             "lfs":{"oid":"c1","size":7000,"pointerSize":130},"xetHash":"x"},
            {"type":"file","path":"README.md","oid":"r1","size":42}
        ]"#;
        let entries: Vec<TreeEntry> = serde_json::from_str(text).expect("entries");

        let found: Vec<_> = entries.into_iter().map(TreeEntry::content).collect();

        let tag = |text: &str| Some(text.to_owned());
        assert_eq!(found, [(0, tag("d1")), (7000, tag("c1")), (42, tag("r1"))]);
    }
}
