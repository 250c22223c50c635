//! Fields of a source in a description, and the requests that readers receive.

use serde::{Deserialize, Serialize};

use crate::columns::{ColumnRequest, FieldChoice};
use crate::shards::{FieldRequest, KindHint};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

/// One field of a source whose records have several fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSpec {
    /// Name of the field.
    pub name: String,
    /// Name in the source: extension, feature or column. Absent: the same as `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `image`, `mask`, `tensor`, `bytes`, `text` or `ragged`. Absent: the source decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Element type of arrays; absent for encoded images, bytes and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Shape of one record of an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<usize>,
}

impl FieldSpec {
    /// Returns the field, if its kind is given. Pixels without an element type are encoded.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an unknown kind, or an element type or shape that does not fit it.
    pub fn field(&self) -> Result<Option<Field>, Error> {
        let Some(kind) = &self.kind else {
            return Ok(None);
        };
        let kind = field_kind(kind, self.dtype, &self.shape, true);
        let kind = kind
            .map_err(|problem| Error::config(format!("source field `{}`", self.name), problem))?;
        Ok(Some(Field {
            name: self.name.clone(),
            kind,
        }))
    }

    /// Returns the request for a column; the column supplies what the description leaves out.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an unknown kind.
    pub fn request(&self) -> Result<ColumnRequest, Error> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some("image") => Some(FieldChoice::Image),
            Some("mask") => Some(FieldChoice::Mask),
            Some("tensor") => Some(FieldChoice::Tensor),
            Some("bytes") => Some(FieldChoice::Bytes),
            Some("text") => Some(FieldChoice::Text),
            Some("ragged") => Some(FieldChoice::Ragged),
            Some(other) => {
                let part = format!("source field `{}`", self.name);
                return Err(Error::config(part, unknown_kind(other)));
            }
        };
        Ok(ColumnRequest {
            name: self.name.clone(),
            column: self.source_name().to_owned(),
            kind,
            dtype: self.dtype,
            shape: self.shape.clone(),
        })
    }

    /// Name of the field in the source.
    pub fn source_name(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }
}

/// Returns the column requests of all fields.
pub(crate) fn column_requests(fields: &[FieldSpec]) -> Result<Vec<ColumnRequest>, Error> {
    fields.iter().map(FieldSpec::request).collect()
}

/// Returns the field requests of a shard format. A tensor without an element type takes the
/// records' type.
pub(crate) fn field_requests(fields: &[FieldSpec]) -> Result<Vec<FieldRequest>, Error> {
    let one = |spec: &FieldSpec| {
        let hint = match (spec.kind.as_deref(), spec.dtype) {
            (Some("tensor"), None) => KindHint::Tensor,
            (Some("ragged"), None) => KindHint::Ragged,
            _ => spec
                .field()?
                .map_or(KindHint::Nothing, |field| KindHint::Kind(field.kind)),
        };
        Ok(FieldRequest {
            name: spec.name.clone(),
            from: spec.from.clone(),
            hint,
        })
    };
    fields.iter().map(one).collect()
}

/// Parses a kind. `encoded` allows pixels of an encoded image file.
///
/// # Errors
///
/// A sentence about an unknown kind, or an element type or shape that does not fit it.
pub fn field_kind(
    kind: &str,
    dtype: Option<DType>,
    shape: &[usize],
    encoded: bool,
) -> Result<FieldKind, String> {
    let known = || dtype.ok_or_else(|| "a dtype is missing".to_owned());
    let pixels = || match (dtype, encoded) {
        (None, true) => Ok(Pixels::Encoded),
        (None, false) => Err("encoded images need offsets, arrays a dtype".to_owned()),
        (Some(dtype), _) => Pixels::raw(dtype, shape),
    };
    Ok(match kind {
        "image" => FieldKind::Image(pixels()?),
        "mask" => FieldKind::Mask(pixels()?),
        "tensor" => FieldKind::Tensor {
            dtype: known()?,
            shape: shape.to_vec(),
        },
        "ragged" => FieldKind::Ragged { dtype: known()? },
        "bytes" => FieldKind::Bytes,
        "text" => FieldKind::Text,
        other => return Err(unknown_kind(other)),
    })
}

fn unknown_kind(kind: &str) -> String {
    format!("kind `{kind}` is none of image, mask, tensor, bytes, text, ragged")
}
