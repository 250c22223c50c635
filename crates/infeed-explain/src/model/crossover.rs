//! The step times at which the limit changes. A step of `T` seconds takes `rows / T` samples per
//! second, so a resource is slower than the step while `T` is below `rows / rate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::limit::Limit;
use super::supply::Supply;
use infeed_core::units::format_seconds;

/// The step time below which a resource is slower than the step.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Crossover {
    /// The resource.
    pub limit: Limit,
    /// Time of a step in seconds.
    pub step_s: Interval,
}

/// Returns the crossovers of all resources except the step, longest step first.
pub(crate) fn crossovers(supply: &Supply, rows: u64) -> Vec<Crossover> {
    let rows = rows as f64;
    let others = supply.all().iter().filter(|resource| {
        resource.limit != Limit::Step && resource.rate.mid.is_finite() && resource.rate.mid > 0.0
    });
    others
        .map(|resource| Crossover {
            limit: resource.limit,
            step_s: Interval {
                low: rows / resource.rate.high,
                mid: rows / resource.rate.mid,
                high: rows / resource.rate.low.max(1e-9),
            },
        })
        .collect()
}

/// Describes the crossovers: the first as a sentence, the others in a second sentence.
pub(crate) fn sentences(crossovers: &[Crossover]) -> Vec<String> {
    let Some((first, others)) = crossovers.split_first() else {
        return Vec::new();
    };
    let mut sentences = vec![format!(
        "with a step under {} {} becomes the limit",
        format_seconds(first.step_s.mid),
        first.limit.subject()
    )];
    let under = |other: &Crossover| {
        format!(
            "{} with a step under {}",
            other.limit.subject(),
            format_seconds(other.step_s.mid)
        )
    };
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(under).collect();
        sentences.push(format!(
            "without that limit, it would be {}",
            others.join(", then ")
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossover_is_the_batch_over_the_rate() {
        let mut supply = Supply::default();
        let decode = Interval {
            low: 800.0,
            mid: 1000.0,
            high: 1280.0,
        };
        supply.add(Limit::Decode, decode, String::new());
        supply.add(Limit::Storage, Interval::exact(8000.0), String::new());
        supply.add(Limit::Step, Interval::exact(500.0), String::new());

        let found = crossovers(&supply, 32);

        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].limit, found[0].step_s.mid),
            (Limit::Decode, 0.032)
        );
        assert_eq!((found[0].step_s.low, found[0].step_s.high), (0.025, 0.04));
        assert_eq!(
            sentences(&found),
            [
                "with a step under 32 ms decoding becomes the limit",
                "without that limit, it would be storage with a step under 4 ms"
            ]
        );
        assert!(sentences(&[]).is_empty());
    }
}
