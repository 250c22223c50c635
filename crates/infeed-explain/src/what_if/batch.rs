//! The rate and the memory of another batch size: the cost of a batch beyond its samples is
//! measured, the memory is that of a loader with such batches.

use std::sync::Arc;

use super::inputs::WhatIfInputs;
use crate::case::Case;
use crate::findings::what_if::PredictedChange;
use crate::measure::functions;
use crate::measure::trial::{LoaderReuse, TURN, interleave, interval};
use crate::measure::variant::RecordSubset;
use crate::measure::variant::{Variant, with_fixed_workers};
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{Supply, costliest};
use infeed::loader::Stats;
use infeed_core::error::Error;
use infeed_core::units::{format_bytes, format_seconds};

/// Ratio of the two batch sizes that are measured.
const SMALLER: u64 = 8;

/// Predicts batches of `rows` samples and replaces the rate of the cores in `then`.
///
/// # Errors
///
/// As opening and running the pipeline. Too little memory for the batches is no error.
pub(super) fn change(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    rows: u64,
    then: &mut Supply,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<PredictedChange, Error> {
    let mut change = PredictedChange::new("batch");
    let now = inputs.subject.batch_rows;
    if let Some(cost) = measure(case, inputs, go_on)? {
        let gain = cost.gain(now, rows);
        describe_cost(&mut change, cost, (now, rows), gain);
        let limit = costliest(&inputs.run.stages);
        let cores = (limit, inputs.own, String::new());
        let (limit, ..) = functions::workers(inputs.run, &case.pipeline, cores);
        if let Some(before) = then.take(limit) {
            let rate = Interval {
                low: before.rate.low.min(before.rate.mid * gain.low),
                mid: before.rate.mid * gain.mid,
                high: before.rate.high.max(before.rate.mid * gain.high),
            };
            then.add(limit, rate, before.arithmetic);
        }
    }
    match open(case, rows) {
        Ok(stats) => describe_memory(&mut change, rows, &stats),
        Err(error @ (Error::Budget { .. } | Error::Reserved { .. } | Error::Config { .. })) => {
            change.says(format!("such batches do not open here: {}", error.chain()));
            change.assumes("the rate is that of a process with enough memory");
        }
        Err(error) => return Err(error),
    }
    let made = then.only(&MAKING).least();
    if made.mid.is_finite() && made.mid > 0.0 {
        change.says(format!(
            "a batch is ready every {}; now every {}",
            format_seconds(rows as f64 / made.mid),
            format_seconds(now as f64 / inputs.now.only(&MAKING).least().mid),
        ));
    }
    if case.conditions.step.is_some() {
        change.assumes("the step takes time in proportion to its samples");
    }
    Ok(change)
}

/// Resources that make batches.
const MAKING: [Limit; 7] = [
    Limit::Storage,
    Limit::Host,
    Limit::Decode,
    Limit::Transform,
    Limit::Python,
    Limit::Memory,
    Limit::Executor,
];

/// Time of the cores as a whole for samples and batches, in seconds.
#[derive(Clone, Copy, Debug)]
struct BatchCost {
    /// Time of a sample.
    sample_s: f64,
    /// Time of a batch beyond its samples.
    batch_s: Interval,
}

impl BatchCost {
    /// Computes the cost from the rates with two batch sizes, turn by turn. None without rates.
    fn new(small: (u64, &[f64]), large: (u64, &[f64])) -> Option<BatchCost> {
        let ((small, slow), (large, fast)) = (small, large);
        if slow.is_empty() || fast.is_empty() || small >= large {
            return None;
        }
        // 1 / rate = sample_s + batch_s / rows.
        let share = 1.0 / small as f64 - 1.0 / large as f64;
        let costs = slow.iter().zip(fast);
        let costs: Vec<f64> = costs
            .map(|(slow, fast)| (1.0 / slow - 1.0 / fast) / share)
            .collect();
        let batch_s = interval(&costs).map(|cost| cost.max(0.0));
        let sample_s = 1.0 / interval(fast).mid.max(1e-9) - batch_s.mid / large as f64;
        Some(BatchCost {
            sample_s: sample_s.max(1e-12),
            batch_s,
        })
    }

    /// Returns the rate with batches of `then` samples, divided by the rate with `now`.
    fn gain(self, now: u64, then: u64) -> Interval {
        let of = |batch_s: f64| {
            let sample = |rows: u64| self.sample_s + batch_s / rows as f64;
            sample(now) / sample(then)
        };
        let ends = [of(self.batch_s.low), of(self.batch_s.high)];
        Interval {
            low: ends[0].min(ends[1]),
            mid: of(self.batch_s.mid),
            high: ends[0].max(ends[1]),
        }
    }
}

/// Measures the cost of a batch. None if the batch of a trial has one sample only, or if `go_on`
/// returned false.
fn measure(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Option<BatchCost>, Error> {
    let large = case.variant(&RecordSubset::Trial {
        records: &inputs.survey.sample,
        samples_per_s: inputs.run.samples_per_s,
    })?;
    let rows = large.pipeline.batch.size.unwrap_or(1);
    let smaller = (rows / SMALLER).max(1);
    let mut small: Variant = large.clone();
    small.pipeline.batch.size = Some(smaller);
    let mut rates = interleave(
        &[small, large],
        LoaderReuse::KeepOpen,
        case.rounds(),
        case.turn(TURN),
        go_on,
    );
    let fast = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    let slow = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    let turns = slow.len().min(fast.len());
    Ok(BatchCost::new(
        (smaller, &slow[..turns]),
        (rows, &fast[..turns]),
    ))
}

fn describe_cost(
    change: &mut PredictedChange,
    cost: BatchCost,
    (now, rows): (u64, u64),
    gain: Interval,
) {
    change.value("batch_s", cost.batch_s.mid);
    change.value("sample_s", cost.sample_s);
    change.value("gain", gain.mid);
    let batch = match cost.batch_s.mid > 0.0 {
        true => format!(
            "takes {} beyond its samples",
            format_seconds(cost.batch_s.mid)
        ),
        false => format!(
            "takes at most {} beyond its samples",
            format_seconds(cost.batch_s.high)
        ),
    };
    change.says(format!(
        "a batch {batch} ({} each): {:.3}x samples/s with {rows} instead of {now}",
        format_seconds(cost.sample_s),
        gain.mid,
    ));
}

/// Opens the pipeline with batches of `rows` samples and closes it again.
fn open(case: &Case, rows: u64) -> Result<Stats, Error> {
    let mut pipeline = case.pipeline.plain();
    (pipeline.batch.size, pipeline.batch.per_rank) = (Some(rows), None);
    let mut options = with_fixed_workers(&case.conditions.open);
    (options.rank, options.world_size) = (0, 1);
    pipeline.open_over(Arc::clone(&case.own), &options)?.stats()
}

fn describe_memory(change: &mut PredictedChange, rows: u64, stats: &Stats) {
    let slabs = stats.slab_bytes * stats.in_flight_batches as u64;
    change.value("slab_bytes", stats.slab_bytes as f64);
    change.value("in_flight_batches", stats.in_flight_batches as f64);
    change.value("budget_bytes", stats.budget_bytes as f64);
    change.says(format!(
        "memory: {rows} samples have {}; {} batches in flight take {} of the budget of {}",
        format_bytes(stats.slab_bytes as f64),
        stats.in_flight_batches,
        format_bytes(slabs as f64),
        format_bytes(stats.budget_bytes as f64),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_batch_is_the_difference_of_two_batch_sizes() {
        // 1 ms per sample and 2 ms per batch: 1.5 ms with 4 samples, 1.0625 ms with 32.
        let (slow, fast) = ([1.0 / 1.5e-3; 5], [1.0 / 1.0625e-3; 5]);

        let cost = BatchCost::new((4, &slow), (32, &fast)).expect("rates");

        assert!((cost.batch_s.mid - 2e-3).abs() < 1e-9, "{cost:?}");
        assert!((cost.sample_s - 1e-3).abs() < 1e-9, "{cost:?}");
        let gain = cost.gain(32, 64);
        assert!(
            (gain.mid - 1.0625e-3 / 1.031_25e-3).abs() < 1e-6,
            "{gain:?}"
        );
        assert!(gain.low < gain.mid && gain.mid < gain.high);
        assert!(cost.gain(64, 32).mid < 1.0);
    }

    #[test]
    fn a_difference_below_the_noise_is_no_cost() {
        let cost = BatchCost::new((1, &[1000.0; 3]), (8, &[990.0; 3])).expect("rates");

        assert_eq!(cost.batch_s.mid, 0.0);
        assert_eq!(cost.gain(8, 64).mid, 1.0);
        assert!(BatchCost::new((1, &[1000.0]), (1, &[990.0])).is_none());
        assert!(BatchCost::new((1, &[]), (8, &[])).is_none());
    }
}
