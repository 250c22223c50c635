//! The storage as the limit of a run whose workers waited for bytes.

use crate::findings::Run;
use crate::model::interval::Interval;
use crate::model::limit::{Limit, Resource};
use crate::model::supply::Supply;
use infeed_core::units::format_percent;

/// Bounds of a starved run: the minimum share of time that workers wait for bytes, and the maximum
/// share of the predicted rate that the run reaches. A busy loader is far from both.
const STARVED: (f64, f64) = (0.3, 0.7);

/// Returns the storage as a limit if no capacity accounts for it and the workers of a run waited
/// for bytes. Its rate is the read rate of that run.
pub(super) fn storage_limit(run: &Run, workers: usize, capacities: &Supply) -> Option<Resource> {
    let decode = run.stages.iter().find(|stage| stage.name == "decode")?;
    let share = decode.wait_s / (workers as f64 * run.seconds).max(1e-9);
    let known = capacities.rate_of(Limit::Storage).is_some();
    let slow = run.samples_per_s < STARVED.1 * capacities.least().mid;
    (!known && slow && share > STARVED.0).then(|| Resource {
        limit: Limit::Storage,
        rate: Interval::exact(run.samples_per_s).widen(0.1),
        arithmetic: format!(
            "workers waited for bytes {} of the run; {:.0} samples/s is the read rate",
            format_percent(share.min(1.0)),
            run.samples_per_s,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stages::StageCost;

    #[test]
    fn a_run_whose_workers_waited_for_bytes_was_limited_by_storage() {
        let mut capacities = Supply::default();
        capacities.add(Limit::Transform, Interval::exact(40_000.0), String::new());
        let run = |wait_s, samples_per_s| Run {
            samples_per_s,
            seconds: 4.0,
            stages: vec![StageCost {
                name: "decode".to_owned(),
                wait_s,
                ..StageCost::default()
            }],
            ..Run::default()
        };

        let found = storage_limit(&run(5.0, 5_000.0), 2, &capacities).expect("it was starved");
        assert_eq!((found.limit, found.rate.mid), (Limit::Storage, 5_000.0));
        assert!(
            storage_limit(&run(5.0, 39_000.0), 2, &capacities).is_none(),
            "fast"
        );
        assert!(
            storage_limit(&run(0.5, 5_000.0), 2, &capacities).is_none(),
            "busy"
        );
        capacities.add(Limit::Storage, Interval::exact(90_000.0), String::new());
        assert!(
            storage_limit(&run(5.0, 5_000.0), 2, &capacities).is_none(),
            "known"
        );
    }
}
