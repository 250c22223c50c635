//! Properties of a file format.

use std::sync::Arc;

use crate::Source;
use crate::field_spec::{FieldSpec, column_requests};
use crate::store::FilePatterns;
use infeed_core::error::Error;
use infeed_core::sample::Field;

/// A format of files that hold many records.
#[derive(Debug)]
pub struct FileFormat {
    /// Name in pipeline descriptions.
    pub name: &'static str,
    /// Name in help texts, such as `.tar`.
    pub label: &'static str,
    /// Whether help texts list it under tables. Otherwise it is a format of shards.
    pub is_table: bool,
    /// Ends of file names, in lower case.
    pub endings: &'static [&'static str],
    /// Whether it is the format of files that are named `train-00000-of-01024`.
    pub numbered: bool,
    /// Name of the file that lists the shards of a folder. A description then names the folder.
    pub index_file: Option<&'static str>,
    /// Returns the fields that are known before a file is opened. None if the files decide.
    pub known_fields: KnownFields,
    /// Opens the files, or the folder, with these names.
    pub open: OpenFiles,
}

impl FileFormat {
    /// A format of tables, whose files decide the fields.
    pub(super) const fn table(
        name: &'static str,
        label: &'static str,
        endings: &'static [&'static str],
        open: OpenFiles,
    ) -> FileFormat {
        FileFormat {
            name,
            label,
            is_table: true,
            endings,
            numbered: false,
            index_file: None,
            known_fields: |fields| column_requests(fields).map(|_| None),
            open,
        }
    }
}

/// Returns the fields that follow from a description alone.
pub type KnownFields = fn(&[FieldSpec]) -> Result<Option<Vec<Field>>, Error>;

/// Opens a source from the names of its files and its fields.
pub type OpenFiles = fn(FilePatterns<'_>, &[FieldSpec]) -> Result<Arc<dyn Source>, Error>;
