//! Findings of checks: properties, results and measurements, and the log that reports each of them
//! immediately.

use std::fmt::Display;
use std::time::Instant;

use serde::Serialize;

use infeed_core::error::with_causes;

/// All findings about a device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Properties of the device, by name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Results of the checks.
    pub checks: Vec<CheckResult>,
    /// Measurements.
    pub figures: Vec<Figure>,
}

/// One result, reported as soon as it is known.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// A property of the device.
    Fact {
        /// Name of the property.
        name: &'static str,
        /// Value of the property.
        value: String,
    },
    /// The result of a check.
    Check(CheckResult),
    /// A measurement.
    Figure(Figure),
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The statement that is checked, as a sentence.
    pub name: String,
    /// Whether the statement holds.
    pub outcome: Outcome,
    /// The observation, the failure, or the reason why the check did not run.
    pub detail: String,
    /// Duration of the check.
    pub seconds: f64,
}

/// Whether a checked statement holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not hold, or the check ended with an error.
    Failed,
    /// The check could not run here.
    NotRun,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The measured quantity, as `name/of=value/…`.
    pub name: String,
    /// The measured value.
    pub value: f64,
    /// The unit of `value`.
    pub unit: &'static str,
}

/// Receives measurements one by one.
pub(super) struct Figures<'a>(&'a mut dyn FnMut(Figure));

impl Figures<'_> {
    pub(super) fn push(&mut self, figure: Figure) {
        (self.0)(figure);
    }
}

/// The findings so far, and the function that receives each of them.
pub(crate) struct FindingLog<'a> {
    report: CheckReport,
    found: &'a mut dyn FnMut(&Finding),
}

impl<'a> FindingLog<'a> {
    pub(super) fn new(found: &'a mut dyn FnMut(&Finding)) -> FindingLog<'a> {
        FindingLog {
            report: CheckReport::default(),
            found,
        }
    }

    pub(super) fn into_report(self) -> CheckReport {
        self.report
    }

    pub(super) fn fact(&mut self, name: &'static str, value: String) {
        (self.found)(&Finding::Fact {
            name,
            value: value.clone(),
        });
        self.report.facts.push((name, value));
    }

    pub(super) fn figure(&mut self, figure: Figure) {
        (self.found)(&Finding::Figure(figure.clone()));
        self.report.figures.push(figure);
    }

    pub(super) fn check(
        &mut self,
        name: impl Into<String>,
        run: impl FnOnce(&mut Figures<'_>) -> Result<String, CheckFailure>,
    ) {
        let start = Instant::now();
        let (outcome, detail) = match run(&mut Figures(&mut |figure| self.figure(figure))) {
            Ok(seen) => (Outcome::Passed, seen),
            Err(CheckFailure::Failed(why)) => (Outcome::Failed, why),
            Err(CheckFailure::NotRun(why)) => (Outcome::NotRun, why),
        };
        let check = CheckResult {
            name: name.into(),
            outcome,
            detail,
            seconds: start.elapsed().as_secs_f64(),
        };
        (self.found)(&Finding::Check(check.clone()));
        self.report.checks.push(check);
    }
}

/// Reason why a check did not pass.
#[derive(Debug)]
pub(super) enum CheckFailure {
    /// The statement does not hold, or an operation failed.
    Failed(String),
    /// The check cannot run here.
    NotRun(String),
}

impl<E: std::error::Error> From<E> for CheckFailure {
    fn from(error: E) -> CheckFailure {
        CheckFailure::Failed(with_causes(&error))
    }
}

pub(super) fn wrong(what: impl Display) -> CheckFailure {
    CheckFailure::Failed(what.to_string())
}
