//! Builds the response to a read or list request, before faults are applied.

use bytes::Bytes;

use super::bucket::BucketState;
use super::head::{RequestHead, kind};
use super::request::RequestKind;

/// Modification time of all objects. Only tags distinguish versions.
const TIME: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const TIME_IN_LISTS: &str = "2026-01-01T00:00:00.000Z";

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: RequestKind,
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// Value of the content length, if it differs from the body's length.
    pub(super) length: Option<u64>,
    pub(super) body: Body,
    /// First byte and one past the last of the requested range.
    pub(super) range: Option<(u64, u64)>,
    /// Length of the whole object.
    whole: u64,
}

/// The body of a response.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) chunked: bool,
}

impl Body {
    /// Appends bytes that belong to no object.
    pub(super) fn more(&mut self, count: usize) {
        let mut bytes = self.bytes.to_vec();
        bytes.resize(bytes.len() + count, 0xEE);
        self.bytes = bytes.into();
    }
}

impl Answer {
    pub(super) fn status(kind: RequestKind, status: u16) -> Answer {
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

    /// An XML response.
    pub(super) fn xml(kind: RequestKind, text: String) -> Answer {
        Answer {
            headers: vec![("content-type", "application/xml".to_owned())],
            body: Body {
                bytes: text.into(),
                chunked: false,
            },
            ..Answer::status(kind, 200)
        }
    }

    /// Changes the range header to the range after the actual one.
    pub(super) fn shift(&mut self) {
        let Some((begin, end)) = self.range else {
            return;
        };
        let content_range = format!("bytes {}-{}/{}", begin + 1, end, self.whole);
        self.headers.retain(|(key, _)| *key != "content-range");
        self.headers.push(("content-range", content_range));
    }
}

/// Builds the response from the stored objects.
pub(super) fn answer(state: &BucketState, head: &RequestHead) -> Answer {
    let kind = kind(head);
    if kind == RequestKind::List {
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
            let content_range = format!("bytes {begin}-{}/{whole}", end.saturating_sub(1));
            answer.headers.push(("content-range", content_range));
            object.bytes.slice(begin as usize..end as usize)
        }
        None => object.bytes.clone(),
    };
    if kind == RequestKind::Head {
        answer.length = Some(whole);
    } else {
        answer.body.bytes = bytes;
    }
    answer
}

/// Parses `bytes=first-last` into the first byte and one past the last.
fn bounds(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((
        first.parse().ok()?,
        last.parse::<u64>()
            .map_or(u64::MAX, |last| last.saturating_add(1)),
    ))
}

/// Returns a page of a bucket's list.
fn list(state: &BucketState, head: &RequestHead) -> Answer {
    let bucket = format!("{}/", head.path.trim_end_matches('/'));
    let (prefix, after) = (
        head.query_value("prefix").unwrap_or_default(),
        head.query_value("continuation-token").unwrap_or_default(),
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
            .query_value("delimiter")
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
        let written = escape(name);
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
            escape(&last)
        ),
        false => String::new(),
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><IsTruncated>{is_cut}\
         </IsTruncated>{contents}{folders}{next}</ListBucketResult>"
    );
    Answer::xml(RequestKind::List, text)
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
