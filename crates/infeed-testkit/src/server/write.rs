//! Handles requests that change objects.

use bytes::Bytes;

use super::answer::{Answer, escape};
use super::bucket::{BucketState, MultipartUpload};
use super::head::RequestHead;
use super::request::RequestKind;

/// Executes a request and builds its response.
pub(super) fn write(
    state: &mut BucketState,
    head: &RequestHead,
    kind: RequestKind,
    body: &Bytes,
) -> Answer {
    match kind {
        RequestKind::Write => put(state, head, body),
        RequestKind::Begin => begin(state, head),
        RequestKind::Part => part(state, head, body),
        RequestKind::Complete => complete(state, head, body),
        _ => remove(state, head, body),
    }
}

fn put(state: &mut BucketState, head: &RequestHead, body: &Bytes) -> Answer {
    match head.if_none_match.as_deref() {
        Some(_) if state.unconditional => return Answer::status(RequestKind::Write, 501),
        Some("*") if state.objects.contains_key(&head.path) => {
            return Answer::status(RequestKind::Write, 412);
        }
        _ => {}
    }
    let object = state.object(body.clone());
    let tag = format!("\"{}\"", object.tag);
    state.objects.insert(head.path.clone(), object);
    tag_answer(RequestKind::Write, tag)
}

fn begin(state: &mut BucketState, head: &RequestHead) -> Answer {
    state.revisions += 1;
    let id = format!("upload-{}", state.revisions);
    let upload = MultipartUpload {
        key: head.path.clone(),
        ..MultipartUpload::default()
    };
    state.uploads.insert(id.clone(), upload);
    Answer::xml(
        RequestKind::Begin,
        format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ),
    )
}

fn part(state: &mut BucketState, head: &RequestHead, body: &Bytes) -> Answer {
    let object = state.object(body.clone());
    let number = head
        .query_value("partNumber")
        .and_then(|text| text.parse().ok());
    let id = head.query_value("uploadId").unwrap_or_default();
    let upload = state.uploads.get_mut(id).filter(|of| of.key == head.path);
    let (Some(upload), Some(number)) = (upload, number) else {
        return Answer::status(RequestKind::Part, 404);
    };
    let tag = format!("\"{}\"", object.tag);
    upload.parts.insert(number, object);
    tag_answer(RequestKind::Part, tag)
}

/// Joins the named parts in the order of their numbers.
fn complete(state: &mut BucketState, head: &RequestHead, body: &Bytes) -> Answer {
    let id = head.query_value("uploadId").unwrap_or_default();
    let known = state.uploads.get(id).filter(|of| of.key == head.path);
    let Some(upload) = known else {
        return Answer::status(RequestKind::Complete, 404);
    };
    let text = String::from_utf8_lossy(body);
    let numbers = between(&text, "PartNumber");
    let tags = between(&text, "ETag");
    let mut whole = Vec::new();
    let mut before = 0;
    for (number, tag) in numbers.iter().zip(&tags) {
        let number: u32 = number.parse().unwrap_or(0);
        let part = upload.parts.get(&number);
        let is_it = |tag: &str, of: &str| tag.trim_matches('"') == of;
        match part.filter(|part| number > before && is_it(tag, &part.tag)) {
            Some(part) => whole.extend_from_slice(&part.bytes),
            None => return Answer::status(RequestKind::Complete, 400),
        }
        before = number;
    }
    state.uploads.remove(id);
    let object = state.object(whole.into());
    let tag = object.tag.clone();
    state.objects.insert(head.path.clone(), object);
    Answer::xml(
        RequestKind::Complete,
        format!(
            "<CompleteMultipartUploadResult><ETag>&quot;{tag}&quot;</ETag>\
             </CompleteMultipartUploadResult>"
        ),
    )
}

fn remove(state: &mut BucketState, head: &RequestHead, body: &Bytes) -> Answer {
    if let Some(id) = head.query_value("uploadId") {
        let known = state.uploads.remove(id).is_some();
        return Answer::status(RequestKind::Remove, if known { 204 } else { 404 });
    }
    if head.method == "DELETE" {
        state.objects.remove(&head.path);
        return Answer::status(RequestKind::Remove, 204);
    }
    let bucket = head.path.trim_end_matches('/');
    let text = String::from_utf8_lossy(body);
    let mut done = String::new();
    for key in between(&text, "Key") {
        state.objects.remove(&format!("{bucket}/{key}"));
        done += &format!("<Deleted><Key>{}</Key></Deleted>", escape(&key));
    }
    Answer::xml(
        RequestKind::Remove,
        format!("<DeleteResult>{done}</DeleteResult>"),
    )
}

fn tag_answer(kind: RequestKind, tag: String) -> Answer {
    let mut answer = Answer::status(kind, 200);
    answer.headers.push(("etag", tag));
    answer
}

/// Returns the contents of all elements with a name.
fn between(text: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inner = |rest: &str| {
        let text = rest.split_once(&close)?.0;
        Some(
            text.replace("&quot;", "\"")
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&"),
        )
    };
    text.split(&open).skip(1).filter_map(inner).collect()
}
