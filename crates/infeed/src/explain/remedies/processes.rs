//! The remedy of functions that hold the interpreter's lock: processes of their own.

use super::{Candidate, Change, not_tried};
use crate::explain::case::Case;
use crate::explain::findings::NotTried;
use crate::function::On;
use crate::pipeline::FunctionSpec;

const PROCESSES: &str = "processes-";

pub(super) fn add(case: &Case, found: &mut Vec<Candidate>, not: &mut Vec<NotTried>) {
    let here = || case.pipeline.python.iter().filter(|spec| is_here(spec));
    if here().next().is_none() {
        return;
    }
    let held = here().find_map(|spec| spec.bound.0.as_ref()?.bound_here());
    match held {
        Some(why) => not.push(not_tried(
            "processes",
            "functions in processes of their own",
            why,
        )),
        None => found.push(candidate(case, case.workers())),
    }
}

/// The remedy of this name.
pub(super) fn by_id(case: &Case, id: &str) -> Option<Candidate> {
    let count = id.strip_prefix(PROCESSES)?.parse().ok()?;
    Some(candidate(case, count))
}

fn is_here(spec: &FunctionSpec) -> bool {
    spec.on == On::Sample && spec.processes == 0
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
        name: format!("functions in {count} processes of their own"),
        command: names.join(""),
        change: Change::Description(Box::new(pipeline)),
        quality: Some("identical"),
    }
}
