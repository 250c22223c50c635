//! How a bucket is reached: what the environment says, and what the program says before it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::url::{Service, Url};
use crate::error::Error;

/// What the program said, by the usual base of URLs (`s3://bucket`) or a scheme (`s3://`).
static GIVEN: Mutex<BTreeMap<String, Vec<(String, String)>>> = Mutex::new(BTreeMap::new());

/// Settings of our own, in the program and, in capitals after `INFEED_REMOTE_`, the environment.
const OWN: [&str; 4] = ["attempts", "idle_s", "deadline_s", "hedge"];

/// Sets how URLs that begin with `base` are reached: a bucket (`s3://photos`), a host
/// (`https://data.example.org`) or all of a kind (`s3://`, which `s3a://` is too). It goes before the
/// environment, and replaces what was set for the same base; no options take it back.
///
/// Keys are those of the environment in small letters, such as `aws_endpoint_url`,
/// `aws_access_key_id`, `aws_skip_signature`, `google_service_account`,
/// `azure_storage_account_key`, and our own `attempts`, `idle_s`, `deadline_s` and `hedge`. What
/// is open already goes on as it was.
///
/// # Errors
///
/// [`Error::Config`] for a base that is no scheme, bucket or host, or a value of our own that is
/// none.
pub fn configure(base: &str, options: &[(&str, &str)]) -> Result<(), Error> {
    let base = known_base(base)?;
    let options: Vec<(String, String)> = options
        .iter()
        .map(|(key, value)| (key.to_ascii_lowercase(), (*value).to_owned()))
        .collect();
    let mut patience = Patience::default();
    for (key, value) in &options {
        patience
            .set(key, value)
            .map_err(|problem| Error::config(&base, problem))?;
    }
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    match options.is_empty() {
        true => given.remove(&base),
        false => given.insert(base, options),
    };
    Ok(())
}

/// A base as URLs are looked up by: a scheme, or a bucket or host.
fn known_base(text: &str) -> Result<String, Error> {
    if let Some(scheme) = text.strip_suffix("://") {
        // Whether there is such a scheme is told as of any URL.
        let url = Url::parse(&format!("{scheme}://any"))?;
        return Ok(url.usual_base().trim_end_matches("any").to_owned());
    }
    let url = Url::parse(text)?;
    match url.key.is_empty() && url.query.is_empty() {
        true => Ok(url.usual_base()),
        false => {
            let problem = format!(
                "settings are of a whole bucket or host; name `{}` without what is below it",
                url.base
            );
            Err(Error::config(text, problem))
        }
    }
}

/// All that decides how a bucket is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Later ones go before earlier ones.
    pub(super) options: Vec<(String, String)>,
    pub(super) patience: Patience,
}

impl Settings {
    /// What holds for a URL now.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a value of our own that is none.
    pub(super) fn of(url: &Url) -> io::Result<Settings> {
        let prefix = match url.service {
            Service::S3 => "AWS_",
            Service::Google => "GOOGLE_",
            Service::Azure => "AZURE_",
            // The client reads what there is, such as proxies, by itself.
            Service::Http => return Settings::default().completed(url),
        };
        let texts = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        let mut options: Vec<(String, String)> = texts
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
            .collect();
        options.sort();
        let settings = Settings {
            options,
            ..Settings::default()
        };
        settings.completed(url)
    }

    /// With our own settings of the environment, and what the program said.
    fn completed(mut self, url: &Url) -> io::Result<Settings> {
        for key in OWN {
            let name = format!("INFEED_REMOTE_{}", key.to_ascii_uppercase());
            if let Ok(value) = std::env::var(&name) {
                self.take(key, &value)?;
            }
        }
        let base = url.usual_base();
        let scheme = base.find("://").map_or("", |at| &base[..at + 3]);
        let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        for base in [scheme, base.as_str()] {
            for (key, value) in given.get(base).into_iter().flatten() {
                if !self.take(key, value)? {
                    self.options.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(self)
    }

    /// The value of an option, under any of its names.
    pub(super) fn get(&self, names: &[&str]) -> Option<&str> {
        let found = self.options.iter().rev();
        let mut found = found.filter(|(key, _)| names.contains(&key.as_str()));
        found.next().map(|(_, value)| value.as_str())
    }

    fn take(&mut self, key: &str, value: &str) -> io::Result<bool> {
        self.patience
            .set(key, value)
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}

/// How long to try, and when to ask a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// Requests for one thing, the first among them.
    pub(super) attempts: u32,
    /// Without a byte for so long, a request has failed.
    pub(super) idle: Duration,
    /// After so long, plus what the bytes take at [`SLOWEST`], no more is tried.
    pub(super) deadline: Duration,
    /// Whether the slowest requests are made a second time.
    pub(super) hedge: bool,
    /// Before the first repetition; doubled for each further one.
    pub(super) pause: Duration,
}

/// Bytes a second that a request may be slow to: 64 requests at once on a line of 16 MB/s.
const SLOWEST: u64 = 256 << 10;

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            attempts: 10,
            idle: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            hedge: true,
            pause: Duration::from_millis(100),
        }
    }
}

impl Patience {
    /// The deadline of a read of so many bytes.
    pub(super) fn deadline_of(&self, bytes: u64) -> Duration {
        self.deadline + Duration::from_secs(bytes / SLOWEST)
    }

    /// Takes a setting of our own; false if it is none.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let seconds = || {
            let number: f64 = value.parse().ok()?;
            let limits = 0.001..=86_400.0;
            limits
                .contains(&number)
                .then(|| Duration::from_secs_f64(number))
        };
        let wrong = |wanted: &str| format!("{key} is {wanted}, not `{value}`");
        match key {
            "attempts" => {
                let number = value
                    .parse()
                    .ok()
                    .filter(|number| (1..=1000).contains(number));
                self.attempts = number.ok_or_else(|| wrong("a number from 1 to 1000"))?;
            }
            "idle_s" => self.idle = seconds().ok_or_else(|| wrong("a number of seconds"))?,
            "deadline_s" => {
                self.deadline = seconds().ok_or_else(|| wrong("a number of seconds"))?
            }
            "hedge" => {
                self.hedge = match value.to_ascii_lowercase().as_str() {
                    "true" | "1" | "on" | "yes" => true,
                    "false" | "0" | "off" | "no" => false,
                    _ => return Err(wrong("true or false")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_that_no_url_would_have_is_refused() {
        for (base, words) in [
            ("s3://photos/train", "`s3://photos` without"),
            (
                "https://data.example.org/x?token=1",
                "without what is below",
            ),
            ("ftp://x", "begin with"),
            ("photos", "no URL"),
        ] {
            let error = configure(base, &[("attempts", "3")]).expect_err(base);
            assert!(error.to_string().contains(words), "{base}: {error}");
        }
        configure("S3://settings-case", &[("attempts", "7")]).expect("a bucket");
        let url = Url::parse("s3://settings-case/x").expect("a URL");
        assert_eq!(Settings::of(&url).expect("known").patience.attempts, 7);
        configure("s3://settings-case", &[]).expect("taken back");
    }

    #[test]
    fn a_bucket_goes_before_its_scheme() {
        configure("s3://", &[("attempts", "3"), ("aws_region", "here")]).expect("known");
        configure("s3://settings-test/", &[("AWS_REGION", "there")]).expect("known");
        let url = Url::parse("s3://settings-test/x").expect("a URL");

        let settings = Settings::of(&url).expect("right");

        assert_eq!(settings.patience.attempts, 3);
        assert_eq!(settings.get(&["aws_region"]), Some("there"));

        configure("s3://", &[]).expect("taken back");
        configure("s3://settings-test", &[]).expect("taken back");
        let settings = Settings::of(&url).expect("right");
        assert_eq!(settings.patience, Patience::default());
    }

    #[test]
    fn another_name_of_a_scheme_is_reached_as_the_usual_one() {
        let attempts = |text: &str| {
            let url = Url::parse(text).expect("a URL");
            Settings::of(&url).expect("right").patience.attempts
        };
        configure("s3://settings-alias", &[("attempts", "4")]).expect("known");
        assert_eq!(attempts("s3a://settings-alias/x"), 4);
        configure("S3A://settings-alias", &[("attempts", "5")]).expect("the same bucket");
        assert_eq!(attempts("s3://settings-alias/x"), 5);
        assert_eq!(attempts("s3a://settings-alias/x"), 5);
        configure("s3a://settings-alias", &[]).expect("taken back");

        configure("gcs://", &[("attempts", "6")]).expect("known");
        assert_eq!(attempts("gs://settings-alias/x"), 6);
        configure("gs://", &[]).expect("taken back");
        assert_eq!(attempts("gcs://settings-alias/x"), 10);
        configure("abfss://", &[("attempts", "7")]).expect("known");
        assert_eq!(attempts("abfs://files@account/x"), 7);
        assert_eq!(attempts("az://files/x"), 10, "named by another part");
        configure("abfs://", &[]).expect("taken back");
    }

    #[test]
    fn a_setting_that_is_none_is_refused_with_what_it_should_be() {
        for (key, value) in [
            ("attempts", "0"),
            ("idle_s", "soon"),
            ("deadline_s", "-1"),
            ("hedge", "perhaps"),
        ] {
            let error = configure("s3://x", &[(key, value)]).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
        }
        configure("bucket", &[]).expect_err("no URL");
    }
}
