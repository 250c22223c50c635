//! Cache of decoded records: one copy for all processes of a user on a machine.
//!
//! A worker that decodes a record writes the pixels up to the first random transform into an
//! arena, until the arena is full. Later reads of the record, by any process, come from there.
//! Entries are never removed: every epoch uses every record once, so a cache that replaced entries
//! by recency would drop each one just before its next use.
//!
//! Processes find each other's arenas by identity: everything that decides the bytes of an entry,
//! including the description of the source, labels, and path, size and modification time of its
//! files. Without local files, only this loader uses the arena.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::register::{ProcessRegister, RegisterEntry};
use crate::pipeline::SourceSpec;
use crate::plan::Plan;
use crate::plan::prepared::{self, NotPreparable};
use infeed_core::error::Error;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Record;
use infeed_raw::arena::SharedArena;
use infeed_raw::machine::available_memory_bytes;
use infeed_source::Source;

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

/// Counters of a cache for decoded records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedCacheStats {
    /// Samples that this loader made of cached records.
    pub hits: u64,
    /// Samples for which this loader decoded the record.
    pub misses: u64,
    /// Records in the cache, of all processes that share it.
    pub records: u64,
    /// Bytes in use, of all processes that share it.
    pub used_bytes: u64,
    /// Most bytes.
    pub limit_bytes: u64,
    /// Whether a record did not fit.
    pub is_full: bool,
}

/// The cache of a loader. Its records stay in memory while a loader or a holder has it.
#[derive(Debug)]
pub struct DecodedCache {
    arena: Arc<SharedArena>,
    /// Makes the arena visible to other processes.
    entry: Option<RegisterEntry>,
    hits: AtomicU64,
    misses: AtomicU64,
    is_full: AtomicBool,
}

impl DecodedCache {
    /// Opens the cache for a plan over its source: another process's, if it has the same records.
    /// `None` if [`CacheLimit::Auto`] finds nothing to cache.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if nothing can be cached, or no memory can be mapped.
    pub(super) fn open(
        plan: &Plan,
        (spec, source): (&SourceSpec, &dyn Source),
        limit: CacheLimit,
    ) -> Result<Option<DecodedCache>, Error> {
        let problem = match plan.preparable() {
            Ok(_) if source.python().is_some() => {
                "the records come from Python, where each read may give other data; pack them, or \
                 leave `cache` out"
            }
            Ok(plan) => {
                let identity = identity(plan, spec, source);
                return Self::find(identity, source.len(), limit).map(Some);
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
        match limit {
            CacheLimit::Bytes(_) => Err(Error::config("cache", problem)),
            CacheLimit::Auto => {
                tracing::info!(target: "infeed::loader", "no cache: {problem}");
                Ok(None)
            }
        }
    }

    /// Opens the arena with this identity, or creates one. Without an identity, no other loader can
    /// have the same records.
    fn find(identity: Option<u64>, records: u64, limit: CacheLimit) -> Result<DecodedCache, Error> {
        let register = ProcessRegister::of("cache").filter(|_| identity.is_some());
        let identity = identity.unwrap_or_default();
        let _turn = register.as_ref().and_then(ProcessRegister::turn);
        let arena = match register
            .as_ref()
            .and_then(|at| other(at, identity, records))
        {
            Some(arena) => arena,
            None => {
                let bytes = match limit {
                    CacheLimit::Bytes(bytes) => bytes,
                    CacheLimit::Auto => available_memory_bytes() / AUTO_PART,
                };
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
            arena.published(),
            arena.limit_bytes() >> 20,
        );
        Ok(DecodedCache {
            arena: Arc::new(arena),
            entry,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    /// Whether a record is cached. It stays cached until the loader closes.
    pub(super) fn contains(&self, record: u64) -> bool {
        self.arena.contains(record)
    }

    /// Returns a cached record.
    pub(super) fn get(&self, record: u64) -> Option<Record> {
        prepared::read(record, &Bytes::from_owner(self.arena.get(record)?))
    }

    /// Counts a sample that is made of a cached record or not.
    pub(super) fn count(&self, is_cached: bool) {
        let counter = if is_cached { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a record is missing and may still fit.
    pub(super) fn accepts(&self, record: u64) -> bool {
        !self.is_full.load(Ordering::Relaxed) && !self.contains(record)
    }

    /// Whether a record with this number of bytes fits. If not, no further record is added.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let has_room = self.arena.has_room(bytes);
        if !has_room {
            self.is_full.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Adds a prepared record, unless another worker did.
    pub(super) fn add(&self, record: u64, bytes: &[u8]) {
        self.arena.store(record, bytes);
    }

    /// Whether other loaders of the same records find this cache.
    pub fn is_shared(&self) -> bool {
        self.entry.is_some()
    }

    /// Returns the counters.
    pub fn stats(&self) -> DecodedCacheStats {
        DecodedCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            records: self.arena.published(),
            used_bytes: self.arena.used_bytes(),
            limit_bytes: self.arena.limit_bytes(),
            is_full: self.is_full.load(Ordering::Relaxed),
        }
    }
}

/// Returns the hash of everything that decides the bytes of entries. `None` for records that are not
/// in local files: nothing shows whether another process has the same.
fn identity(plan: u64, spec: &SourceSpec, source: &dyn Source) -> Option<u64> {
    let description = hash_bytes(format!("{spec:?}").as_bytes());
    let mut parts = vec![plan, description, source.fingerprint()];
    let mut last: Vec<PathBuf> = Vec::new();
    for record in 0..source.len() {
        let files = source.local_files(record);
        if files.is_empty() {
            return None;
        }
        if files != last {
            let of_record = files.iter().map(|path| version(path));
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
/// which the read reports.
fn version(path: &Path) -> u64 {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let name = hash_bytes(absolute.as_os_str().as_encoded_bytes());
    let Ok(found) = fs::metadata(path) else {
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
        let file = File::options().read(true).write(true).open(path).ok()?;
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
