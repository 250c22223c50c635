//! Measures the storage of the user's own files: cold reads with several numbers of readers.
//! Predicts the time of records of another size.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::file;
use infeed_raw::machine::drop_pages;

use crate::case::Case;
use crate::model::interval::Interval;
use infeed_core::error::Error;
use infeed_core::sample::Record;
use infeed_source::Source;
use infeed_source::throttle::Throttle;
use infeed_source::walk::WalkBudget;

/// Numbers of readers to try in addition to the user's own.
const READERS: [usize; 4] = [1, 4, 16, 32];

/// Maximum duration of the measurement with one number of readers.
const SLICE: Duration = Duration::from_millis(600);

/// Relative spread between cold reads of different files on the same storage.
const SPREAD: f64 = 0.10;

/// Cost of reading.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    /// Records per second from a cold cache, by number of concurrent readers.
    pub(crate) cold: Vec<(usize, f64)>,
    /// Encoded bytes of a record, and number of its files.
    pub(crate) record_bytes: f64,
    pub(crate) record_files: f64,
    /// Time of one record with one reader is `per_file_s * files + per_byte_s * bytes`.
    per_file_s: f64,
    per_byte_s: f64,
    /// Storage of the planned machine.
    throttle: Option<Throttle>,
}

/// A cold read of records that are read together.
struct ColdReads {
    records: usize,
    bytes: u64,
    files: usize,
    took: Duration,
}

impl Storage {
    /// Reads records of `source` cold. Alternates the numbers of readers, each with its own
    /// records.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if a record cannot be read.
    pub(crate) fn measure(
        source: &Arc<dyn Source>,
        records: &[u64],
        readers: usize,
        throttle: Option<Throttle>,
    ) -> Result<Option<Storage>, Error> {
        let filed = records
            .first()
            .is_some_and(|&record| !source.local_files(record).is_empty());
        let remote = source.parallel_reads().is_some();
        if !filed && !remote && throttle.is_none() {
            return Ok(None);
        }
        let runs = runs(source, records);
        let records = &runs[..];
        let mut counts = READERS.to_vec();
        counts.push(readers);
        counts.sort_unstable();
        counts.dedup();
        let share = (records.len() / counts.len()).max(1);
        let (mut cold, mut alone) = (Vec::new(), Vec::new());
        let (mut bytes, mut files, mut count) = (0_u64, 0_usize, 0_usize);
        for (turn, &readers) in counts.iter().enumerate() {
            let from = (turn * share).min(records.len() - share);
            let mine = &records[from..from + share];
            if throttle.is_none() {
                forget(source, mine.iter().filter_map(|run| run.first().copied()));
            }
            let begun = Instant::now();
            let reads = read(source, mine, readers)?;
            let here: usize = reads.iter().map(|read| read.records).sum();
            let rate = here as f64 / begun.elapsed().as_secs_f64().max(1e-9);
            cold.push((readers, rate));
            bytes += reads.iter().map(|read| read.bytes).sum::<u64>();
            files += reads.iter().map(|read| read.files).sum::<usize>();
            count += here;
            if readers == 1 {
                alone = reads;
            }
        }
        let (per_file_s, per_byte_s) = fit(&alone);
        Ok(Some(Storage {
            cold,
            record_bytes: bytes as f64 / count.max(1) as f64,
            record_files: files as f64 / count.max(1) as f64,
            per_file_s,
            per_byte_s,
            throttle,
        }))
    }

    /// Records per second with this number of readers, for records as they are.
    pub(crate) fn rate(&self, readers: usize) -> Interval {
        self.rate_of(readers, self.record_files, self.record_bytes)
    }

    /// Records per second for records of another size.
    pub(crate) fn rate_of(&self, readers: usize, files: f64, bytes: f64) -> Interval {
        if let Some(throttle) = self.throttle {
            let rate = throttle.rate(readers, files, bytes);
            return Interval {
                low: rate * 0.97,
                mid: rate,
                high: rate * 1.03,
            };
        }
        let measured = self
            .cold
            .iter()
            .rev()
            .find(|(count, _)| *count <= readers)
            .or(self.cold.first())
            .map_or(f64::INFINITY, |(_, rate)| *rate);
        let now = self.per_file_s * self.record_files + self.per_byte_s * self.record_bytes;
        let then = self.per_file_s * files + self.per_byte_s * bytes;
        let rate = if then > 0.0 {
            measured * now / then
        } else {
            measured
        };
        // Whether records of another size are read at other bytes per second was not measured, and the
        // times of single reads vary, so the interval covers both answers.
        let at_these_bytes_per_s = match bytes > 0.0 {
            true => measured * self.record_bytes / bytes,
            false => rate,
        };
        Interval {
            low: rate.min(at_these_bytes_per_s) * (1.0 - SPREAD),
            mid: (at_these_bytes_per_s * rate).sqrt(),
            high: rate.max(at_these_bytes_per_s) * (1.0 + SPREAD),
        }
    }

    /// Bytes per second with this number of readers.
    pub(crate) fn bytes_per_s(&self, readers: usize) -> f64 {
        self.rate(readers).mid * self.record_bytes
    }

    /// Returns the best number of readers and its rate.
    pub(crate) fn best_readers(&self) -> Option<(usize, f64)> {
        let most = self.cold.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        // The smallest number that is within 3 % of the best.
        let enough = self.cold.iter().find(|(_, rate)| *rate > 0.97 * most);
        enough.copied()
    }
}

impl Case {
    /// Measures the storage of this case, with other records than the `taken` ones of the trials.
    pub(crate) fn storage(&self, taken: u64) -> Result<Option<Storage>, Error> {
        let records = self.cold_sample(taken);
        Storage::measure(&self.source, &records, self.readers(), self.throttle())
    }
}

/// Groups the records by read: single records, or all records of a group that is read as a whole.
fn runs(source: &Arc<dyn Source>, records: &[u64]) -> Vec<Vec<u64>> {
    let Some(groups) = source.groups().filter(|groups| groups.whole) else {
        return records.iter().map(|&record| vec![record]).collect();
    };
    let mut seen = HashSet::new();
    let first = records.iter().map(|&record| groups.of(record));
    first
        .filter(|&group| seen.insert(group))
        .map(|group| (groups.first(group)..groups.ends[group]).collect())
        .collect()
}

/// Drops the files of the records from the page cache.
pub(crate) fn forget(source: &Arc<dyn Source>, records: impl Iterator<Item = u64>) {
    let paths: BTreeSet<PathBuf> = records
        .flat_map(|record| source.local_files(record))
        .collect();
    for path in paths {
        // The read that follows reports a file that cannot be opened.
        if let Ok((file, _)) = file::open(path) {
            let _ = drop_pages(&file);
        }
    }
}

/// Reads records with several threads until all are read or the time is over.
fn read(
    source: &Arc<dyn Source>,
    runs: &[Vec<u64>],
    readers: usize,
) -> Result<Vec<ColdReads>, Error> {
    let next = AtomicUsize::new(0);
    let room = WalkBudget::default();
    let begun = Instant::now();
    let body = || {
        let mut mine = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(at) else {
                return Ok(mine);
            };
            if at > 0 && begun.elapsed() > SLICE {
                return Ok(mine);
            }
            for read in source.plan(run, u64::MAX) {
                let mut start = Instant::now();
                let mut bytes = 0;
                // Groups may be large and readers many. Waiting for memory does not count as
                // reading.
                let mut held = Vec::new();
                let mut admit = |bytes| {
                    let admitted = room.admit(bytes, || false);
                    start = Instant::now();
                    admitted.map(|one| held.push(one))
                };
                source
                    .read(&read, &mut admit, &mut |_, found| {
                        bytes += found.as_ref().map_or(0, Record::bytes);
                    })
                    .map_err(|error| error.about(&**source))?;
                let files = read
                    .records
                    .first()
                    .map(|&(_, record)| source.files(record).len());
                mine.push(ColdReads {
                    records: read.records.len(),
                    bytes,
                    files: files.unwrap_or(0).max(1),
                    took: start.elapsed(),
                });
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..readers.min(runs.len()))
            .map(|_| scope.spawn(body))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            let panicked = |_| {
                Err(Error::Panicked {
                    text: "a thread that measures the storage".to_owned(),
                })
            };
            all.extend(thread.join().unwrap_or_else(panicked)?);
        }
        Ok(all)
    })
}

/// Fits time per file and time per byte by least squares over single reads. Neither is negative. If
/// sizes vary too little to separate the two, the time per file is 0.
fn fit(reads: &[ColdReads]) -> (f64, f64) {
    let count = reads.len() as f64;
    let (mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0);
    for read in reads {
        let files = read.files as f64;
        let bytes = read.bytes as f64 / files;
        let took = read.took.as_secs_f64() / files;
        x += bytes;
        y += took;
        xx += bytes * bytes;
        xy += bytes * took;
    }
    if count == 0.0 || x == 0.0 {
        return (0.0, 0.0);
    }
    let variance = xx / count - (x / count).powi(2);
    let spread = variance.max(0.0).sqrt() / (x / count);
    if spread < 0.1 {
        return (0.0, y / x);
    }
    let slope = (xy / count - x * y / count / count) / variance;
    let slope = slope.clamp(0.0, y / x);
    ((y - slope * x) / count, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(bytes: u64, us: u64) -> ColdReads {
        ColdReads {
            records: 1,
            bytes,
            files: 1,
            took: Duration::from_micros(us),
        }
    }

    #[test]
    fn varying_sizes_separate_time_per_file_from_time_per_byte() {
        let reads = [
            cold(100_000, 1100),
            cold(200_000, 1200),
            cold(900_000, 1900),
        ];

        let (per_file, per_byte) = fit(&reads);

        assert!((per_file - 1e-3).abs() < 1e-9, "{per_file}");
        assert!((per_byte - 1e-9).abs() < 1e-15, "{per_byte}");
    }

    #[test]
    fn the_rate_of_other_records_has_an_interval_from_equal_bytes_to_equal_time_per_file() {
        let storage = Storage {
            cold: vec![(1, 100.0), (4, 400.0)],
            record_bytes: 100_000.0,
            record_files: 1.0,
            per_file_s: 9e-3,
            per_byte_s: 1e-8,
            throttle: None,
        };

        let now = storage.rate(4);
        let larger = storage.rate_of(4, 1.0, 900_000.0);
        let smaller = storage.rate_of(4, 1.0, 50_000.0);

        assert!((now.mid - 400.0).abs() < 1e-9 && (now.high / now.mid - 1.1).abs() < 1e-9);
        // 10 ms instead of 18 ms for a record, but a ninth of the records in the same bytes.
        assert!((larger.high - 1.1 * 400.0 * 10.0 / 18.0).abs() < 1e-6);
        assert!((larger.low - 0.9 * 400.0 / 9.0).abs() < 1e-6);
        assert!(larger.low < larger.mid && larger.mid < larger.high);
        // 10 ms instead of 9.5 ms, and twice the records in the same bytes.
        assert!((smaller.low - 0.9 * 400.0 * 10.0 / 9.5).abs() < 1e-6);
        assert!((smaller.high - 1.1 * 400.0 * 2.0).abs() < 1e-6);
    }

    #[test]
    fn files_of_one_size_attribute_all_time_to_bytes() {
        let (per_file, per_byte) = fit(&[cold(1000, 10), cold(1000, 10)]);

        assert_eq!(per_file, 0.0);
        assert!((per_byte - 1e-8).abs() < 1e-15);
    }
}
