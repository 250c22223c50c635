//! Parquet files.

#[cfg(feature = "tables")]
mod reader;
#[cfg(not(feature = "tables"))]
use super::no_tables as reader;

use super::format::FileFormat;
#[cfg(feature = "tables")]
pub use reader::Parquet;

/// Parquet files in the table of formats.
pub static FORMAT: FileFormat =
    FileFormat::table("parquet", ".parquet", &[".parquet", ".pq"], reader::open);
