//! The rate with another number of cores: measured with up to all cores here, extrapolated beyond,
//! and bounded by memory bandwidth and the executor's lock.

use infeed_raw::machine::{physical_cores, usable_cores};

use super::executor::executor_s;
use super::inputs::WhatIfInputs;
use super::scaling::Scaling;
use crate::case::Case;
use crate::findings::Run;
use crate::findings::what_if::PredictedChange;
use crate::measure::functions;
use crate::measure::trial::{LoaderReuse, TURN, interleave, ratio};
use crate::measure::variant::RecordSubset;
use crate::measure::variant::Variant;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{COUNTED, Supply, costliest};
use infeed_core::error::Error;
use infeed_core::probe;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_seconds};

/// Predicts `count` cores and replaces the rates of cores, memory and lock in `then`.
///
/// # Errors
///
/// As opening and running the pipeline.
pub(super) fn change(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    count: usize,
    then: &mut Supply,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<PredictedChange, Error> {
    let mut change = PredictedChange::new("cores");
    let here = usable_cores();
    let Some(scaling) = measure(case, inputs, count, here, go_on)? else {
        change.says("cores: not measured, because the explanation was stopped");
        return Ok(change);
    };
    let Some(rate) = scaling.at(count) else {
        return Ok(change);
    };
    describe(&mut change, &scaling, count, rate);
    let limit = costliest(&inputs.run.stages);
    let named = |rate| functions::workers(inputs.run, &case.pipeline, (limit, rate, String::new()));
    let (limit_now, ..) = named(inputs.own);
    then.take(limit_now);
    let (limit, rate, lock) = named(rate);
    if limit == Limit::Python && !lock.is_empty() {
        change.says(lock.trim_end_matches("; ").to_owned());
    }
    then.add(limit, rate, change.arithmetic.join("; "));
    if count > here {
        ceilings(&mut change, case, inputs, (count, here), then)?;
        change.assumes(format!(
            "the additional cores are like these {here}, and nothing else runs on them"
        ));
    }
    change.assumes("as many workers as cores");
    Ok(change)
}

/// Runs the pipeline in turn with several numbers of cores. None if `go_on` returned false before
/// all ran.
fn measure(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    count: usize,
    here: usize,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Option<Scaling>, Error> {
    let base = case.variant(&RecordSubset::Trial {
        records: &inputs.survey.sample,
        samples_per_s: inputs.run.samples_per_s,
    })?;
    let mut counts = counts(count, here);
    let mut points = Vec::new();
    // The run itself is the point of all cores, unless it had another number of workers.
    if case.workers() == here && counts.last() == Some(&here) {
        counts.pop();
        points.push((here, inputs.own));
    }
    let with = |&cores: &usize| {
        let mut variant = base.clone();
        variant.options.workers = Some(cores);
        variant.cores = Some(cores);
        variant
    };
    let mut variants: Vec<Variant> = counts.iter().map(with).collect();
    variants.push(base.clone());
    let mut rates = match counts.is_empty() {
        true => Vec::new(),
        false => interleave(
            &variants,
            LoaderReuse::KeepOpen,
            case.rounds(),
            case.turn(TURN),
            go_on,
        ),
    };
    let base = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    for (&cores, rates) in counts.iter().zip(rates) {
        let rates = rates?;
        if rates.is_empty() || base.is_empty() {
            return Ok(None);
        }
        let times = ratio(&rates, &base);
        points.push((cores, times.map(|times| times * inputs.own.mid)));
    }
    let physical = physical_cores().unwrap_or(here).min(here);
    Ok(Some(Scaling::new(points, physical)))
}

/// Returns the numbers of cores to run with: the wanted number if it exists here, and powers of two
/// up to all cores if it does not.
fn counts(wanted: usize, here: usize) -> Vec<usize> {
    if wanted <= here {
        return vec![wanted];
    }
    let mut counts: Vec<usize> = (0..usize::BITS)
        .map(|power| 1_usize << power)
        .take_while(|&cores| cores < here)
        .collect();
    counts.push(here);
    counts
}

fn cores(count: usize) -> String {
    match count {
        1 => "1 core".to_owned(),
        count => format!("{count} cores"),
    }
}

fn describe(change: &mut PredictedChange, scaling: &Scaling, count: usize, rate: Interval) {
    let here = scaling.most_cores();
    change.value("measured_cores", here as f64);
    if count <= here {
        change.says(format!(
            "{}: {:.0} samples/s ({:.0} to {:.0}), measured here on {}",
            cores(count),
            rate.mid,
            rate.low,
            rate.high,
            cores(count),
        ));
        return;
    }
    let all = scaling.at(here).map_or(0.0, |rate| rate.mid);
    change.value("measured_rate", all);
    match scaling.exponent() {
        Some(exponent) => {
            change.value("exponent", exponent);
            change.says(format!(
                "measured: {all:.0} samples/s on {}; twice the cores give {:.2} times the rate",
                cores(here),
                2.0_f64.powf(exponent),
            ));
        }
        None => {
            change.says(format!("measured: {all:.0} samples/s on {}", cores(here)));
            change.assumes(
                "the growth with cores was not measured, because there is only one core here: \
                 1.62 to 2 times the rate with twice the cores",
            );
        }
    }
    change.says(format!(
        "{}: {:.0} samples/s ({:.0} to {:.0}), extrapolated from {}: low if the measured loss \
         repeats at each doubling, high if every core adds the same",
        cores(count),
        rate.mid,
        rate.low,
        rate.high,
        cores(here),
    ));
}

/// Adds the ceilings of more cores than there are here: memory bandwidth and the executor's lock.
fn ceilings(
    change: &mut PredictedChange,
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    (count, here): (usize, usize),
    then: &mut Supply,
) -> Result<(), Error> {
    let moved = moved_bytes(inputs.run);
    if moved > 0.0 {
        let rate = bandwidth(count, here);
        change.value("memory_bytes_per_s", rate.mid);
        change.value("moved_bytes", moved);
        let text = format!(
            "memory: {} ({} measured on {}) / {} read and written per sample = {:.0} samples/s",
            format_bytes_per_s(rate.mid),
            format_bytes_per_s(rate.low),
            cores(here),
            format_bytes(moved),
            rate.mid / moved,
        );
        change.says(text.clone());
        change.assumes(
            "memory bandwidth grows with the cores as measured here, at the low end not at all; \
             caches keep nothing of a sample between stages",
        );
        then.take(Limit::Memory);
        then.add(Limit::Memory, rate.map(|rate| rate / moved), text);
    }
    let row_s = case.workers() as f64 / inputs.own.mid.max(1e-9);
    let own_s = executor_s(row_s, here, case.readers())?;
    if own_s > 0.0 {
        change.value("executor_s", own_s);
        let rate = 1.0 / own_s;
        let text = format!(
            "executor: 1 / {} per sample in the executor itself = {rate:.0} samples/s, if all \
             of it holds the lock",
            format_seconds(own_s)
        );
        change.says(text.clone());
        then.add(Limit::Executor, Interval::exact(rate).widen(COUNTED), text);
    }
    Ok(())
}

/// Returns the bytes that all stages read and write for a sample.
fn moved_bytes(run: &Run) -> f64 {
    let used = run.stages.iter().filter(|stage| stage.samples > 0);
    used.map(|stage| (stage.bytes_in + stage.bytes_out) as f64 / stage.samples as f64)
        .sum()
}

/// Returns the memory bandwidth with `count` cores in bytes per second: at least that of the cores
/// here.
fn bandwidth(count: usize, here: usize) -> Interval {
    let known = probe::Probe::path().and_then(|path| probe::Probe::load(&path));
    let known = known.unwrap_or_else(probe::Probe::measure);
    let all = known.memory_all_cores_bytes_per_s;
    let points = [(1, known.memory_one_core_bytes_per_s), (here, all)];
    let points = points.map(|(cores, rate)| (cores, Interval::exact(rate)));
    let physical = physical_cores().unwrap_or(here).min(here);
    let points = match here {
        1 => points[1..].to_vec(),
        _ => points.to_vec(),
    };
    let grown = Scaling::new(points, physical).at(count);
    let grown = grown.unwrap_or(Interval::exact(all));
    Interval { low: all, ..grown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stages::StageCost;

    #[test]
    fn existing_cores_are_measured_and_others_extrapolated_from_powers_of_two() {
        assert_eq!(counts(1, 2), [1]);
        assert_eq!(counts(3, 4), [3]);
        assert_eq!(counts(16, 2), [1, 2]);
        assert_eq!(counts(64, 12), [1, 2, 4, 8, 12]);
        assert_eq!(counts(4, 1), [1]);
    }

    #[test]
    fn moved_bytes_are_those_of_all_stages() {
        let stage = |samples, bytes_in, bytes_out| StageCost {
            samples,
            bytes_in,
            bytes_out,
            ..StageCost::default()
        };
        let run = Run {
            stages: vec![stage(10, 1000, 3000), stage(10, 3000, 500), stage(0, 9, 9)],
            ..Run::default()
        };

        assert_eq!(moved_bytes(&run), 750.0);
    }

    #[test]
    fn an_extrapolation_names_the_cores_it_is_from() {
        let points = vec![(1, Interval::exact(100.0)), (2, Interval::exact(190.0))];
        let scaling = Scaling::new(points, 2);
        let mut change = PredictedChange::new("cores");

        describe(&mut change, &scaling, 16, scaling.at(16).expect("points"));

        let text = change.arithmetic.join("\n");
        assert!(text.contains("190 samples/s on 2 cores"), "{text}");
        assert!(text.contains("1.90 times the rate"), "{text}");
        assert!(text.contains("extrapolated from 2 cores"), "{text}");
    }
}
