//! Arrow IPC files and streams.

#[cfg(feature = "tables")]
mod reader;
#[cfg(not(feature = "tables"))]
use super::no_tables as reader;

use super::format::FileFormat;
#[cfg(feature = "tables")]
pub use reader::Arrow;

/// Arrow IPC files in the table of formats.
pub static FORMAT: FileFormat = FileFormat::table(
    "arrow",
    ".arrow",
    &[".arrow", ".feather", ".ipc"],
    reader::open,
);
