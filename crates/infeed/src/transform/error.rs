//! What can be wrong with a transform, or with an image for it.

use std::path::PathBuf;

use super::PaletteError;
use crate::sample::{Depth, Size};

/// Why a transform cannot be built, or cannot be applied to an image.
///
/// It does not name the record: whoever holds the record does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// A parameter is out of its range. Found when the pipeline is built.
    #[error("{transform}: {parameter} is {found}, it must be {allowed}")]
    Parameter {
        /// Name of the transform, such as `"RandomCrop"`.
        transform: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// What it was.
        found: String,
        /// What it may be.
        allowed: &'static str,
    },

    /// A list by channel has neither one value nor one for every channel.
    #[error("{transform}: {parameter} has {found} values for an image of {channels} channels")]
    Values {
        /// Name of the transform.
        transform: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// Values given.
        found: usize,
        /// Channels of the image.
        channels: usize,
    },

    /// The image is smaller than what is to be cut from it.
    #[error("{transform} needs {needed} px, the image is {found} px; {hint}")]
    TooSmall {
        /// Name of the transform.
        transform: &'static str,
        /// Size of the image.
        found: Size,
        /// The least size it must have.
        needed: Size,
        /// What to do about it.
        hint: &'static str,
    },

    /// The result would be larger than any image may be; nothing was allocated.
    #[error("{transform} of an image of {found} px gives more than {limit} px in total")]
    TooLarge {
        /// Name of the transform.
        transform: &'static str,
        /// Size of the image it was given.
        found: Size,
        /// Most pixels a result may have.
        limit: u64,
    },

    /// The image has no pixels.
    #[error("{transform} of an image of {found} px, which has no pixels")]
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
        /// Channels found.
        channels: usize,
        /// Depth found.
        depth: Depth,
        /// What it takes.
        allowed: &'static str,
    },

    /// A region, or the bytes of an image, do not cover what is to be read of them.
    #[error("a view of {size} px does not lie within its pixels")]
    View {
        /// Size asked for.
        size: Size,
    },

    /// Pixels of a mask have no class, and were not declared to have none.
    #[error("{found}; {fix}")]
    NoClass {
        /// Name of the transform.
        transform: &'static str,
        /// Which pixels, and how many.
        found: String,
        /// What to do about it.
        fix: String,
    },

    /// A palette cannot be read.
    #[error("cannot use the palette {}", path.display())]
    Palette {
        /// The CSV file.
        path: PathBuf,
        /// What is wrong with it.
        source: PaletteError,
    },
}
