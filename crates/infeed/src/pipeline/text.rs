//! Descriptions as text: TOML in files, JSON between processes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{MemoryField, Pipeline, VERSION, Weights, packed_dataset};
use infeed_core::error::Error;
use infeed_core::parse_problem::in_words;

/// Reads a description from TOML.
pub(super) fn from_toml(text: &str) -> Result<Pipeline, Error> {
    let wrong = |error: toml::de::Error| {
        // The text shows the line of the file above the message.
        let (text, message) = (error.to_string(), error.message());
        let text = text.replace(message, &in_words(message));
        Error::config("pipeline file", text.trim_end())
    };
    let pipeline: Pipeline = toml::from_str(text).map_err(wrong)?;
    // TOML has `nan` and `inf`, JSON has not, and no setting accepts them.
    let node: TextNode = toml::from_str(text).map_err(wrong)?;
    if let Some(name) = node.non_finite() {
        let problem = format!("{name} is not a finite number; set a number");
        return Err(Error::config("pipeline file", problem));
    }
    known_version(pipeline)
}

/// Reads a description from JSON.
pub(super) fn from_json(text: &str) -> Result<Pipeline, Error> {
    let pipeline: Pipeline = serde_json::from_str(text)
        .map_err(|error| Error::config("pipeline", in_words(&error.to_string())))?;
    known_version(pipeline)
}

fn known_version(pipeline: Pipeline) -> Result<Pipeline, Error> {
    if pipeline.version == VERSION {
        return Ok(pipeline);
    }
    let problem = format!(
        "the description has version {}, and this infeed reads version {VERSION}; use the infeed \
         that wrote it",
        pipeline.version
    );
    Err(Error::config("pipeline", problem))
}

/// Writes a description as TOML, unless data or a function exists only in memory.
pub(super) fn to_toml(pipeline: &Pipeline) -> Result<String, Error> {
    let (groups, lengths) = (&pipeline.batch_groups, &pipeline.batch_lengths);
    let held = [
        (
            "weights",
            pipeline.weights.as_ref().and_then(Weights::in_memory_name),
        ),
        (
            "batch_groups",
            groups.as_ref().and_then(MemoryField::in_memory_name),
        ),
        (
            "batch_lengths",
            lengths.as_ref().and_then(MemoryField::in_memory_name),
        ),
    ];
    for (part, name) in held {
        let Some(name) = name else { continue };
        let problem = format!(
            "the array `{name}` is in memory and cannot be saved; write it with np.save and \
             pass np.load(path, mmap_mode=\"r\")"
        );
        return Err(Error::config(part, problem));
    }
    let names = pipeline.source.in_memory_names();
    if !names.is_empty() {
        let problem = format!(
            "data in memory ({}) cannot be saved; write the data to files and use a source of files",
            names.join(", ")
        );
        return Err(Error::config("source", problem));
    }
    let held = pipeline.python.iter().filter(|spec| spec.handle.is_some());
    let functions: Vec<&str> = held.map(|spec| spec.function.as_str()).collect();
    if !functions.is_empty() {
        let problem = format!(
            "a pipeline file cannot contain {}, which is in no module; define it in a module that \
             can be imported",
            functions.join(", ")
        );
        return Err(Error::config("python", problem));
    }
    toml::to_string(pipeline).map_err(|error| Error::config("pipeline", error.to_string()))
}

/// Reads a TOML file, or the pipeline file in the folder of a packed dataset.
pub(super) fn load(path: &Path) -> Result<Pipeline, Error> {
    let file = match packed_dataset::is_folder(path) {
        true => packed_dataset::pipeline_of(path)?,
        false => path.to_owned(),
    };
    let text = packed_dataset::text_of(&file)?;
    let pipeline = from_toml(&text).map_err(|error| match error {
        Error::Config { problem, .. } => Error::config(file.display().to_string(), problem),
        other => other,
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    if packed_dataset::belongs(&file) {
        packed_dataset::pipeline_of(folder)?;
    }
    Ok(pipeline.from_folder(folder))
}

/// Text of a description, as far as its numbers are concerned.
#[derive(Deserialize)]
#[serde(untagged)]
enum TextNode {
    Number(f64),
    Array(Vec<TextNode>),
    Table(BTreeMap<String, TextNode>),
    Other(IgnoredAny),
}

impl TextNode {
    /// Returns the path of the first number that is not finite, such as `transforms[1].p`.
    fn non_finite(&self) -> Option<String> {
        let join = |key: String, rest: String| match rest.chars().next() {
            None | Some('[') => key + &rest,
            Some(_) => format!("{key}.{rest}"),
        };
        match self {
            TextNode::Number(number) => (!number.is_finite()).then(String::new),
            TextNode::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(at, item)| Some(join(format!("[{at}]"), item.non_finite()?))),
            TextNode::Table(table) => table
                .iter()
                .find_map(|(key, item)| Some(join(key.clone(), item.non_finite()?))),
            TextNode::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Layout, MemoryField, SourceSpec};
    use infeed_codec::decode::ColorMode;
    use infeed_codec::transform::{Crop, OneHot, ToFloat};
    use infeed_core::sample::DType;

    #[test]
    fn a_number_that_is_not_finite_is_named() {
        let text = |seed, p| {
            format!(
                "[source]\nkind = \"folder\"\npath = \"train\"\n[shuffle]\nseed = {seed}\n\
                 [[transforms]]\nkind = \"RandomHorizontalFlip\"\np = {p}\n"
            )
        };
        let error = Pipeline::from_toml(&text(7, "nan")).expect_err("not finite");
        let message = error.to_string();
        assert!(
            message.contains("transforms[0].p is not a finite number"),
            "{message}"
        );
        Pipeline::from_toml(&text(u64::MAX, "0.5")).expect("a seed that no float holds");
    }

    #[test]
    fn a_description_survives_toml_and_json_unchanged() {
        let mut pipeline = Pipeline::new(SourceSpec::pairs("train", "train_labels"))
            .shuffle(7)
            .decode()
            .transform(Crop::new(512, 512))
            .transform(ToFloat::of("image"))
            .transform(OneHot::from_palette("class_dict.csv"))
            .layout(Layout::Chw)
            .dtype(DType::Float16)
            .batch(3)
            .drop_last();
        if let Some(decode) = &mut pipeline.decode {
            decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
        }

        let text = pipeline.to_toml().expect("plain data");

        assert_eq!(
            Pipeline::from_toml(&text).expect("its own form"),
            pipeline,
            "{text}"
        );
        assert_eq!(
            Pipeline::from_json(&pipeline.to_json()).expect("its own form"),
            pipeline
        );
    }

    #[test]
    fn a_typo_in_a_pipeline_file_is_named_with_its_line() {
        let text = "[source]\nkind = \"folder\"\npath = \"x\"\n\n[shufle]\nseed = 1\n";

        let error = Pipeline::from_toml(text).expect_err("a typo").to_string();

        assert!(
            error.contains("shufle") && error.contains("line 5"),
            "{error}"
        );
    }

    #[test]
    fn saving_rejects_arrays_in_memory_by_name() {
        let field = MemoryField::array("image", "image", DType::UInt8, vec![2, 2, 3], 0);
        let pipeline = Pipeline::new(SourceSpec::Memory {
            fields: vec![field],
        });

        let error = pipeline.to_toml().expect_err("handles").to_string();

        assert!(error.contains("image"), "{error}");
    }
}
