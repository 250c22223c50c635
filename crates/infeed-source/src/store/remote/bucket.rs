//! Client of one bucket or server.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::{AmazonS3Builder, resolve_bucket_region};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectMeta, ObjectStore};

use super::answers::LimitedConnector;
use super::client_options::{CONNECT, client_options, once};
use super::each_process::EachProcess;
use super::hub::HubStore;
use super::pace::RequestTimes;
use super::process::NetworkThreads;
use super::profile::AwsProfile;
use super::settings::{RemoteSettings, RetryPolicy};
use super::url::{Service, Url, percent_encode};
use infeed_core::error::Error;
use infeed_core::random::mix;

/// Number of clients from which on those without a user are dropped. A process that reads from ever
/// new servers would otherwise keep a client for each.
const MOST_CLIENTS: usize = 16;

/// Clients of this process, by bucket and settings. They stay for a while without a user, so that the
/// next loader finds open connections.
static KNOWN: EachProcess<Mutex<HashMap<String, Arc<Bucket>>>> = EachProcess::new();

/// A bucket or server with its client.
pub struct Bucket {
    /// Beginning of its URLs: `s3://bucket`.
    pub(super) base: String,
    /// From `?` on, for a web server.
    query: String,
    pub(super) service: Service,
    /// Actual location: the same name may be another bucket elsewhere.
    pub(super) realm: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
    /// Whether the service turned out to have no conditional puts.
    pub(super) unconditional: AtomicBool,
    pub(super) retry: RetryPolicy,
    pub(super) pace: RequestTimes,
    /// Advice for a user whose credentials were rejected.
    pub(super) hint: Option<&'static str>,
    process: u32,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without keys and queries: both may be secret.
        f.debug_struct("Bucket")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// Clients of a service: for objects and, where the service supports them, for lists and multipart
/// uploads.
struct BucketClient {
    store: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    parts: Option<Arc<dyn MultipartStore>>,
}

impl Bucket {
    /// Returns the bucket of a URL with the current settings; buckets with the same settings share
    /// a client.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for settings that are invalid or that the client rejects.
    pub(super) fn of(url: &Url) -> Result<Arc<Bucket>, Error> {
        let open = || -> io::Result<Arc<Bucket>> {
            let settings = RemoteSettings::of(url)?;
            let key = format!("{}{} {settings:?}", url.base, url.query);
            let known = || {
                let known = KNOWN.here(Mutex::default);
                known.lock().unwrap_or_else(PoisonError::into_inner)
            };
            let found = known().get(&key).cloned();
            if let Some(bucket) = found {
                return Ok(bucket);
            }
            // Created outside the lock: it may ask a server for the region.
            let made = Arc::new(Bucket::new(url, settings, NetworkThreads::here())?);
            let mut known = known();
            if known.len() >= MOST_CLIENTS {
                known.retain(|_, bucket| Arc::strong_count(bucket) > 1);
            }
            Ok(Arc::clone(known.entry(key).or_insert(made)))
        };
        open().map_err(|error| Error::open(&url.base, error))
    }

    fn new(url: &Url, settings: RemoteSettings, process: &NetworkThreads) -> io::Result<Bucket> {
        let retry = settings.retry;
        let mut hint = None;
        let mut hub = None;
        let built = match url.service {
            Service::S3 => s3(url, settings, process, &mut hint)?,
            Service::Google => google(url, &settings)?,
            Service::Azure => azure(url, &settings)?,
            Service::Http => http(url, &settings)?,
            Service::Hub => {
                let store = Arc::new(HubStore::new(url, &settings)?);
                let client = BucketClient {
                    store: Arc::clone(&store) as Arc<dyn ObjectStore>,
                    pages: Some(Arc::clone(&store) as Arc<dyn PaginatedListStore>),
                    parts: None,
                };
                let realm = store.realm();
                hub = Some(store);
                (client, realm)
            }
        };
        let (client, realm) = built;
        let bucket = Bucket {
            base: url.base.clone(),
            query: url.query.clone(),
            service: url.service,
            realm,
            store: client.store,
            pages: client.pages,
            parts: client.parts,
            unconditional: AtomicBool::new(false),
            retry,
            pace: RequestTimes::default(),
            hint,
            process: process.id(),
        };
        if let Some(hub) = hub {
            // Every later request names the commit, so that an epoch cannot change.
            let revision = || "the commit of its revision".to_owned();
            process.wait(bucket.ask(revision, || hub.pin()))?;
        }
        Ok(bucket)
    }

    /// URL of an object.
    pub fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.base)
    }

    /// Removes the server's query from a text: it may hold a secret.
    pub(super) fn without_query(&self, text: String) -> String {
        match self.query.is_empty() {
            true => text,
            false => text.replace(&self.query, "?…"),
        }
    }

    /// Name of an object in the cache. It differs where the bytes may differ.
    pub(super) fn identity(&self, key: &str) -> String {
        if self.service == Service::Hub {
            // The realm names the dataset, whose revisions share contents.
            return format!("{} {key}", self.realm);
        }
        let secret = self
            .query
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        match self.query.is_empty() {
            true => format!("{} {}", self.realm, self.url(key)),
            // Queries may hold secrets, so only their hash is stored.
            false => format!("{} {} {secret:016x}", self.realm, self.url(key)),
        }
    }

    /// Converts a key to the client's type.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a key that the client does not accept.
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

    /// Key of an object as it appears in URLs.
    pub(super) fn url_key(&self, meta: &ObjectMeta) -> String {
        match self.service {
            Service::Http => percent_encode(meta.location.as_ref()),
            _ => meta.location.to_string(),
        }
    }

    /// Network threads of this process, which must be the one that opened the bucket.
    pub(super) fn process(&self) -> io::Result<&'static NetworkThreads> {
        let process = NetworkThreads::here();
        if process.id() != self.process {
            let problem = "it was opened before a fork, and its connections belong to the parent; open \
                           it in the child";
            return Err(io::Error::other(problem));
        }
        Ok(process)
    }
}

fn invalid_input(error: object_store::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn unknown(key: &str) -> io::Error {
    let problem = format!("`{key}` is not an option of this kind of store");
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn all<S: ObjectStore + PaginatedListStore + MultipartStore>(store: S) -> BucketClient {
    let store = Arc::new(store);
    BucketClient {
        store: Arc::clone(&store) as Arc<dyn ObjectStore>,
        pages: Some(Arc::clone(&store) as Arc<dyn PaginatedListStore>),
        parts: Some(store),
    }
}

fn s3(
    url: &Url,
    mut settings: RemoteSettings,
    process: &NetworkThreads,
    hint: &mut Option<&'static str>,
) -> io::Result<(BucketClient, String)> {
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
    if let Some(profile) = AwsProfile::read(|name| std::env::var(name).ok()) {
        if let Some(what) = profile.beyond.filter(|_| !known) {
            let problem = format!(
                "the profile requests its keys ({what}), which infeed does not support; run `eval \
                 $(aws configure export-credentials --format env)` first"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        let mut options = profile.options;
        // Keys from elsewhere are not mixed with those of the profile.
        let is_set = |names: &[&str]| settings.get(names).is_some();
        let (keys, region, endpoint) = (known, is_set(&REGIONS), is_set(&ENDPOINTS));
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
            "the environment and ~/.aws hold no keys, so the machine's own were requested; a \
             public bucket is read with AWS_SKIP_SIGNATURE=true",
        );
    }
    let endpoint = settings.get(&ENDPOINTS).map(str::to_owned);
    let named = settings.get(&REGIONS).is_some();
    let mut builder = AmazonS3Builder::new();
    for (key, value) in &settings.options {
        // The environment holds much that other tools use; all other options are meant for infeed.
        match key.parse() {
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if std::env::var_os(key.to_ascii_uppercase()).is_some() => {}
            Err(_) => return Err(unknown(key)),
        }
    }
    if !named && endpoint.is_none() {
        let options = client_options();
        let lookup = resolve_bucket_region(url.host(), &options);
        let unknown = |why: String| {
            let problem = format!("its region is unknown ({why}); set AWS_REGION");
            io::Error::new(io::ErrorKind::TimedOut, problem)
        };
        // The client is kept, so the region must be known and not guessed.
        let region = process.wait(async {
            match tokio::time::timeout(CONNECT, lookup).await {
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
        .with_http_connector(LimitedConnector::default())
        .with_retry(once())
        .build()
        .map_err(invalid_input)?;
    Ok((all(store), realm))
}

fn google(url: &Url, settings: &RemoteSettings) -> io::Result<(BucketClient, String)> {
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
        .with_http_connector(LimitedConnector::default())
        .with_retry(once())
        .build()
        .map_err(invalid_input)?;
    Ok((all(store), base.to_owned()))
}

fn azure(url: &Url, settings: &RemoteSettings) -> io::Result<(BucketClient, String)> {
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
        .with_http_connector(LimitedConnector::default())
        .with_retry(once())
        .build()
        .map_err(invalid_input)?;
    Ok((all(store), account))
}

fn http(url: &Url, settings: &RemoteSettings) -> io::Result<(BucketClient, String)> {
    let build = |mut options: ClientOptions| {
        for (key, value) in &settings.options {
            let key = key.parse().map_err(|_| unknown(key))?;
            options = options.with_config(key, value);
        }
        HttpBuilder::new()
            .with_url(format!("{}/{}", url.base, url.query))
            .with_client_options(options)
            .with_http_connector(LimitedConnector {
                reads_whole_objects: true,
            })
            .with_retry(once())
            .build()
            .map_err(invalid_input)
    };
    let store = match build(client_options()) {
        // Plain HTTP works without the certificates of the system.
        Err(_) if url.base.starts_with("http://") => {
            build(client_options().with_no_system_certificates(true))?
        }
        built => built?,
    };
    let client = BucketClient {
        store: Arc::new(store),
        pages: None,
        parts: None,
    };
    Ok((client, "http".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_a_user_are_dropped_when_there_are_many() {
        let client = |port| {
            let url = Url::parse(&format!("http://127.0.0.1:{port}/data")).expect("a URL");
            Bucket::of(&url).expect("a client")
        };
        let used = client(1);

        (2..100).for_each(|port| drop(client(port)));

        assert!(Arc::ptr_eq(&client(1), &used));
        let known = KNOWN.here(Mutex::default);
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = known
            .values()
            .filter(|bucket| Arc::strong_count(bucket) == 1);
        assert!(unused.count() <= MOST_CLIENTS);
    }
}
