//! Predicts the rate with other cores, memory, storage or batches. The model is that of the run: the
//! lowest rate over all resources. Each change replaces the rate of its resource.

mod batch;
mod cores;
mod crossover;
mod executor;
mod reading;
mod scaling;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::findings::{Run, Subject};
use super::interval::Interval;
use super::limit::{Limit, Resource};
use super::storage::Storage;
use super::supply::Supply;
use super::survey::Survey;
use super::units::bytes;
use infeed_core::error::Error;
use infeed_core::probe;
use infeed_raw::machine::usable_cores;
use infeed_source::throttled::Throttle;

pub use crossover::Crossover;
pub(super) use crossover::{crossovers, sentences};

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
    pub(super) fn check(&self) -> Result<(), Error> {
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
    pub(super) fn variants(&self) -> usize {
        let cores = usable_cores();
        let scaling = self.cores.map_or(0, |wanted| match wanted <= cores {
            true => 2,
            false => cores.ilog2() as usize + 2,
        });
        scaling + if self.batch.is_some() { 2 } else { 0 }
    }

    /// Describes the changes in a few words.
    fn question(&self) -> String {
        let cores = self.cores.map(|cores| match cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        });
        let memory = self.memory_bytes;
        let memory = memory.map(|memory| format!("{} of memory", bytes(memory as f64)));
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

/// The prediction for a [`WhatIf`]. Rates are in samples per second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhatIfReport {
    /// The changes in a few words, such as `16 cores, storage s3`.
    pub question: String,
    /// The rate now, by the same model.
    pub rate_now: Interval,
    /// The limit now. None if no resource limits.
    pub limit_now: Option<Limit>,
    /// The rate with the changes.
    pub rate: Interval,
    /// The rate with the changes, divided by the rate now.
    pub gain: Interval,
    /// The limit with the changes. None if no resource limits.
    pub limit: Option<Limit>,
    /// Samples per batch with the changes.
    pub batch_rows: u64,
    /// Time of a step with the changes, in seconds.
    pub step_time: Interval,
    /// The rate that each resource allows with the changes, lowest first.
    pub resources: Vec<Resource>,
    /// The step times at which the limit changes, with the changes.
    pub crossovers: Vec<Crossover>,
    /// Each change with its arithmetic.
    pub changes: Vec<PredictedChange>,
}

/// One change of a [`WhatIf`] with its arithmetic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictedChange {
    /// The option: `cores`, `ram`, `storage` or `batch`.
    pub option: String,
    /// Arithmetic of the rates, one sentence each.
    pub arithmetic: Vec<String>,
    /// Assumptions that were not measured, one sentence each.
    pub assumptions: Vec<String>,
    /// The numbers of the arithmetic by name. Times in seconds, sizes in bytes, shares from 0 to 1.
    pub values: BTreeMap<String, f64>,
}

impl PredictedChange {
    fn new(option: &str) -> PredictedChange {
        PredictedChange {
            option: option.to_owned(),
            ..PredictedChange::default()
        }
    }

    fn value(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    fn says(&mut self, sentence: impl Into<String>) {
        self.arithmetic.push(sentence.into());
    }

    fn assumes(&mut self, sentence: impl Into<String>) {
        self.assumptions.push(sentence.into());
    }
}

/// Results that the explanation already has.
pub(super) struct WhatIfInputs<'a> {
    pub(super) run: &'a Run,
    pub(super) subject: &'a Subject,
    pub(super) looked: &'a Survey,
    pub(super) storage: Option<&'a Storage>,
    /// Samples per second of the cores, from memory.
    pub(super) own: Interval,
    /// The rate that each resource allows now.
    pub(super) now: &'a Supply,
}

/// Predicts the changes of a case. None if it has none, or if `go_on` returned false.
///
/// # Errors
///
/// Returns the error of a run that measures a change.
pub(super) fn predict(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Option<WhatIfReport>, Error> {
    let asked = &case.conditions.what_if;
    if asked.is_empty() || !go_on(0.0) {
        return Ok(None);
    }
    let mut then = inputs.now.clone();
    let mut changes = Vec::new();
    // The measured changes share the progress.
    let measured = [asked.cores.is_some(), asked.batch.is_some()];
    let share = 1.0 / measured.iter().filter(|is| **is).count().max(1) as f64;
    if let Some(count) = asked.cores {
        let part = |done: f64| go_on(share * done);
        changes.push(cores::change(case, inputs, count, &mut then, &part)?);
    }
    if asked.storage.is_some() || asked.memory_bytes.is_some() {
        changes.extend(reading::changes(case, inputs, asked, &mut then));
    }
    if let Some(rows) = asked.batch {
        let part = |done: f64| go_on(1.0 - share * (1.0 - done));
        changes.push(batch::change(case, inputs, rows, &mut then, &part)?);
    }
    let rows = asked.batch.unwrap_or(inputs.subject.batch_rows);
    Ok(Some(report(
        asked.question(),
        rows,
        inputs.now,
        &then,
        changes,
    )))
}

fn report(
    question: String,
    rows: u64,
    now: &Supply,
    then: &Supply,
    changes: Vec<PredictedChange>,
) -> WhatIfReport {
    let (before, after) = (now.least(), then.least());
    let over = |a: f64| {
        if before.mid > 0.0 {
            a / before.mid
        } else {
            1.0
        }
    };
    let limit = |supply: &Supply| supply.all().first().map(|resource| resource.limit);
    WhatIfReport {
        question,
        rate_now: before,
        limit_now: limit(now),
        rate: after,
        // A resource that does not change has the same measured rate before and after, so its
        // spread cancels. The spread of changed resources remains.
        gain: match before.mid.is_finite() {
            true => after.map(over),
            false => Interval::exact(1.0),
        },
        limit: limit(then),
        batch_rows: rows,
        step_time: Interval {
            low: rows as f64 / after.high.max(1e-9),
            mid: rows as f64 / after.mid.max(1e-9),
            high: rows as f64 / after.low.max(1e-9),
        },
        resources: then.all().to_vec(),
        crossovers: crossovers(then, rows),
        changes,
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

    #[test]
    fn the_answer_is_the_least_rate_with_the_changed_resource() {
        let mut now = Supply::default();
        now.add(Limit::Decode, Interval::exact(2000.0), String::new());
        now.add(Limit::Storage, Interval::exact(5000.0), String::new());
        let then = now.with(Limit::Decode, Some(Interval::exact(16_000.0)));

        let found = report("16 cores".to_owned(), 32, &now, &then, Vec::new());

        assert_eq!(
            (found.limit_now, found.limit),
            (Some(Limit::Decode), Some(Limit::Storage))
        );
        assert_eq!((found.rate.mid, found.gain.mid), (5000.0, 2.5));
        assert_eq!(found.step_time.mid, 32.0 / 5000.0);
    }
}
