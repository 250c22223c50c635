//! Properties of an output format.

use crate::shard_layout::{ShardColumn, ShardLayout};
use infeed_core::error::Error;

/// Properties of an output format.
#[derive(Debug)]
pub(crate) struct OutputFormat {
    /// Name in options and manifests.
    pub(crate) name: &'static str,
    /// Description in help texts.
    pub(crate) summary: &'static str,
    pub(crate) pixels: PixelStorage,
    pub(crate) writer: FormatWriter,
    /// Name of a file in messages, if a file is one batch.
    pub(crate) batch_file: Option<&'static str>,
}

/// How a format stores the pixels of images and masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PixelStorage {
    /// As encoded files only.
    Encoded,
    /// As encoded files or as raw pixels.
    Any,
    /// As decoded pixels only.
    Decoded,
}

/// The code that writes a format.
#[derive(Debug)]
pub(crate) enum FormatWriter {
    /// Files of many records, written sequentially.
    Shards(NewLayout),
    /// The writer of image files.
    ImageFiles,
    /// The writer of one array per field.
    FieldArrays,
}

/// Prepares shards of these fields: with the class names of the source, and the rows of a file that
/// is one batch.
///
/// # Errors
///
/// [`Error::Config`] if the format cannot hold the fields.
pub(crate) type NewLayout =
    fn(Vec<ShardColumn>, Option<&[String]>, u64) -> Result<Box<dyn ShardLayout>, Error>;
