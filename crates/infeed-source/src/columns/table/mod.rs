//! Columns of Arrow tables as fields of records: the kind of each, and the location of its bytes.
//!
//! `Columns` is determined once, from the schema of the first file and the user's request.
//! `rows::Rows` then returns the fields of each record of a batch, as slices of Arrow's buffers.

mod described;
mod hints;
mod path;
pub(crate) mod rows;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema};

use super::{
    ColumnRequest, FieldChoice, guess, names_encoded_masks, number_field, product, scalar,
};
use crate::left_out::LeftOut;
use described::described;
use hints::{FeatureHint, Hints};
use infeed_core::error::Error;
use infeed_core::panics::contain;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};
use path::ColumnPath;

/// Child of a struct column that holds the bytes of a file, as in Hugging Face tables.
pub(crate) const BYTES: &str = "bytes";

/// Conversion of a column's values to the bytes of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Bytes or text as they are; those of a child, where the column is a struct.
    Bytes { child: Option<&'static str> },
    /// A fixed number of elements per record.
    Fixed { dtype: DType, length: usize },
    /// Integers widened to int64.
    Wide { from: DType },
    /// Lists nested `depth` deep; with `dims`, each of exactly that shape. An item of the innermost
    /// lists has `item` elements.
    Lists {
        dtype: DType,
        depth: usize,
        item: usize,
        dims: Option<Vec<usize>>,
    },
    /// Words of a dictionary as class numbers.
    Classes(Arc<HashMap<String, i64>>),
}

/// A column that is read.
#[derive(Clone, Debug)]
pub(crate) struct ReadColumn {
    /// Name in the table. That of a child of a struct has dots, such as `objects.bbox`.
    pub(crate) name: String,
    /// Location of the column, or of the child.
    pub(crate) path: ColumnPath,
    /// Type in the table.
    data_type: DataType,
    pub(crate) store: Conversion,
    pub(crate) check: ValueCheck,
    /// Meaning of the numbers according to the metadata: class names and the shape of tensors. It
    /// must be the same in every file.
    classes: Option<Vec<String>>,
    shape: Option<Vec<usize>>,
}

/// Requirement on a value beyond its column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueCheck {
    Nothing,
    /// A number of bytes.
    Exactly(usize),
    /// A multiple of the element size.
    Elements(DType),
    /// UTF-8.
    Text,
}

/// Columns that are read, and the fields that they become.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    fields: Vec<Field>,
    columns: Vec<ReadColumn>,
    classes: Option<Vec<String>>,
    left_out: Vec<LeftOut>,
    /// Names of all columns, if the user requested none.
    known: Option<HashSet<String>>,
}

/// Values of the first records, which decide the kinds of columns.
pub(crate) trait FirstValues {
    /// Location of the values for error messages.
    fn name(&self) -> String;

    /// Passes the first values of a column of bytes, or of a child of its structs, to `seen`.
    ///
    /// # Errors
    ///
    /// The storage's error, or the reason why all of the first values are invalid.
    fn look(
        &mut self,
        column: usize,
        children: &[String],
        seen: &mut rows::FirstBytes,
    ) -> io::Result<()>;

    /// Returns the words of a column's dictionary, if all of the data shares one.
    ///
    /// # Errors
    ///
    /// As [`FirstValues::look`].
    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>>;
}

/// Reason why the kind of a column is not determined.
enum ColumnError {
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

/// Error of a column whose first values could not be read. Such a column must not silently become
/// another kind.
fn unread(first: &dyn FirstValues, column: &str, error: io::Error) -> Error {
    let problem = format!("cannot determine the kind of column `{column}`: {error}");
    let fix = match error.kind() {
        io::ErrorKind::InvalidData => "; name the columns to read, with their kinds",
        _ => "",
    };
    Error::open(first.name(), io::Error::new(error.kind(), problem + fix))
}

impl Columns {
    /// Determines the fields: from all columns that can be a field, or from the requested ones.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the column and the fix; [`Error::Open`] if the values that decide
    /// cannot be read.
    pub(crate) fn choose(
        schema: &Schema,
        wanted: &[ColumnRequest],
        first: &mut dyn FirstValues,
    ) -> Result<Columns, Error> {
        let hints = Hints::of(schema);
        let mut chosen = Columns {
            fields: Vec::new(),
            columns: Vec::new(),
            classes: None,
            left_out: Vec::new(),
            known: None,
        };
        if wanted.is_empty() {
            chosen.guess_all(schema, &hints, first)?;
        }
        for wanted in wanted {
            let names = || -> Vec<&str> { schema.fields().iter().map(|f| &**f.name()).collect() };
            let part = || format!("source field `{}`", wanted.name);
            let Some((at, path, field)) = ColumnPath::find(schema, &wanted.column) else {
                let problem = format!("no column `{}`; there are {:?}", wanted.column, names());
                return Err(Error::config(part(), problem));
            };
            let place = (at, &path.children[..], field);
            let settled = settle(place, hints.of_column(&wanted.column), wanted, first);
            let settled = settled.map_err(|unsettled| match unsettled {
                ColumnError::Unfit(problem) => {
                    Error::config(part(), format!("column `{}`: {problem}", wanted.column))
                }
                ColumnError::Unread(error) => unread(first, &wanted.column, error),
            })?;
            chosen.add(wanted, path, field, &hints, settled);
        }
        if chosen.fields.is_empty() {
            let problem = "none of its columns can be a field; name them and their kinds in fields";
            return Err(Error::config("source", problem));
        }
        if let Some(twice) = repeated(&chosen.fields) {
            let problem = format!("two fields have the name `{twice}`");
            return Err(Error::config("source", problem));
        }
        Ok(chosen)
    }

    fn guess_all(
        &mut self,
        schema: &Schema,
        hints: &Hints,
        first: &mut dyn FirstValues,
    ) -> Result<(), Error> {
        let names = schema.fields().iter().map(|field| field.name().clone());
        self.known = Some(names.collect());
        for (at, field) in schema.fields().iter().enumerate() {
            let path = ColumnPath {
                column: field.name().clone(),
                children: Vec::new(),
            };
            self.guess(at, path, field, hints, first)?;
        }
        Ok(())
    }

    /// Adds a column or child of a struct, or the children below it.
    fn guess(
        &mut self,
        at: usize,
        path: ColumnPath,
        field: &ArrowField,
        hints: &Hints,
        first: &mut dyn FirstValues,
    ) -> Result<(), Error> {
        let mut parts = vec![path.column.as_str()];
        parts.extend(path.children.iter().map(String::as_str));
        let name = parts.join(".");
        let wanted = ColumnRequest {
            name: name.clone(),
            column: name.clone(),
            kind: None,
            dtype: None,
            shape: Vec::new(),
        };
        let place = (at, &path.children[..], field);
        match (
            settle(place, hints.of_column(&name), &wanted, first),
            field.data_type(),
        ) {
            (Ok(settled), _) => self.add(&wanted, path, field, hints, settled),
            (Err(ColumnError::Unfit(_)), DataType::Struct(children))
                if path.children.len() < DEPTH && !children.is_empty() =>
            {
                for child in children {
                    let mut path = path.clone();
                    path.children.push(child.name().clone());
                    self.guess(at, path, child, hints, first)?;
                }
            }
            (Err(ColumnError::Unfit(problem)), _) => {
                let column = LeftOut::new(first.name(), "column").with(&name);
                self.left_out.push(column.note(problem));
            }
            (Err(ColumnError::Unread(error)), _) => return Err(unread(first, &name, error)),
        }
        Ok(())
    }

    fn add(
        &mut self,
        wanted: &ColumnRequest,
        path: ColumnPath,
        field: &ArrowField,
        hints: &Hints,
        settled: SettledColumn,
    ) {
        let SettledColumn {
            kind,
            store,
            classes,
        } = settled;
        let check = match &kind {
            FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded) => {
                ValueCheck::Nothing
            }
            FieldKind::Ragged { dtype } => ValueCheck::Elements(*dtype),
            // Arrow checks text when it decodes it.
            FieldKind::Text if holds_bytes(field.data_type()) => ValueCheck::Text,
            kind => kind
                .record_bytes()
                .map_or(ValueCheck::Nothing, ValueCheck::Exactly),
        };
        self.fields.push(Field {
            name: wanted.name.clone(),
            kind,
        });
        self.columns.push(ReadColumn {
            name: wanted.column.clone(),
            path,
            data_type: field.data_type().clone(),
            store,
            check,
            classes: hints.classes(&wanted.column).map(<[_]>::to_vec),
            // A column whose tensors cannot be a field never gets here.
            shape: hints::tensor_shape(field).ok().flatten(),
        });
        if self.classes.is_none() {
            self.classes = classes;
        }
    }

    /// Fields, in order.
    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Columns of the fields, in the same order.
    pub(crate) fn columns(&self) -> &[ReadColumn] {
        &self.columns
    }

    /// Class names of the first column that has any.
    pub(crate) fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    /// Columns that are not read.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        LeftOut::over_files(self.left_out.iter().cloned())
    }

    /// Counts the columns of another file that the first file does not have.
    pub(crate) fn compare(&mut self, file: &str, schema: &Schema) {
        let Some(known) = &mut self.known else { return };
        for field in schema.fields() {
            if known.insert(field.name().clone()) {
                let extra = LeftOut::new(file, "column that the first file does not have");
                extra.with(field.name()).append_to(&mut self.left_out);
            }
        }
    }

    /// Returns the positions of the columns in another schema, ascending and without repetition.
    ///
    /// # Errors
    ///
    /// The column that is missing, has another type, or has another meaning.
    pub(crate) fn locate(&self, schema: &Schema) -> Result<Vec<usize>, String> {
        let hints = Hints::of(schema);
        let mut places = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let found = ColumnPath::find(schema, &column.name);
            let Some((at, _, field)) = found.filter(|(_, path, _)| *path == column.path) else {
                return Err(format!("it has no column `{}`", column.name));
            };
            if !field.data_type().equals_datatype(&column.data_type) {
                return Err(format!(
                    "column `{}` holds {}, but {} in the first file",
                    column.name,
                    described(field.data_type()),
                    described(&column.data_type)
                ));
            }
            if let (Some(known), Some(own)) = (&column.classes, hints.classes(&column.name))
                && known != own
            {
                return Err(format!(
                    "the classes of column `{}` differ from the first file, so its numbers have \
                     another meaning ({})",
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
                    "column `{}` has tensors of shape {own:?}, but {known:?} in the first file",
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

/// Describes the first class in which two lists differ.
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

/// Field that a column becomes.
#[derive(Debug)]
struct SettledColumn {
    kind: FieldKind,
    store: Conversion,
    classes: Option<Vec<String>>,
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

fn settle(
    (at, children, field): (usize, &[String], &ArrowField),
    feature: Option<&FeatureHint>,
    wanted: &ColumnRequest,
    first: &mut dyn FirstValues,
) -> Result<SettledColumn, ColumnError> {
    let stored = stored(field)?;
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
                    let mut seen = rows::FirstBytes::default();
                    let is_image = matches!(feature, Some(FeatureHint::Image)) || {
                        let child = child.map(str::to_owned);
                        let children: Vec<_> = children.iter().cloned().chain(child).collect();
                        first.look(at, &children, &mut seen)?;
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
    if let Some(asked) = wanted.dtype.filter(|&asked| asked != dtype) {
        return Err(format!("it holds {}, not {}", dtype.name(), asked.name()));
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
fn stored(field: &ArrowField) -> Result<ValueLayout, String> {
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

/// Whether values of this type are bytes of unknown content.
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

/// Maximum depth of nested lists.
const DEPTH: usize = 8;

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
    let holds = described(data_type);
    format!("it holds {holds}, and fields are bytes, text, numbers or lists of numbers")
}

/// Element type with the same memory layout as an Arrow type; dates and times are integers.
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

/// Runs a library that parses untrusted bytes. A panic of the library becomes an error of the file.
/// `work` owns its data or only reads it, so nothing incomplete survives the panic.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    contain(work).unwrap_or_else(|_| Err("its parts do not fit together".to_owned()))
}
