//! Masks of class labels: colours or indices to one channel a class, or to one index a pixel.

use serde::{Deserialize, Serialize};

use super::TransformError;
use super::params::Check;
use crate::sample::DType;

/// Most classes of a one-hot mask or a palette: their indices fit 16 bits, with one to spare
/// for a pixel of no class.
pub const MAX_CLASSES: usize = u16::MAX as usize;

/// Turns a mask into one channel a class, 1 where the pixel is of that class and 0 elsewhere.
///
/// A pixel whose colour is not in the palette, or whose index is not below `classes`, is 0 in
/// all channels, and counted.
///
/// # Shape
///
/// `[H, W]` or `[H, W, 3]` to `[H, W, classes]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneHot {
    /// The mask.
    #[serde(default = "mask")]
    pub field: String,
    /// Path of a CSV file `name,r,g,b`: the mask's colours, in the order of the channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub palette: Option<String>,
    /// Number of classes, of a mask that holds indices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// Element type of the result: uint8, float16, bfloat16 or float32.
    #[serde(default = "float32")]
    pub dtype: DType,
}

/// Turns a mask of colours into the index of each pixel's class.
///
/// # Shape
///
/// `[H, W, 3]` to `[H, W]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassIndex {
    /// The mask.
    #[serde(default = "mask")]
    pub field: String,
    /// Path of a CSV file `name,r,g,b`: the mask's colours, in the order of the indices.
    pub palette: String,
    /// Element type of the result: uint8 or int64.
    #[serde(default = "uint8")]
    pub dtype: DType,
    /// Index of a pixel whose colour is not in the palette; such pixels are counted.
    #[serde(default = "unknown")]
    pub unknown: i64,
}

fn mask() -> String {
    "mask".to_owned()
}

fn float32() -> DType {
    DType::Float32
}

fn uint8() -> DType {
    DType::UInt8
}

fn unknown() -> i64 {
    255
}

impl OneHot {
    /// Channels by the colours of a palette.
    pub fn from_palette(path: impl Into<String>) -> OneHot {
        OneHot {
            field: mask(),
            palette: Some(path.into()),
            classes: None,
            dtype: float32(),
        }
    }

    /// Channels by the index that each pixel holds.
    pub fn from_indices(classes: u32) -> OneHot {
        OneHot {
            field: mask(),
            palette: None,
            classes: Some(classes),
            dtype: float32(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), TransformError> {
        let check = Check("OneHot");
        check.holds(
            self.palette.is_some() != self.classes.is_some(),
            "palette and classes",
            (&self.palette, &self.classes),
            "one of them given: a palette for colours, classes for indices",
        )?;
        check.holds(
            self.classes
                .is_none_or(|n| (1..=MAX_CLASSES as u32).contains(&n)),
            "classes",
            self.classes,
            "from 1 to 65535",
        )?;
        let dtypes = [
            DType::UInt8,
            DType::Float16,
            DType::BFloat16,
            DType::Float32,
        ];
        let allowed = "uint8, float16, bfloat16 or float32";
        check.holds(dtypes.contains(&self.dtype), "dtype", self.dtype, allowed)
    }
}

impl ClassIndex {
    /// Indices as uint8, 255 where a colour is not in the palette.
    pub fn new(palette: impl Into<String>) -> ClassIndex {
        ClassIndex {
            field: mask(),
            palette: palette.into(),
            dtype: uint8(),
            unknown: unknown(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), TransformError> {
        let check = Check("ClassIndex");
        let dtypes = [DType::UInt8, DType::Int64];
        check.holds(
            dtypes.contains(&self.dtype),
            "dtype",
            self.dtype,
            "uint8 or int64",
        )?;
        check.holds(
            self.dtype != DType::UInt8 || (0..=255).contains(&self.unknown),
            "unknown",
            self.unknown,
            "from 0 to 255 where the dtype is uint8",
        )
    }
}
