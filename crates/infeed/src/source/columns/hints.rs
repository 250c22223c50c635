//! What writers leave in the metadata of a schema: Hugging Face's features, the shape of tensors.
//!
//! Sources: `datasets` writes its features as JSON under the key `huggingface`; the canonical
//! extension type `arrow.fixed_shape_tensor` keeps its shape as JSON under
//! `ARROW:extension:metadata`. The first are hints, so what cannot be understood is passed over.

use std::collections::HashMap;

use arrow_schema::{Field, Schema};
use serde_json::Value;

const NAME: &str = "ARROW:extension:name";
const METADATA: &str = "ARROW:extension:metadata";

/// Class names that are taken at most.
const CLASSES: usize = 1 << 20;

/// What a feature says of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// Encoded images.
    Image,
    /// Numbers of classes, and their names.
    Classes(Vec<String>),
    /// Nested lists of one shape.
    Array(Vec<usize>),
}

/// Features by column.
#[derive(Debug, Default)]
pub(super) struct Hints(HashMap<String, Feature>);

impl Hints {
    /// Those of a schema; none where it has none.
    pub(super) fn of(schema: &Schema) -> Hints {
        let text = schema.metadata().get("huggingface");
        let json = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let features = json
            .as_ref()
            .and_then(|json| json.get("info")?.get("features")?.as_object());
        let known = |(name, value): (&String, &Value)| Some((name.clone(), feature(value)?));
        Hints(features.into_iter().flatten().filter_map(known).collect())
    }

    /// That of a column.
    pub(super) fn of_column(&self, name: &str) -> Option<&Feature> {
        self.0.get(name)
    }

    /// Class names of a column that holds their numbers.
    pub(super) fn classes(&self, name: &str) -> Option<&[String]> {
        match self.of_column(name)? {
            Feature::Classes(names) => Some(names),
            _ => None,
        }
    }
}

fn feature(value: &Value) -> Option<Feature> {
    match value.get("_type")?.as_str()? {
        "Image" => Some(Feature::Image),
        "ClassLabel" => {
            let names = value.get("names")?.as_array()?;
            let names = names.iter().take(CLASSES);
            let names = names.map(|name| Some(name.as_str()?.to_owned()));
            Some(Feature::Classes(names.collect::<Option<_>>()?))
        }
        "Array2D" | "Array3D" | "Array4D" | "Array5D" => {
            let shape = value.get("shape")?.as_array()?.iter();
            let shape = shape.map(|axis| usize::try_from(axis.as_u64()?).ok());
            // The first axis may be open; such lists have no one shape.
            Some(Feature::Array(shape.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// The shape of a column of tensors; None for any other.
///
/// # Errors
///
/// Metadata that is none, or axes in another order than they are named.
pub(super) fn tensor_shape(field: &Field) -> Result<Option<Vec<usize>>, String> {
    let is_tensor = |name: &String| name == "arrow.fixed_shape_tensor";
    if !field.metadata().get(NAME).is_some_and(is_tensor) {
        return Ok(None);
    }
    let text = field.metadata().get(METADATA).map_or("", String::as_str);
    let json: Value = serde_json::from_str(text)
        .map_err(|error| format!("the metadata of its tensors is no JSON: {error}"))?;
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
