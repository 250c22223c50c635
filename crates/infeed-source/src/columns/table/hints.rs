//! Hints in the metadata of a schema: features of Hugging Face, the shape of tensors.
//!
//! Sources: `datasets` writes its features as JSON under the key `huggingface`; the canonical
//! extension type `arrow.fixed_shape_tensor` stores its shape as JSON under
//! `ARROW:extension:metadata`. Features are hints, so unknown ones are ignored.

use std::collections::HashMap;

use arrow_schema::{Field, Schema};
use serde_json::Value;

const NAME: &str = "ARROW:extension:name";
const METADATA: &str = "ARROW:extension:metadata";

/// Maximum number of class names.
const CLASSES: usize = 1 << 20;

/// A hint about a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FeatureHint {
    /// Encoded images.
    Image,
    /// Class numbers, with the names of the classes.
    Classes(Vec<String>),
    /// Nested lists of one shape.
    Array(Vec<usize>),
}

/// Hints by column.
#[derive(Debug, Default)]
pub(super) struct Hints(HashMap<String, FeatureHint>);

impl Hints {
    /// Reads the hints of a schema; empty if it has none.
    pub(super) fn of(schema: &Schema) -> Hints {
        let text = schema.metadata().get("huggingface");
        let json = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let features = json
            .as_ref()
            .and_then(|json| json.get("info")?.get("features")?.as_object());
        let known = |(name, value): (&String, &Value)| Some((name.clone(), feature(value)?));
        Hints(features.into_iter().flatten().filter_map(known).collect())
    }

    /// Returns the hint for a column.
    pub(super) fn of_column(&self, name: &str) -> Option<&FeatureHint> {
        self.0.get(name)
    }

    /// Returns the class names of a column of class numbers.
    pub(super) fn classes(&self, name: &str) -> Option<&[String]> {
        match self.of_column(name)? {
            FeatureHint::Classes(names) => Some(names),
            _ => None,
        }
    }
}

fn feature(value: &Value) -> Option<FeatureHint> {
    match value.get("_type")?.as_str()? {
        "Image" => Some(FeatureHint::Image),
        "ClassLabel" => {
            let names = value.get("names")?.as_array()?;
            let names = names.iter().take(CLASSES);
            let names = names.map(|name| Some(name.as_str()?.to_owned()));
            Some(FeatureHint::Classes(names.collect::<Option<_>>()?))
        }
        "Array2D" | "Array3D" | "Array4D" | "Array5D" => {
            let shape = value.get("shape")?.as_array()?.iter();
            let shape = shape.map(|axis| usize::try_from(axis.as_u64()?).ok());
            // The first axis may be open; such lists do not have one shape.
            Some(FeatureHint::Array(shape.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// Returns the shape of a column of tensors; None for any other column.
///
/// # Errors
///
/// Invalid metadata, or axes that are not in C order.
pub(super) fn tensor_shape(field: &Field) -> Result<Option<Vec<usize>>, String> {
    let is_tensor = |name: &String| name == "arrow.fixed_shape_tensor";
    if !field.metadata().get(NAME).is_some_and(is_tensor) {
        return Ok(None);
    }
    let text = field.metadata().get(METADATA).map_or("", String::as_str);
    let json: Value = serde_json::from_str(text)
        .map_err(|error| format!("the metadata of its tensors is not valid JSON: {error}"))?;
    let numbers = |key: &str| {
        let list = json.get(key)?.as_array()?.iter();
        let list = list.map(|axis| usize::try_from(axis.as_u64()?).ok());
        list.collect::<Option<Vec<usize>>>()
    };
    let shape = numbers("shape").ok_or("the metadata of its tensors has no shape")?;
    let order = numbers("permutation").unwrap_or_default();
    if order.iter().enumerate().any(|(at, &axis)| at != axis) {
        let problem = format!("its tensors have their axes in the order {order:?}");
        return Err(format!("{problem}; write them in C order"));
    }
    Ok(Some(shape))
}
