//! Settings of buckets, from the environment and from the program, which has priority.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::url::{Service, Url};
use infeed_core::error::Error;

/// Settings of the program, by the standard base of URLs (`s3://bucket`) or a scheme (`s3://`).
static PROGRAM_SETTINGS: Mutex<BTreeMap<String, Vec<(String, String)>>> =
    Mutex::new(BTreeMap::new());

/// Settings of infeed; in the environment in capitals after `INFEED_REMOTE_`.
const OWN: [&str; 6] = [
    "attempts",
    "idle_s",
    "deadline_s",
    "hedge",
    "list_objects",
    "list_s",
];

/// Configures access to URLs that begin with `base`: a bucket (`s3://photos`), a host
/// (`https://data.example.org`), a dataset of the Hub (`hf://datasets/owner/name`, with all its
/// revisions) or a scheme (`s3://`, which includes `s3a://`). These settings have
/// priority over the environment and replace earlier settings of the same base; an empty list
/// removes them.
///
/// Keys are those of the environment in lower case, such as `aws_endpoint_url`,
/// `aws_access_key_id`, `aws_skip_signature`, `google_service_account`,
/// `azure_storage_account_key`, `hf_token`, and infeed's `attempts`, `idle_s`, `deadline_s`, `hedge`,
/// `list_objects` and `list_s`. Open datasets keep their settings.
///
/// # Errors
///
/// [`Error::Config`] for a base that is not a scheme, bucket or host, or an invalid value of an
/// infeed setting.
pub fn configure(base: &str, options: &[(&str, &str)]) -> Result<(), Error> {
    let base = known_base(base)?;
    let options: Vec<(String, String)> = options
        .iter()
        .map(|(key, value)| (key.to_ascii_lowercase(), (*value).to_owned()))
        .collect();
    let mut retry = RetryPolicy::default();
    for (key, value) in &options {
        retry
            .set(key, value)
            .map_err(|problem| Error::config(&base, problem))?;
    }
    let mut given = PROGRAM_SETTINGS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    match options.is_empty() {
        true => given.remove(&base),
        false => given.insert(base, options),
    };
    Ok(())
}

/// Normalizes a base: a scheme, or a bucket or host.
fn known_base(text: &str) -> Result<String, Error> {
    if let Some(scheme) = text.strip_suffix("://") {
        if scheme.eq_ignore_ascii_case("hf") {
            return Ok("hf://".to_owned());
        }
        // URL parsing reports an unknown scheme.
        let url = Url::parse(&format!("{scheme}://any"))?;
        return Ok(url.usual_base().trim_end_matches("any").to_owned());
    }
    let url = Url::parse(text)?;
    match url.key.is_empty() && url.query.is_empty() {
        true => Ok(url.usual_base()),
        false => {
            let problem = format!(
                "settings apply to a whole bucket or host; write `{}` without a path",
                url.base
            );
            Err(Error::config(text, problem))
        }
    }
}

/// Settings of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteSettings {
    /// Later options override earlier ones.
    pub(super) options: Vec<(String, String)>,
    pub(super) retry: RetryPolicy,
}

impl RemoteSettings {
    /// Collects the settings that apply to a URL now.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an invalid value of an infeed setting.
    pub(super) fn of(url: &Url) -> io::Result<RemoteSettings> {
        let prefix = match url.service {
            Service::S3 => "AWS_",
            Service::Google => "GOOGLE_",
            Service::Azure => "AZURE_",
            Service::Hub => "HF_",
            // The client reads the environment itself, such as proxies.
            Service::Http => return RemoteSettings::default().complete(url),
        };
        let texts = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        let mut options: Vec<(String, String)> = texts
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
            .collect();
        options.sort();
        let mut settings = RemoteSettings {
            options,
            ..RemoteSettings::default()
        };
        if url.service == Service::Hub {
            settings.retry.deadline = HUB_DEADLINE;
            settings.retry.list_objects = HUB_LIST_OBJECTS;
        }
        settings.complete(url)
    }

    /// Adds infeed's settings from the environment, and the settings of the program.
    fn complete(mut self, url: &Url) -> io::Result<RemoteSettings> {
        for key in OWN {
            let name = format!("INFEED_REMOTE_{}", key.to_ascii_uppercase());
            if let Ok(value) = std::env::var(&name) {
                self.take(key, &value)?;
            }
        }
        let base = url.usual_base();
        let scheme = base.find("://").map_or("", |at| &base[..at + 3]);
        let given = PROGRAM_SETTINGS
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for base in [scheme, base.as_str()] {
            for (key, value) in given.get(base).into_iter().flatten() {
                if !self.take(key, value)? {
                    self.options.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(self)
    }

    /// Value of an option, under any of its names.
    pub(super) fn get(&self, names: &[&str]) -> Option<&str> {
        let found = self.options.iter().rev();
        let mut found = found.filter(|(key, _)| names.contains(&key.as_str()));
        found.next().map(|(_, value)| value.as_str())
    }

    fn take(&mut self, key: &str, value: &str) -> io::Result<bool> {
        self.retry
            .set(key, value)
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}

/// Limits of a request and its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryPolicy {
    /// Maximum number of requests for one range or list, including the first.
    pub(super) attempts: u32,
    /// A request fails after this time without a byte.
    pub(super) idle: Duration,
    /// Attempts end after this time, plus the time for the bytes at [`SLOWEST`].
    pub(super) deadline: Duration,
    /// Whether slow requests are made a second time.
    pub(super) hedge: bool,
    /// Pause before the first repetition; doubled for each further one.
    pub(super) pause: Duration,
    /// Maximum number of objects and folders of a list.
    pub(super) list_objects: u64,
    /// A list fails if it has not ended after this time.
    pub(super) list_time: Duration,
}

/// Minimum bytes per second of a request: 64 parallel requests on a line of 16 MB/s.
const SLOWEST: u64 = 256 << 10;

/// Default deadline of the Hub, which makes clients wait for up to five minutes.
const HUB_DEADLINE: Duration = Duration::from_secs(600);

/// Default limit of a list of the Hub, which recommends up to 100 000 files in a dataset.
const HUB_LIST_OBJECTS: u64 = 2_000_000;

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 10,
            idle: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            hedge: true,
            pause: Duration::from_millis(100),
            list_objects: 100_000_000,
            // 100 000 pages of a thousand objects, one after another, at 0.2 s.
            list_time: Duration::from_secs(6 * 3600),
        }
    }
}

impl RetryPolicy {
    /// Deadline of a read of `bytes` bytes.
    pub(super) fn deadline_of(&self, bytes: u64) -> Duration {
        self.deadline + Duration::from_secs(bytes / SLOWEST)
    }

    /// Applies an infeed setting; returns false for any other key.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let seconds = || {
            let number: f64 = value.parse().ok()?;
            let limits = 0.001..=86_400.0;
            limits
                .contains(&number)
                .then(|| Duration::from_secs_f64(number))
        };
        let wrong = |wanted: &str| format!("{key} must be {wanted}, not `{value}`");
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
            "list_objects" => {
                let number = value.parse().ok().filter(|&number| number > 0);
                self.list_objects = number.ok_or_else(|| wrong("a number above 0"))?;
            }
            "list_s" => self.list_time = seconds().ok_or_else(|| wrong("a number of seconds"))?,
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
    fn a_base_that_no_url_has_is_rejected() {
        for (base, words) in [
            ("s3://photos/train", "`s3://photos` without"),
            ("https://data.example.org/x?token=1", "without a path"),
            ("ftp://x", "begin with"),
            ("photos", "not a URL"),
        ] {
            let error = configure(base, &[("attempts", "3")]).expect_err(base);
            assert!(error.to_string().contains(words), "{base}: {error}");
        }
        configure("hf://datasets/settings/case@v1", &[("attempts", "6")]).expect("a dataset");
        let url = Url::parse("hf://datasets/settings/case/x").expect("a URL");
        let retry = RemoteSettings::of(&url).expect("known").retry;
        assert_eq!((retry.attempts, retry.deadline), (6, HUB_DEADLINE));
        assert_eq!(retry.list_objects, HUB_LIST_OBJECTS);
        configure("hf://datasets/settings/case", &[]).expect("taken back");
        configure("S3://settings-case", &[("attempts", "7")]).expect("a bucket");
        let url = Url::parse("s3://settings-case/x").expect("a URL");
        assert_eq!(RemoteSettings::of(&url).expect("known").retry.attempts, 7);
        configure("s3://settings-case", &[]).expect("taken back");
    }

    #[test]
    fn settings_of_a_bucket_override_those_of_its_scheme() {
        configure("s3://", &[("attempts", "3"), ("aws_region", "here")]).expect("known");
        configure("s3://settings-test/", &[("AWS_REGION", "there")]).expect("known");
        let url = Url::parse("s3://settings-test/x").expect("a URL");

        let settings = RemoteSettings::of(&url).expect("right");

        assert_eq!(settings.retry.attempts, 3);
        assert_eq!(settings.get(&["aws_region"]), Some("there"));

        configure("s3://", &[]).expect("taken back");
        configure("s3://settings-test", &[]).expect("taken back");
        let settings = RemoteSettings::of(&url).expect("right");
        assert_eq!(settings.retry, RetryPolicy::default());
    }

    #[test]
    fn an_alias_of_a_scheme_has_the_same_settings() {
        let attempts = |text: &str| {
            let url = Url::parse(text).expect("a URL");
            RemoteSettings::of(&url).expect("right").retry.attempts
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
        assert_eq!(attempts("az://files/x"), 10, "another bucket");
        configure("abfs://", &[]).expect("taken back");
    }

    #[test]
    fn an_invalid_setting_is_rejected_with_the_valid_values() {
        for (key, value) in [
            ("attempts", "0"),
            ("idle_s", "soon"),
            ("deadline_s", "-1"),
            ("hedge", "perhaps"),
            ("list_objects", "0"),
            ("list_objects", "many"),
            ("list_s", "0"),
        ] {
            let error = configure("s3://x", &[(key, value)]).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
        }
        configure("bucket", &[]).expect_err("no URL");
    }
}
