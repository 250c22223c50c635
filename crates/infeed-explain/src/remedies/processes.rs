//! The remedy for functions that hold the interpreter lock: separate processes.

use super::candidate::{Candidate, PixelChange, RemedyChange};
use crate::case::Case;
use crate::findings::UntriedRemedy;
use infeed::function::FunctionScope;
use infeed::pipeline::FunctionSpec;

pub(super) const PROCESSES: &str = "processes-";

pub(super) fn add(case: &Case, found: &mut Vec<Candidate>, not: &mut Vec<UntriedRemedy>) {
    let here = || case.pipeline.python.iter().filter(|spec| is_here(spec));
    if here().next().is_none() {
        return;
    }
    let held = here().find_map(|spec| spec.bound.0.as_ref()?.bound_here());
    match held {
        Some(why) => not.push(UntriedRemedy {
            id: "processes".to_owned(),
            name: "functions in worker processes".to_owned(),
            why: why.to_owned(),
        }),
        None => found.push(candidate(case, case.workers())),
    }
}

/// Returns the remedy with this id.
pub(super) fn by_id(case: &Case, id: &str) -> Option<Candidate> {
    let count = id.strip_prefix(PROCESSES)?.parse().ok()?;
    Some(candidate(case, count))
}

fn is_here(spec: &FunctionSpec) -> bool {
    spec.on == FunctionScope::Sample && spec.processes == 0
}

fn candidate(case: &Case, count: usize) -> Candidate {
    let mut pipeline = case.pipeline.clone();
    let mut names = Vec::new();
    for spec in pipeline.python.iter_mut().filter(|spec| is_here(spec)) {
        spec.processes = count;
        names.push(format!(".python({}, processes={count})", spec.function));
    }
    Candidate {
        id: format!("{PROCESSES}{count}"),
        name: format!("functions in {count} worker processes"),
        command: names.join(""),
        change: RemedyChange::Description(Box::new(pipeline)),
        pixels: PixelChange::Identical("identical"),
    }
}
