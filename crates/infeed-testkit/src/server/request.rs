//! Requests of clients, and faults that the server can produce for them.

use std::time::Duration;

/// A fault of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RequestFault {
    /// A status instead of a response, such as 503.
    Status(u16),
    /// The connection ends after this number of body bytes: of the response, or of a writing
    /// request, which then has no effect.
    Cut(u64),
    /// The request takes effect, and the connection ends without a response.
    Lost,
    /// This number of bytes less than requested, with a matching length.
    Short(u64),
    /// This number of bytes more than requested, with a matching length.
    Long(u64),
    /// This number of extra bytes after the requested ones, chunked, so that no length reveals
    /// them.
    Trailing(u64),
    /// All bytes, chunked. The connection then ends without the end of the body.
    Endless,
    /// Another range than requested, with the matching header.
    OtherRange,
    /// The whole object with status 200, whatever range was requested.
    WholeFile,
    /// The body in pieces of this number of bytes, with this pause between them.
    Drip(usize, Duration),
    /// No response until the server closes.
    Stall,
    /// The response comes after this time.
    Delay(Duration),
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// Reads bytes of an object.
    Read,
    /// Reads length and tag of an object.
    Head,
    /// Reads a page of a list.
    List,
    /// Writes a whole object.
    Write,
    /// Begins a multipart upload.
    Begin,
    /// Uploads a part.
    Part,
    /// Completes a multipart upload. The object exists from then on.
    Complete,
    /// Removes objects, or the parts of an incomplete upload.
    Remove,
}

impl RequestKind {
    /// Returns whether the request changes stored objects.
    pub(super) fn changes(self) -> bool {
        !matches!(
            self,
            RequestKind::Read | RequestKind::Head | RequestKind::List
        )
    }
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// Purpose of the request.
    pub kind: RequestKind,
    /// Path without the leading slash, decoded.
    pub key: String,
    /// First byte and one past the last of the requested range.
    pub range: Option<(u64, u64)>,
}
