//! Masks of class labels: converts colours or stored values to one channel per class, or to one
//! index per pixel.

use serde::{Deserialize, Serialize};

use super::TransformError;
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use infeed_core::sample::DType;

/// Maximum number of classes of a one-hot mask or a palette. Indices fit in 16 bits, and one value
/// remains for pixels without a class.
pub const MAX_CLASSES: usize = u16::MAX as usize;

/// Default index of pixels without a class in the result of [`ClassIndex`].
pub const DEFAULT_IGNORE_INDEX: i64 = 255;

/// Effect of a pixel without a class on its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// The record is bad.
    #[default]
    Error,
    /// The pixel is accepted and counted.
    Ignore,
}

impl Unknown {
    fn is_error(&self) -> bool {
        *self == Unknown::Error
    }
}

/// Stored values of a mask.
#[derive(Clone, Copy, Debug)]
pub enum MaskContent<'a> {
    /// Colours of the palette in this file.
    Palette(&'a str),
    /// Indices of this many classes.
    Classes(u32),
    /// The values of the classes, in order.
    Values(&'a [u16]),
}

/// Pixels without a class that a transform accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedPixels {
    /// None.
    Nothing,
    /// Pixels with this stored value.
    Value(u16),
    /// All.
    Everything,
}

/// Replacement of a mask by its classes.
#[derive(Clone, Copy, Debug)]
pub struct MaskClasses<'a> {
    /// Stored values of the mask. None if the parameters are invalid.
    pub content: Option<MaskContent<'a>>,
    /// Pixels without a class that are accepted.
    pub accepted: AcceptedPixels,
    /// Element type of the result.
    pub dtype: DType,
    /// Transform to indices, one per pixel. None: the result has one channel per class.
    pub index: Option<&'a ClassIndex>,
}

impl MaskContent<'_> {
    /// Checks the number of classes, and that the stored values differ.
    fn validate(self, check: &Check) -> Result<()> {
        let counts = 1..=MAX_CLASSES;
        match self {
            MaskContent::Palette(_) => Ok(()),
            MaskContent::Classes(count) => check.holds(
                counts.contains(&(count as usize)),
                "classes",
                count,
                "from 1 to 65535",
            ),
            MaskContent::Values(values) => {
                let mut sorted = values.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                check.holds(
                    counts.contains(&values.len()) && sorted.len() == values.len(),
                    "values",
                    values,
                    "1 to 65535 different stored values, one per class",
                )
            }
        }
    }

    /// Whether a stored value has a class; always true for colours.
    fn has(self, value: i64) -> bool {
        match self {
            MaskContent::Palette(_) => false,
            MaskContent::Classes(count) => (0..i64::from(count)).contains(&value),
            MaskContent::Values(values) => values.iter().any(|&v| i64::from(v) == value),
        }
    }
}

const ONE_CONTENT: &str = "exactly one of: palette for colours, classes for indices, values for \
                           other stored values";

/// Defines a transform of masks: the struct, its constructors by the stored values, and its
/// properties. Its methods `check_ignore_index` and `index` are written by hand.
macro_rules! mask_transform {
    (
        $(#[$doc:meta])*
        $transform:ident from $from_palette:ident {
            $(#[$ignore_index_doc:meta])*
            ignore_index: $index:ty,
            $(#[$dtype_doc:meta])*
            dtype = $default:ident of $dtypes:expr, $allowed_dtypes:expr;
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $transform {
            /// Name of the mask.
            pub field: String,
            /// Path of a CSV file `name,r,g,b`: the mask's colours, in the order of the classes.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub palette: Option<String>,
            /// Number of classes of a mask that stores their indices.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub classes: Option<u32>,
            /// Stored value of each class, in their order: `[0, 255]` for a binary mask.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub values: Option<Vec<u16>>,
            /// Whether pixels without a class are accepted.
            #[serde(skip_serializing_if = "Unknown::is_error")]
            pub unknown: Unknown,
            $(#[$ignore_index_doc])*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub ignore_index: Option<$index>,
            $(#[$dtype_doc])*
            pub dtype: DType,
        }

        /// For the field `mask`, without a description of its stored values.
        impl Default for $transform {
            fn default() -> $transform {
                $transform {
                    field: "mask".to_owned(),
                    palette: None,
                    classes: None,
                    values: None,
                    unknown: Unknown::Error,
                    ignore_index: None,
                    dtype: DType::$default,
                }
            }
        }

        impl $transform {
            /// Creates the transform for a mask that stores the colours of a palette.
            pub fn $from_palette(path: impl Into<String>) -> $transform {
                let palette = Some(path.into());
                $transform { palette, ..$transform::default() }
            }

            /// Creates the transform for a mask that stores the indices of its classes. Stored
            /// indices from `classes` on have no class.
            pub fn from_indices(classes: u32) -> $transform {
                let classes = Some(classes);
                $transform { classes, ..$transform::default() }
            }

            /// Creates the transform for a mask that stores these values, one per class.
            pub fn from_values(values: impl Into<Vec<u16>>) -> $transform {
                let values = Some(values.into());
                $transform { values, ..$transform::default() }
            }

            /// Accepts all pixels without a class.
            pub fn ignoring_unknown(self) -> $transform {
                let unknown = Unknown::Ignore;
                $transform { unknown, ..self }
            }

            /// Returns the description of the mask's stored values.
            pub fn content(&self) -> Option<MaskContent<'_>> {
                match (&self.palette, self.classes, &self.values) {
                    (Some(path), None, None) => Some(MaskContent::Palette(path)),
                    (None, Some(count), None) => Some(MaskContent::Classes(count)),
                    (None, None, Some(values)) => Some(MaskContent::Values(values)),
                    _ => None,
                }
            }

            /// Returns the pixels without a class that are accepted.
            pub fn accepted_pixels(&self) -> AcceptedPixels {
                match (self.unknown, self.ignore_index) {
                    (Unknown::Ignore, _) => AcceptedPixels::Everything,
                    (Unknown::Error, None) => AcceptedPixels::Nothing,
                    (Unknown::Error, Some(_)) if self.palette.is_some() => {
                        AcceptedPixels::Everything
                    }
                    // An index that no mask can store accepts nothing.
                    (Unknown::Error, Some(index)) => {
                        u16::try_from(index).map_or(AcceptedPixels::Nothing, AcceptedPixels::Value)
                    }
                }
            }

            /// Returns the replacement of the mask.
            pub(super) fn mask_classes(&self) -> MaskClasses<'_> {
                MaskClasses {
                    content: self.content(),
                    accepted: self.accepted_pixels(),
                    dtype: self.dtype,
                    index: self.index(),
                }
            }
        }

        impl Operation for $transform {
            fn effect(&self) -> Effect {
                Effect::Classes
            }

            fn palette(&self) -> Option<&str> {
                self.palette.as_deref()
            }

            fn field(&self) -> Option<&str> {
                Some(&self.field)
            }

            fn validate(&self) -> Result<()> {
                let check = Check(stringify!($transform));
                let given = (&self.palette, &self.classes, &self.values);
                let content = self.content().ok_or_else(|| {
                    check.error("palette, classes and values", given, ONE_CONTENT)
                })?;
                content.validate(&check)?;
                let is_allowed = $dtypes.contains(&self.dtype);
                check.holds(is_allowed, "dtype", self.dtype, $allowed_dtypes)?;
                match self.ignore_index {
                    Some(value) => self.check_ignore_index(&check, content, value),
                    None => Ok(()),
                }
            }
        }
    };
}

mask_transform! {
    /// Converts a mask to one channel per class: 1 in pixels of that class, 0 elsewhere.
    ///
    /// Exactly one of `palette`, `classes` and `values` describes the stored values. A pixel
    /// without a class makes its record bad, unless `unknown` or `ignore_index` accepts it. An
    /// accepted pixel is 0 in all channels, and is counted.
    ///
    /// # Shape
    ///
    /// `[H, W]` or `[H, W, 3]` to `[H, W, classes]`.
    OneHot from from_palette {
        /// Stored value of accepted pixels without a class. Other values without a class make the
        /// record bad.
        ignore_index: u16,
        /// Element type of the result: uint8, float16, bfloat16 or float32.
        dtype = Float32 of [DType::UInt8, DType::Float16, DType::BFloat16, DType::Float32],
            "uint8, float16, bfloat16 or float32";
    }
}

mask_transform! {
    /// Converts a mask of colours or of stored values to the class index of each pixel.
    ///
    /// Exactly one of `palette`, `classes` and `values` describes the stored values. A pixel
    /// without a class makes its record bad, unless `unknown` or `ignore_index` accepts it. An
    /// accepted pixel gets the index `ignore_index`, and is counted.
    ///
    /// # Shape
    ///
    /// `[H, W]` or `[H, W, 3]` to `[H, W]`.
    ClassIndex from new {
        /// Index of accepted pixels without a class; [`DEFAULT_IGNORE_INDEX`] if None. If set,
        /// pixels with this stored value are accepted too. A mask of colours stores no index:
        /// there, it accepts every colour outside the palette.
        ignore_index: i64,
        /// Element type of the result: uint8 or int64.
        dtype = UInt8 of [DType::UInt8, DType::Int64], "uint8 or int64";
    }
}

impl OneHot {
    /// Returns the transform to one index per pixel by the same palette. None without a palette.
    pub(super) fn class_index(&self) -> Option<ClassIndex> {
        Some(ClassIndex {
            field: self.field.clone(),
            unknown: self.unknown,
            ..ClassIndex::new(self.palette.clone()?)
        })
    }

    fn index(&self) -> Option<&ClassIndex> {
        None
    }

    fn check_ignore_index(
        &self,
        check: &Check,
        content: MaskContent<'_>,
        value: u16,
    ) -> Result<()> {
        check.holds(
            !matches!(content, MaskContent::Palette(_)),
            "ignore_index",
            value,
            "absent for a mask of colours, which stores no index; use unknown=\"ignore\"",
        )?;
        check.holds(
            !content.has(value.into()),
            "ignore_index",
            value,
            "a stored value that is not a class",
        )
    }
}

impl ClassIndex {
    /// Returns the index of pixels without a class in the result.
    pub fn index_of_none(&self) -> i64 {
        self.ignore_index.unwrap_or(DEFAULT_IGNORE_INDEX)
    }

    /// Checks the parameters against the number of classes, which may come from a palette.
    ///
    /// # Errors
    ///
    /// `Parameter` if the classes do not fit in the type, or if the default index of pixels without
    /// a class is the index of a class.
    pub fn validate_count(&self, classes: usize) -> Result<(), TransformError> {
        let check = Check("ClassIndex");
        check.holds(
            self.dtype != DType::UInt8 || classes <= 256,
            "dtype",
            self.dtype,
            "int64 for more than 256 classes",
        )?;
        check.holds(
            self.accepted_pixels() == AcceptedPixels::Nothing
                || self.ignore_index.is_some()
                || classes as i64 <= DEFAULT_IGNORE_INDEX,
            "ignore_index",
            DEFAULT_IGNORE_INDEX,
            "set for more than 255 classes, such as ignore_index=-1 with dtype=\"int64\"",
        )
    }

    fn index(&self) -> Option<&ClassIndex> {
        Some(self)
    }

    fn check_ignore_index(
        &self,
        check: &Check,
        content: MaskContent<'_>,
        index: i64,
    ) -> Result<()> {
        check.holds(
            self.dtype != DType::UInt8 || (0..=255).contains(&index),
            "ignore_index",
            index,
            "from 0 to 255 where the dtype is uint8",
        )?;
        check.holds(
            self.unknown == Unknown::Ignore || !content.has(index),
            "ignore_index",
            index,
            "a stored value that is not a class, or unknown=\"ignore\" set too",
        )
    }
}
