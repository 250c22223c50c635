//! What a request that changes nothing is answered with, before anything goes wrong.

use bytes::Bytes;

use super::head::{Head, kind};
use super::{Kind, State};

/// When all objects were changed last; tags tell them apart.
const TIME: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const TIME_IN_LISTS: &str = "2026-01-01T00:00:00.000Z";

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: Kind,
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The length that is told, if it is not the body's.
    pub(super) length: Option<u64>,
    pub(super) body: Body,
    /// First byte and one past the last, where a range was asked for.
    pub(super) range: Option<(u64, u64)>,
    /// Of the whole object.
    whole: u64,
}

/// The bytes of an answer.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) chunked: bool,
}

impl Body {
    /// Adds bytes that are of nothing.
    pub(super) fn more(&mut self, count: usize) {
        let mut bytes = self.bytes.to_vec();
        bytes.resize(bytes.len() + count, 0xEE);
        self.bytes = bytes.into();
    }
}

impl Answer {
    pub(super) fn status(kind: Kind, status: u16) -> Answer {
        Answer {
            kind,
            status,
            headers: Vec::new(),
            length: None,
            body: Body::default(),
            range: None,
            whole: 0,
        }
    }

    /// A text that is read as XML.
    pub(super) fn xml(kind: Kind, text: String) -> Answer {
        Answer {
            headers: vec![("content-type", "application/xml".to_owned())],
            body: Body {
                bytes: text.into(),
                chunked: false,
            },
            ..Answer::status(kind, 200)
        }
    }

    /// Says that it is the range behind the one that it is.
    pub(super) fn shift(&mut self) {
        let Some((begin, end)) = self.range else {
            return;
        };
        let told = format!("bytes {}-{}/{}", begin + 1, end, self.whole);
        self.headers.retain(|(key, _)| *key != "content-range");
        self.headers.push(("content-range", told));
    }
}

/// Answers from what there is.
pub(super) fn answer(state: &State, head: &Head) -> Answer {
    let kind = kind(head);
    if kind == Kind::List {
        return list(state, head);
    }
    if !["GET", "HEAD"].contains(&head.method.as_str()) {
        return Answer::status(kind, 405);
    }
    let Some(object) = state.objects.get(&head.path) else {
        return Answer::status(kind, 404);
    };
    let tag = format!("\"{}\"", object.tag);
    if head.if_match.as_ref().is_some_and(|wanted| *wanted != tag) {
        return Answer::status(kind, 412);
    }
    let whole = object.bytes.len() as u64;
    let mut answer = Answer {
        whole,
        headers: vec![
            ("etag", tag),
            ("last-modified", TIME.to_owned()),
            ("accept-ranges", "bytes".to_owned()),
        ],
        ..Answer::status(kind, 200)
    };
    let range = head.range.as_deref().filter(|_| state.ranges);
    let bytes = match range.and_then(bounds) {
        Some((begin, _)) if begin >= whole => return Answer::status(kind, 416),
        Some((begin, end)) => {
            let end = end.min(whole);
            answer.status = 206;
            answer.range = Some((begin, end));
            let told = format!("bytes {begin}-{}/{whole}", end.saturating_sub(1));
            answer.headers.push(("content-range", told));
            object.bytes.slice(begin as usize..end as usize)
        }
        None => object.bytes.clone(),
    };
    if kind == Kind::Look {
        answer.length = Some(whole);
    } else {
        answer.body.bytes = bytes;
    }
    answer
}

/// First byte and one past the last of `bytes=first-last`.
fn bounds(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((
        first.parse().ok()?,
        last.parse::<u64>()
            .map_or(u64::MAX, |last| last.saturating_add(1)),
    ))
}

/// A page of the list of a bucket.
fn list(state: &State, head: &Head) -> Answer {
    let bucket = format!("{}/", head.path.trim_end_matches('/'));
    let (prefix, after) = (
        head.asked("prefix").unwrap_or_default(),
        head.asked("continuation-token").unwrap_or_default(),
    );
    let mut shown = 0;
    let mut last = String::new();
    let (mut contents, mut folders, mut is_cut) = (String::new(), String::new(), false);
    for (key, object) in state.objects.range(bucket.clone()..) {
        let Some(key) = key.strip_prefix(&bucket) else {
            break;
        };
        let Some(rest) = key.strip_prefix(prefix) else {
            continue;
        };
        let folder = head
            .asked("delimiter")
            .and_then(|delimiter| rest.find(delimiter))
            .map(|at| &key[..=prefix.len() + at]);
        let name = folder.unwrap_or(key);
        if name <= after || name == last {
            continue;
        }
        if shown == state.page {
            is_cut = true;
            break;
        }
        shown += 1;
        last = name.to_owned();
        let written = escaped(name);
        match folder {
            Some(_) => {
                folders += &format!("<CommonPrefixes><Prefix>{written}</Prefix></CommonPrefixes>");
            }
            None => {
                contents += &format!(
                    "<Contents><Key>{written}</Key><LastModified>{TIME_IN_LISTS}</LastModified>\
                     <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
                    object.tag,
                    object.bytes.len()
                );
            }
        }
    }
    let next = match is_cut {
        true => format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            escaped(&last)
        ),
        false => String::new(),
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><IsTruncated>{is_cut}\
         </IsTruncated>{contents}{folders}{next}</ListBucketResult>"
    );
    Answer::xml(Kind::List, text)
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
