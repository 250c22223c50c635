//! Measures reading of the files below a folder: cold and warm, with one reader and with several.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::file;
use infeed_raw::machine::drop_pages;
use serde::{Deserialize, Serialize, Serializer};

use super::StorageProfile;

/// Numbers of parallel readers that are measured.
pub const READERS: [usize; 3] = [1, 4, 16];

/// Maximum number of files, spread over all of them.
const FILES: usize = 2048;

/// Maximum bytes of those files.
const BYTES: u64 = 256 << 20;

/// Maximum number of listed files; the first ones represent the others.
const LISTED: usize = 200_000;

/// Maximum duration of one pass over the files.
const SPAN: Duration = Duration::from_millis(1500);

/// Duration of reading after which no further pass begins, and maximum number of passes: a few
/// files in the page cache are read in a millisecond.
const ENOUGH: Duration = Duration::from_millis(400);
const PASSES: usize = 50;

/// Minimum length of a file that shows the rate of long reads.
const LARGE: u64 = 64 << 20;

/// Most bytes of a large file to read, and bytes per read.
const SEQUENTIAL: (u64, usize) = (512 << 20, 4 << 20);

/// Measured rates of the storage below a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorageRates {
    /// The folder or file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Number of listed files.
    pub files: usize,
    /// Mean length of the measured files.
    pub mean_bytes: f64,
    /// Rates after dropping the pages of the files, by number of readers. Empty if the system
    /// cannot drop them. Caches of a host or a disk are not dropped.
    pub cold: Vec<Reads>,
    /// Rates from memory, by number of readers.
    pub warm: Vec<Reads>,
    /// Cold rate of long reads of the largest file; None if no file is long enough.
    pub sequential: Option<Sequential>,
}

/// Serializes a path that need not be UTF-8, which JSON cannot hold.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Rates of reading whole files with a number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reads {
    /// Number of threads.
    pub readers: usize,
    /// Number of files read, over all passes.
    pub requests: usize,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Files per second.
    pub requests_per_s: f64,
    /// Mean duration of opening, reading and closing a file.
    pub mean_s: f64,
    /// 99th percentile of that duration.
    pub p99_s: f64,
}

/// Rate of reading one large file from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sequential {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

impl StorageRates {
    /// Converts the measurement to a profile: the best rates over all numbers of readers, cold if
    /// measured.
    pub fn profile(&self) -> StorageProfile {
        let reads = match self.cold.is_empty() {
            true => &self.warm,
            false => &self.cold,
        };
        let best = |of: fn(&Reads) -> f64| reads.iter().map(of).fold(0.0, f64::max);
        let sequential = self.sequential.map_or(0.0, |found| found.bytes_per_s);
        StorageProfile {
            bytes_per_s: best(|reads| reads.bytes_per_s).max(sequential),
            requests_per_s: best(|reads| reads.requests_per_s),
            latency_s: reads.first().map_or(0.0, |reads| reads.mean_s),
        }
    }
}

/// Measures the files below a folder, or one file.
///
/// Calls `progress` with the next step; a result of false stops the measurement.
///
/// # Errors
///
/// A path that cannot be listed or holds no files, or a file that cannot be read; `Interrupted` if
/// `progress` returned false.
///
/// # Cost
///
/// At most about 10 seconds, mostly waiting. Drops the pages of the files that it reads.
pub fn storage(path: &Path, progress: &mut dyn FnMut(&str) -> bool) -> io::Result<StorageRates> {
    let mut go_on = |what: &str| match progress(what) {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::Interrupted)),
    };
    go_on("listing files")?;
    let listed = list(path)?;
    let chosen = choose(&listed)?;
    if chosen.is_empty() {
        let problem = format!("{}: no files, or all files are empty", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, problem));
    }
    let bytes: u64 = chosen.iter().map(|(_, length)| length).sum();
    let mut found = StorageRates {
        path: path.to_owned(),
        files: listed.len(),
        mean_bytes: bytes as f64 / chosen.len() as f64,
        ..StorageRates::default()
    };
    for (path, _) in &chosen {
        // Pages that were just written stay until they are on the disk. A read-only file system
        // rejects the call, and has no such pages.
        let _ = file::open(path)?.0.sync_data();
    }
    for readers in READERS {
        go_on(&format!("reading cold, {readers} at a time"))?;
        match read(&chosen, readers, true)? {
            Some(reads) => found.cold.push(reads),
            None => break,
        }
    }
    let largest = chosen.iter().max_by_key(|(_, length)| *length);
    let can_drop = !found.cold.is_empty();
    if let Some((largest, _)) = largest.filter(|(_, length)| *length >= LARGE && can_drop) {
        go_on("reading a large file")?;
        found.sequential = Some(sequential(largest)?);
    }
    // Reads once without measuring, so that all pages are in memory.
    go_on("reading warm")?;
    pass(&chosen, READERS[1])?;
    for readers in READERS {
        go_on(&format!("reading warm, {readers} at a time"))?;
        found.warm.extend(read(&chosen, readers, false)?);
    }
    Ok(found)
}

/// Files below a path, in a fixed order, without hidden files and links to folders.
fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    let named = |error: io::Error, path: &Path| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    if fs::metadata(path)
        .map_err(|error| named(error, path))?
        .is_file()
    {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = VecDeque::from([path.to_owned()]);
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(&folder).map_err(|error| named(error, &folder))? {
            let entry = entry.map_err(|error| named(error, &folder))?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let kind = entry.file_type().map_err(|error| named(error, &folder))?;
            if kind.is_dir() {
                folders.push_back(entry.path());
            } else {
                files.push(entry.path());
            }
        }
        if files.len() >= LISTED {
            break;
        }
    }
    files.sort();
    Ok(files)
}

/// Selects files, spread over all, and returns them with their lengths.
fn choose(files: &[PathBuf]) -> io::Result<Vec<(PathBuf, u64)>> {
    let count = files.len().min(FILES);
    let mut chosen = Vec::with_capacity(count);
    for nth in 0..count {
        let path = &files[nth * files.len() / count];
        // A dangling link is ignored.
        let Ok(found) = fs::metadata(path) else {
            continue;
        };
        if found.is_file() && found.len() > 0 {
            chosen.push((path.clone(), found.len()));
        }
    }
    let bytes: u64 = chosen.iter().map(|(_, length)| length).sum();
    let keep = match bytes {
        0..=BYTES => chosen.len(),
        // At least one file, however large.
        _ => ((chosen.len() as f64 * BYTES as f64 / bytes as f64) as usize).max(1),
    };
    let all = chosen.len();
    Ok((0..keep)
        .map(|nth| chosen[nth * all / keep].clone())
        .collect())
}

/// Drops the pages of files; false if the system does not support it.
fn forget(files: &[(PathBuf, u64)]) -> io::Result<bool> {
    for (path, _) in files {
        let (file, _) = file::open(path)?;
        match drop_pages(&file) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(false),
            done => done?,
        }
    }
    Ok(true)
}

/// Reads whole files with a number of threads, repeatedly until [`ENOUGH`] time was spent reading.
/// None if the read should be cold and the system does not support it.
fn read(files: &[(PathBuf, u64)], readers: usize, cold: bool) -> io::Result<Option<Reads>> {
    let mut times = Vec::new();
    let (mut bytes, mut spent) = (0, Duration::ZERO);
    for _ in 0..PASSES {
        if cold && !forget(files)? {
            return Ok(None);
        }
        let pass = pass(files, readers)?;
        bytes += pass.bytes;
        spent += pass.spent;
        times.extend(pass.times);
        if spent >= ENOUGH {
            break;
        }
    }
    let seconds = spent.as_secs_f64().max(1e-9);
    Ok(Some(Reads {
        readers,
        requests: times.len(),
        bytes_per_s: bytes as f64 / seconds,
        requests_per_s: times.len() as f64 / seconds,
        mean_s: times.iter().sum::<f64>() / times.len().max(1) as f64,
        p99_s: p99(times),
    }))
}

/// Measurement of one pass over the files.
struct Pass {
    times: Vec<f64>,
    bytes: u64,
    spent: Duration,
}

/// Reads whole files, each once, until all are read or the time is over.
fn pass(files: &[(PathBuf, u64)], readers: usize) -> io::Result<Pass> {
    let next = AtomicUsize::new(0);
    let all: Mutex<Vec<(f64, u64)>> = Mutex::new(Vec::with_capacity(files.len()));
    let start = Instant::now();
    let reader = || -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut own = Vec::new();
        while start.elapsed() < SPAN {
            // Relaxed: the counter only distributes numbers and synchronizes no other data.
            let Some((path, _)) = files.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            buffer.clear();
            let begun = Instant::now();
            let (file, _) = file::open(path)?;
            let bytes = file.take(BYTES).read_to_end(&mut buffer)?;
            own.push((begun.elapsed().as_secs_f64(), bytes as u64));
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(own);
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(reader)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
        };
        threads.into_iter().try_for_each(join)
    })?;
    let spent = start.elapsed();
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Pass {
        times: all.iter().map(|(time, _)| *time).collect(),
        bytes: all.iter().map(|(_, bytes)| bytes).sum(),
        spent,
    })
}

/// 99th percentile; 0 for no values.
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() * 99).div_ceil(100).saturating_sub(1);
    values.get(at).copied().unwrap_or(0.0)
}

fn sequential(path: &Path) -> io::Result<Sequential> {
    let (mut file, _) = file::open(path)?;
    drop_pages(&file)?;
    let mut buffer = vec![0; SEQUENTIAL.1];
    let start = Instant::now();
    let mut bytes = 0;
    while bytes < SEQUENTIAL.0 && start.elapsed() < SPAN {
        match file.read(&mut buffer)? {
            0 => break,
            read => bytes += read as u64,
        }
    }
    Ok(Sequential {
        bytes,
        bytes_per_s: bytes as f64 / start.elapsed().as_secs_f64().max(1e-9),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder_are_read_whole_by_every_number_of_readers() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join("below")).expect("a new folder");
        for n in 0..40 {
            let folder = if n % 2 == 0 { "." } else { "below" };
            let path = root.path().join(folder).join(format!("{n}"));
            fs::write(path, vec![0; 1000 + n]).expect("writes");
        }
        fs::write(root.path().join(".hidden"), "x").expect("writes");
        fs::write(root.path().join("empty"), "").expect("writes");
        let mut steps = Vec::new();

        let found = storage(root.path(), &mut |what| {
            steps.push(what.to_owned());
            true
        });

        let found = found.expect("files");
        assert_eq!(found.files, 41, "the hidden one is left out");
        assert_eq!(found.mean_bytes, 1019.5);
        for reads in found.warm.iter().chain(&found.cold) {
            assert!(
                reads.requests >= 40 && reads.requests.is_multiple_of(40),
                "{reads:?}"
            );
            assert!(
                reads.p99_s >= reads.mean_s * 0.5 && reads.mean_s > 0.0,
                "{reads:?}"
            );
            let mean = reads.bytes_per_s / reads.requests_per_s;
            assert!((mean - 1019.5).abs() < 1e-6, "{mean}");
        }
        assert_eq!(found.warm.len(), READERS.len());
        assert_eq!(found.sequential, None, "no file is long");
        assert!(steps.len() > READERS.len(), "{steps:?}");
        let profile = found.profile();
        assert!(profile.requests_per_s > 0.0 && profile.latency_s > 0.0);
    }

    #[test]
    fn a_large_file_by_itself_is_read_in_long_reads() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("large");
        let file = fs::File::create(&path).expect("a new file");
        file.set_len(LARGE).expect("a length");

        let found = storage(&path, &mut |_| true).expect("a file");

        if !found.cold.is_empty() {
            assert!(found.sequential.expect("it is long").bytes > 0);
        }
        assert_eq!((found.files, found.mean_bytes), (1, LARGE as f64));
    }

    #[test]
    fn an_empty_folder_and_a_stop_are_errors() {
        let root = tempfile::tempdir().expect("a temporary folder");

        let empty = storage(root.path(), &mut |_| true).expect_err("no files");
        let missing = storage(&root.path().join("x"), &mut |_| true).expect_err("no folder");
        let stopped = storage(root.path(), &mut |_| false).expect_err("stopped");

        assert!(empty.to_string().contains("no files"), "{empty}");
        assert!(missing.to_string().contains("/x: "), "{missing}");
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn the_99th_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();

        assert_eq!(p99(values), 198.0);
        assert_eq!(p99(vec![3.0]), 3.0);
        assert_eq!(p99(Vec::new()), 0.0);
    }
}
