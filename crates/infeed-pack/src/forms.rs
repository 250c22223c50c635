//! The list of shard formats.

use super::encoding::Target;
use super::form::{Column, Form};
use super::{PackOptions, arrow, npz, parquet, tfrecord, webdataset};
use infeed_core::error::Error;

/// Returns the format for a target with shards.
///
/// # Errors
///
/// [`Error::Config`] if the format cannot hold the fields.
pub(super) fn form(
    options: &PackOptions,
    columns: Vec<Column>,
    classes: Option<&[String]>,
    rows: u64,
) -> Result<Box<dyn Form>, Error> {
    Ok(match options.to {
        Target::WebDataset => Box::new(webdataset::WebDataset::new(columns)?),
        Target::TfRecord => Box::new(tfrecord::TfRecord::new(columns)?),
        Target::Arrow => Box::new(arrow::ArrowForm::new(columns)?),
        Target::Parquet => Box::new(parquet::ParquetForm::new(columns, classes)?),
        Target::Npz => Box::new(npz::Npz::new(columns, rows)?),
        Target::Folder | Target::Arrays => {
            return Err(Error::config("to", "a folder and arrays are no shards"));
        }
    })
}
