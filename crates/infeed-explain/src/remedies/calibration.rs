//! The width of predicted gains where the residuals of `benchmarks/ledger.py` do not cover a case.
//!
//! The usual width was chosen for JPEG, PNG and decoded pixels from memory, on the host, without Python
//! functions, on a quiet machine.

use crate::case::Case;
use crate::measure::survey::Survey;

/// Factor of both ends where the width was not chosen for the records or the pipeline.
const UNKNOWN: f64 = 1.10;

/// Share of the cores that other programs may use during calibrated trials.
const QUIET_SHARE: f64 = 0.05;

/// A factor by which the ends of all gains move away from the middle, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WiderIntervals {
    pub(super) factor: f64,
    reason: &'static str,
}

impl WiderIntervals {
    /// Returns the factor for trials during which other programs used `others` cores. None if the
    /// calibration applies.
    ///
    /// The factor of a load is 1 plus the share of the cores that others used. A gain measured next to
    /// compilers that used 75 % of the cores was 2.3 times the predicted one.
    pub(super) fn of(case: &Case, survey: &Survey, others: f64) -> Option<WiderIntervals> {
        let cores = infeed_raw::machine::usable_cores() as f64;
        by_load(others / cores).or_else(|| by_kind(case, survey))
    }

    /// Returns a note for the report.
    pub(super) fn note(&self) -> String {
        format!(
            "both ends of all intervals are moved by a factor of {:.2}, because {}; their width was \
             chosen without such cases",
            self.factor, self.reason
        )
    }
}

fn by_load(share: f64) -> Option<WiderIntervals> {
    (share > QUIET_SHARE).then_some(WiderIntervals {
        factor: 1.0 + share,
        reason: "other programs used the cores",
    })
}

fn by_kind(case: &Case, survey: &Survey) -> Option<WiderIntervals> {
    let known = survey.records.jpeg + survey.records.png;
    let reason = if case.conditions.device.is_some() {
        "batches go to a device"
    } else if !case.pipeline.python.is_empty() || case.own.python().is_some() {
        "Python functions run"
    } else if survey.pixel_bytes > 0.0 && known < survey.sample.len() {
        "some images are neither JPEG nor PNG"
    } else {
        return None;
    };
    Some(WiderIntervals {
        factor: UNKNOWN,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::interval::Interval;

    #[test]
    fn a_load_widens_by_its_share_of_the_cores() {
        assert_eq!(by_load(0.04), None);
        let half = by_load(0.5).expect("a load");

        let gain = Interval::exact(3.0).spread(half.factor);

        assert_eq!((gain.low, gain.mid, gain.high), (2.0, 3.0, 4.5));
        assert!(half.note().contains("1.50"), "{}", half.note());
    }
}
