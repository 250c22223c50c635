//! Cache of decoded records: one copy for all processes of a user on a machine.
//!
//! A worker that decodes a record writes the pixels up to the first random transform into an
//! arena, until the arena is full. Later reads of the record, by any process, come from there.
//! Entries are never removed: every epoch uses every record once, so a cache that replaced entries
//! by recency would drop each one just before its next use.
//!
//! Processes find each other's arenas by identity: everything that decides the bytes of an entry,
//! including the description of the source, labels, and path (without links), size and modification
//! time of its files. Without local files, only this loader uses the arena.
//!
//! A folder on a disk may keep the same bytes for later runs. Its records move to memory when they
//! are read, while there is room.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::register::{ProcessRegister, RegisterEntry};
use crate::fields::pixels::prepared_record;
use crate::pipeline::SourceSpec;
use crate::plan::SamplePlan;
use crate::plan::kept_content::NotPreparable;
use infeed_core::error::Error;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Record;
use infeed_raw::arena::SharedArena;
use infeed_raw::machine::available_memory_bytes;
use infeed_source::Source;
use infeed_source::store::{FoundPiece, RecordPieces, held_bytes};

/// Divisor of the free memory that gives the limit of [`CacheLimit::Auto`].
const AUTO_PART: u64 = 2;

/// Most memory of a cache for decoded records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheLimit {
    /// Half of the memory that this process may still use. No cache where it would not help.
    Auto,
    /// A number of bytes.
    Bytes(u64),
}

/// Options of a cache for decoded records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOptions {
    /// Most memory. None: records are kept on the disk only.
    pub memory: Option<CacheLimit>,
    /// Folder that keeps records for later runs.
    pub disk: Option<DiskCacheOptions>,
}

/// Folder of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCacheOptions {
    /// The folder, which is created if it is missing. Datasets and processes may share it, also with
    /// the cache of data from buckets and web servers.
    pub folder: PathBuf,
    /// Most bytes of everything in the folder.
    pub limit_bytes: u64,
}

impl From<CacheLimit> for CacheOptions {
    fn from(limit: CacheLimit) -> CacheOptions {
        CacheOptions {
            memory: Some(limit),
            disk: None,
        }
    }
}

/// Counters of a cache for decoded records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedCacheStats {
    /// Samples that this loader made of cached records.
    pub hits: u64,
    /// Samples for which this loader decoded the record.
    pub misses: u64,
    /// Records in the cache, of all processes that share it.
    pub records: u64,
    /// Bytes of memory in use, of all processes that share it.
    pub used_bytes: u64,
    /// Most bytes of memory; 0 without memory.
    pub limit_bytes: u64,
    /// Whether a record did not fit.
    pub is_full: bool,
    /// Counters of the folder, if the cache has one.
    pub disk: Option<DiskCacheStats>,
}

/// Counters of this loader's use of a folder with decoded records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheStats {
    /// Records read from the folder. They count as hits.
    pub hits: u64,
    /// Records whose file was damaged. They were decoded again.
    pub damaged: u64,
    /// Most bytes of everything in the folder.
    pub limit_bytes: u64,
    /// Whether a record did not fit, or could not be written.
    pub is_full: bool,
}

/// The cache of a loader. Its records stay in memory while a loader or a holder has it.
#[derive(Debug)]
pub struct DecodedCache {
    arena: Arc<SharedArena>,
    /// Makes the arena visible to other processes.
    entry: Option<RegisterEntry>,
    /// Whether records may be kept in memory.
    has_memory: bool,
    disk: Option<RecordPieces>,
    hits: AtomicU64,
    misses: AtomicU64,
    disk_hits: AtomicU64,
    /// Whether a record did not fit in memory.
    is_full: AtomicBool,
}

/// A record that is in the folder of a cache, not yet read.
pub(super) struct RecordOnDisk<'a> {
    cache: &'a DecodedCache,
    record: u64,
    found: FoundPiece<'a>,
}

impl DecodedCache {
    /// Opens the cache for a plan over its source: another process's, if it has the same records.
    /// `None` if [`CacheLimit::Auto`] finds nothing to cache.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if nothing can be cached, or no memory can be mapped.
    pub(super) fn open(
        plan: &SamplePlan,
        (spec, source): (&SourceSpec, &dyn Source),
        options: &CacheOptions,
    ) -> Result<Option<DecodedCache>, Error> {
        let is_python = source.python().is_some();
        let problem = match plan.preparable(is_python) {
            Ok(_) if is_python && source.version().is_none() => {
                "the records come from Python, where each read may give other data; if yours gives \
                 the same, use Items(..., deterministic=True, version=1); otherwise pack them, or \
                 leave `cache` out"
            }
            Ok(content) => {
                let identity = match (&content.only_here, &options.disk) {
                    (None, _) => identity(content.identity, spec, source),
                    (Some(_), None) => None,
                    (Some(name), Some(_)) => {
                        let problem = format!(
                            "only this process has the function {name}, so a later run cannot know \
                             its results; define it in a module, under its name, or leave `disk` \
                             out"
                        );
                        return Err(Error::config("cache", problem));
                    }
                };
                let disk = match (&options.disk, identity) {
                    (None, _) => None,
                    (Some(disk), Some(identity)) => {
                        let folder = &disk.folder;
                        let limit = disk.limit_bytes;
                        Some(RecordPieces::open(folder, limit, identity, &label(source))?)
                    }
                    (Some(_), None) => {
                        return Err(Error::config(
                            "cache",
                            "the records are not in local files, so a later run cannot know \
                             whether they changed; leave `disk` out, or keep the files with \
                             infeed.cache",
                        ));
                    }
                };
                let memory = options.memory.unwrap_or(CacheLimit::Bytes(0));
                let cache = Self::find(identity, source.len(), memory)?;
                return Ok(Some(DecodedCache { disk, ..cache }));
            }
            Err(NotPreparable::NothingToDo) => {
                "the source stores pixels, which need no decoding; leave `cache` out"
            }
            Err(NotPreparable::DeviceDecodes) => {
                "the device decodes the files; leave `cache` or `decode=\"gpu\"` out"
            }
            Err(NotPreparable::DctScale) => {
                "with `dct_scale`, decoded pixels depend on the random crop; leave one of them out"
            }
        };
        if options.memory == Some(CacheLimit::Auto) {
            tracing::info!(target: "infeed::loader", "no cache: {problem}");
            return Ok(None);
        }
        Err(Error::config("cache", problem))
    }

    /// Opens the arena with this identity, or creates one. Without an identity, no other loader can
    /// have the same records.
    fn find(identity: Option<u64>, records: u64, limit: CacheLimit) -> Result<DecodedCache, Error> {
        // Others would share the limit of an arena without room.
        let is_shared = identity.is_some() && limit != CacheLimit::Bytes(0);
        let register = ProcessRegister::of("cache").filter(|_| is_shared);
        let identity = identity.unwrap_or_default();
        let _turn = register.as_ref().and_then(ProcessRegister::turn);
        let arena = match register
            .as_ref()
            .and_then(|at| other(at, identity, records))
        {
            Some(arena) => arena,
            None => {
                let available = available_memory_bytes();
                let bytes = match limit {
                    CacheLimit::Bytes(bytes) => bytes,
                    CacheLimit::Auto => available / AUTO_PART,
                };
                if bytes > available {
                    tracing::warn!(
                        target: "infeed::loader",
                        "the cache of decoded records may take {} MiB, but only {} MiB of memory \
                         are available; the system may end the process before the cache is full; \
                         lower the limit, or set \"auto\" for half of the available memory",
                        bytes >> 20,
                        available >> 20,
                    );
                }
                SharedArena::create(identity, records, bytes).map_err(|error| {
                    let problem = format!("cannot map {bytes} bytes: {error}; use a smaller limit");
                    Error::config("cache", problem)
                })?
            }
        };
        let entry = register.and_then(|register| register.enter(&entry_text(&arena, identity)?));
        tracing::info!(
            target: "infeed::loader",
            "cache of decoded records: {} of {records} records, at most {} MiB",
            arena.published_entries(),
            arena.limit_bytes() >> 20,
        );
        Ok(DecodedCache {
            arena: Arc::new(arena),
            entry,
            has_memory: limit != CacheLimit::Bytes(0),
            disk: None,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    /// Whether a record is in memory. It stays there until the loader closes.
    pub(super) fn contains(&self, record: u64) -> bool {
        self.arena.contains(record)
    }

    /// Whether a record is in the folder.
    pub(super) fn is_on_disk(&self, record: u64) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.contains(record))
    }

    /// Opens a record in the folder. `None` if it is missing or damaged.
    pub(super) fn on_disk(&self, record: u64) -> Option<RecordOnDisk<'_>> {
        Some(RecordOnDisk {
            cache: self,
            record,
            found: self.disk.as_ref()?.find(record)?,
        })
    }

    /// Returns a record that is in memory.
    pub(super) fn get(&self, record: u64) -> Option<Record> {
        prepared_record::read(record, &Bytes::from_owner(self.arena.get(record)?))
    }

    /// Counts a sample that is made of a cached record or not.
    pub(super) fn count(&self, is_cached: bool) {
        let counter = if is_cached { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a record is missing and may still fit.
    pub(super) fn accepts(&self, record: u64) -> bool {
        let in_memory = !self.is_full.load(Ordering::Relaxed) && !self.contains(record);
        in_memory || self.disk_accepts(record)
    }

    fn disk_accepts(&self, record: u64) -> bool {
        let disk = self.disk.as_ref();
        disk.is_some_and(|disk| !disk.is_full() && !disk.contains(record))
    }

    /// Whether a record with this number of bytes fits. If it does not fit in memory, no further
    /// record is added there.
    pub(super) fn has_room(&self, record: u64, bytes: u64) -> bool {
        self.memory_has_room(bytes) || self.disk_accepts(record)
    }

    fn memory_has_room(&self, bytes: u64) -> bool {
        let has_room = self.arena.has_room(bytes);
        if !has_room {
            self.is_full.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Adds a prepared record to memory and folder, unless another worker did.
    pub(super) fn add(&self, record: u64, bytes: &[u8]) {
        if let Some(disk) = &self.disk
            && !disk.contains(record)
        {
            disk.add(record, bytes);
        }
        if self.memory_has_room(bytes.len() as u64) {
            self.arena.store(record, bytes);
        }
    }

    /// Whether other loaders of the same records find this cache.
    pub fn is_shared(&self) -> bool {
        self.entry.is_some()
    }

    /// Returns the counters.
    pub fn stats(&self) -> DecodedCacheStats {
        let in_memory = |bytes| if self.has_memory { bytes } else { 0 };
        DecodedCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            records: self.arena.published_entries(),
            used_bytes: in_memory(self.arena.used_bytes()),
            limit_bytes: in_memory(self.arena.limit_bytes()),
            is_full: self.is_full.load(Ordering::Relaxed),
            disk: self.disk.as_ref().map(|disk| DiskCacheStats {
                hits: self.disk_hits.load(Ordering::Relaxed),
                damaged: disk.damaged_records(),
                limit_bytes: disk.limit_bytes(),
                is_full: disk.is_full(),
            }),
        }
    }
}

impl RecordOnDisk<'_> {
    /// Bytes of memory that reading the record takes.
    pub(super) fn bytes(&self) -> u64 {
        held_bytes(self.found.length())
    }

    /// Reads the record, and adds it to memory if there is room. `None` if it is damaged.
    pub(super) fn read(self) -> Option<Record> {
        let bytes = self.found.read()?;
        let cache = self.cache;
        if !cache.is_full.load(Ordering::Relaxed) && cache.memory_has_room(bytes.len() as u64) {
            cache.arena.store(self.record, &bytes);
        }
        let record = prepared_record::read(self.record, &bytes)?;
        cache.disk_hits.fetch_add(1, Ordering::Relaxed);
        Some(record)
    }
}

/// Folder that holds the first and the last record, which names the dataset in listings.
fn label(source: &dyn Source) -> String {
    let file = |record| source.local_files(record).into_iter().next();
    let first = file(0).unwrap_or_default();
    let last = file(source.len().saturating_sub(1)).unwrap_or_default();
    let shared = first.components().zip(last.components());
    let shared = shared
        .take_while(|(one, other)| one == other)
        .map(|(one, _)| one);
    let shared: PathBuf = shared.collect();
    let shared = std::path::absolute(&shared).unwrap_or(shared);
    shared.display().to_string()
}

/// Returns the hash of everything that decides the bytes of entries. `None` for records that are not
/// in local files: nothing shows whether another process has the same.
fn identity(plan: u64, spec: &SourceSpec, source: &dyn Source) -> Option<u64> {
    let description = hash_bytes(format!("{spec:?}").as_bytes());
    let declared = source.version();
    let mut parts = vec![plan, description, source.fingerprint()];
    parts.extend(declared);
    let mut last: Vec<PathBuf> = Vec::new();
    let mut folder = None;
    for record in 0..source.len() {
        let files = source.local_files(record);
        if files.is_empty() {
            declared?;
            // The user states the version of all records; a selection has some of them.
            let number = source.selection().map(|chosen| chosen.number(record));
            parts.push(number.unwrap_or(record));
        } else if files != last {
            let of_record = files.iter().map(|path| version(path, &mut folder));
            let versions = hash(&of_record.collect::<Vec<u64>>());
            parts.push(hash(&[record, versions]));
            last = files;
        }
        // Labels may come from a list, which is no file of the record.
        if let Some(label) = source.label(record) {
            parts.push(hash(&[record, label as u64]));
        }
        // Keeps the list short.
        if parts.len() >= 1024 {
            parts = vec![hash(&parts)];
        }
    }
    Some(hash(&parts))
}

/// Hash of path, size and modification time of a file; of the path if the file cannot be found,
/// which the read reports. The path has no links, because a link can be changed. `folder` holds the
/// folder of the last file, and the same without links.
fn version(path: &Path, folder: &mut Option<(PathBuf, PathBuf)>) -> u64 {
    let parent = path.parent().unwrap_or(path);
    // Most files have the folder of the last one, and to resolve it takes longer than the rest.
    let known = folder.take().filter(|(of, _)| of == parent);
    let (_, inside) = folder.insert(known.unwrap_or_else(|| (parent.to_owned(), real(parent))));
    let found = fs::symlink_metadata(path);
    let is_link = found.as_ref().is_ok_and(|found| found.is_symlink());
    let (place, found) = match (is_link, path.file_name()) {
        (false, Some(name)) => (inside.join(name), found),
        _ => (real(path), fs::metadata(path)),
    };
    let name = hash_bytes(place.as_os_str().as_encoded_bytes());
    let Ok(found) = found else {
        return name;
    };
    let modified = found.modified().ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let since = since.unwrap_or_default();
    hash(&[
        name,
        found.len(),
        since.as_secs(),
        since.subsec_nanos().into(),
    ])
}

/// Returns the absolute path of a file or folder without links.
fn real(path: &Path) -> PathBuf {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Opens the arena of a loader of this user that has the same records.
#[cfg(target_os = "linux")]
fn other(register: &ProcessRegister, identity: u64, records: u64) -> Option<SharedArena> {
    let texts = register.others(|_| false);
    texts.iter().find_map(|text| {
        let mut words = text.split(' ');
        let found = u64::from_str_radix(words.next()?, 16).ok()?;
        let process: u32 = words.next()?.parse().ok()?;
        let descriptor: u32 = words.next()?.parse().ok()?;
        if found != identity {
            return None;
        }
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = fs::File::options().read(true).write(true).open(path).ok()?;
        SharedArena::attach(file, identity, records).ok()
    })
}

#[cfg(not(target_os = "linux"))]
fn other(_register: &ProcessRegister, _identity: u64, _records: u64) -> Option<SharedArena> {
    None
}

/// Text with which [`other`] finds an arena.
#[cfg(target_os = "linux")]
fn entry_text(arena: &SharedArena, identity: u64) -> Option<String> {
    use std::os::fd::AsRawFd;
    let descriptor = arena.file().as_raw_fd();
    Some(format!(
        "{identity:016x} {} {descriptor}",
        std::process::id()
    ))
}

#[cfg(not(target_os = "linux"))]
fn entry_text(_arena: &SharedArena, _identity: u64) -> Option<String> {
    None
}
