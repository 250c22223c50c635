//! Parameter types that several transforms share, in the forms people write them.

use serde::{Deserialize, Serialize};

use super::TransformError;
use crate::sample::Size;

/// Most pixels an image may have after a transform: 2^28, which is 16 384 x 16 384.
///
/// Checked when parameters are drawn, before anything is allocated. Without it, an image of one
/// row and a million columns, resized by its short side, would ask for terabytes.
pub const MAX_PIXELS: u64 = 1 << 28;

/// A size: one number, or height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a whole number or [height, width]")]
pub enum Sides {
    /// Both sides of a square; for `Resize`, the shorter side.
    One(u32),
    /// Height and width.
    Both([u32; 2]),
}

impl Sides {
    /// The size where one number means a square.
    pub fn square(self) -> Size {
        match self {
            Sides::One(side) => Size {
                height: side,
                width: side,
            },
            Sides::Both([height, width]) => Size { height, width },
        }
    }
}

impl From<u32> for Sides {
    fn from(side: u32) -> Sides {
        Sides::One(side)
    }
}

impl From<[u32; 2]> for Sides {
    fn from(sides: [u32; 2]) -> Sides {
        Sides::Both(sides)
    }
}

impl From<Size> for Sides {
    fn from(size: Size) -> Sides {
        Sides::Both([size.height, size.width])
    }
}

/// A number for every channel, or one number by channel. In units of the samples it is written
/// to: 0 to 255 for 8 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a list of numbers, one by channel")]
pub enum Values {
    /// The same in all channels.
    All(f64),
    /// One by channel.
    ByChannel(Vec<f64>),
}

impl Default for Values {
    fn default() -> Values {
        Values::All(0.0)
    }
}

impl Values {
    /// One number, or one by channel.
    pub fn as_slice(&self) -> &[f64] {
        match self {
            Values::All(value) => std::slice::from_ref(value),
            Values::ByChannel(values) => values,
        }
    }
}

/// How an image is sampled when it is resized. Masks are always sampled `Nearest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The source pixel under the centre of the new one.
    Nearest,
    /// Triangle of two source pixels, or as wide as the shrinking asks for.
    #[default]
    Bilinear,
    /// Cubic convolution with a = -0.5, four source pixels or as wide as needed.
    Bicubic,
    /// Windowed sinc with three lobes.
    Lanczos,
}

/// What is written beside an image when it is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PadMode {
    /// The fill.
    #[default]
    Constant,
    /// The outermost pixel: `aaa|abcd|ddd`.
    Edge,
    /// The image mirrored, without repeating its outermost pixel: `dcb|abcd|cba`.
    Reflect,
    /// The image mirrored, outermost pixel included: `cba|abcd|dcb`.
    Symmetric,
}

/// Pixels to add: on all sides, left and right with top and bottom, or on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a whole number, [x, y] or [left, top, right, bottom]"
)]
pub enum Padding {
    /// The same on all four sides.
    All(u32),
    /// Left and right, top and bottom.
    Axes([u32; 2]),
    /// Left, top, right, bottom.
    Sides([u32; 4]),
}

impl Padding {
    /// Left, top, right, bottom.
    pub fn sides(self) -> [u32; 4] {
        match self {
            Padding::All(n) => [n; 4],
            Padding::Axes([x, y]) => [x, y, x, y],
            Padding::Sides(sides) => sides,
        }
    }
}

impl From<u32> for Padding {
    fn from(n: u32) -> Padding {
        Padding::All(n)
    }
}

/// Checks the parameters of one transform, naming it in what it reports.
pub(super) struct Check(pub(super) &'static str);

impl Check {
    pub(super) fn holds(
        &self,
        condition: bool,
        parameter: &'static str,
        found: impl std::fmt::Debug,
        allowed: &'static str,
    ) -> Result<(), TransformError> {
        if condition {
            return Ok(());
        }
        Err(TransformError::Parameter {
            transform: self.0,
            parameter,
            found: format!("{found:?}"),
            allowed,
        })
    }

    /// Both sides positive, and not more pixels than an image may have.
    pub(super) fn size(&self, parameter: &'static str, size: Size) -> Result<(), TransformError> {
        self.holds(
            size.pixels() > 0 && size.pixels() <= MAX_PIXELS,
            parameter,
            [size.height, size.width],
            "at least one pixel each way and at most 2^28 in all",
        )
    }

    pub(super) fn probability(&self, p: f64) -> Result<(), TransformError> {
        self.holds((0.0..=1.0).contains(&p), "p", p, "between 0 and 1")
    }

    /// `0 <= low <= high <= most`.
    pub(super) fn scale(&self, [low, high]: [f64; 2], most: f64) -> Result<(), TransformError> {
        self.holds(
            0.0 <= low && low <= high && high <= most && high > 0.0,
            "scale",
            [low, high],
            "[low, high] with 0 <= low <= high <= 1 and high above 0",
        )
    }

    /// `0 < low <= high`.
    pub(super) fn ratio(&self, [low, high]: [f64; 2]) -> Result<(), TransformError> {
        self.holds(
            0.0 < low && low <= high && high.is_finite(),
            "ratio",
            [low, high],
            "[low, high] with 0 < low <= high",
        )
    }

    /// One value or up to four, each of which can be written as a sample of 8 or 16 bits.
    pub(super) fn fill(
        &self,
        parameter: &'static str,
        values: &Values,
    ) -> Result<(), TransformError> {
        let slice = values.as_slice();
        self.holds(
            (1..=4).contains(&slice.len()) && slice.iter().all(|v| (0.0..=65_535.0).contains(v)),
            parameter,
            slice,
            "a number from 0 to 255 (65535 for 16 bits), or one to four of them by channel",
        )
    }
}
