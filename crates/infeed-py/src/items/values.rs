//! Values of Python as fields: which bytes, and of what kind.

use bytes::Bytes;
use infeed::decode::Format;
use infeed::sample::{DType, Field, FieldKind, Pixels};
use infeed::source::columns::{Kind, Wanted, array_field, names_masks, widened};
use infeed_raw::python::BufferView;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
};

use super::{Parts, refused};

/// How items become records: settled with item 0, held against all others.
pub(super) struct Plan {
    fields: Vec<Field>,
    takes: Vec<Take>,
}

/// How one field is taken.
struct Take {
    key: Key,
    /// What its values are taken as; None leaves it to them.
    kind: Option<Kind>,
    wide: Option<DType>,
    /// What item 0 had, for the message about one that differs.
    first: Form,
}

/// Where a field lies in an item.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Name(String),
    Place(usize),
    Whole,
}

/// What a value is, as far as all items must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Numbers of one type and shape.
    Numbers {
        dtype: DType,
        shape: Vec<usize>,
    },
    /// A list of numbers.
    List {
        dtype: DType,
    },
    /// Bytes of an image file, or pixels that were put into one.
    Encoded,
    Bytes,
    Text,
}

/// The values of an item by the names of their fields.
pub(super) fn named<'py>(
    item: &Bound<'py, PyAny>,
    wanted: &[Wanted],
) -> PyResult<Vec<(String, Key, Bound<'py, PyAny>)>> {
    Ok(match parts(item)? {
        Parts::Named(dict) => {
            let entries = dict.iter().map(|(name, value)| {
                let Ok(name) = name.extract::<String>() else {
                    let found = name.repr()?;
                    return Err(refused(format!("its key {found} is no name of a field")));
                };
                Ok((name.clone(), Key::Name(name), value))
            });
            entries.collect::<PyResult<_>>()?
        }
        Parts::Placed(tuple) => {
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
                all.push((name, Key::Place(at), value));
            }
            all
        }
        Parts::Whole(value) => {
            let name = match wanted {
                [one] => one.column.clone(),
                _ => "item".to_owned(),
            };
            vec![(name, Key::Whole, value)]
        }
    })
}

fn parts<'py>(item: &Bound<'py, PyAny>) -> PyResult<Parts<'py>> {
    if let Ok(dict) = item.cast::<PyDict>() {
        return Ok(Parts::Named(dict.clone()));
    }
    if let Ok(mapping) = item.cast::<PyMapping>() {
        let dict = PyDict::new(item.py());
        for entry in mapping.items()?.iter() {
            dict.set_item(entry.get_item(0)?, entry.get_item(1)?)?;
        }
        return Ok(Parts::Named(dict));
    }
    if let Ok(tuple) = item.cast::<PyTuple>() {
        return Ok(Parts::Placed(tuple.clone()));
    }
    if let Ok(list) = item.cast::<PyList>() {
        return Ok(Parts::Placed(list.to_tuple()));
    }
    Ok(Parts::Whole(item.clone()))
}

/// Whether a value is pixels in two or three dimensions.
fn is_visual(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_picture(value)? {
        return Ok(true);
    }
    match value.hasattr("ndim")? {
        true => Ok(value.getattr("ndim")?.extract::<usize>()? >= 2),
        false => Ok(false),
    }
}

/// Whether it is an image of Pillow's.
fn is_picture(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module: String = value.get_type().module()?.extract()?;
    Ok(module.starts_with("PIL.") && value.hasattr("tobytes")?)
}

impl Plan {
    /// What item 0 and what is wanted come to.
    pub(super) fn new(
        first: &[(String, Key, Bound<'_, PyAny>)],
        wanted: &[Wanted],
    ) -> Result<Plan, String> {
        let names = || {
            first
                .iter()
                .map(|(name, ..)| name.as_str())
                .collect::<Vec<_>>()
        };
        let plain: Vec<Wanted> = match wanted.is_empty() {
            true => first.iter().map(|(name, ..)| plain(name)).collect(),
            false => wanted.to_vec(),
        };
        let mut plan = Plan {
            fields: Vec::new(),
            takes: Vec::new(),
        };
        for wanted in &plain {
            let entry = first.iter().find(|(name, ..)| *name == wanted.column);
            let (_, key, value) = entry.ok_or_else(|| {
                format!("items have no `{}`; there are {:?}", wanted.column, names())
            })?;
            let here = |problem: String| format!("field `{}` of item 0: {problem}", wanted.column);
            let kind = taken_as(wanted);
            let picture = match kind {
                Some(Kind::Mask) => Picture::Mask,
                None if names_masks(&wanted.name) => Picture::Mask,
                _ => Picture::Image,
            };
            let taken = take(value, kind, picture);
            let mut taken = taken.map_err(|error| here(error.to_string()))?;
            if let (Form::List { dtype }, Some(told)) = (&mut taken.form, wanted.dtype)
                && taken.bytes.is_empty()
            {
                *dtype = told;
            }
            let (settled, wide) = settle(&taken, wanted).map_err(here)?;
            plan.takes.push(Take {
                key: key.clone(),
                // What item 0 turned out to be holds for all others.
                kind: match settled {
                    FieldKind::Ragged { .. } => Some(Kind::Ragged),
                    _ => kind,
                },
                wide,
                first: taken.form,
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

    /// The bytes of an item's fields.
    pub(super) fn take(&self, item: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
        let parts = parts(item)?;
        let mut all = Vec::with_capacity(self.takes.len());
        for (own, field) in self.takes.iter().zip(&self.fields) {
            let name = &field.name;
            let value = match (&own.key, &parts) {
                (Key::Name(name), Parts::Named(dict)) => dict.get_item(name)?,
                (Key::Place(at), Parts::Placed(tuple)) => tuple.get_item(*at).ok(),
                (Key::Whole, _) => Some(item.clone()),
                _ => None,
            };
            let value = value.ok_or_else(|| refused(format!("the item has no `{name}`")))?;
            if value.is_none() {
                return Err(refused(format!("`{name}` is None")));
            }
            let picture = match field.kind {
                FieldKind::Mask(_) => Picture::Mask,
                _ => Picture::Image,
            };
            let taken = take(&value, own.kind, picture)?;
            let alike = taken.form == own.first || fits(&taken, &own.first, &field.kind);
            if !alike {
                return Err(refused(format!(
                    "`{name}` is {} where item 0 has {}; make them alike in the dataset",
                    taken.form.text(),
                    own.first.text()
                )));
            }
            all.push(match own.wide {
                Some(from) => widened(from, &taken.bytes).unwrap_or(taken.bytes),
                None => taken.bytes,
            });
        }
        Ok(all)
    }
}

/// Whether a value that is not as item 0's was is of the field's kind nevertheless.
fn fits(taken: &Taken, first: &Form, kind: &FieldKind) -> bool {
    match (&taken.form, first) {
        // What a list holds none of has no type.
        (Form::List { .. }, Form::List { .. }) => taken.bytes.is_empty(),
        (Form::Bytes, Form::Encoded) | (Form::Encoded, Form::Bytes) => matches!(
            kind,
            FieldKind::Bytes | FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
        ),
        _ => false,
    }
}

/// What is wanted of a field of which nothing was said.
fn plain(name: &str) -> Wanted {
    Wanted {
        name: name.to_owned(),
        column: name.to_owned(),
        kind: None,
        dtype: None,
        shape: Vec::new(),
    }
}

/// What values are taken as, where the user said so: lists of a shape are no ragged ones.
fn taken_as(wanted: &Wanted) -> Option<Kind> {
    match wanted.shape.is_empty() {
        true => wanted.kind,
        false => wanted.kind.or(Some(Kind::Tensor)),
    }
}

impl Form {
    fn text(&self) -> String {
        match self {
            Form::Numbers { dtype, shape } => format!("{} {shape:?}", dtype.name()),
            Form::List { dtype } => format!("a list of {}", dtype.name()),
            Form::Encoded => "an image".to_owned(),
            Form::Bytes => "bytes".to_owned(),
            Form::Text => "text".to_owned(),
        }
    }
}

/// The kind of a field, and what its integers are widened from.
fn settle(taken: &Taken, wanted: &Wanted) -> Result<(FieldKind, Option<DType>), String> {
    let wrong = || format!("it is {}", taken.form.text());
    let is_mask = names_masks(&wanted.name);
    Ok(match (&taken.form, wanted.kind) {
        (Form::Numbers { dtype, shape }, _) => return array_field(*dtype, shape.clone(), wanted),
        (Form::List { dtype }, None | Some(Kind::Ragged)) => {
            if let Some(asked) = wanted.dtype.filter(|asked| asked != dtype) {
                return Err(format!(
                    "it is {}, not of {}; let the dataset give arrays of that type",
                    taken.form.text(),
                    asked.name()
                ));
            }
            (FieldKind::Ragged { dtype: *dtype }, None)
        }
        (Form::Encoded, None) if is_mask => (FieldKind::Mask(Pixels::Encoded), None),
        (Form::Encoded, None) => (FieldKind::Image(Pixels::Encoded), None),
        (Form::Encoded | Form::Bytes, Some(Kind::Image)) => {
            (FieldKind::Image(Pixels::Encoded), None)
        }
        (Form::Encoded | Form::Bytes, Some(Kind::Mask)) => (FieldKind::Mask(Pixels::Encoded), None),
        (Form::Bytes, None) | (Form::Encoded | Form::Bytes, Some(Kind::Bytes)) => {
            (FieldKind::Bytes, None)
        }
        (Form::Text, None | Some(Kind::Text)) => (FieldKind::Text, None),
        _ => return Err(wrong()),
    })
}

/// A value as bytes.
struct Taken {
    form: Form,
    bytes: Bytes,
}

/// What the pixels of an image of Pillow's are: colours, or numbers of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Picture {
    Image,
    Mask,
}

fn take(value: &Bound<'_, PyAny>, kind: Option<Kind>, what: Picture) -> PyResult<Taken> {
    let scalar = |dtype, bytes: &[u8]| Taken {
        form: Form::Numbers {
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
        return Ok(Taken {
            form: Form::Text,
            bytes: Bytes::copy_from_slice(text.to_str()?.as_bytes()),
        });
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(encoded(Bytes::copy_from_slice(bytes.as_bytes())));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(encoded(bytes.to_vec().into()));
    }
    if is_picture(value)? {
        return picture(value, what);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        // An image as Hugging Face hands it out undecoded.
        return match dict.get_item("bytes")? {
            Some(bytes) if !bytes.is_none() => take(&bytes, kind, what),
            _ => {
                let keys = dict.keys().repr()?;
                Err(refused(format!(
                    "it is a dictionary with the keys {keys}; a field is a number, a string, \
                     bytes, a list of numbers, an array or an image. Return each value of the \
                     dictionary as a field of the item"
                )))
            }
        };
    }
    numbers(value, kind)
}

fn encoded(bytes: Bytes) -> Taken {
    let form = match Format::of(&bytes) {
        Some(_) => Form::Encoded,
        None => Form::Bytes,
    };
    Taken { form, bytes }
}

/// Anything that NumPy takes for an array of numbers.
fn numbers(value: &Bound<'_, PyAny>, kind: Option<Kind>) -> PyResult<Taken> {
    let numpy = value.py().import("numpy")?;
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let mut value = value.clone();
    if value.hasattr("requires_grad")? && value.getattr("requires_grad")?.is_truthy()? {
        value = value.call_method0("detach")?;
    }
    let plain = numpy.call_method1("asarray", (&value,))?;
    // Before the next step, which gives a scalar an axis.
    let shape: Vec<usize> = plain.getattr("shape")?.extract()?;
    let native = plain
        .getattr("dtype")?
        .call_method1("newbyteorder", ("=",))?;
    let array = numpy.call_method1("ascontiguousarray", (plain, native))?;
    let dtype: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    let Some(dtype) = dtype_of(&dtype) else {
        let found = value.get_type().name()?;
        return Err(refused(format!("{found} of {dtype} is no field")));
    };
    let flat = array.call_method1("reshape", (-1,))?;
    let flat = flat.call_method1("view", (numpy.getattr("uint8")?,))?;
    let bytes = Bytes::copy_from_slice(BufferView::new(&flat)?.as_ref());
    let ragged = kind == Some(Kind::Ragged) || (kind.is_none() && is_list);
    let form = match (ragged, shape.len()) {
        (true, 1) => Form::List { dtype },
        _ => Form::Numbers { dtype, shape },
    };
    Ok(Taken { form, bytes })
}

/// The element type that NumPy calls so.
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

/// Pixels of Pillow's in a TIFF file without compression, so that images may differ in size and
/// are decoded, cropped and resized as those in files are.
fn picture(value: &Bound<'_, PyAny>, what: Picture) -> PyResult<Taken> {
    let mode: String = value.getattr("mode")?.extract()?;
    let converted = |to: &str| value.call_method1("convert", (to,));
    let (value, channels, bits) = match (mode.as_str(), what) {
        ("RGB", _) => (value.clone(), 3, 8),
        ("RGBA", _) => (value.clone(), 4, 8),
        ("L", _) => (value.clone(), 1, 8),
        // Numbers of classes in masks with a palette stay numbers.
        ("P", Picture::Mask) => (value.clone(), 1, 8),
        ("P", Picture::Image) if !has_alpha(value)? => (converted("RGB")?, 3, 8),
        ("P" | "PA" | "RGBa", Picture::Image) | ("LA", _) => (converted("RGBA")?, 4, 8),
        ("1", _) => (converted("L")?, 1, 8),
        ("I;16", _) => (value.clone(), 1, 16),
        ("RGBX" | "CMYK" | "YCbCr" | "LAB" | "HSV", Picture::Image) => (converted("RGB")?, 3, 8),
        // Others hold numbers that a conversion to pixels would cut off.
        _ => {
            let name = match what {
                Picture::Image => "image",
                Picture::Mask => "mask",
            };
            return Err(refused(format!(
                "it is of Pillow's mode {mode}, which can be no {name}; hand it over as an array \
                 (numpy.asarray(value)), or convert it in the dataset"
            )));
        }
    };
    let (width, height): (u32, u32) = value.getattr("size")?.extract()?;
    let pixels = value.call_method0("tobytes")?;
    let pixels = pixels.cast::<PyBytes>()?.as_bytes();
    Ok(Taken {
        form: Form::Encoded,
        bytes: tiff(width, height, channels, bits, pixels).into(),
    })
}

/// Whether an image with a palette has an alpha channel: in the palette, or one colour of it.
fn has_alpha(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let info = value.getattr("info")?;
    if info.contains("transparency")? {
        return Ok(true);
    }
    let palette = value.getattr("palette")?;
    if palette.is_none() {
        return Ok(false);
    }
    let mode: String = palette.getattr("mode")?.extract()?;
    Ok(mode == "RGBA")
}

/// A TIFF file of one strip, little-endian, not compressed (TIFF 6.0, sections 2 and 3).
fn tiff(width: u32, height: u32, channels: u16, bits: u16, pixels: &[u8]) -> Vec<u8> {
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    const ENTRIES: u32 = 11;
    let directory = 8 + 2 + ENTRIES * 12 + 4;
    // The bits of each sample follow the directory, the pixels those.
    let strip = directory + 8;
    let mut file = Vec::with_capacity(strip as usize + pixels.len());
    file.extend(b"II\x2a\x00\x08\x00\x00\x00");
    file.extend((ENTRIES as u16).to_le_bytes());
    let mut entry = |tag: u16, kind: u16, count: u32, value: u32| {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    };
    entry(256, LONG, 1, width);
    entry(257, LONG, 1, height);
    match channels {
        // Two samples' bits would fit in the entry; one is the only case of those here.
        1 => entry(258, SHORT, 1, u32::from(bits)),
        _ => entry(258, SHORT, u32::from(channels), directory),
    }
    entry(259, SHORT, 1, 1);
    entry(262, SHORT, 1, if channels == 1 { 1 } else { 2 });
    entry(273, LONG, 1, strip);
    entry(277, SHORT, 1, u32::from(channels));
    entry(278, LONG, 1, height);
    entry(279, LONG, 1, pixels.len() as u32);
    entry(284, SHORT, 1, 1);
    match channels {
        // Alpha that the colours are not multiplied by.
        4 => entry(338, SHORT, 1, 2),
        _ => entry(339, SHORT, 1, 1),
    }
    file.extend(0_u32.to_le_bytes());
    for _ in 0..4 {
        file.extend(bits.to_le_bytes());
    }
    file.extend(pixels);
    file
}
