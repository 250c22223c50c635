//! A source with artificially slow storage: for planning for another machine, and for tests whose
//! limit must be known.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::left_out::LeftOut;
use super::mix::SourceShares;
use super::subset::Subset;
use super::{Admission, PythonTime, Read, ReadError, Sink, Source};
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, Record, RecordId};

/// Limits of a storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Bytes per second, over all requests.
    pub bytes_per_s: f64,
    /// Requests per second, over all parallel requests.
    pub requests_per_s: f64,
    /// Time from a request to its first byte.
    pub latency: Duration,
}

impl Throttle {
    /// Time that the storage needs for `requests` requests of `bytes` bytes in total.
    fn time_for(&self, requests: u64, bytes: u64) -> Duration {
        let by_requests = requests as f64 / self.requests_per_s;
        let by_bytes = bytes as f64 / self.bytes_per_s;
        Duration::from_secs_f64(by_requests.max(by_bytes).min(3600.0))
    }

    /// Records per second with `readers` parallel reads and the given `requests` and `bytes` per
    /// record: the minimum of the storage's limits and of the latency limit of the readers.
    pub fn rate(&self, readers: usize, requests: f64, bytes: f64) -> f64 {
        let taken = (requests / self.requests_per_s).max(bytes / self.bytes_per_s);
        let alone = taken + self.latency.as_secs_f64() * requests;
        (1.0 / taken).min(readers as f64 / alone)
    }
}

/// A source whose reads take as long as they would on a given storage.
#[derive(Debug)]
pub struct ThrottledSource {
    inner: Arc<dyn Source>,
    throttle: Throttle,
    /// Time when the storage has served all requests so far.
    free_at: Mutex<Instant>,
}

impl ThrottledSource {
    /// Wraps `inner` with the limits of a storage.
    pub fn new(inner: Arc<dyn Source>, throttle: Throttle) -> ThrottledSource {
        ThrottledSource {
            inner,
            throttle,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits until the storage would have served the request.
    fn wait(&self, requests: u64, bytes: u64) {
        let now = Instant::now();
        let done = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = (*free_at).max(now) + self.throttle.time_for(requests, bytes);
            *free_at
        };
        // Sleeping is intended: this source simulates a slow device.
        let latency = self.throttle.latency * u32::try_from(requests).unwrap_or(u32::MAX);
        thread::sleep((done + latency).saturating_duration_since(now));
    }
}

impl Source for ThrottledSource {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        self.inner.id(record, field)
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.files(record)
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.local_files(record)
    }

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        self.inner.field_in_memory(record, field)
    }

    fn name(&self, record: u64) -> Option<String> {
        self.inner.name(record)
    }

    fn shard(&self, record: u64) -> Option<&str> {
        self.inner.shard(record)
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.inner.left_out()
    }

    fn label(&self, record: u64) -> Option<i64> {
        self.inner.label(record)
    }

    fn selection(&self) -> Option<&Subset> {
        self.inner.selection()
    }

    fn run_length(&self) -> u64 {
        self.inner.run_length()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        self.inner.groups()
    }

    fn weighted_parts(&self) -> Option<(&[Arc<dyn Source>], &SourceShares)> {
        self.inner.weighted_parts()
    }

    fn version(&self) -> Option<u64> {
        self.inner.version()
    }

    fn python(&self) -> Option<PythonTime> {
        self.inner.python()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.inner.parallel_reads()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        self.inner.plan(run, room_bytes)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let mut bytes = 0;
        let mut records = Vec::new();
        self.inner.read(read, admit, &mut |position, found| {
            bytes += found.as_ref().map_or(0, Record::bytes);
            records.push((position, found));
        })?;
        let files = read
            .records
            .iter()
            .map(|(_, record)| self.inner.files(*record).len());
        self.wait((files.sum::<usize>() as u64).max(1), bytes);
        records
            .into_iter()
            .for_each(|(position, found)| sink(position, found));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_least_of_bandwidth_requests_and_latency() {
        let throttle = Throttle {
            bytes_per_s: 100e6,
            requests_per_s: 1000.0,
            latency: Duration::from_millis(10),
        };

        assert!(
            (throttle.rate(1000, 1.0, 1e6) - 100.0).abs() < 1e-9,
            "bandwidth"
        );
        assert!(
            (throttle.rate(1000, 2.0, 1e3) - 500.0).abs() < 1e-9,
            "requests"
        );
        assert!(
            (throttle.rate(1, 1.0, 1e6) - 50.0).abs() < 1e-9,
            "one reader waits"
        );
    }
}
