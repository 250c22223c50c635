//! Length limits of answers that the client keeps in memory as a whole: lists and messages.
//!
//! `fetch.rs` reads the content of objects in parts, up to the bytes that it requested.

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// Maximum bytes of a page of a list and of a message. A page has up to 5000 objects of about 2 KB.
const PAGE: usize = 64 << 20;

/// Maximum bytes of a list of a web server, which has no pages: a million files of about 1 KB.
const WHOLE_LIST: usize = 1 << 30;

/// Connects clients whose answers have a limited length.
#[derive(Debug, Default)]
pub(super) struct LimitedConnector {
    /// Whether requests without a range are for objects, as they are for web servers.
    pub(super) reads_whole_objects: bool,
}

#[derive(Debug)]
struct LimitedClient {
    inner: HttpClient,
    reads_whole_objects: bool,
}

impl HttpConnector for LimitedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(LimitedClient {
            inner: ReqwestConnector::default().connect(options)?,
            reads_whole_objects: self.reads_whole_objects,
        }))
    }
}

#[async_trait]
impl HttpService for LimitedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_get = request.method() == "GET";
        let is_object =
            is_get && (self.reads_whole_objects || request.headers().contains_key("range"));
        let limit = match request.method().as_str() {
            "PROPFIND" => WHOLE_LIST,
            _ => PAGE,
        };
        let answer = self.inner.execute(request).await?;
        if is_object && answer.status().is_success() {
            return Ok(answer);
        }
        let longer = |error| HttpError::new_boxed(HttpErrorKind::Decode, error);
        Ok(answer.map(|body| HttpResponseBody::new(Limited::new(body, limit).map_err(longer))))
    }
}
