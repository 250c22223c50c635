//! The remedy for functions that hold the interpreter lock: separate processes.

use super::candidate::{Candidate, KnownRemedy, PixelChange, RemedyChange};
use crate::case::Case;
use crate::findings::UntriedRemedy;
use infeed::function::FunctionScope;
use infeed::pipeline::FunctionSpec;

pub(super) const REMEDIES: &[KnownRemedy] = &[KnownRemedy::Counted {
    prefix: "processes-",
    counts: |case, _| {
        let is_useful = functions(case).next().is_some() && blocked_remedy(case).is_none();
        is_useful.then(|| case.workers()).into_iter().collect()
    },
    make: candidate,
}];

/// Returns the reason why the functions cannot run in processes, if there is one.
pub(super) fn blocked_remedy(case: &Case) -> Option<UntriedRemedy> {
    let why = functions(case).find_map(|spec| spec.bound.0.as_ref()?.bound_here())?;
    Some(UntriedRemedy {
        id: "processes".to_owned(),
        name: "functions in worker processes".to_owned(),
        why: why.to_owned(),
    })
}

/// Returns the functions that run in this process, on samples.
fn functions(case: &Case) -> impl Iterator<Item = &FunctionSpec> {
    case.pipeline.python.iter().filter(|spec| is_here(spec))
}

fn is_here(spec: &FunctionSpec) -> bool {
    spec.on == FunctionScope::Sample && spec.processes == 0
}

fn candidate(id: String, case: &Case, count: usize) -> Candidate {
    let mut pipeline = case.pipeline.clone();
    let mut names = Vec::new();
    for spec in pipeline.python.iter_mut().filter(|spec| is_here(spec)) {
        spec.processes = count;
        names.push(format!(".python({}, processes={count})", spec.function));
    }
    Candidate {
        id,
        name: format!("functions in {count} worker processes"),
        command: names.join(""),
        change: RemedyChange::Description(Box::new(pipeline)),
        pixels: PixelChange::Identical("identical"),
    }
}
