//! Parses URLs of buckets and servers.

use infeed_core::error::Error;

/// Aliases of schemes.
const ALIASES: [(&str, &str); 4] = [
    ("s3a", "s3"),
    ("gcs", "gs"),
    ("azure", "az"),
    ("abfs", "abfss"),
];

/// Schemes and their services.
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

/// Service behind a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Amazon S3, or a service with its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
}

/// Parts of a URL. The key is decoded for a bucket, and as in the URL (percent-encoded) for a web
/// server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) service: Service,
    /// `s3://bucket`, `https://host:port`: without a trailing slash.
    pub(super) base: String,
    /// Path below the base, without a leading slash.
    pub(super) key: String,
    /// From `?` on, for a web server; else empty. It may hold a secret.
    pub(super) query: String,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a scheme that is not known, or a URL without a bucket or host.
    pub(super) fn parse(text: &str) -> Result<Url, Error> {
        let wrong = |problem: &str| Error::config("source", format!("{text}: {problem}"));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it is not a URL"))?;
        let scheme = scheme.to_ascii_lowercase();
        let service = SCHEMES
            .iter()
            .find(|(known, _)| *known == scheme)
            .map(|(_, service)| *service)
            .ok_or_else(|| {
                wrong(
                    "supported URLs begin with s3://, gs://, az://, abfss://, http:// or https://",
                )
            })?;
        let (rest, query) = match rest.find(['?', '#']) {
            Some(at) if service == Service::Http => rest.split_at(at),
            _ => (rest, ""),
        };
        let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong("it lacks a bucket or host"));
        }
        Ok(Url {
            service,
            base: format!("{scheme}://{host}"),
            key: key.trim_start_matches('/').to_owned(),
            query: query.split('#').next().unwrap_or_default().to_owned(),
        })
    }

    /// Bucket or host.
    pub(super) fn host(&self) -> &str {
        self.base.split_once("://").map_or("", |(_, host)| host)
    }

    /// Base with the standard name of its scheme: settings of `s3://bucket` also apply to
    /// `s3a://bucket`.
    pub(super) fn usual_base(&self) -> String {
        let (scheme, host) = self.base.split_once("://").unwrap_or((&self.base, ""));
        let usual = ALIASES.iter().find(|(alias, _)| *alias == scheme);
        format!("{}://{host}", usual.map_or(scheme, |(_, usual)| usual))
    }

    /// Key as a folder: empty, or with a trailing slash.
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
    fn invalid_urls_and_unknown_schemes_are_rejected() {
        for text in [
            "s3://",
            "s3:///key",
            "ftp://host/x",
            "memory://x/y",
            "plain",
        ] {
            Url::parse(text).expect_err(text);
        }
    }
}
