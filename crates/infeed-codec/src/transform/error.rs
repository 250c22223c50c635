//! Errors of transforms, and of the palettes of masks.

use std::path::PathBuf;

use infeed_core::sample::{Depth, Size};

/// Result of a check or a draw.
pub(super) type Result<T, E = TransformError> = std::result::Result<T, E>;

/// Reason why a transform is invalid, or cannot be applied to an image.
///
/// The error does not name the record; the caller adds the name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// A parameter is out of range. Reported when the pipeline is built.
    #[error("{transform}: {parameter} is {found}, it must be {allowed}")]
    Parameter {
        /// Name of the transform, such as `"RandomCrop"`.
        transform: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// Value of the parameter.
        found: String,
        /// Allowed values.
        allowed: &'static str,
    },

    /// A list by channel has neither one value nor one per channel.
    #[error(
        "{transform}: {parameter} has {found} values for an image of {channels} channels; give one \
         value, or one for each channel"
    )]
    Values {
        /// Name of the transform.
        transform: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// Number of values.
        found: usize,
        /// Channels of the image.
        channels: usize,
    },

    /// The image is smaller than the region to crop.
    #[error("{transform} needs {needed} px, the image is {found} px; {hint}")]
    TooSmall {
        /// Name of the transform.
        transform: &'static str,
        /// Size of the image.
        found: Size,
        /// Minimum size.
        needed: Size,
        /// Suggested change.
        hint: &'static str,
    },

    /// The result would exceed the maximum size of an image; nothing was allocated.
    #[error(
        "{transform} of an image of {found} px gives more than {limit} px in total; use a smaller \
         size"
    )]
    TooLarge {
        /// Name of the transform.
        transform: &'static str,
        /// Size of the input image.
        found: Size,
        /// Maximum number of pixels of a result.
        limit: u64,
    },

    /// The image has no pixels.
    #[error("{transform} of an image of {found} px, which has no pixels; remove the record")]
    Empty {
        /// Name of the transform.
        transform: &'static str,
        /// Size of the image.
        found: Size,
    },

    /// The transform is not defined for this kind of pixel.
    #[error(
        "{transform} of pixels with {channels} channels of {} bits; it takes {allowed}",
        depth.bytes() * 8
    )]
    Pixels {
        /// Name of the transform.
        transform: &'static str,
        /// Channels of the image.
        channels: usize,
        /// Depth of the image.
        depth: Depth,
        /// Supported pixels.
        allowed: &'static str,
    },

    /// An image cannot be compressed.
    #[error("{transform}: {what}")]
    Codec {
        /// Name of the transform.
        transform: &'static str,
        /// Reason.
        what: String,
    },

    /// A region, or the bytes of an image, are too small for the requested pixels.
    #[error("a view of {size} px exceeds its pixels")]
    View {
        /// Requested size.
        size: Size,
    },

    /// A mask has pixels without a class that the transform does not accept.
    #[error("{found}; {fix}")]
    NoClass {
        /// Name of the transform.
        transform: &'static str,
        /// Number and values of these pixels.
        found: String,
        /// Suggested change.
        fix: String,
    },

    /// A palette cannot be read.
    #[error("cannot use the palette {}", path.display())]
    Palette {
        /// Path of the CSV file.
        path: PathBuf,
        /// Problem with the file.
        source: PaletteError,
    },
}

/// Problem of a palette file. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum PaletteError {
    /// The file cannot be read, or is not a CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),

    /// The first line does not name the columns.
    #[error("the first line is {found:?}; it must be name,r,g,b")]
    Header { found: String },

    /// A line has too few or too many columns, or a colour that is not a number from 0 to 255.
    #[error("line {line}: {found:?} is not a name and three numbers from 0 to 255")]
    Row { line: u64, found: String },

    /// Two classes have the same colour.
    #[error(
        "line {line}: the colour {},{},{} is already used in line {first}; give each class its own \
         colour",
        color[0], color[1], color[2]
    )]
    Duplicate {
        line: u64,
        first: u64,
        color: [u8; 3],
    },

    /// There is no class, or more classes than an index can distinguish.
    #[error("it has {found} classes; there must be 1 to 65535")]
    Classes { found: usize },
}
