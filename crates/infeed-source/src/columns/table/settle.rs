//! Determines the field that a column becomes.

use std::io;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField};

use super::column::{BYTES, Conversion};
use super::first_values::{FirstBytes, FirstValues};
use super::hints::{self, FeatureHint};
use super::value_types::{DEPTH, describe, is_text, number};
use crate::columns::{
    ColumnRequest, FieldChoice, guess, names_encoded_masks, number_field, product, scalar,
};
use infeed_core::sample::{DType, FieldKind, Pixels};

/// Reason why the kind of a column is not determined.
pub(super) enum ColumnError {
    /// The column cannot become the requested kind.
    Unfit(String),
    /// The first values, which decide, could not be read.
    Unread(io::Error),
}

impl From<String> for ColumnError {
    fn from(problem: String) -> ColumnError {
        ColumnError::Unfit(problem)
    }
}

impl From<io::Error> for ColumnError {
    fn from(error: io::Error) -> ColumnError {
        ColumnError::Unread(error)
    }
}

/// Field that a column becomes.
#[derive(Debug)]
pub(super) struct SettledColumn {
    pub(super) kind: FieldKind,
    pub(super) store: Conversion,
    pub(super) classes: Option<Vec<String>>,
}

/// Layout of a column's values according to its type.
enum ValueLayout {
    /// Bytes; those of a child, where the column is a struct as Hugging Face writes images.
    Bytes(Option<&'static str>),
    Text,
    /// Words of a dictionary.
    Words,
    Numbers {
        dtype: DType,
        dims: Vec<usize>,
    },
    Lists {
        dtype: DType,
        depth: usize,
        /// Elements of an item of the innermost lists.
        item: usize,
    },
}

/// Determines the field of a column at a position, or of a child of its structs.
pub(super) fn settle(
    (at, children, field): (usize, &[String], &ArrowField),
    feature: Option<&FeatureHint>,
    wanted: &ColumnRequest,
    first: &mut dyn FirstValues,
) -> Result<SettledColumn, ColumnError> {
    let stored = value_layout(field)?;
    let plain = |kind, store| SettledColumn {
        kind,
        store,
        classes: None,
    };
    Ok(match stored {
        ValueLayout::Bytes(child) => {
            let store = Conversion::Bytes { child };
            let kind = match wanted.kind {
                Some(kind) => bytes_kind(kind, wanted)?,
                None => {
                    let mut seen = FirstBytes::default();
                    let is_image = matches!(feature, Some(FeatureHint::Image)) || {
                        let child = child.map(str::to_owned);
                        let children: Vec<_> = children.iter().cloned().chain(child).collect();
                        first.scan(at, &children, &mut seen)?;
                        seen.has_image()
                    };
                    match (is_image, names_encoded_masks(&wanted.name)) {
                        (false, _) => FieldKind::Bytes,
                        (true, true) => FieldKind::Mask(Pixels::Encoded),
                        (true, false) => FieldKind::Image(Pixels::Encoded),
                    }
                }
            };
            plain(kind, store)
        }
        ValueLayout::Words if wanted.kind == Some(FieldChoice::Tensor) => {
            let Some(words) = first.words(at)? else {
                let problem = "its words have no common dictionary here; take it as text, or \
                               store numbers";
                return Err(problem.to_owned().into());
            };
            let numbers = words.iter().cloned().zip(0..).collect();
            SettledColumn {
                kind: scalar(DType::Int64),
                store: Conversion::Classes(Arc::new(numbers)),
                classes: Some(words),
            }
        }
        ValueLayout::Text | ValueLayout::Words => {
            let kind = match wanted.kind {
                None | Some(FieldChoice::Text) => FieldKind::Text,
                Some(FieldChoice::Bytes) => FieldKind::Bytes,
                Some(_) => return Err("it holds text".to_owned().into()),
            };
            plain(kind, Conversion::Bytes { child: None })
        }
        ValueLayout::Numbers { dtype, dims } => numbers(dtype, dims, feature, wanted)?,
        ValueLayout::Lists { dtype, depth, item } => lists(dtype, (depth, item), feature, wanted)?,
    })
}

/// Converts bytes as the user requested.
fn bytes_kind(kind: FieldChoice, wanted: &ColumnRequest) -> Result<FieldKind, String> {
    let pixels = || match wanted.dtype {
        None => Ok(Pixels::Encoded),
        Some(dtype) => Pixels::raw(dtype, &wanted.shape),
    };
    Ok(match kind {
        FieldChoice::Image => FieldKind::Image(pixels()?),
        FieldChoice::Mask => FieldKind::Mask(pixels()?),
        FieldChoice::Bytes => FieldKind::Bytes,
        FieldChoice::Text => FieldKind::Text,
        FieldChoice::Tensor => FieldKind::Tensor {
            dtype: wanted.dtype.ok_or("bytes need a dtype to be a tensor")?,
            shape: wanted.shape.clone(),
        },
        FieldChoice::Ragged => FieldKind::Ragged {
            dtype: wanted.dtype.ok_or("bytes need a dtype to be ragged")?,
        },
    })
}

fn numbers(
    dtype: DType,
    dims: Vec<usize>,
    feature: Option<&FeatureHint>,
    wanted: &ColumnRequest,
) -> Result<SettledColumn, String> {
    let length = product(&dims)?;
    let classes = match feature {
        Some(FeatureHint::Classes(names)) => Some(names.clone()),
        _ => None,
    };
    let (kind, wide) = number_field(dtype, dims, classes.is_some(), wanted)?;
    let store = match wide {
        Some(from) => Conversion::Wide { from },
        None => Conversion::Fixed { dtype, length },
    };
    Ok(SettledColumn {
        kind,
        store,
        classes,
    })
}

fn lists(
    dtype: DType,
    (depth, item): (usize, usize),
    feature: Option<&FeatureHint>,
    wanted: &ColumnRequest,
) -> Result<SettledColumn, String> {
    if let Some(requested) = wanted.dtype.filter(|&requested| requested != dtype) {
        return Err(format!(
            "it holds {}, not {}",
            dtype.name(),
            requested.name()
        ));
    }
    let shape = match feature {
        _ if !wanted.shape.is_empty() => Some(wanted.shape.clone()),
        Some(FeatureHint::Array(shape)) if shape.len() == depth => Some(shape.clone()),
        _ => None,
    };
    let lists = |dims| Conversion::Lists {
        dtype,
        depth,
        item,
        dims,
    };
    let (kind, store) = match (wanted.kind, shape) {
        (None | Some(FieldChoice::Ragged), None) if depth == 1 => {
            (FieldKind::Ragged { dtype }, lists(None))
        }
        (Some(FieldChoice::Ragged), _) => {
            return Err("ragged fields are lists of numbers, and these are nested".to_owned());
        }
        (Some(FieldChoice::Bytes | FieldChoice::Text), _) => {
            return Err("it holds lists of numbers".to_owned());
        }
        (_, None) => {
            let problem = "lists may differ in length; give the shape that all of them have";
            return Err(problem.to_owned());
        }
        (kind, Some(shape)) => {
            if depth > 1 && shape.len() != depth {
                return Err(format!("it is nested {depth} deep, unlike {shape:?}"));
            }
            // A flat list may be reshaped to any shape.
            let dims = match depth {
                1 if product(&shape)?.is_multiple_of(item) => vec![product(&shape)? / item],
                1 => return Err(format!("its items have {item} elements, unlike {shape:?}")),
                _ => shape.clone(),
            };
            let kind = match kind {
                Some(FieldChoice::Image) => FieldKind::Image(Pixels::raw(dtype, &shape)?),
                Some(FieldChoice::Mask) => FieldKind::Mask(Pixels::raw(dtype, &shape)?),
                Some(_) => FieldKind::Tensor { dtype, shape },
                None => guess(&wanted.name, dtype, shape),
            };
            (kind, lists(Some(dims)))
        }
    };
    Ok(SettledColumn {
        kind,
        store,
        classes: None,
    })
}

/// Layout of a column's values according to its type, or the reason why it cannot be a field.
fn value_layout(field: &ArrowField) -> Result<ValueLayout, String> {
    if let Some(shape) = hints::tensor_shape(field)? {
        let DataType::FixedSizeList(item, length) = field.data_type() else {
            return Err("it is not a list, as a tensor must be".to_owned());
        };
        let (Some(dtype), Ok(length)) = (number(item.data_type()), usize::try_from(*length)) else {
            return Err(unfit(field.data_type()));
        };
        if product(&shape)? != length {
            return Err(format!(
                "its shape {shape:?} does not have {length} elements"
            ));
        }
        return Ok(ValueLayout::Numbers { dtype, dims: shape });
    }
    let data_type = field.data_type();
    Ok(match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ValueLayout::Bytes(None),
        DataType::FixedSizeBinary(_) => ValueLayout::Bytes(None),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ValueLayout::Text,
        DataType::Dictionary(_, words) if is_text(words) => ValueLayout::Words,
        DataType::Struct(children) => {
            let has_bytes = children.iter().any(|child| {
                child.name() == BYTES
                    && matches!(
                        child.data_type(),
                        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
                    )
            });
            match has_bytes {
                true => ValueLayout::Bytes(Some(BYTES)),
                false => return Err(unfit(data_type)),
            }
        }
        _ => numeric(data_type).ok_or_else(|| unfit(data_type))?,
    })
}

fn numeric(data_type: &DataType) -> Option<ValueLayout> {
    if let Some(dtype) = number(data_type) {
        let dims = Vec::new();
        return Some(ValueLayout::Numbers { dtype, dims });
    }
    let (mut inner, mut dims, mut depth, mut item) = (data_type, Vec::new(), 0, 1);
    loop {
        match inner {
            DataType::FixedSizeList(item, length) if depth == 0 => {
                dims.push(usize::try_from(*length).ok()?);
                inner = item.data_type();
            }
            DataType::List(item) | DataType::LargeList(item) if dims.is_empty() => {
                depth += 1;
                inner = item.data_type();
            }
            // Lists of boxes, for example.
            DataType::FixedSizeList(values, length) if depth == 1 && *length > 0 => {
                item = usize::try_from(*length).ok()?;
                inner = values.data_type();
                break;
            }
            _ => break,
        }
        if depth.max(dims.len()) > DEPTH {
            return None;
        }
    }
    let dtype = number(inner)?;
    Some(match depth {
        0 => ValueLayout::Numbers { dtype, dims },
        depth => ValueLayout::Lists { dtype, depth, item },
    })
}

fn unfit(data_type: &DataType) -> String {
    let holds = describe(data_type);
    format!("it holds {holds}, and fields are bytes, text, numbers or lists of numbers")
}
