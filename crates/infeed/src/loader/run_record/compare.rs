//! The first difference of two runs, and the number of differences.

use std::collections::{HashMap, HashSet};

use super::keys::RowKey;
use super::steps::{RecordedStep, RunRecord};
use crate::loader::digest::Digest;
use infeed_core::error::Error;

/// Steps that a comparison covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedSteps {
    /// All steps of both runs.
    All,
    /// The steps that both runs have.
    Common,
    /// The steps up to the last expected one. The found run may go on after it.
    UpToExpected,
}

/// The first difference of two runs, and the number of differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDifference {
    /// Number of the step that differs first.
    pub step: u64,
    /// Row in that step; `None` if only the digests of the step differ.
    pub row: Option<usize>,
    /// Sample that is expected there; `None` if the found run has more rows.
    pub expected: Option<String>,
    /// Sample that is found there; `None` if the found run has fewer rows.
    pub found: Option<String>,
    /// Number of samples that the found run never delivered.
    pub lost: u64,
    /// Number of samples that the found run delivered once more than expected.
    pub doubled: u64,
    /// Number of samples that the found run delivered in another location.
    pub moved: u64,
    /// All of this as sentences.
    pub text: String,
}

/// Step and row.
type StepRow = (u64, usize);

/// Locations of each sample, in order.
type SampleLocations<'a> = HashMap<&'a RowKey, Vec<StepRow>>;

/// Compares two runs.
///
/// A sample that is expected several times, once in each epoch, may be found as often. The digests
/// of steps count if both records are of the same run of infeed's own loader.
///
/// # Errors
///
/// [`Error::Config`] if the runs have no step in common, or keys of different kinds.
pub fn compare_runs(
    expected: &RunRecord,
    found: &RunRecord,
    steps: ComparedSteps,
) -> Result<Option<RunDifference>, Error> {
    let wrong = |problem: String| Err(Error::config("compare_runs", problem));
    if let (Some(one), Some(other)) = (expected.kind(), found.kind())
        && one != other
    {
        return wrong(format!(
            "one run has {one} and the other has {other}; record both with ids, or both without"
        ));
    }
    let compared = numbers(expected, found, steps);
    if !compared.iter().any(|&n| has(expected, n) && has(found, n)) {
        return wrong(format!(
            "no step is in both runs: {} are expected, {} are found",
            range(expected),
            range(found)
        ));
    }
    let runs = expected.run.as_ref().zip(found.run.as_ref());
    let compares_digests = runs.is_some_and(|(one, other)| one.is_same_run(other));
    let differs = |&step: &u64| match (expected.get(step), found.get(step)) {
        (Some(one), Some(other)) => {
            one.rows != other.rows || compares_digests && !is_same_digest(one.digest, other.digest)
        }
        _ => true,
    };
    let first = compared.iter().copied().find(differs);
    Ok(first.map(|step| difference(expected, found, &compared, step)))
}

/// Whether two digests of a step agree on all that both cover.
pub(in crate::loader) fn is_same_digest(expected: Option<Digest>, found: Option<Digest>) -> bool {
    let Some((expected, found)) = expected.zip(found) else {
        return true;
    };
    let mut pixels = expected.pixels.iter().zip(found.pixels);
    expected.ids == found.ids && pixels.all(|(&one, other)| one == other)
}

fn numbers(expected: &RunRecord, found: &RunRecord, steps: ComparedSteps) -> Vec<u64> {
    let of = |run: &RunRecord| run.steps().iter().map(|step| step.step).collect::<Vec<_>>();
    let mut numbers = of(expected);
    match steps {
        ComparedSteps::Common => numbers.retain(|&step| has(found, step)),
        ComparedSteps::All | ComparedSteps::UpToExpected => {
            let last = numbers.last().copied();
            let more = of(found).into_iter().filter(|&step| {
                !has(expected, step)
                    && (steps == ComparedSteps::All || last.is_some_and(|last| step < last))
            });
            numbers.extend(more);
            numbers.sort_unstable();
        }
    }
    numbers
}

fn has(run: &RunRecord, step: u64) -> bool {
    run.get(step).is_some()
}

fn difference(
    expected: &RunRecord,
    found: &RunRecord,
    compared: &[u64],
    step: u64,
) -> RunDifference {
    let explanation = RowExplanation::new(expected, found, step);
    let mut sentences = match (has(expected, step), has(found, step)) {
        (true, false) => vec![missing_steps(
            ("found", found),
            ("expected", expected),
            step,
        )],
        (false, _) => vec![missing_steps(
            ("expected", expected),
            ("found", found),
            step,
        )],
        (true, true) => {
            let names = RunNames {
                sample: &RowKey::to_string,
                step: &|step| format!("step {step}"),
            };
            let mut sentences = vec![match explanation.row {
                Some(row) => format!("The runs differ first in step {step}, row {row}."),
                None => format!(
                    "The runs differ first in step {step}. The keys of its rows are equal, and \
                     their digests are not."
                ),
            }];
            sentences.extend(explanation.sentences(true, &names));
            sentences
        }
    };
    let (lost, doubled, moved) = count(&explanation.locations, compared);
    sentences.push(format!(
        "In {} steps, {lost} samples are lost, {doubled} are delivered once more than expected, and \
         {moved} are in another place.",
        compared.len()
    ));
    RunDifference {
        step,
        row: explanation.row,
        expected: explanation.expected.map(RowKey::text),
        found: explanation.found.map(RowKey::text),
        lost,
        doubled,
        moved,
        text: sentences.join(" "),
    }
}

/// Says which steps a run does not have, from the first one on.
fn missing_steps(
    (name, run): (&str, &RunRecord),
    (other_name, other): (&str, &RunRecord),
    step: u64,
) -> String {
    let next = run.steps().iter().find(|one| one.step > step);
    match next.map(|next| next.step - 1) {
        Some(last) if last == step => {
            format!("The {name} run does not have step {step}, which the {other_name} run has.")
        }
        Some(last) => format!(
            "The {name} run does not have steps {step} to {last}, which the {other_name} run has."
        ),
        None => format!(
            "The {name} run ends at step {}, and the {other_name} run goes on to step {}.",
            last_number(run),
            last_number(other)
        ),
    }
}

fn last_number(run: &RunRecord) -> u64 {
    run.steps().last().map_or(0, |last| last.step)
}

fn range(run: &RunRecord) -> String {
    match run.steps() {
        [] => "no steps".to_owned(),
        [first, ..] => format!("steps {} to {}", first.step, last_number(run)),
    }
}

/// Names for sentences about runs.
pub(in crate::loader) struct RunNames<'a> {
    /// Returns the name of a sample.
    pub(in crate::loader) sample: &'a dyn Fn(&RowKey) -> String,
    /// Returns the name of a step.
    pub(in crate::loader) step: &'a dyn Fn(u64) -> String,
}

/// The first row that differs in a step, and the locations of its samples.
pub(in crate::loader) struct RowExplanation<'a> {
    step: u64,
    /// `None` if all rows are equal.
    pub(in crate::loader) row: Option<usize>,
    pub(in crate::loader) expected: Option<&'a RowKey>,
    pub(in crate::loader) found: Option<&'a RowKey>,
    locations: [SampleLocations<'a>; 2],
}

impl<'a> RowExplanation<'a> {
    /// Finds the row in two runs, of which one may lack the step.
    pub(in crate::loader) fn new(
        expected: &'a RunRecord,
        found: &'a RunRecord,
        step: u64,
    ) -> RowExplanation<'a> {
        let rows = |run: &'a RunRecord| run.get(step).map_or(&[][..], |step| &step.rows);
        let (wanted, present) = (rows(expected), rows(found));
        let row =
            (0..wanted.len().max(present.len())).find(|&row| wanted.get(row) != present.get(row));
        RowExplanation {
            step,
            row,
            expected: row.and_then(|row| wanted.get(row)),
            found: row.and_then(|row| present.get(row)),
            locations: [locations(expected), locations(found)],
        }
    }

    /// Says what happened to the expected and to the found sample. If the found run is not
    /// complete, it may deliver the expected one later.
    pub(in crate::loader) fn sentences(
        &self,
        is_complete: bool,
        names: &RunNames<'_>,
    ) -> Vec<String> {
        let Some(row) = self.row else {
            return Vec::new();
        };
        let at = (self.step, row);
        let fate = self
            .expected
            .map(|key| self.fate(at, key, is_complete, names));
        let origin = self.found.map(|key| self.origin(at, key, names));
        fate.into_iter().chain(origin).collect()
    }

    /// Says what the found run did with the sample that is expected in a location.
    fn fate(&self, at: StepRow, key: &RowKey, is_complete: bool, names: &RunNames<'_>) -> String {
        let [expected, found] = &self.locations;
        let name = (names.sample)(key);
        let number = expected[key].iter().position(|&one| one == at);
        match number.and_then(|number| found.get(key)?.get(number)) {
            Some(&(step, row)) => format!(
                "Sample {name}, which is expected there, is in {}, row {row}.",
                (names.step)(step)
            ),
            None if is_complete => format!("Sample {name}, which is expected there, is lost."),
            None => format!("Sample {name} is expected there."),
        }
    }

    /// Says where the sample that is found in a location was expected.
    fn origin(&self, at: StepRow, key: &RowKey, names: &RunNames<'_>) -> String {
        let [expected, found] = &self.locations;
        let name = (names.sample)(key);
        let number = found[key].iter().position(|&one| one == at).unwrap_or(0);
        if let Some(&(step, row)) = expected.get(key).and_then(|all| all.get(number)) {
            let step = (names.step)(step);
            return format!("Sample {name} is there; it is expected in {step}, row {row}.");
        }
        match number.checked_sub(1).map(|before| found[key][before]) {
            None => format!("Sample {name} is there, which the expected run does not have."),
            Some((step, row)) => format!(
                "Sample {name} is there a second time: it was already delivered in {}, row {row}.",
                (names.step)(step)
            ),
        }
    }
}

fn locations(run: &RunRecord) -> SampleLocations<'_> {
    let mut locations = SampleLocations::new();
    for RecordedStep { step, rows, .. } in run.steps() {
        for (row, key) in rows.iter().enumerate() {
            locations.entry(key).or_default().push((*step, row));
        }
    }
    locations
}

/// Counts the lost, doubled and moved samples in compared steps.
fn count([expected, found]: &[SampleLocations<'_>; 2], compared: &[u64]) -> (u64, u64, u64) {
    let compared: HashSet<u64> = compared.iter().copied().collect();
    let number = |locations: &[StepRow]| {
        let counts = locations.iter().filter(|(step, _)| compared.contains(step));
        counts.count() as u64
    };
    let (mut lost, mut doubled, mut moved) = (0, 0, 0);
    let mut add = |ours: &[StepRow], theirs: &[StepRow]| {
        let common = ours.len().min(theirs.len());
        lost += number(&ours[common..]);
        doubled += number(&theirs[common..]);
        let pairs = ours[..common].iter().zip(theirs);
        let changed = pairs.filter(|(one, other)| one != other);
        let changed: Vec<StepRow> = changed.map(|(one, _)| *one).collect();
        moved += number(&changed);
    };
    for (key, ours) in expected {
        add(ours, found.get(key).map_or(&[], Vec::as_slice));
    }
    for (_, theirs) in found.iter().filter(|(key, _)| !expected.contains_key(*key)) {
        add(&[], theirs);
    }
    (lost, doubled, moved)
}
