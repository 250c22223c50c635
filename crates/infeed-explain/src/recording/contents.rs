//! The contents of a recording: facts without paths, record names or class names, unless the user
//! allowed them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::findings::Explanation;
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_core::error::Error;

/// Maximum number of sources in a recording.
const MAX_SOURCES: usize = 32;

/// Maximum number of characters of the plan.
const PLAN_CHARS: usize = 16_384;

/// Maximum number of feeders in a recording.
const MAX_FEEDERS: usize = 64;

/// A source of the data.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct RecordedSource {
    /// Kind of the source, such as `folder`.
    pub kind: String,
    /// `local`, or the scheme of its URLs, such as `s3`.
    pub location: String,
}

/// Returns the sources of a pipeline by kind. A mix has several.
pub(super) fn sources(pipeline: &Pipeline) -> Vec<RecordedSource> {
    let mut found = Vec::new();
    add_sources(&pipeline.source, &mut found);
    found.truncate(MAX_SOURCES);
    found
}

fn add_sources(source: &SourceSpec, found: &mut Vec<RecordedSource>) {
    if let SourceSpec::Mix { parts, .. } = source {
        let parts = parts.iter().map(|part| &part.source);
        return parts.for_each(|part| add_sources(part, found));
    }
    let description = serde_json::to_value(source).unwrap_or_default();
    let kind = description["kind"].as_str().unwrap_or("unknown");
    found.push(RecordedSource {
        kind: kind.to_owned(),
        location: scheme(&description).unwrap_or("local").to_owned(),
    });
}

/// Returns the scheme of the first URL in a description.
fn scheme(description: &Value) -> Option<&'static str> {
    const SCHEMES: [&str; 5] = ["s3", "gs", "az", "http", "https"];
    match description {
        Value::String(text) => {
            let (scheme, _) = text.split_once("://")?;
            SCHEMES.into_iter().find(|known| *known == scheme)
        }
        Value::Array(values) => values.iter().find_map(scheme),
        Value::Object(values) => values.values().find_map(scheme),
        _ => None,
    }
}

/// Removes from the explanation of a running loader what a recording must not contain, and what it
/// has no room for. `selection` is the selection in the plan, and `tuned` the note about tuning.
pub(super) fn reduce(
    explanation: &mut Explanation,
    selection: &str,
    tuned: Option<String>,
    with_paths: bool,
) {
    remove_empty_parts(explanation);
    if let Some(feeding) = &mut explanation.feeding {
        feeding.hosts.truncate(MAX_FEEDERS);
    }
    if !with_paths {
        // Filters and weights contain patterns of names, and classes.
        let plan = explanation.plan.strip_prefix(selection).unwrap_or_default();
        let words = selection_words(selection);
        explanation.plan = format!("{words}{plan}");
        explanation.notes = tuned.into_iter().collect();
        explanation.subject.pipeline.clear();
        let hosts = explanation.feeding.iter_mut().flat_map(|f| &mut f.hosts);
        for (at, host) in hosts.enumerate() {
            host.host = format!("feeder {}", at + 1);
            host.problem = None;
        }
    }
    if let Some((end, _)) = explanation.plan.char_indices().nth(PLAN_CHARS) {
        explanation.plan.truncate(end);
    }
}

/// Returns the lines of a selection without values: counts, and the names of the steps. A pattern
/// may contain any text, so this keeps known words only.
fn selection_words(selection: &str) -> String {
    const STEPS: [&str; 5] = ["filter", "split", "take", "weights", "repeat"];
    let line = |line: &str| {
        let (first, rest) = line.trim_start().split_once(' ')?;
        if STEPS.contains(&first) {
            return Some(format!("  {first}\n"));
        }
        let counts =
            |word: &str| word.parse::<u64>().is_ok() || ["of", "positions"].contains(&word);
        let is_known = ["records:", "epoch:"].contains(&first);
        (is_known && rest.split(' ').all(counts)).then(|| format!("{line}\n"))
    };
    selection.lines().filter_map(line).collect()
}

/// Removes the parts that the explanation of a running loader leaves empty, and the timeline, which
/// is long.
pub(super) fn remove_empty_parts(explanation: &mut Explanation) {
    explanation.control = None;
    explanation.remedies.clear();
    explanation.placement = None;
    explanation.decoding = None;
    explanation.utilisation = None;
    explanation.timeline.clear();
    explanation.ledger.clear();
}

/// Returns a word for the kind of an error. The error itself has names of records.
pub(super) fn kind(error: &Error) -> &'static str {
    match error {
        Error::Read { .. } => "read",
        Error::Damaged { .. } => "damaged",
        Error::Decode { .. } => "decode",
        Error::Transform { .. } => "transform",
        Error::Shape { .. } => "shape",
        Error::Function { .. } | Error::BatchFunction { .. } | Error::Process { .. } => "function",
        Error::RecordTooLarge { .. } => "too large",
        Error::TooManyBad { .. } => "too many bad records",
        Error::OutOfMemory { .. } => "out of memory",
        Error::Device { .. } => "device",
        Error::Panicked { .. } => "panic",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::feeders::{FeederHost, Feeding};
    use crate::recording::Recording;
    use infeed::pipeline::MixPart;

    /// A recording of a loader.
    const RECORDING: &[u8] = include_bytes!("../../../../fuzz/seeds/read_recording/loader");

    /// An explanation with a feeder, a selection and a pipeline.
    fn explanation() -> Explanation {
        let recording = Recording::from_json(RECORDING).expect("reads");
        let mut explanation = *recording.explanation.expect("an explanation");
        explanation.plan = format!("{SELECTION}image: rgb\n");
        explanation.notes = vec![SELECTION.to_owned()];
        explanation.subject.pipeline = "path = \"/home/zoe/photos\"".to_owned();
        let feeder = FeederHost {
            host: "zoe-pc:7077".to_owned(),
            connected: false,
            batches: 0,
            share: 0.0,
            bytes: 0,
            wait_s: 0.0,
            bytes_per_s: 0.0,
            busy: 0.0,
            alone: None,
            redone: 0,
            problem: Some("zoe-pc does not answer".to_owned()),
        };
        explanation.feeding = Some(Feeding {
            hosts: vec![feeder],
            ..Feeding::default()
        });
        explanation
    }

    const SELECTION: &str = "records: 5 of 12\n  filter     name zoe/*\n";

    #[test]
    fn names_of_hosts_and_records_are_removed_unless_they_are_allowed() {
        let reduced = |with_paths| {
            let mut explanation = explanation();
            let tuned = Some("2 workers".to_owned());
            reduce(&mut explanation, SELECTION, tuned, with_paths);
            serde_json::to_string(&explanation).expect("writes")
        };

        let text = reduced(false);
        assert!(!text.contains("zoe"), "{text}");
        for part in ["feeder 1", "5 of 12", "image: rgb", "2 workers"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let text = reduced(true);
        for part in [
            "zoe-pc:7077",
            "does not answer",
            "/home/zoe/photos",
            "zoe/*",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_source_is_its_kind_and_the_scheme_of_its_urls() {
        let part = |source| MixPart {
            weight: None,
            source,
        };
        let mix = SourceSpec::Mix {
            parts: vec![
                part(SourceSpec::folder("/home/ann/photos")),
                part(SourceSpec::folder("s3://bucket-of-ann/photos")),
                part(SourceSpec::folder("ann://photos")),
            ],
            epoch: None,
        };

        let found = sources(&Pipeline::new(mix));

        let source = |location: &str| RecordedSource {
            kind: "folder".to_owned(),
            location: location.to_owned(),
        };
        assert_eq!(found, [source("local"), source("s3"), source("local")]);
    }

    #[test]
    fn a_selection_keeps_counts_and_loses_values() {
        let selection = "records: 5 of 12\n  filter     name cat/*, label ann\nbob\nrecords: of ann\n\
                         epoch: 7 positions\n  repeat     2 passes\n";

        assert_eq!(
            selection_words(selection),
            "records: 5 of 12\n  filter\nepoch: 7 positions\n  repeat\n"
        );
    }
}
