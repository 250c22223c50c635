//! Prepares all remedies of a case for their trials, over the same records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::candidate::Candidate;
use super::prepare::PreparedRemedy;
use crate::case::Case;
use crate::findings::UntriedRemedy;
use crate::measure::variant::RecordSubset;
use infeed_core::error::Error;

/// A prepared remedy, and the number of records that it leaves out.
pub(super) type ReadyRemedy = (Candidate, PreparedRemedy, usize);

/// Prepares the remedies over the same records. A record that one remedy cannot write is in no
/// trial, so that equal positions are equal records. Returns for each remedy the number of records
/// that it leaves out.
pub(super) fn prepare_all(
    case: &Case,
    (mut found, not): (Vec<Candidate>, &mut Vec<UntriedRemedy>),
    (sample, samples_per_s): (&[u64], f64),
    scratch: &Path,
    progress: &(dyn Fn(f64) -> bool + Sync),
) -> Result<(Vec<ReadyRemedy>, Vec<u64>), Error> {
    let mut sample = sample.to_vec();
    let least = sample.len().div_ceil(2);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for pass in 0.. {
        let subset = RecordSubset::Trial {
            records: &sample,
            samples_per_s,
        };
        let folder = scratch.join(pass.to_string());
        fs::create_dir(&folder).map_err(|error| Error::write(&folder, error))?;
        let mut ready = Vec::new();
        let mut missing = BTreeSet::new();
        let count = found.len().max(1) as f64;
        for (at, candidate) in found.into_iter().enumerate() {
            let share = at as f64 / count;
            let going = |_, _| progress(share);
            let out = folder.join(&candidate.id);
            let prepared = match case.prepare(&candidate, &subset, &out, &going) {
                Ok(prepared) => prepared,
                Err(error) => {
                    not.push(reject(&candidate, &error));
                    continue;
                }
            };
            let lost = prepared
                .written
                .as_ref()
                .map_or(&[][..], |w| &w.left_out[..]);
            let all: BTreeSet<u64> = missing.iter().chain(lost).copied().collect();
            if sample.len() - all.len() < least {
                let why = format!("it leaves out {} of {} records", lost.len(), sample.len());
                not.push(untried_remedy(&candidate, why));
                continue;
            }
            *left_out.entry(candidate.id.clone()).or_default() += lost.len();
            missing = all;
            ready.push((candidate, prepared));
        }
        if missing.is_empty() {
            let lost = |candidate: &Candidate| left_out.get(&candidate.id).copied();
            let ready = ready.into_iter().map(|(candidate, prepared)| {
                let lost = lost(&candidate).unwrap_or_default();
                (candidate, prepared, lost)
            });
            return Ok((ready.collect(), sample));
        }
        // Each pass has fewer records, and at least half of them remain.
        sample.retain(|record| !missing.contains(record));
        found = ready.into_iter().map(|(candidate, _)| candidate).collect();
    }
    Ok((Vec::new(), sample))
}

/// Returns the entry of a remedy that cannot be tried.
pub(super) fn reject(candidate: &Candidate, error: &Error) -> UntriedRemedy {
    untried_remedy(candidate, error.chain())
}

fn untried_remedy(candidate: &Candidate, why: String) -> UntriedRemedy {
    UntriedRemedy {
        id: candidate.id.clone(),
        name: candidate.name.clone(),
        why,
    }
}
