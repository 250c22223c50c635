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
const SCHEMES: [(&str, Service); 12] = [
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
    ("hf", Service::Hub),
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
    /// A dataset of the Hugging Face Hub.
    Hub,
}

/// Parts of a URL. The key is decoded for a bucket, and as in the URL (percent-encoded) for a web
/// server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) service: Service,
    /// `s3://bucket`, `https://host:port`, `hf://datasets/OWNER/NAME@REVISION`: without a trailing
    /// slash.
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
                    "supported URLs begin with s3://, gs://, az://, abfss://, hf://datasets/, http:// \
                     or https://",
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
        if service == Service::Hub {
            let (dataset, key) = dataset_and_key(rest).map_err(wrong)?;
            return Ok(Url {
                service,
                base: format!("{scheme}://{dataset}"),
                key: key.trim_start_matches('/').to_owned(),
                query: String::new(),
            });
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

    /// Dataset of the Hub (`OWNER/NAME`), and its revision.
    pub(super) fn dataset(&self) -> (String, String) {
        let (name, revision) = self.host().split_once('@').unwrap_or((self.host(), "main"));
        let name = name.strip_prefix("datasets/").unwrap_or(name);
        (
            name.to_owned(),
            revision.replace("%2F", "/").replace("%2f", "/"),
        )
    }

    /// Base with the standard name of its scheme and without a revision: settings of `s3://bucket`
    /// also apply to `s3a://bucket`, and those of a dataset to all its revisions.
    pub(super) fn usual_base(&self) -> String {
        let (scheme, host) = self.base.split_once("://").unwrap_or((&self.base, ""));
        let host = match self.service {
            Service::Hub => host.split('@').next().unwrap_or(host),
            _ => host,
        };
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

/// Divides `datasets/OWNER/NAME@REVISION/KEY` before the key.
fn dataset_and_key(rest: &str) -> Result<(&str, &str), &'static str> {
    let shape = "write hf://datasets/OWNER/NAME/PATH, or hf://datasets/OWNER/NAME@REVISION/PATH";
    let is_name = |text: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && text.bytes().all(is_known)
    };
    let own = rest.strip_prefix("datasets/").ok_or(shape)?;
    let (owner, named) = own.split_once('/').ok_or(shape)?;
    let (last, _) = named.split_once('/').unwrap_or((named, ""));
    let (name, revision) = match last.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (last, None),
    };
    if !is_name(owner) || !is_name(name) || revision == Some("") {
        return Err(shape);
    }
    // The Hub's own references have two more parts: `refs/convert/parquet`, `refs/pr/7`.
    let parts = if revision == Some("refs") { 3 } else { 1 };
    let slashes = named.match_indices('/').map(|(at, _)| at);
    let end = slashes.chain([named.len()]).nth(parts - 1).ok_or(shape)?;
    let end = rest.len() - named.len() + end;
    Ok((&rest[..end], rest[end..].trim_start_matches('/')))
}

/// Percent-encodes the characters of a key that URLs do not hold.
pub(super) fn percent_encode(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => text.push(byte as char),
            b'/' | b'-' | b'_' | b'.' | b'~' | b'+' | b'=' | b',' | b'@' | b'!' | b'(' | b')' => {
                text.push(byte as char);
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
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
    fn a_dataset_of_the_hub_has_a_revision() {
        for (text, base, dataset, revision, key) in [
            (
                "hf://datasets/o/n.x/a/b@c",
                "hf://datasets/o/n.x",
                "o/n.x",
                "main",
                "a/b@c",
            ),
            (
                "HF://datasets/o/n@v1",
                "hf://datasets/o/n@v1",
                "o/n",
                "v1",
                "",
            ),
            (
                "hf://datasets/o/n@v1/",
                "hf://datasets/o/n@v1",
                "o/n",
                "v1",
                "",
            ),
            (
                "hf://datasets/o/n@refs/convert/parquet/x/y",
                "hf://datasets/o/n@refs/convert/parquet",
                "o/n",
                "refs/convert/parquet",
                "x/y",
            ),
            (
                "hf://datasets/o/n@refs%2Fpr%2F7/*.tar",
                "hf://datasets/o/n@refs%2Fpr%2F7",
                "o/n",
                "refs/pr/7",
                "*.tar",
            ),
        ] {
            let url = Url::parse(text).expect(text);

            assert_eq!((url.base.as_str(), url.key.as_str()), (base, key), "{text}");
            assert_eq!(url.dataset(), (dataset.to_owned(), revision.to_owned()));
            assert_eq!(url.usual_base(), format!("hf://datasets/{dataset}"));
        }
    }

    #[test]
    fn invalid_urls_and_unknown_schemes_are_rejected() {
        for text in [
            "s3://",
            "s3:///key",
            "ftp://host/x",
            "memory://x/y",
            "plain",
            "hf://owner/name/x",
            "hf://datasets/name",
            "hf://datasets//name/x",
            "hf://datasets/owner/na me/x",
            "hf://datasets/owner/name@/x",
            "hf://datasets/owner/name@refs/convert",
        ] {
            Url::parse(text).expect_err(text);
        }
    }
}
