//! Builds the verdict: claim, evidence, arithmetic, advice, and remedies without gain.

use crate::case::Case;
use crate::findings::{Remedy, Run, Verdict};
use crate::measure::functions;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::stages::Stall;
use crate::model::supply::Supply;
use infeed_core::units::{format_factor, format_percent, format_seconds};

/// Maximum number of remedies in the advice.
const ADVICE: usize = 3;

/// Relative difference of two rates below which the limits count as equal.
const TIE: f64 = 0.05;

/// Builds the verdict from the measurements.
pub(super) fn verdict(
    case: &Case,
    run: &Run,
    stall: &Stall,
    capacities: &Supply,
    remedies: &[Remedy],
) -> Verdict {
    let all = capacities.all();
    let (first, next) = (all.first(), all.get(1));
    let limit = capacities.limit();
    let rate = first.map_or(run.samples_per_s, |resource| resource.rate.mid);
    let next_rate = next.map(|resource| resource.rate.mid);
    let tie = next_rate.is_some_and(|next| next < rate * (1.0 + TIE));
    let waited = 1.0 - stall.compute;
    Verdict {
        limit,
        rate,
        next_limit: next.map(|resource| resource.limit),
        next_rate,
        tie,
        claim: claim(limit, next.filter(|_| tie).map(|r| r.limit), case, waited),
        evidence: evidence(case, run, rate),
        capacity: first.iter().map(|r| r.arithmetic.clone()).collect(),
        advice: advice(case, run, limit, remedies),
        not_worth: not_worth(limit, remedies),
    }
}

fn claim(limit: Limit, tied: Option<Limit>, case: &Case, waited: f64) -> String {
    let planned = case.conditions.planned_machine.as_ref();
    let place = planned.map_or(String::new(), |machine| format!(" on {}", machine.name));
    if let Some(other) = tied {
        return format!(
            "{} and {} limit this run together{place}: within 5 % of each other, so a remedy for \
             one alone gains little",
            limit.subject(),
            other.subject(),
        );
    }
    match (limit, case.conditions.step) {
        (Limit::Step, _) => format!(
            "the step limits this run{place}: the loader keeps up, and the consumer waited {} of \
             the time",
            format_percent(waited)
        ),
        (_, Some(_)) => format!(
            "{} limits this run{place}: the consumer waited {} of the time",
            limit.subject(),
            format_percent(waited)
        ),
        (_, None) => format!("{} limits how fast this runs{place}", limit.subject()),
    }
}

fn evidence(case: &Case, run: &Run, predicted: f64) -> Vec<String> {
    let workers = case.workers().max(1) as f64;
    let stage = |name: &str| run.stages.iter().find(|stage| stage.name == name);
    let wall = |name: &str| stage(name).map_or(0.0, |stage| stage.wall_s);
    let waits = |name: &str| stage(name).map_or(0.0, |stage| stage.wait_s);
    let share = |time: f64| format_percent((time / (workers * run.seconds).max(1e-9)).min(1.0));
    let busy = share(wall("decode") + wall("transform") + wall("write") + wall("python"));
    let empty = run.queue.iter().filter(|point| point.ready == 0).count();
    let mut lines = vec![
        format!(
            "{} batches in {:.1} s; the limits predict {predicted:.0} samples/s",
            run.batches, run.seconds
        ),
        format!(
            "{workers} workers busy {busy} of the run, waiting for bytes {}, for room {}; no batch \
             was ready at {} of requests",
            share(waits("decode")),
            share(waits("write")),
            format_percent(empty as f64 / run.queue.len().max(1) as f64),
        ),
    ];
    let costly = run
        .stages
        .iter()
        .max_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s))
        .filter(|stage| stage.samples > 0);
    if let Some(stage) = costly {
        lines.push(format!(
            "{} takes {} of a core per sample, {} of all processor time",
            stage.name,
            format_seconds(stage.cpu_s / stage.samples as f64),
            format_percent(stage.cpu_share),
        ));
    }
    lines
}

fn advice(case: &Case, run: &Run, limit: Limit, remedies: &[Remedy]) -> Vec<String> {
    let worth = remedies.iter().filter(|remedy| remedy.gains());
    let lines: Vec<String> = worth
        .take(ADVICE)
        .map(|remedy| {
            format!(
                "{}: {} ({})",
                remedy.name,
                format_factor(remedy.gain.mid),
                remedy.quality
            )
        })
        .collect();
    match limit {
        _ if !lines.is_empty() => lines,
        Limit::Step => vec!["nothing here: make the step faster, or the batch larger".to_owned()],
        Limit::Python if remedies.is_empty() => {
            functions::advice(run, &case.pipeline).into_iter().collect()
        }
        _ if remedies.is_empty() => Vec::new(),
        _ => vec!["no tried remedy gains more than its trials vary".to_owned()],
    }
}

fn not_worth(limit: Limit, remedies: &[Remedy]) -> Vec<String> {
    let worthless = remedies.iter().filter(|remedy| !remedy.gains());
    worthless
        .map(|remedy| {
            let why = if remedy.limit == limit {
                format!("{} stays the limit", limit.subject())
            } else {
                format!("{} limits then", remedy.limit.subject())
            };
            let Interval { low, mid, high } = remedy.gain;
            format!("{}: {mid:.2}x ({low:.2}-{high:.2}), {why}", remedy.name)
        })
        .collect()
}
