//! Parses the head of a request.

use super::request::RequestKind;

/// The head of a request.
#[derive(Debug, Default)]
pub(super) struct RequestHead {
    pub(super) method: String,
    /// Decoded, without the leading slash.
    pub(super) path: String,
    /// Decoded.
    pub(super) query: Vec<(String, String)>,
    pub(super) range: Option<String>,
    pub(super) if_match: Option<String>,
    pub(super) if_none_match: Option<String>,
    /// Length of the body.
    pub(super) length: u64,
}

impl RequestHead {
    /// Returns the value of a query parameter.
    pub(super) fn query_value(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Parses the head of a request. None if it is invalid.
pub(super) fn parse(text: &str) -> Option<RequestHead> {
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let mut head = RequestHead {
        method: words.next()?.to_owned(),
        ..RequestHead::default()
    };
    let (path, query) = match words.next()?.split_once('?') {
        Some((path, query)) => (path.to_owned(), query.to_owned()),
        None => (text.split(' ').nth(1)?.to_owned(), String::new()),
    };
    head.path = percent_decode(path.trim_start_matches('/'));
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        head.query.push((
            percent_decode(key),
            percent_decode(&value.replace('+', " ")),
        ));
    }
    for line in lines {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.to_ascii_lowercase().as_str() {
            "range" => head.range = Some(value.trim().to_owned()),
            "if-match" => head.if_match = Some(value.trim().to_owned()),
            "if-none-match" => head.if_none_match = Some(value.trim().to_owned()),
            "content-length" => head.length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    Some(head)
}

/// Decodes percent-encoded bytes.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(code) if byte == b'%' => {
                bytes.push(code);
                rest = &more[2..];
            }
            _ => {
                bytes.push(byte);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the kind of a request.
pub(super) fn kind(head: &RequestHead) -> RequestKind {
    let of_parts = head.query_value("uploadId").is_some();
    match head.method.as_str() {
        "HEAD" => RequestKind::Head,
        "PUT" if of_parts => RequestKind::Part,
        "PUT" => RequestKind::Write,
        "DELETE" => RequestKind::Remove,
        "POST" if head.query_value("delete").is_some() => RequestKind::Remove,
        "POST" if of_parts => RequestKind::Complete,
        "POST" => RequestKind::Begin,
        _ if head.query_value("list-type").is_some() => RequestKind::List,
        _ => RequestKind::Read,
    }
}
