//! The client of one bucket or server.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, resolve_bucket_region};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, RetryConfig};

use super::each_process::EachProcess;
use super::pace::Pace;
use super::process::Process;
use super::profile::Profile;
use super::settings::{Patience, Settings};
use super::url::{Service, Url};
use crate::error::Error;
use crate::random::mix;

/// Longest time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// The clients of a process, by bucket and settings.
static KNOWN: EachProcess<Mutex<HashMap<String, Arc<Bucket>>>> = EachProcess::new();

/// A bucket or server, and how it is reached.
pub(crate) struct Bucket {
    /// As URLs begin: `s3://bucket`.
    pub(super) base: String,
    /// From `?` on, of a web server.
    query: String,
    pub(super) service: Service,
    /// Where it really lies: the same name may be another bucket elsewhere.
    pub(super) realm: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
    /// Whether it was found to know no puts that depend on what is there.
    pub(super) unconditional: AtomicBool,
    pub(super) patience: Patience,
    pub(super) pace: Pace,
    /// What a user whose credentials were refused should know.
    pub(super) hint: Option<&'static str>,
    process: u32,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor queries: both may be secret.
        f.debug_struct("Bucket")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// A client as it is built: for objects, and for lists and objects in parts where the service has
/// them.
struct Client {
    store: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    parts: Option<Arc<dyn MultipartStore>>,
}

impl Bucket {
    /// The bucket of a URL, with the settings of now; made once for the same settings.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for settings that are none, or that the client refuses.
    pub(super) fn of(url: &Url) -> Result<Arc<Bucket>, Error> {
        let open = || -> io::Result<Arc<Bucket>> {
            let settings = Settings::of(url)?;
            let key = format!("{}{} {settings:?}", url.base, url.query);
            let known = || {
                let known = KNOWN.here(Mutex::default);
                known.lock().unwrap_or_else(PoisonError::into_inner)
            };
            let found = known().get(&key).cloned();
            if let Some(bucket) = found {
                return Ok(bucket);
            }
            // Made outside the lock: it may ask a server where the bucket lies.
            let made = Arc::new(Bucket::new(url, settings, Process::here())?);
            Ok(Arc::clone(known().entry(key).or_insert(made)))
        };
        open().map_err(|error| Error::open(&url.base, error))
    }

    fn new(url: &Url, settings: Settings, process: &Process) -> io::Result<Bucket> {
        let patience = settings.patience;
        let mut hint = None;
        let built = match url.service {
            Service::S3 => s3(url, settings, process, &mut hint)?,
            Service::Google => google(url, &settings)?,
            Service::Azure => azure(url, &settings)?,
            Service::Http => http(url, &settings)?,
        };
        let (client, realm) = built;
        Ok(Bucket {
            base: url.base.clone(),
            query: url.query.clone(),
            service: url.service,
            realm,
            store: client.store,
            pages: client.pages,
            parts: client.parts,
            unconditional: AtomicBool::new(false),
            patience,
            pace: Pace::default(),
            hint,
            process: process.id(),
        })
    }

    /// The URL of an object.
    pub(crate) fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.base)
    }

    /// A text in which the query of this server is not: it may hold a secret.
    pub(super) fn without_query(&self, text: String) -> String {
        match self.query.is_empty() {
            true => text,
            false => text.replace(&self.query, "?…"),
        }
    }

    /// The name under which its bytes may be kept: what differs where the bytes may.
    pub(super) fn identity(&self, key: &str) -> String {
        let secret = self
            .query
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        match self.query.is_empty() {
            true => format!("{} {}", self.realm, self.url(key)),
            // Queries may hold secrets, which are not written down.
            false => format!("{} {} {secret:016x}", self.realm, self.url(key)),
        }
    }

    /// A key as the client takes it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for one that it does not take.
    pub(super) fn key(&self, key: &str) -> io::Result<Key> {
        let parsed = match self.service {
            Service::Http => Key::from_url_path(key),
            _ => Key::parse(key),
        };
        parsed.map_err(|error| {
            let problem = format!("{}: {error}", self.url(key));
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })
    }

    /// A key as URLs have it.
    pub(super) fn written(&self, meta: &ObjectMeta) -> String {
        match self.service {
            Service::Http => encoded(meta.location.as_ref()),
            _ => meta.location.to_string(),
        }
    }

    /// This process's threads, which must be those that the bucket was opened with.
    pub(super) fn process(&self) -> io::Result<&'static Process> {
        let process = Process::here();
        if process.id() != self.process {
            let problem = "it was opened before a fork and its connections are the parent's; open \
                           it in the child";
            return Err(io::Error::other(problem));
        }
        Ok(process)
    }
}

/// Options of all clients. Deadlines and repetitions are ours, see `fetch.rs`.
fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(true)
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_user_agent(user_agent())
}

fn user_agent() -> object_store::HeaderValue {
    object_store::HeaderValue::from_static(concat!("infeed/", env!("CARGO_PKG_VERSION")))
}

/// No repetitions below ours: they would multiply, and nobody would count them.
fn once() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: CONNECT,
    }
}

fn refused(error: object_store::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn unknown(key: &str) -> io::Error {
    let problem = format!("`{key}` is no option of this kind of store");
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn all<S: ObjectStore + PaginatedListStore + MultipartStore>(store: S) -> Client {
    let store = Arc::new(store);
    Client {
        store: Arc::clone(&store) as Arc<dyn ObjectStore>,
        pages: Some(Arc::clone(&store) as Arc<dyn PaginatedListStore>),
        parts: Some(store),
    }
}

fn s3(
    url: &Url,
    mut settings: Settings,
    process: &Process,
    hint: &mut Option<&'static str>,
) -> io::Result<(Client, String)> {
    const ENDPOINTS: [&str; 4] = [
        "aws_endpoint_url_s3",
        "aws_endpoint_url",
        "aws_endpoint",
        "endpoint",
    ];
    const REGIONS: [&str; 3] = ["aws_region", "aws_default_region", "region"];
    const KEYS: [&str; 4] = [
        "aws_access_key_id",
        "aws_web_identity_token_file",
        "aws_container_credentials_relative_uri",
        "aws_container_credentials_full_uri",
    ];
    let unsigned = settings.get(&["aws_skip_signature"]) == Some("true");
    let mut known = unsigned || settings.get(&KEYS).is_some();
    if let Some(profile) = Profile::read(|name| std::env::var(name).ok()) {
        if let Some(what) = profile.beyond.filter(|_| !known) {
            let problem = format!(
                "the profile's keys must be asked for ({what}), which is left to Amazon's tools; \
                 run `eval $(aws configure export-credentials --format env)` first"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        let mut options = profile.options;
        // What is said elsewhere is not mixed with what the profile says.
        let told = |names: &[&str]| settings.get(names).is_some();
        let (keys, region, endpoint) = (known, told(&REGIONS), told(&ENDPOINTS));
        options.retain(|(key, _)| match key.as_str() {
            "aws_region" => !region,
            "aws_endpoint_url" => !endpoint,
            _ => !keys,
        });
        known |= options.iter().any(|(key, _)| key == "aws_access_key_id");
        options.append(&mut settings.options);
        settings.options = options;
    }
    if !known {
        *hint = Some(
            "no keys are in the environment or ~/.aws, so the machine's own were asked for; a \
             public bucket is read with AWS_SKIP_SIGNATURE=true",
        );
    }
    let endpoint = settings.get(&ENDPOINTS).map(str::to_owned);
    let named = settings.get(&REGIONS).is_some();
    let mut builder = AmazonS3Builder::new();
    for (key, value) in &settings.options {
        // The environment holds much that is for other tools; all else was meant for us.
        match key.parse() {
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if std::env::var_os(key.to_ascii_uppercase()).is_some() => {}
            Err(_) => return Err(unknown(key)),
        }
    }
    if !named && endpoint.is_none() {
        let options = client_options();
        let asked = resolve_bucket_region(url.host(), &options);
        let unknown = |why: String| {
            let problem = format!("its region cannot be learned ({why}); name it as AWS_REGION");
            io::Error::new(io::ErrorKind::TimedOut, problem)
        };
        // A client is kept, so that a region must not be a guess.
        let region = process.wait(async {
            match tokio::time::timeout(CONNECT, asked).await {
                Ok(Ok(region)) => Ok(region),
                Ok(Err(error)) => Err(unknown(error.to_string())),
                Err(_) => Err(unknown(format!("no answer in {} s", CONNECT.as_secs()))),
            }
        })?;
        builder = builder.with_region(region);
    }
    let realm = endpoint.unwrap_or_else(|| "aws".to_owned());
    let store = builder
        .with_bucket_name(url.host())
        .with_client_options(client_options())
        .with_retry(once())
        .build()
        .map_err(refused)?;
    Ok((all(store), realm))
}

fn google(url: &Url, settings: &Settings) -> io::Result<(Client, String)> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (key, value) in &settings.options {
        match key.parse() {
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if std::env::var_os(key.to_ascii_uppercase()).is_some() => {}
            Err(_) => return Err(unknown(key)),
        }
    }
    let base = settings.get(&["google_base_url"]).unwrap_or("google");
    let store = builder
        .with_bucket_name(url.host())
        .with_client_options(client_options())
        .with_retry(once())
        .build()
        .map_err(refused)?;
    Ok((all(store), base.to_owned()))
}

fn azure(url: &Url, settings: &Settings) -> io::Result<(Client, String)> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in &settings.options {
        match key.parse() {
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if std::env::var_os(key.to_ascii_uppercase()).is_some() => {}
            Err(_) => return Err(unknown(key)),
        }
    }
    let names = ["azure_storage_account_name", "azure_storage_endpoint"];
    let account = settings.get(&names).unwrap_or("azure").to_owned();
    let store = builder
        .with_url(format!("{}/", url.base))
        .with_client_options(client_options())
        .with_retry(once())
        .build()
        .map_err(refused)?;
    Ok((all(store), account))
}

fn http(url: &Url, settings: &Settings) -> io::Result<(Client, String)> {
    let build = |mut options: ClientOptions| {
        for (key, value) in &settings.options {
            let key = key.parse().map_err(|_| unknown(key))?;
            options = options.with_config(key, value);
        }
        HttpBuilder::new()
            .with_url(format!("{}/{}", url.base, url.query))
            .with_client_options(options)
            .with_retry(once())
            .build()
            .map_err(refused)
    };
    let store = match build(client_options()) {
        // Without certificates of the system, what needs none can still be read.
        Err(_) if url.base.starts_with("http://") => {
            build(client_options().with_no_system_certificates(true))?
        }
        built => built?,
    };
    let client = Client {
        store: Arc::new(store),
        pages: None,
        parts: None,
    };
    Ok((client, "http".to_owned()))
}

/// A key with what URLs do not hold written as `%` and two digits.
pub(super) fn encoded(key: &str) -> String {
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
