//! Columns of Arrow tables as fields of records: the kind of each, and the location of its bytes.
//!
//! `Columns` is determined once, from the schema of the first file and the user's request: `settle`
//! determines the field of each column. `rows::Rows` then returns the fields of each record of a
//! batch, as slices of Arrow's buffers, which `cells` holds.

mod cells;
mod column;
mod first_values;
mod hints;
mod path;
pub(crate) mod rows;
mod settle;
#[cfg(test)]
pub(crate) mod tests;
mod value_types;

use std::collections::HashSet;
use std::io;

use arrow_schema::{DataType, Field as ArrowField, Schema};

use super::ColumnRequest;
use crate::left_out::LeftOut;
use column::{ReadColumn, ValueCheck};
use hints::Hints;
use infeed_core::error::Error;
use infeed_core::panics::contain;
use infeed_core::sample::{Field, FieldKind, Pixels};
use path::ColumnPath;
use settle::{ColumnError, SettledColumn, settle};
use value_types::{DEPTH, describe, holds_bytes};

pub(crate) use cells::words;
pub(crate) use column::Conversion;
pub(crate) use first_values::{FirstBytes, FirstValues};

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
        if let Some(twice) = find_repeated(&chosen.fields) {
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
                    describe(field.data_type()),
                    describe(&column.data_type)
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

fn find_repeated(fields: &[Field]) -> Option<&str> {
    let names = fields.iter().map(|field| field.name.as_str());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}

/// Runs a library that parses untrusted bytes. A panic of the library becomes an error of the file.
/// `work` owns its data or only reads it, so nothing incomplete survives the panic.
pub(crate) fn contain_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    contain(work).unwrap_or_else(|_| Err("its parts do not fit together".to_owned()))
}
