//! Address and token of the Hub, where its own tools keep them.

use std::io;
use std::path::PathBuf;

use reqwest::Url as Link;
use reqwest::header::HeaderValue;

use crate::store::remote::settings::RemoteSettings;

/// Address of the Hub.
const ENDPOINT: &str = "https://huggingface.co";

/// Maximum length of a file with a token.
const MAX_TOKEN: u64 = 64 << 10;

/// Address and token.
pub(super) struct HubSettings {
    pub(super) endpoint: Link,
    pub(super) token: Option<HeaderValue>,
}

impl HubSettings {
    /// Reads the options of a dataset, and the file with the token.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an invalid address, token or option.
    pub(super) fn of(settings: &RemoteSettings) -> io::Result<HubSettings> {
        for (key, _) in &settings.options {
            let is_from_program = std::env::var_os(key.to_ascii_uppercase()).is_none();
            if is_from_program && !["hf_endpoint", "hf_token", "hf_token_path"].contains(&&**key) {
                return Err(invalid(format!(
                    "`{key}` is not an option of the Hub; it has hf_endpoint, hf_token and \
                     hf_token_path"
                )));
            }
        }
        let option = |name: &str| {
            let text = settings.get(&[name]).map(str::trim);
            text.filter(|text| !text.is_empty())
        };
        let text = option("hf_endpoint").unwrap_or(ENDPOINT);
        let endpoint = Link::parse(text.trim_end_matches('/'))
            .ok()
            .filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let endpoint = endpoint.ok_or_else(|| {
            invalid("HF_ENDPOINT must be an address such as https://huggingface.co".to_owned())
        })?;
        let token = match option("hf_token") {
            Some(token) => Some(token.to_owned()),
            None => option("hf_token_path")
                .map(PathBuf::from)
                .or_else(|| token_path(|name| std::env::var(name).ok()))
                .and_then(|path| token_of(&path)),
        };
        let token = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| invalid("HF_TOKEN holds characters that no token has".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, io::Error>(value)
        });
        Ok(HubSettings {
            endpoint,
            token: token.transpose()?,
        })
    }
}

/// Path of the file in which the Hub's tools store a token.
fn token_path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(home) = set("HF_HOME") {
        return Some(PathBuf::from(home).join("token"));
    }
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
    Some(cache.join("huggingface").join("token"))
}

fn token_of(path: &std::path::Path) -> Option<String> {
    let text = infeed_raw::file::read_text(path, MAX_TOKEN).ok()?;
    let token = text.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_the_hubs_tools_store_it() {
        let path = |set: &[(&str, &str)]| {
            token_path(|name| {
                let mut found = set.iter().filter(|(key, _)| *key == name);
                found.next().map(|(_, value)| (*value).to_owned())
            })
        };
        for (set, expected) in [
            (&[("HOME", "/h")][..], Some("/h/.cache/huggingface/token")),
            (
                &[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")],
                Some("/c/huggingface/token"),
            ),
            (&[("HOME", "/h"), ("HF_HOME", "/f")], Some("/f/token")),
            (
                &[("HF_HOME", ""), ("HOME", "/h")],
                Some("/h/.cache/huggingface/token"),
            ),
            (&[], None),
        ] {
            assert_eq!(path(set), expected.map(PathBuf::from), "{set:?}");
        }
    }

    #[test]
    fn a_token_file_is_read_without_its_line_end() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        assert_eq!(token_of(&path), None);
        std::fs::write(&path, "hf_abc\n").expect("writes");
        assert_eq!(token_of(&path).as_deref(), Some("hf_abc"));
        std::fs::write(&path, " \n").expect("writes");
        assert_eq!(token_of(&path), None);
    }

    #[test]
    fn invalid_settings_are_rejected_with_their_names() {
        for (key, value, part) in [
            ("hf_endpoint", "hub", "HF_ENDPOINT"),
            ("hf_endpoint", "ftp://hub", "HF_ENDPOINT"),
            ("hf_token", "a\nb", "HF_TOKEN"),
            ("hf_tokens", "x", "hf_tokens"),
        ] {
            let settings = RemoteSettings {
                options: vec![(key.to_owned(), value.to_owned())],
                ..RemoteSettings::default()
            };
            let Err(error) = HubSettings::of(&settings) else {
                panic!("{key} {value} is accepted");
            };
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
