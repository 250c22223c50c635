//! Predicts the rate with other cores, memory, storage or batches. The model is that of the run: the
//! lowest rate over all resources. Each change replaces the rate of its resource.

mod batch;
mod cores;
mod executor;
pub(crate) mod inputs;
mod reading;
mod scaling;

use inputs::WhatIfInputs;

use crate::case::Case;
use crate::findings::what_if::{PredictedChange, WhatIfReport};
use crate::model::crossover::crossovers;
use crate::model::interval::Interval;
use crate::model::supply::Supply;
use infeed_core::error::Error;

/// Predicts the changes of a case. None if it has none, or if `go_on` returned false.
///
/// # Errors
///
/// Returns the error of a run that measures a change.
pub(crate) fn predict(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Option<WhatIfReport>, Error> {
    let what_if = &case.conditions.what_if;
    if what_if.is_empty() || !go_on(0.0) {
        return Ok(None);
    }
    let mut then = inputs.now.clone();
    let mut changes = Vec::new();
    // The measured changes share the progress.
    let measured = [what_if.cores.is_some(), what_if.batch.is_some()];
    let share = 1.0 / measured.iter().filter(|is| **is).count().max(1) as f64;
    if let Some(count) = what_if.cores {
        let part = |done: f64| go_on(share * done);
        changes.push(cores::change(case, inputs, count, &mut then, &part)?);
    }
    if what_if.storage.is_some() || what_if.memory_bytes.is_some() {
        changes.extend(reading::changes(case, inputs, what_if, &mut then));
    }
    if let Some(rows) = what_if.batch {
        let part = |done: f64| go_on(1.0 - share * (1.0 - done));
        changes.push(batch::change(case, inputs, rows, &mut then, &part)?);
    }
    let rows = what_if.batch.unwrap_or(inputs.subject.batch_rows);
    Ok(Some(report(
        what_if.question(),
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
    use crate::model::limit::Limit;

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
