//! Locations of columns and of children of structs.

use arrow_schema::{DataType, Field as ArrowField, Schema};

use super::value_types::DEPTH;

/// Location of a column, or of a child of structs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnPath {
    /// Name of the column.
    pub(crate) column: String,
    /// Names of the children that lead to the child.
    pub(crate) children: Vec<String>,
}

impl ColumnPath {
    /// Finds a name in a schema: a column of this name, or else a child of structs. Returns the
    /// position of the column too, and the column or child.
    pub(super) fn find<'a>(
        schema: &'a Schema,
        name: &str,
    ) -> Option<(usize, ColumnPath, &'a ArrowField)> {
        if let Some((at, field)) = schema.column_with_name(name) {
            let (column, children) = (name.to_owned(), Vec::new());
            return Some((at, ColumnPath { column, children }, field));
        }
        let dots = name.match_indices('.').map(|(at, _)| at);
        let found = dots.filter_map(|dot| {
            let (at, field) = schema.column_with_name(&name[..dot])?;
            let mut path = ColumnPath {
                column: name[..dot].to_owned(),
                children: Vec::new(),
            };
            let child = path.descend(field, &name[dot + 1..])?;
            Some((at, path, child))
        });
        found.into_iter().next()
    }

    /// Adds the children that lead to a name below a struct.
    fn descend<'a>(&mut self, field: &'a ArrowField, name: &str) -> Option<&'a ArrowField> {
        let DataType::Struct(children) = field.data_type() else {
            return None;
        };
        if self.children.len() >= DEPTH {
            return None;
        }
        if let Some((_, child)) = children.find(name) {
            self.children.push(name.to_owned());
            return Some(child);
        }
        name.match_indices('.').find_map(|(dot, _)| {
            let (_, child) = children.find(&name[..dot])?;
            let length = self.children.len();
            self.children.push(name[..dot].to_owned());
            let found = self.descend(child, &name[dot + 1..]);
            if found.is_none() {
                self.children.truncate(length);
            }
            found
        })
    }
}
