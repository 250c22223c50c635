//! Columns of Arrow tables as fields of records: what each is, and where its bytes lie.
//!
//! `Columns` is settled once, from the schema of the first file and what the user said;
//! `rows::Rows` then gives the fields of each record of a batch, as slices of Arrow's buffers.

mod hints;
pub(super) mod open;
pub(super) mod rows;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema};
use bytes::Bytes;

use crate::decode::Format;
use crate::error::Error;
use crate::sample::{DType, Field, FieldKind, Pixels};
use hints::{Feature, Hints};

/// The child of a struct column that holds the bytes of a file, as Hugging Face calls it.
pub(super) const BYTES: &str = "bytes";

/// What a column should become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Encoded images, or pixels.
    Image,
    /// Encoded masks, or class labels by pixel.
    Mask,
    /// Numbers of one shape.
    Tensor,
    /// Bytes of any length.
    Bytes,
    /// UTF-8 of any length.
    Text,
    /// Lists of numbers, each of its own length.
    Ragged,
}

/// A column that the user asked for, with as much as was said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the field.
    pub name: String,
    /// Name of the column, or of an array in an `.npz`.
    pub column: String,
    /// Absent: it is told from the column's type and first value.
    pub kind: Option<Kind>,
    /// Element type; absent: the column's own.
    pub dtype: Option<DType>,
    /// Shape of one record; empty: the column's own.
    pub shape: Vec<usize>,
}

/// How the values of a column become the bytes of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Bytes or text as they are; those of a child, where the column is a struct.
    Bytes { child: Option<&'static str> },
    /// So many numbers a record.
    Fixed { dtype: DType, length: usize },
    /// Integers widened to int64.
    Wide { from: DType },
    /// Lists of lists, `depth` of them; with `dims`, each of exactly that shape.
    Lists {
        dtype: DType,
        depth: usize,
        dims: Option<Vec<usize>>,
    },
    /// Words of a dictionary as numbers of classes.
    Classes(Arc<HashMap<String, i64>>),
}

/// One column that is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its name in the table.
    pub(super) name: String,
    /// Its type there.
    data_type: DataType,
    pub(super) store: Store,
    pub(super) check: Check,
    /// What the metadata says its numbers mean, which must be the same in every file: names of
    /// classes, and the shape of tensors.
    classes: Option<Vec<String>>,
    shape: Option<Vec<usize>>,
}

/// What a value must be beside of its column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    /// Of so many bytes.
    Exactly(usize),
    /// Of a whole number of elements.
    Elements(DType),
    /// UTF-8.
    Text,
}

/// The columns that are read, and the fields they become.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    fields: Vec<Field>,
    columns: Vec<Column>,
    classes: Option<Vec<String>>,
}

/// Values that decide what a column is, of the first records.
pub(super) trait First {
    /// Where they lie, as an error names it.
    fn name(&self) -> String;

    /// The first value of a column of bytes (or of the child of one), if there is one.
    ///
    /// # Errors
    ///
    /// What the storage said, or why the first values are none.
    fn value(&mut self, column: usize, child: Option<&str>) -> io::Result<Option<Bytes>>;

    /// The words of a column's dictionary, if all of the data shares one.
    ///
    /// # Errors
    ///
    /// As [`First::value`].
    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>>;
}

/// Why a column is not settled.
enum Unsettled {
    /// It cannot be what is wanted.
    Unfit(String),
    /// Its first values, which decide, could not be read.
    Unread(io::Error),
}

impl From<String> for Unsettled {
    fn from(problem: String) -> Unsettled {
        Unsettled::Unfit(problem)
    }
}

impl From<io::Error> for Unsettled {
    fn from(error: io::Error) -> Unsettled {
        Unsettled::Unread(error)
    }
}

/// The error of a column whose first values could not be read: it must not become another kind for
/// that.
fn unread(first: &dyn First, column: &str, error: io::Error) -> Error {
    let problem = format!("what column `{column}` holds cannot be told: {error}");
    let mend = match error.kind() {
        io::ErrorKind::InvalidData => "; name the columns to read, with their kinds",
        _ => "",
    };
    Error::open(first.name(), io::Error::new(error.kind(), problem + mend))
}

impl Columns {
    /// Settles what is read: all columns that can be a field, or those that are wanted.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the column and the mend; [`Error::Open`] where the values that
    /// decide cannot be read.
    pub(super) fn choose(
        schema: &Schema,
        wanted: &[Wanted],
        first: &mut dyn First,
    ) -> Result<Columns, Error> {
        let hints = Hints::of(schema);
        let mut chosen = Columns {
            fields: Vec::new(),
            columns: Vec::new(),
            classes: None,
        };
        if wanted.is_empty() {
            chosen.guess_all(schema, &hints, first)?;
        }
        for wanted in wanted {
            let names = || -> Vec<&str> { schema.fields().iter().map(|f| &**f.name()).collect() };
            let part = || format!("source field `{}`", wanted.name);
            let Some((at, field)) = schema.column_with_name(&wanted.column) else {
                let problem = format!("no column `{}`; there are {:?}", wanted.column, names());
                return Err(Error::config(part(), problem));
            };
            let settled = settle(at, field, hints.of_column(&wanted.column), wanted, first);
            let settled = settled.map_err(|unsettled| match unsettled {
                Unsettled::Unfit(problem) => {
                    Error::config(part(), format!("column `{}`: {problem}", wanted.column))
                }
                Unsettled::Unread(error) => unread(first, &wanted.column, error),
            })?;
            chosen.add(wanted, field, &hints, settled);
        }
        if chosen.fields.is_empty() {
            let problem = "none of its columns can be a field; name them and their kinds in fields";
            return Err(Error::config("source", problem));
        }
        if let Some(twice) = repeated(&chosen.fields) {
            let problem = format!("two fields are called `{twice}`");
            return Err(Error::config("source", problem));
        }
        Ok(chosen)
    }

    fn guess_all(
        &mut self,
        schema: &Schema,
        hints: &Hints,
        first: &mut dyn First,
    ) -> Result<(), Error> {
        for (at, field) in schema.fields().iter().enumerate() {
            let wanted = Wanted {
                name: field.name().clone(),
                column: field.name().clone(),
                kind: None,
                dtype: None,
                shape: Vec::new(),
            };
            match settle(at, field, hints.of_column(field.name()), &wanted, first) {
                Ok(settled) => self.add(&wanted, field, hints, settled),
                Err(Unsettled::Unfit(problem)) => tracing::warn!(
                    target: "infeed::source",
                    "column `{}` is left out: {problem}",
                    field.name()
                ),
                Err(Unsettled::Unread(error)) => return Err(unread(first, field.name(), error)),
            }
        }
        Ok(())
    }

    fn add(&mut self, wanted: &Wanted, field: &ArrowField, hints: &Hints, settled: Settled) {
        let Settled {
            kind,
            store,
            classes,
        } = settled;
        let check = match &kind {
            FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded) => Check::Nothing,
            FieldKind::Ragged { dtype } => Check::Elements(*dtype),
            // What Arrow takes for text was checked when it was decoded.
            FieldKind::Text if holds_bytes(field.data_type()) => Check::Text,
            kind => kind.record_bytes().map_or(Check::Nothing, Check::Exactly),
        };
        self.fields.push(Field {
            name: wanted.name.clone(),
            kind,
        });
        self.columns.push(Column {
            name: wanted.column.clone(),
            data_type: field.data_type().clone(),
            store,
            check,
            classes: hints.classes(&wanted.column).map(<[_]>::to_vec),
            // That of a column whose tensors could be no field is not settled.
            shape: hints::tensor_shape(field).ok().flatten(),
        });
        if self.classes.is_none() {
            self.classes = classes;
        }
    }

    /// The fields, in order.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The columns behind them, in the same order.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Class names of the first column that has any.
    pub(super) fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    /// Where the columns stand in another schema, ascending and each once.
    ///
    /// # Errors
    ///
    /// Which column is not there, of another type, or said to mean something else.
    pub(super) fn locate(&self, schema: &Schema) -> Result<Vec<usize>, String> {
        let hints = Hints::of(schema);
        let mut places = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let Some((at, field)) = schema.column_with_name(&column.name) else {
                return Err(format!("it has no column `{}`", column.name));
            };
            if !field.data_type().equals_datatype(&column.data_type) {
                return Err(format!(
                    "column `{}` is {} where the first file has {}",
                    column.name,
                    field.data_type(),
                    column.data_type
                ));
            }
            if let (Some(known), Some(own)) = (&column.classes, hints.classes(&column.name))
                && known != own
            {
                return Err(format!(
                    "the classes of column `{}` are other than in the first file, so that its \
                     numbers mean others ({})",
                    column.name,
                    differing(known, own)
                ));
            }
            let shape = hints::tensor_shape(field)
                .map_err(|problem| format!("column `{}`: {problem}", column.name))?;
            if let (Some(known), Some(own)) = (&column.shape, &shape)
                && known != own
            {
                return Err(format!(
                    "column `{}` has tensors of shape {own:?} where the first file has {known:?}",
                    column.name
                ));
            }
            places.push(at);
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }
}

/// The first class that two lists do not share, as an error shows it.
fn differing(known: &[String], own: &[String]) -> String {
    let at = known.iter().zip(own).position(|(a, b)| a != b);
    let at = at.unwrap_or(known.len().min(own.len()));
    let show = |list: &[String]| match list.get(at) {
        Some(name) => format!("`{name}`"),
        None => "none".to_owned(),
    };
    format!("{at} is {} here and {} there", show(own), show(known))
}

fn repeated(fields: &[Field]) -> Option<&str> {
    let names = fields.iter().map(|field| field.name.as_str());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}

/// What a column becomes.
#[derive(Debug)]
struct Settled {
    kind: FieldKind,
    store: Store,
    classes: Option<Vec<String>>,
}

/// What a column's type says of its values.
enum Stored {
    /// Bytes; those of a child, where it is a struct as Hugging Face writes images.
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
    },
}

fn settle(
    at: usize,
    field: &ArrowField,
    feature: Option<&Feature>,
    wanted: &Wanted,
    first: &mut dyn First,
) -> Result<Settled, Unsettled> {
    let stored = stored(field)?;
    let plain = |kind, store| Settled {
        kind,
        store,
        classes: None,
    };
    Ok(match stored {
        Stored::Bytes(child) => {
            let store = Store::Bytes { child };
            let kind = match wanted.kind {
                Some(kind) => bytes_kind(kind, wanted)?,
                None => {
                    let is_image = matches!(feature, Some(Feature::Image))
                        || first
                            .value(at, child)?
                            .is_some_and(|bytes| Format::of(&bytes).is_some());
                    match (is_image, names_masks(&wanted.name)) {
                        (false, _) => FieldKind::Bytes,
                        (true, true) => FieldKind::Mask(Pixels::Encoded),
                        (true, false) => FieldKind::Image(Pixels::Encoded),
                    }
                }
            };
            plain(kind, store)
        }
        Stored::Words if wanted.kind == Some(Kind::Tensor) => {
            let Some(words) = first.words(at)? else {
                let problem = "its words have no common dictionary here; take it as text, or \
                               store numbers";
                return Err(problem.to_owned().into());
            };
            let numbers = words.iter().cloned().zip(0..).collect();
            Settled {
                kind: scalar(DType::Int64),
                store: Store::Classes(Arc::new(numbers)),
                classes: Some(words),
            }
        }
        Stored::Text | Stored::Words => {
            let kind = match wanted.kind {
                None | Some(Kind::Text) => FieldKind::Text,
                Some(Kind::Bytes) => FieldKind::Bytes,
                Some(_) => return Err("it holds text".to_owned().into()),
            };
            plain(kind, Store::Bytes { child: None })
        }
        Stored::Numbers { dtype, dims } => numbers(dtype, dims, feature, wanted)?,
        Stored::Lists { dtype, depth } => lists(dtype, depth, feature, wanted)?,
    })
}

fn scalar(dtype: DType) -> FieldKind {
    FieldKind::Tensor {
        dtype,
        shape: Vec::new(),
    }
}

/// Bytes as the user says they should be taken.
fn bytes_kind(kind: Kind, wanted: &Wanted) -> Result<FieldKind, String> {
    let pixels = || match wanted.dtype {
        None => Ok(Pixels::Encoded),
        Some(dtype) => Pixels::raw(dtype, &wanted.shape),
    };
    Ok(match kind {
        Kind::Image => FieldKind::Image(pixels()?),
        Kind::Mask => FieldKind::Mask(pixels()?),
        Kind::Bytes => FieldKind::Bytes,
        Kind::Text => FieldKind::Text,
        Kind::Tensor => FieldKind::Tensor {
            dtype: wanted.dtype.ok_or("bytes need a dtype to be a tensor")?,
            shape: wanted.shape.clone(),
        },
        Kind::Ragged => FieldKind::Ragged {
            dtype: wanted.dtype.ok_or("bytes need a dtype to be ragged")?,
        },
    })
}

fn numbers(
    dtype: DType,
    dims: Vec<usize>,
    feature: Option<&Feature>,
    wanted: &Wanted,
) -> Result<Settled, String> {
    let length = product(&dims)?;
    let classes = match feature {
        Some(Feature::Classes(names)) => Some(names.clone()),
        _ => None,
    };
    let whole = !matches!(
        dtype,
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 | DType::UInt64
    );
    let is_label = dims.is_empty() && (classes.is_some() || wanted.name == "label");
    let wide = match wanted.dtype {
        Some(asked) => asked == DType::Int64,
        None => is_label && wanted.kind.is_none_or(|kind| kind == Kind::Tensor),
    };
    if wide && whole && dtype != DType::Int64 && dims.is_empty() {
        return Ok(Settled {
            kind: scalar(DType::Int64),
            store: Store::Wide { from: dtype },
            classes,
        });
    }
    if let Some(asked) = wanted.dtype.filter(|&asked| asked != dtype) {
        let problem = "only integer scalars are converted, to int64";
        return Err(format!(
            "it holds {}, not {}; {problem}",
            dtype.name(),
            asked.name()
        ));
    }
    let shape = match wanted.shape.is_empty() {
        true => dims,
        false if product(&wanted.shape)? == length => wanted.shape.clone(),
        false => return Err(format!("it has shape {dims:?}, not {:?}", wanted.shape)),
    };
    let kind = match wanted.kind {
        Some(Kind::Image) => FieldKind::Image(Pixels::raw(dtype, &shape)?),
        Some(Kind::Mask) => FieldKind::Mask(Pixels::raw(dtype, &shape)?),
        None => guess(&wanted.name, dtype, shape),
        Some(Kind::Tensor) => FieldKind::Tensor { dtype, shape },
        Some(Kind::Bytes | Kind::Text | Kind::Ragged) => {
            return Err("it holds numbers of one shape; its kind is tensor".to_owned());
        }
    };
    Ok(Settled {
        kind,
        store: Store::Fixed { dtype, length },
        classes,
    })
}

/// The field that an array becomes whose records have this type and shape; and where integers
/// are widened to int64, what from.
///
/// # Errors
///
/// Why it cannot be what is wanted.
pub fn array_field(
    dtype: DType,
    dims: Vec<usize>,
    wanted: &Wanted,
) -> Result<(FieldKind, Option<DType>), String> {
    let settled = numbers(dtype, dims, None, wanted)?;
    let wide = match settled.store {
        Store::Wide { from } => Some(from),
        _ => None,
    };
    Ok((settled.kind, wide))
}

/// A little-endian integer as int64.
pub fn widened(from: DType, bytes: &[u8]) -> Option<Bytes> {
    let wide = rows::integer(from, bytes)?;
    Some(Bytes::copy_from_slice(&wide.to_le_bytes()))
}

fn lists(
    dtype: DType,
    depth: usize,
    feature: Option<&Feature>,
    wanted: &Wanted,
) -> Result<Settled, String> {
    if let Some(asked) = wanted.dtype.filter(|&asked| asked != dtype) {
        return Err(format!("it holds {}, not {}", dtype.name(), asked.name()));
    }
    let shape = match feature {
        _ if !wanted.shape.is_empty() => Some(wanted.shape.clone()),
        Some(Feature::Array(shape)) if shape.len() == depth => Some(shape.clone()),
        _ => None,
    };
    let lists = |dims| Store::Lists { dtype, depth, dims };
    let (kind, store) = match (wanted.kind, shape) {
        (None | Some(Kind::Ragged), None) if depth == 1 => {
            (FieldKind::Ragged { dtype }, lists(None))
        }
        (Some(Kind::Ragged), _) => {
            return Err("ragged fields are lists of numbers, and these are nested".to_owned());
        }
        (Some(Kind::Bytes | Kind::Text), _) => return Err("it holds lists of numbers".to_owned()),
        (_, None) => {
            let problem = "lists may differ in length; give the shape that all of them have";
            return Err(problem.to_owned());
        }
        (kind, Some(shape)) => {
            if depth > 1 && shape.len() != depth {
                return Err(format!("it is nested {depth} deep, unlike {shape:?}"));
            }
            // A flat list may hold any shape.
            let dims = match depth {
                1 => vec![product(&shape)?],
                _ => shape.clone(),
            };
            let kind = match kind {
                Some(Kind::Image) => FieldKind::Image(Pixels::raw(dtype, &shape)?),
                Some(Kind::Mask) => FieldKind::Mask(Pixels::raw(dtype, &shape)?),
                Some(_) => FieldKind::Tensor { dtype, shape },
                None => guess(&wanted.name, dtype, shape),
            };
            (kind, lists(Some(dims)))
        }
    };
    Ok(Settled {
        kind,
        store,
        classes: None,
    })
}

/// Elements of a shape, as long as their bytes can be counted.
fn product(shape: &[usize]) -> Result<usize, String> {
    let product = shape
        .iter()
        .try_fold(8_usize, |n, &axis| n.checked_mul(axis));
    let product = product.ok_or_else(|| format!("shape {shape:?} has too many elements"))?;
    Ok(product / 8)
}

/// The kind of an array of which nothing was said.
fn guess(name: &str, dtype: DType, shape: Vec<usize>) -> FieldKind {
    let mask = names_masks(name);
    let pixels = match (dtype, &shape[..]) {
        (DType::UInt8, [_, _, 1 | 3 | 4]) => true,
        (DType::UInt8 | DType::UInt16, [_, _]) => mask,
        (DType::UInt16, [_, _, 1]) => mask,
        _ => false,
    };
    match Pixels::raw(dtype, &shape) {
        Ok(raw) if pixels && mask => FieldKind::Mask(raw),
        Ok(raw) if pixels => FieldKind::Image(raw),
        _ => FieldKind::Tensor { dtype, shape },
    }
}

/// Whether images in a column of this name are labels by pixel.
pub fn names_masks(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["mask", "annotation", "segmentation"]
        .iter()
        .any(|word| name.contains(word))
}

/// What the type of a column says of its values, or why they can be no field.
fn stored(field: &ArrowField) -> Result<Stored, String> {
    if let Some(shape) = hints::tensor_shape(field)? {
        let DataType::FixedSizeList(item, length) = field.data_type() else {
            return Err("it is no list, as a tensor must be".to_owned());
        };
        let (Some(dtype), Ok(length)) = (number(item.data_type()), usize::try_from(*length)) else {
            return Err(unfit(field.data_type()));
        };
        if product(&shape)? != length {
            return Err(format!(
                "its shape {shape:?} does not have {length} elements"
            ));
        }
        return Ok(Stored::Numbers { dtype, dims: shape });
    }
    let data_type = field.data_type();
    Ok(match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Stored::Bytes(None),
        DataType::FixedSizeBinary(_) => Stored::Bytes(None),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Stored::Text,
        DataType::Dictionary(_, words) if is_text(words) => Stored::Words,
        DataType::Struct(children) => {
            let has_bytes = children.iter().any(|child| {
                child.name() == BYTES
                    && matches!(
                        child.data_type(),
                        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
                    )
            });
            match has_bytes {
                true => Stored::Bytes(Some(BYTES)),
                false => return Err(unfit(data_type)),
            }
        }
        _ => numeric(data_type).ok_or_else(|| unfit(data_type))?,
    })
}

/// Whether values of this type are bytes of which nothing is known.
fn holds_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
            | DataType::Struct(_)
    )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// Most lists in lists that are looked into.
const DEPTH: usize = 8;

fn numeric(data_type: &DataType) -> Option<Stored> {
    if let Some(dtype) = number(data_type) {
        let dims = Vec::new();
        return Some(Stored::Numbers { dtype, dims });
    }
    let (mut inner, mut dims, mut depth) = (data_type, Vec::new(), 0);
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
            _ => break,
        }
        if depth.max(dims.len()) > DEPTH {
            return None;
        }
    }
    let dtype = number(inner)?;
    Some(match depth {
        0 => Stored::Numbers { dtype, dims },
        depth => Stored::Lists { dtype, depth },
    })
}

fn unfit(data_type: &DataType) -> String {
    format!("{data_type} can be no field")
}

/// The element type that lies in memory as Arrow's does; dates and times are integers.
fn number(data_type: &DataType) -> Option<DType> {
    Some(match data_type {
        DataType::Boolean => DType::Bool,
        DataType::Int8 => DType::Int8,
        DataType::Int16 => DType::Int16,
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => DType::Int32,
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_) => DType::Int64,
        DataType::UInt8 => DType::UInt8,
        DataType::UInt16 => DType::UInt16,
        DataType::UInt32 => DType::UInt32,
        DataType::UInt64 => DType::UInt64,
        DataType::Float16 => DType::Float16,
        DataType::Float32 => DType::Float32,
        DataType::Float64 => DType::Float64,
        _ => return None,
    })
}
