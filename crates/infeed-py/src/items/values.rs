//! Conversion of Python values to fields: their kind and their bytes.

use bytes::Bytes;
use infeed_codec::decode::Format;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};
use infeed_raw::python::BufferView;
use infeed_source::columns::{ColumnRequest, FieldChoice, array_field, names_masks, widen};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
};

use super::picture::{PixelMeaning, is_picture, picture_file};

/// The conversion of items to records. Item 0 decides it, and all other items must agree.
pub(super) struct ItemPlan {
    fields: Vec<Field>,
    takes: Vec<FieldReader>,
}

/// The conversion of one field.
struct FieldReader {
    key: FieldKey,
    /// Kind that the user asked for. None: the value decides.
    kind: Option<FieldChoice>,
    wide: Option<DType>,
    /// Kind of the value in item 0, for the message about a value that differs.
    first: ValueKind,
}

/// Location of a field in an item.
#[derive(Clone, Debug)]
pub(super) enum FieldKey {
    Name(String),
    Index(usize),
    Whole,
}

/// Kind of a value. It must be the same for all items.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueKind {
    /// Numbers of one type and shape.
    Numbers {
        dtype: DType,
        shape: Vec<usize>,
    },
    /// A list of numbers.
    List {
        dtype: DType,
    },
    /// Bytes of an image file, or pixels written as one.
    Encoded,
    Bytes,
    Text,
}

/// The values of an item: entries of a dictionary, elements of a tuple or list, or the item itself.
enum ItemParts<'py> {
    Named(Bound<'py, PyDict>),
    Positional(Bound<'py, PyTuple>),
    Whole(Bound<'py, PyAny>),
}

/// Returns the values of an item with the names of their fields.
pub(super) fn named_values<'py>(
    item: &Bound<'py, PyAny>,
    wanted: &[ColumnRequest],
) -> PyResult<Vec<(String, FieldKey, Bound<'py, PyAny>)>> {
    Ok(match parts(item)? {
        ItemParts::Named(dict) => {
            let entries = dict.iter().map(|(name, value)| {
                let Ok(name) = name.extract::<String>() else {
                    let found = name.repr()?;
                    return Err(PyTypeError::new_err(format!(
                        "its key {found} is not a string; name each field with a string"
                    )));
                };
                Ok((name.clone(), FieldKey::Name(name), value))
            });
            entries.collect::<PyResult<_>>()?
        }
        ItemParts::Positional(tuple) => {
            let named = wanted.len() == tuple.len();
            let mut all = Vec::with_capacity(tuple.len());
            for (at, value) in tuple.iter().enumerate() {
                let name = match at {
                    _ if named => wanted[at].column.clone(),
                    0 => "image".to_owned(),
                    1 if is_visual(&value)? => "mask".to_owned(),
                    1 => "label".to_owned(),
                    at => format!("field{at}"),
                };
                all.push((name, FieldKey::Index(at), value));
            }
            all
        }
        ItemParts::Whole(value) => {
            let name = match wanted {
                [one] => one.column.clone(),
                _ => "item".to_owned(),
            };
            vec![(name, FieldKey::Whole, value)]
        }
    })
}

fn parts<'py>(item: &Bound<'py, PyAny>) -> PyResult<ItemParts<'py>> {
    if let Ok(dict) = item.cast::<PyDict>() {
        return Ok(ItemParts::Named(dict.clone()));
    }
    if let Ok(mapping) = item.cast::<PyMapping>() {
        let dict = PyDict::new(item.py());
        for entry in mapping.items()?.iter() {
            dict.set_item(entry.get_item(0)?, entry.get_item(1)?)?;
        }
        return Ok(ItemParts::Named(dict));
    }
    if let Ok(tuple) = item.cast::<PyTuple>() {
        return Ok(ItemParts::Positional(tuple.clone()));
    }
    if let Ok(list) = item.cast::<PyList>() {
        return Ok(ItemParts::Positional(list.to_tuple()));
    }
    Ok(ItemParts::Whole(item.clone()))
}

/// Returns whether a value is pixels in two or three dimensions.
fn is_visual(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_picture(value)? {
        return Ok(true);
    }
    match value.hasattr("ndim")? {
        true => Ok(value.getattr("ndim")?.extract::<usize>()? >= 2),
        false => Ok(false),
    }
}

impl ItemPlan {
    /// Decides the conversion from item 0 and the fields that the user asked for.
    pub(super) fn new(
        first: &[(String, FieldKey, Bound<'_, PyAny>)],
        wanted: &[ColumnRequest],
    ) -> Result<ItemPlan, String> {
        let names = || {
            first
                .iter()
                .map(|(name, ..)| name.as_str())
                .collect::<Vec<_>>()
        };
        let plain: Vec<ColumnRequest> = match wanted.is_empty() {
            true => first.iter().map(|(name, ..)| plain(name)).collect(),
            false => wanted.to_vec(),
        };
        let mut plan = ItemPlan {
            fields: Vec::new(),
            takes: Vec::new(),
        };
        for wanted in &plain {
            let entry = first.iter().find(|(name, ..)| *name == wanted.column);
            let (_, key, value) = entry.ok_or_else(|| {
                format!(
                    "items have no field `{}`; the fields are {:?}",
                    wanted.column,
                    names()
                )
            })?;
            let here = |problem: String| format!("field `{}` of item 0: {problem}", wanted.column);
            let kind = taken_as(wanted);
            let picture = match kind {
                Some(FieldChoice::Mask) => PixelMeaning::Mask,
                None if names_masks(&wanted.name) => PixelMeaning::Mask,
                _ => PixelMeaning::Image,
            };
            let taken = take(value, kind, picture);
            let mut taken = taken.map_err(|error| here(error.to_string()))?;
            if let (ValueKind::List { dtype }, Some(named)) = (&mut taken.kind, wanted.dtype)
                && taken.bytes.is_empty()
            {
                *dtype = named;
            }
            let (settled, wide) = settle(&taken, wanted).map_err(here)?;
            plan.takes.push(FieldReader {
                key: key.clone(),
                // The kind of item 0 holds for all others.
                kind: match settled {
                    FieldKind::Ragged { .. } => Some(FieldChoice::Ragged),
                    _ => kind,
                },
                wide,
                first: taken.kind,
            });
            plan.fields.push(Field {
                name: wanted.name.clone(),
                kind: settled,
            });
        }
        Ok(plan)
    }

    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the bytes of an item's fields.
    pub(super) fn take(&self, item: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
        let parts = parts(item)?;
        let mut all = Vec::with_capacity(self.takes.len());
        for (own, field) in self.takes.iter().zip(&self.fields) {
            let name = &field.name;
            let value = match (&own.key, &parts) {
                (FieldKey::Name(name), ItemParts::Named(dict)) => dict.get_item(name)?,
                (FieldKey::Index(at), ItemParts::Positional(tuple)) => tuple.get_item(*at).ok(),
                (FieldKey::Whole, _) => Some(item.clone()),
                _ => None,
            };
            let value = value
                .ok_or_else(|| PyTypeError::new_err(format!("the item has no field `{name}`")))?;
            if value.is_none() {
                return Err(PyTypeError::new_err(format!("`{name}` is None")));
            }
            let picture = match field.kind {
                FieldKind::Mask(_) => PixelMeaning::Mask,
                _ => PixelMeaning::Image,
            };
            let taken = take(&value, own.kind, picture)?;
            let alike = taken.kind == own.first || fits(&taken, &own.first, &field.kind);
            if !alike {
                return Err(PyTypeError::new_err(format!(
                    "`{name}` is {} where item 0 has {}; {}",
                    taken.kind.text(),
                    own.first.text(),
                    fix(name, &taken.kind, &own.first)
                )));
            }
            all.push(match own.wide {
                Some(from) => widen(from, &taken.bytes).unwrap_or(taken.bytes),
                None => taken.bytes,
            });
        }
        Ok(all)
    }
}

/// Returns whether a value that differs from item 0's still has the field's kind.
fn fits(taken: &FieldValue, first: &ValueKind, kind: &FieldKind) -> bool {
    match (&taken.kind, first) {
        // An empty list has no element type.
        (ValueKind::List { .. }, ValueKind::List { .. }) => taken.bytes.is_empty(),
        (ValueKind::Bytes, ValueKind::Encoded) | (ValueKind::Encoded, ValueKind::Bytes) => {
            matches!(
                kind,
                FieldKind::Bytes
                    | FieldKind::Image(Pixels::Encoded)
                    | FieldKind::Mask(Pixels::Encoded)
            )
        }
        _ => false,
    }
}

/// Returns the change that the user must make if a value differs from that of item 0.
fn fix(name: &str, taken: &ValueKind, first: &ValueKind) -> String {
    match (taken, first) {
        (
            ValueKind::Numbers { dtype, shape },
            ValueKind::Numbers {
                dtype: of_first,
                shape: first,
            },
        ) if dtype == of_first
            && shape.len() == first.len()
            && (shape.len() == 1 || (shape.len() == 2 && shape[1] == first[1])) =>
        {
            format!(
                "rows of different lengths are ragged: return a flat `list`, or open with \
             fields={{\"{name}\": sources.Field(kind=\"ragged\")}}, or `pad` them to one length in the \
             dataset"
            )
        }
        (ValueKind::Numbers { .. }, ValueKind::Numbers { .. }) => {
            "`pad` the arrays to one shape and type in the dataset, or return a flat `list` of \
             numbers, which may differ in length"
                .to_owned()
        }
        _ => "return the same kind of value for all items".to_owned(),
    }
}

/// Returns the default options of a field.
fn plain(name: &str) -> ColumnRequest {
    ColumnRequest {
        name: name.to_owned(),
        column: name.to_owned(),
        kind: None,
        dtype: None,
        shape: Vec::new(),
    }
}

/// Returns the kind that the user asked for. A field with a shape is a tensor, and not ragged.
fn taken_as(wanted: &ColumnRequest) -> Option<FieldChoice> {
    match wanted.shape.is_empty() {
        true => wanted.kind,
        false => wanted.kind.or(Some(FieldChoice::Tensor)),
    }
}

impl ValueKind {
    fn text(&self) -> String {
        match self {
            ValueKind::Numbers { dtype, shape } => format!("{} {shape:?}", dtype.name()),
            ValueKind::List { dtype } => format!("a list of {}", dtype.name()),
            ValueKind::Encoded => "an image".to_owned(),
            ValueKind::Bytes => "bytes".to_owned(),
            ValueKind::Text => "text".to_owned(),
        }
    }
}

/// Returns the kind of a field, and the type that its integers are widened from.
fn settle(
    taken: &FieldValue,
    wanted: &ColumnRequest,
) -> Result<(FieldKind, Option<DType>), String> {
    let wrong = || format!("it is {}", taken.kind.text());
    let is_mask = names_masks(&wanted.name);
    Ok(match (&taken.kind, wanted.kind) {
        (ValueKind::Numbers { dtype, shape }, _) => {
            return array_field(*dtype, shape.clone(), wanted);
        }
        (ValueKind::List { dtype }, None | Some(FieldChoice::Ragged)) => {
            if let Some(requested) = wanted.dtype.filter(|requested| requested != dtype) {
                return Err(format!(
                    "it is {}, not of {}; return arrays of that type from the dataset",
                    taken.kind.text(),
                    requested.name()
                ));
            }
            (FieldKind::Ragged { dtype: *dtype }, None)
        }
        (ValueKind::Encoded, None) if is_mask => (FieldKind::Mask(Pixels::Encoded), None),
        (ValueKind::Encoded, None) => (FieldKind::Image(Pixels::Encoded), None),
        (ValueKind::Encoded | ValueKind::Bytes, Some(FieldChoice::Image)) => {
            (FieldKind::Image(Pixels::Encoded), None)
        }
        (ValueKind::Encoded | ValueKind::Bytes, Some(FieldChoice::Mask)) => {
            (FieldKind::Mask(Pixels::Encoded), None)
        }
        (ValueKind::Bytes, None)
        | (ValueKind::Encoded | ValueKind::Bytes, Some(FieldChoice::Bytes)) => {
            (FieldKind::Bytes, None)
        }
        (ValueKind::Text, None | Some(FieldChoice::Text)) => (FieldKind::Text, None),
        _ => return Err(wrong()),
    })
}

/// The kind and bytes of a value.
struct FieldValue {
    kind: ValueKind,
    bytes: Bytes,
}

fn take(
    value: &Bound<'_, PyAny>,
    kind: Option<FieldChoice>,
    what: PixelMeaning,
) -> PyResult<FieldValue> {
    let scalar = |dtype, bytes: &[u8]| FieldValue {
        kind: ValueKind::Numbers {
            dtype,
            shape: Vec::new(),
        },
        bytes: Bytes::copy_from_slice(bytes),
    };
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(scalar(DType::Bool, &[u8::from(flag.is_true())]));
    }
    if value.is_instance_of::<PyInt>() {
        let number: i64 = value.extract()?;
        return Ok(scalar(DType::Int64, &number.to_le_bytes()));
    }
    if value.is_exact_instance_of::<PyFloat>() {
        let number: f64 = value.extract()?;
        return Ok(scalar(DType::Float64, &number.to_le_bytes()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(FieldValue {
            kind: ValueKind::Text,
            bytes: Bytes::copy_from_slice(text.to_str()?.as_bytes()),
        });
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(encoded_value(Bytes::copy_from_slice(bytes.as_bytes())));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(encoded_value(bytes.to_vec().into()));
    }
    if is_picture(value)? {
        return Ok(FieldValue {
            kind: ValueKind::Encoded,
            bytes: picture_file(value, what)?.into(),
        });
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        // Hugging Face datasets return an undecoded image as a dictionary.
        return match dict.get_item("bytes")? {
            Some(bytes) if !bytes.is_none() => take(&bytes, kind, what),
            _ => {
                let keys = dict.keys().repr()?;
                Err(PyTypeError::new_err(format!(
                    "it is a dictionary with the keys {keys}; a field is a number, a string, \
                     bytes, a list of numbers, an array or an image. Return each value of the \
                     dictionary as a field of the item"
                )))
            }
        };
    }
    numbers(value, kind)
}

fn encoded_value(bytes: Bytes) -> FieldValue {
    let kind = match Format::of(&bytes) {
        Some(_) => ValueKind::Encoded,
        None => ValueKind::Bytes,
    };
    FieldValue { kind, bytes }
}

/// Converts a value through `numpy.asarray`.
fn numbers(value: &Bound<'_, PyAny>, kind: Option<FieldChoice>) -> PyResult<FieldValue> {
    let numpy = value.py().import("numpy")?;
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let mut value = value.clone();
    if value.hasattr("requires_grad")? && value.getattr("requires_grad")?.is_truthy()? {
        value = value.call_method0("detach")?;
    }
    let plain = numpy.call_method1("asarray", (&value,))?;
    // `ascontiguousarray` adds an axis to a scalar, so the shape is read first.
    let shape: Vec<usize> = plain.getattr("shape")?.extract()?;
    let native = plain
        .getattr("dtype")?
        .call_method1("newbyteorder", ("=",))?;
    let array = numpy.call_method1("ascontiguousarray", (plain, native))?;
    let dtype: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    let Some(dtype) = dtype_of(&dtype) else {
        let found = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a {found} with elements of type {dtype} cannot be a field; return numbers, str, bytes, \
             images, or lists and arrays of numbers"
        )));
    };
    let flat = array.call_method1("reshape", (-1,))?;
    let flat = flat.call_method1("view", (numpy.getattr("uint8")?,))?;
    let bytes = Bytes::copy_from_slice(BufferView::new(&flat)?.as_ref());
    let ragged = kind == Some(FieldChoice::Ragged) || (kind.is_none() && is_list);
    let kind = match (ragged, shape.len()) {
        (true, 1) => ValueKind::List { dtype },
        // Rows of boxes, one after another.
        (true, 2) if kind == Some(FieldChoice::Ragged) => ValueKind::List { dtype },
        _ => ValueKind::Numbers { dtype, shape },
    };
    Ok(FieldValue { kind, bytes })
}

/// Returns the element type with a NumPy name.
pub(crate) fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "bool" => DType::Bool,
        "uint8" => DType::UInt8,
        "uint16" => DType::UInt16,
        "uint32" => DType::UInt32,
        "uint64" => DType::UInt64,
        "int8" => DType::Int8,
        "int16" => DType::Int16,
        "int32" => DType::Int32,
        "int64" => DType::Int64,
        "float16" => DType::Float16,
        "bfloat16" => DType::BFloat16,
        "float32" => DType::Float32,
        "float64" => DType::Float64,
        _ => return None,
    })
}
