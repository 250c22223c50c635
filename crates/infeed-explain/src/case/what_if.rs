//! The question of a what-if: other cores, memory, storage or batches.

use std::str::FromStr;
use std::time::Duration;

use infeed_core::error::Error;
use infeed_core::probe;
use infeed_core::units::format_bytes;
use infeed_raw::machine::usable_cores;
use infeed_source::throttle::Throttle;

/// Maximum number of cores in a question.
const MOST_CORES: usize = 4096;

/// Maximum number of samples of a batch in a question.
const MOST_ROWS: u64 = 1 << 20;

/// Changes to predict. All fields `None`: nothing is predicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// Number of cores, each like those here.
    pub cores: Option<usize>,
    /// Memory of the machine in bytes.
    pub memory_bytes: Option<u64>,
    /// Storage in place of the measured one.
    pub storage: Option<DescribedStorage>,
    /// Samples per batch of this process.
    pub batch: Option<u64>,
}

/// A storage that is described and not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedStorage {
    /// Its name, or its three numbers.
    pub name: String,
    /// Its rates.
    pub throttle: Throttle,
    /// Whether it holds objects: a loader reads many at once, and the page cache keeps none.
    pub objects: bool,
    /// Source of typical numbers. None if the user gave them.
    pub source: Option<&'static str>,
}

impl WhatIf {
    /// Returns whether there is nothing to predict.
    pub fn is_empty(&self) -> bool {
        *self == WhatIf::default()
    }

    /// Checks the numbers before anything is measured.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the option and its limits.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let cores = self.cores.is_none_or(|n| (1..=MOST_CORES).contains(&n));
        let batch = self.batch.is_none_or(|n| (1..=MOST_ROWS).contains(&n));
        let memory = self.memory_bytes.is_none_or(|bytes| bytes > 0);
        let problem = match (cores, batch, memory) {
            (false, ..) => format!("cores must be 1 to {MOST_CORES}"),
            (_, false, _) => format!("batch must be 1 to {MOST_ROWS}"),
            (.., false) => "memory must be at least 1 byte".to_owned(),
            _ => return Ok(()),
        };
        Err(Error::config("what_if", problem))
    }

    /// Returns the usual number of pipelines that run in turn to measure the changes.
    pub(crate) fn variants(&self) -> usize {
        let cores = usable_cores();
        let scaling = self.cores.map_or(0, |wanted| match wanted <= cores {
            true => 2,
            false => cores.ilog2() as usize + 2,
        });
        scaling + if self.batch.is_some() { 2 } else { 0 }
    }

    /// Describes the changes in a few words.
    pub(crate) fn question(&self) -> String {
        let cores = self.cores.map(|cores| match cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        });
        let memory = self.memory_bytes;
        let memory = memory.map(|memory| format!("{} of memory", format_bytes(memory as f64)));
        let storage = self.storage.as_ref();
        let storage = storage.map(|storage| format!("storage {}", storage.name));
        let batch = self.batch.map(|rows| format!("batches of {rows}"));
        let parts = [cores, memory, storage, batch];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for DescribedStorage {
    type Err = String;

    /// Parses the name of a storage, or `MB/s,requests/s,ms`.
    fn from_str(text: &str) -> Result<DescribedStorage, String> {
        if let Some(known) = probe::profile(text)
            && let Some(rates) = known.storage
        {
            return Ok(DescribedStorage {
                name: known.name.to_owned(),
                throttle: Throttle {
                    bytes_per_s: rates.bytes_per_s,
                    requests_per_s: rates.requests_per_s,
                    latency: Duration::from_secs_f64(rates.latency_s),
                },
                objects: known.objects,
                source: Some(known.source),
            });
        }
        let wrong = || {
            let storages = probe::PROFILES.iter().filter(|p| p.storage.is_some());
            let names: Vec<&str> = storages.map(|profile| profile.name).collect();
            format!(
                "write one of {}, or MB/s,requests/s,ms, such as 550,90000,0.1",
                names.join(", ")
            )
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        let numbers: Option<Vec<f64>> = text.split(',').map(number).collect();
        match numbers.as_deref() {
            Some(&[megabytes, requests, ms])
                if megabytes > 0.0 && requests > 0.0 && (0.0..=3_600_000.0).contains(&ms) =>
            {
                Ok(DescribedStorage {
                    name: format!("{megabytes} MB/s, {requests} requests/s, {ms} ms"),
                    throttle: Throttle {
                        bytes_per_s: 1e6 * megabytes,
                        requests_per_s: requests,
                        latency: Duration::from_secs_f64(ms / 1e3),
                    },
                    objects: false,
                    source: None,
                })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_a_name_or_three_numbers() {
        let named: DescribedStorage = "s3".parse().expect("a name");
        assert!(named.objects && named.source.is_some());
        assert_eq!(named.throttle.latency, Duration::from_millis(150));

        let numbers: DescribedStorage = "550, 90000,0.1".parse().expect("numbers");
        assert_eq!(numbers.throttle.bytes_per_s, 550e6);
        assert_eq!(numbers.throttle.requests_per_s, 90_000.0);
        assert_eq!(numbers.throttle.latency, Duration::from_micros(100));

        for wrong in ["floppy", "h100x8", "1,2", "0,1,1", "1,1,-1", "1,1,inf", ""] {
            let error = wrong.parse::<DescribedStorage>().expect_err(wrong);
            assert!(
                error.contains("hdd") && error.contains("such as 550"),
                "{error}"
            );
        }
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        let of = |cores, memory_bytes, batch| WhatIf {
            cores,
            memory_bytes,
            batch,
            storage: None,
        };
        assert!(of(Some(1), Some(1), Some(1)).check().is_ok());
        for wrong in [
            of(Some(0), None, None),
            of(Some(MOST_CORES + 1), None, None),
            of(None, Some(0), None),
            of(None, None, Some(0)),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(WhatIf::default().is_empty());
    }
}
