//! Limits of a list.
//!
//! A server may send pages without an end. Repeated pages are an error at once. Pages with new
//! objects could be those of a large bucket, so their number, their memory and the time have limits.

use std::collections::HashSet;
use std::io;
use std::mem::size_of;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use object_store::list::PaginatedListResult;
use object_store::{ListResult, ObjectMeta};
use tokio::time::Instant;

use super::settings::RetryPolicy;
use crate::store::ListedObject;
use infeed_core::random::hash_bytes;
use infeed_raw::machine::available_memory_bytes;

/// Divisor of the available memory that gives the limit of a list.
const MEMORY_PART: u64 = 2;

/// Maximum number of pages in sequence without an object. Some services send such pages for removed
/// objects.
const EMPTY_PAGES: u32 = 10_000;

/// Bytes of memory of an object without its texts: as the client returns it, and as it is kept.
const OBJECT_BYTES: u64 = (size_of::<ObjectMeta>() + size_of::<ListedObject>()) as u64;

/// Bytes of memory of a page without its objects: two hashes in tables that are half full.
const PAGE_BYTES: u64 = 64;

/// Time until the first message about a long list. Each further one doubles it.
const FIRST_NOTE: Duration = Duration::from_secs(60);

/// Limits of a list, and what its parts have found so far.
pub(super) struct ListLimits {
    /// URL of the listed folder.
    url: String,
    objects: u64,
    bytes: u64,
    time: Duration,
    begun: Instant,
    found: Mutex<FoundObjects>,
}

#[derive(Debug, Default)]
struct FoundObjects {
    objects: u64,
    bytes: u64,
    /// Time of the next message.
    note: Duration,
}

/// Pages of one part of a list.
#[derive(Debug, Default)]
pub(super) struct SeenPages {
    /// Hashes of the tokens of pages.
    tokens: HashSet<u64>,
    /// Hashes of the first keys of pages.
    keys: HashSet<u64>,
    /// Pages without an object since the last one with an object.
    empty: u32,
}

impl ListLimits {
    /// Begins a list.
    pub(super) fn new(url: String, policy: &RetryPolicy) -> ListLimits {
        ListLimits {
            url,
            objects: policy.list_objects,
            bytes: available_memory_bytes() / MEMORY_PART,
            time: policy.list_time,
            begun: Instant::now(),
            found: Mutex::new(FoundObjects {
                note: FIRST_NOTE,
                ..FoundObjects::default()
            }),
        }
    }

    /// Name of the list in messages.
    pub(super) fn name(&self) -> String {
        format!("the list of {}", self.url)
    }

    /// Counts a page.
    ///
    /// # Errors
    ///
    /// The page repeats an earlier one of its part, or the list exceeds a limit.
    pub(super) fn add(&self, page: &PaginatedListResult, seen: &mut SeenPages) -> io::Result<()> {
        let PaginatedListResult { result, page_token } = page;
        // Some services send a folder twice, at the end of a page and at the start of the next one.
        let first = result.objects.first().map(|object| &object.location);
        let is_empty = first.is_none() && result.common_prefixes.is_empty();
        let is_new =
            |hashes: &mut HashSet<u64>, text: &str| hashes.insert(hash_bytes(text.as_bytes()));
        seen.empty = if is_empty { seen.empty + 1 } else { 0 };
        let problem = if !first.is_none_or(|key| is_new(&mut seen.keys, key.as_ref())) {
            Some("the server sent the same objects again".to_owned())
        } else if !(page_token.as_ref()).is_none_or(|token| is_new(&mut seen.tokens, token)) {
            Some("the server named the same page again".to_owned())
        } else if seen.empty > EMPTY_PAGES {
            Some(format!(
                "the server sent {EMPTY_PAGES} pages without an object"
            ))
        } else {
            None
        };
        if let Some(problem) = problem {
            let found = self.objects().objects;
            let problem = format!(
                "{} does not end: {problem}, after {found} objects",
                self.name()
            );
            return Err(io::Error::other(problem));
        }
        self.count(result)
    }

    /// Counts objects that are not in pages.
    ///
    /// # Errors
    ///
    /// The list exceeds a limit.
    pub(super) fn count(&self, listed: &ListResult) -> io::Result<()> {
        let objects = listed.objects.len() + listed.common_prefixes.len();
        let texts = listed.objects.iter().map(|object| {
            let tags = [&object.e_tag, &object.version];
            let tags = tags.map(|tag| tag.as_ref().map_or(0, String::capacity));
            2 * object.location.as_ref().len() + tags.iter().sum::<usize>()
        });
        let folders = listed.common_prefixes.iter();
        let folders = folders.map(|folder| 2 * folder.as_ref().len());
        let texts: usize = texts.chain(folders).sum();
        let mut found = self.objects();
        found.objects += objects as u64;
        found.bytes += objects as u64 * OBJECT_BYTES + texts as u64 + PAGE_BYTES;
        let (objects, elapsed) = (found.objects, self.begun.elapsed());
        let fewer = "name a folder with fewer objects";
        let problem = if objects > self.objects {
            format!(
                "has more than {} objects; {fewer}, or set a higher limit in \
                 INFEED_REMOTE_LIST_OBJECTS",
                self.objects
            )
        } else if found.bytes > self.bytes {
            format!(
                "needs more than half of the available memory: {} MiB after {objects} objects; \
                 {fewer}",
                self.bytes >> 20
            )
        } else if elapsed > self.time {
            format!(
                "has not ended after {} s, with {objects} objects so far; {fewer}, or set a longer \
                 time in INFEED_REMOTE_LIST_S",
                self.time.as_secs_f64()
            )
        } else {
            if elapsed >= found.note {
                found.note = elapsed * 2;
                tracing::warn!(
                    "{} has not ended after {:.0} s, with {objects} objects so far; {fewer} to \
                     list less",
                    self.name(),
                    elapsed.as_secs_f64()
                );
            }
            return Ok(());
        };
        Err(io::Error::other(format!("{} {problem}", self.name())))
    }

    fn objects(&self) -> std::sync::MutexGuard<'_, FoundObjects> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::path::Path as Key;

    fn page(keys: &[String], token: Option<&str>) -> PaginatedListResult {
        let object = |key: &String| ObjectMeta {
            location: Key::from(key.as_str()),
            last_modified: Default::default(),
            size: 1,
            e_tag: Some("tag".to_owned()),
            version: None,
        };
        PaginatedListResult {
            result: ListResult {
                objects: keys.iter().map(object).collect(),
                common_prefixes: Vec::new(),
                extensions: Default::default(),
            },
            page_token: token.map(str::to_owned),
        }
    }

    fn keys(page: usize) -> Vec<String> {
        (0..10).map(|n| format!("d/{page}_{n}")).collect()
    }

    fn limits(policy: &RetryPolicy) -> ListLimits {
        ListLimits::new("s3://b/d/".to_owned(), policy)
    }

    /// Number of pages that are accepted, and the error of the next one.
    fn pages(limits: &ListLimits, make: impl Fn(usize) -> PaginatedListResult) -> (usize, String) {
        let mut seen = SeenPages::default();
        for number in 0.. {
            if let Err(error) = limits.add(&make(number), &mut seen) {
                return (number, error.to_string());
            }
        }
        unreachable!("the numbers have no end")
    }

    #[test]
    fn a_repeated_page_is_an_error_at_once() {
        let token = |n: usize| Some(format!("token {n}"));
        let policy = RetryPolicy::default();
        let (count, error) = pages(&limits(&policy), |n| {
            page(&keys(n), token(n % 3).as_deref())
        });
        assert_eq!(count, 3);
        assert!(error.contains("s3://b/d/ does not end"), "{error}");
        assert!(
            error.contains("same page again, after 30 objects"),
            "{error}"
        );
        let (count, error) = pages(&limits(&policy), |n| {
            page(&keys(n % 5), token(n).as_deref())
        });
        assert_eq!(count, 5);
        assert!(
            error.contains("same objects again, after 50 objects"),
            "{error}"
        );
        let (count, error) = pages(&limits(&policy), |n| page(&[], token(n).as_deref()));
        assert_eq!(count, EMPTY_PAGES as usize);
        assert!(error.contains("without an object"), "{error}");
    }

    #[test]
    fn a_long_list_is_reported_when_its_time_doubles() {
        let long = Duration::from_secs(61);
        let Some(begun) = Instant::now().checked_sub(long) else {
            // The clock of this machine began later.
            return;
        };
        let limits = ListLimits {
            begun,
            ..limits(&RetryPolicy::default())
        };
        limits
            .add(&page(&keys(0), None), &mut SeenPages::default())
            .expect("within all limits");
        assert!(limits.objects().note >= 2 * long);
    }

    #[test]
    fn pages_with_new_objects_end_at_each_limit() {
        let make = |n| page(&keys(n), Some(&n.to_string()));
        let policy = RetryPolicy {
            list_objects: 45,
            ..RetryPolicy::default()
        };
        let (count, error) = pages(&limits(&policy), make);
        assert_eq!(count, 4);
        assert!(
            error.contains("the list of s3://b/d/ has more than 45 objects"),
            "{error}"
        );
        assert!(error.contains("INFEED_REMOTE_LIST_OBJECTS"), "{error}");

        let policy = RetryPolicy {
            list_time: Duration::ZERO,
            ..RetryPolicy::default()
        };
        let (count, error) = pages(&limits(&policy), make);
        assert_eq!(count, 0);
        assert!(error.contains("with 10 objects so far"), "{error}");
        assert!(error.contains("INFEED_REMOTE_LIST_S"), "{error}");

        let small = ListLimits {
            bytes: 100 << 10,
            ..limits(&RetryPolicy::default())
        };
        let (count, error) = pages(&small, make);
        assert!((10..100).contains(&count), "{count}");
        assert!(error.contains("half of the available memory"), "{error}");
        assert!(
            error.contains(&format!("after {} objects", 10 * (count + 1))),
            "{error}"
        );
    }
}
