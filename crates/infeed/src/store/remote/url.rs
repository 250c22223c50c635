//! URLs of buckets and servers, taken apart.

use std::path::Path;

use crate::error::Error;

/// Schemes that are another name of one, and that one.
const ALIASES: [(&str, &str); 4] = [
    ("s3a", "s3"),
    ("gcs", "gs"),
    ("azure", "az"),
    ("abfs", "abfss"),
];

/// What a URL begins with, and whose it is.
const SCHEMES: [(&str, Service); 11] = [
    ("s3", Service::S3),
    ("s3a", Service::S3),
    ("gs", Service::Google),
    ("gcs", Service::Google),
    ("az", Service::Azure),
    ("azure", Service::Azure),
    ("adl", Service::Azure),
    ("abfs", Service::Azure),
    ("abfss", Service::Azure),
    ("http", Service::Http),
    ("https", Service::Http),
];

/// Who answers for a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Amazon S3, or what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
}

/// A URL's parts. A key is as the bucket has it; of a web server, as the URL has it, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) service: Service,
    /// `s3://bucket`, `https://host:port`: without a slash at the end.
    pub(super) base: String,
    /// Below the base, without a slash at the beginning.
    pub(super) key: String,
    /// From `?` on, of a web server's URL; else empty. It may hold a secret.
    pub(super) query: String,
}

/// Whether a path is a URL rather than a file's.
pub fn is_url(path: impl AsRef<Path>) -> bool {
    let text = path.as_ref().to_str().unwrap_or_default();
    // One letter is a drive.
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

impl Url {
    /// # Errors
    ///
    /// [`Error::Config`] for a scheme that is not known, or a URL without a bucket or host.
    pub(super) fn parse(text: &str) -> Result<Url, Error> {
        let wrong = |problem: &str| Error::config("source", format!("{text}: {problem}"));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it is no URL"))?;
        let scheme = scheme.to_ascii_lowercase();
        let service = SCHEMES
            .iter()
            .find(|(known, _)| *known == scheme)
            .map(|(_, service)| *service)
            .ok_or_else(|| {
                wrong("URLs that are read begin with s3://, gs://, az://, abfss://, http:// or https://")
            })?;
        let (rest, query) = match rest.find(['?', '#']) {
            Some(at) if service == Service::Http => rest.split_at(at),
            _ => (rest, ""),
        };
        let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong("it names no bucket or host"));
        }
        Ok(Url {
            service,
            base: format!("{scheme}://{host}"),
            key: key.trim_start_matches('/').to_owned(),
            query: query.split('#').next().unwrap_or_default().to_owned(),
        })
    }

    /// The bucket or host.
    pub(super) fn host(&self) -> &str {
        self.base.split_once("://").map_or("", |(_, host)| host)
    }

    /// The base under the usual name of its scheme: what is set for `s3://bucket` holds for
    /// `s3a://bucket` too.
    pub(super) fn usual_base(&self) -> String {
        let (scheme, host) = self.base.split_once("://").unwrap_or((&self.base, ""));
        let usual = ALIASES.iter().find(|(alias, _)| *alias == scheme);
        format!("{}://{host}", usual.map_or(scheme, |(_, usual)| usual))
    }

    /// The key as that of a folder: empty, or with a slash at its end.
    pub(super) fn prefix(&self) -> String {
        match self.key.trim_end_matches('/') {
            "" => String::new(),
            key => format!("{key}/"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_base_a_key_and_for_servers_a_query() {
        let s3 = Url::parse("s3://bucket/a/what?.jpg").expect("a URL");
        let http = Url::parse("HTTP://host:80/a/b.tar?token=1#x").expect("a URL");

        assert_eq!(
            (s3.base.as_str(), s3.key.as_str()),
            ("s3://bucket", "a/what?.jpg")
        );
        assert_eq!(
            (http.base.as_str(), http.key.as_str()),
            ("http://host:80", "a/b.tar")
        );
        assert_eq!(http.query, "?token=1");
        assert_eq!(Url::parse("s3://bucket").expect("a URL").prefix(), "");
        assert_eq!(Url::parse("s3://bucket/a/").expect("a URL").prefix(), "a/");
        assert_eq!(s3.host(), "bucket");
    }

    #[test]
    fn what_is_no_url_or_of_no_known_scheme_is_refused() {
        for text in [
            "s3://",
            "s3:///key",
            "ftp://host/x",
            "memory://x/y",
            "plain",
        ] {
            Url::parse(text).expect_err(text);
        }
        for (path, expected) in [
            ("s3://bucket/x", true),
            ("ftp://host", true),
            ("/data/x", false),
            ("C://x", false),
            ("a b://x", false),
        ] {
            assert_eq!(is_url(path), expected, "{path}");
        }
    }
}
