//! Parameter types that several transforms share, with their short forms in descriptions.

use serde::{Deserialize, Serialize};

use super::error::TransformError;
use super::rng::Rng;
use infeed_core::sample::Size;

/// Maximum number of pixels of an image after a transform: 2^28, which is 16 384 x 16 384.
///
/// Checked when parameters are drawn, before memory is allocated. Without this limit, an image of
/// one row and a million columns, resized by its short side, would need terabytes.
pub const MAX_PIXELS: u64 = 1 << 28;

/// Two values: a range, or one for x and one for y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a list of two")]
pub enum ValuePair<T> {
    /// The same value twice.
    Both(T),
    /// The lowest and the highest; or x, then y.
    Each([T; 2]),
}

impl<T: Copy> ValuePair<T> {
    /// Returns the two values.
    pub(super) fn values(self) -> [T; 2] {
        match self {
            ValuePair::Both(value) => [value; 2],
            ValuePair::Each(values) => values,
        }
    }
}

/// Range of a random factor around the factor that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or [low, high]")]
pub enum Jitter {
    /// Maximum distance from that factor.
    By(f64),
    /// Lowest and highest factor.
    Between([f64; 2]),
}

impl Default for Jitter {
    fn default() -> Jitter {
        Jitter::By(0.0)
    }
}

impl Jitter {
    pub(super) fn range(self, neutral: f64, least: f64) -> [f64; 2] {
        match self {
            Jitter::By(by) => [(neutral - by).max(least), neutral + by],
            Jitter::Between(range) => range,
        }
    }

    pub(super) fn draw(self, neutral: f64, least: f64, rng: &mut Rng) -> Option<f64> {
        let [low, high] = self.range(neutral, least);
        (low != neutral || high != neutral).then(|| rng.uniform(low, high))
    }
}

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
    /// Returns the size. One number means a square.
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

/// One number for all channels, or one number per channel, in units of the samples. The range is 0
/// to 255 for 8 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a list of numbers, one by channel")]
pub enum ChannelValues {
    /// The same in all channels.
    All(f64),
    /// One per channel.
    ByChannel(Vec<f64>),
}

impl Default for ChannelValues {
    fn default() -> ChannelValues {
        ChannelValues::All(0.0)
    }
}

impl ChannelValues {
    /// Returns one number, or one per channel.
    pub fn as_slice(&self) -> &[f64] {
        match self {
            ChannelValues::All(value) => std::slice::from_ref(value),
            ChannelValues::ByChannel(values) => values,
        }
    }
}

/// Interpolation of a resize. Masks always use `Nearest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The source pixel under the centre of the new one.
    Nearest,
    /// Triangle over two source pixels, or over more if the image shrinks.
    #[default]
    Bilinear,
    /// Cubic convolution with a = -0.5 over four source pixels, or over more if the image shrinks.
    Bicubic,
    /// Windowed sinc with three lobes.
    Lanczos,
}

/// The interpolation of a transform: one, or one drawn for each sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "\"nearest\", \"bilinear\", \"bicubic\", \"lanczos\", or a list of them"
)]
pub enum FilterChoice {
    /// The same for all samples.
    One(Filter),
    /// Each of these is equally likely.
    Any(Vec<Filter>),
}

impl From<Filter> for FilterChoice {
    fn from(filter: Filter) -> FilterChoice {
        FilterChoice::One(filter)
    }
}

impl Default for FilterChoice {
    fn default() -> FilterChoice {
        FilterChoice::One(Filter::default())
    }
}

/// Content of the pixels that are added to an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PadMode {
    /// The fill.
    #[default]
    Constant,
    /// The outermost pixel: `aaa|abcd|ddd`.
    Edge,
    /// The image mirrored without its outermost pixel: `dcb|abcd|cba`.
    Reflect,
    /// The image mirrored with its outermost pixel: `cba|abcd|dcb`.
    Symmetric,
}

/// Pixels to add: one number for all sides; one for left and right and one for top and bottom; or
/// one per side.
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
    /// Returns left, top, right, bottom.
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

/// Checks the parameters of the transform with this name.
pub(super) struct Check(pub(super) &'static str);

impl Check {
    pub(super) fn holds(
        &self,
        condition: bool,
        parameter: &'static str,
        found: impl std::fmt::Debug,
        allowed: &'static str,
    ) -> Result<(), TransformError> {
        match condition {
            true => Ok(()),
            false => Err(self.error(parameter, found, allowed)),
        }
    }

    /// Checks a range. `allowed` is that of a number, and that of two.
    pub(super) fn jitter(
        &self,
        condition: bool,
        parameter: &'static str,
        found: Jitter,
        allowed: [&'static str; 2],
    ) -> Result<(), TransformError> {
        match found {
            Jitter::By(by) => self.holds(condition, parameter, by, allowed[0]),
            Jitter::Between(range) => self.holds(condition, parameter, range, allowed[1]),
        }
    }

    /// Returns the error for an invalid value.
    pub(super) fn error(
        &self,
        parameter: &'static str,
        found: impl std::fmt::Debug,
        allowed: &'static str,
    ) -> TransformError {
        TransformError::Parameter {
            transform: self.0,
            parameter,
            found: format!("{found:?}"),
            allowed,
        }
    }

    /// Checks that both sides are positive and the number of pixels is allowed.
    pub(super) fn size(&self, parameter: &'static str, size: Size) -> Result<(), TransformError> {
        self.holds(
            size.pixels() > 0 && size.pixels() <= MAX_PIXELS,
            parameter,
            [size.height, size.width],
            "at least 1 x 1 and at most 2^28 pixels",
        )
    }

    pub(super) fn probability(&self, p: f64) -> Result<(), TransformError> {
        self.holds((0.0..=1.0).contains(&p), "p", p, "between 0 and 1")
    }

    /// Checks `0 <= low <= high <= most`.
    pub(super) fn scale(&self, [low, high]: [f64; 2], most: f64) -> Result<(), TransformError> {
        self.holds(
            0.0 <= low && low <= high && high <= most && high > 0.0,
            "scale",
            [low, high],
            "[low, high] with 0 <= low <= high <= 1 and high above 0",
        )
    }

    /// Checks `0 < low <= high`.
    pub(super) fn ratio(&self, [low, high]: [f64; 2]) -> Result<(), TransformError> {
        self.holds(
            0.0 < low && low <= high && high.is_finite(),
            "ratio",
            [low, high],
            "[low, high] with 0 < low <= high",
        )
    }

    /// Checks the fills of images and masks.
    pub(super) fn fills(
        &self,
        fill: &ChannelValues,
        mask_fill: &ChannelValues,
    ) -> Result<(), TransformError> {
        self.fill("fill", fill)?;
        self.fill("mask_fill", mask_fill)
    }

    /// Checks a fill: one to four values that fit in 8 or 16 bits.
    pub(super) fn fill(
        &self,
        parameter: &'static str,
        values: &ChannelValues,
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
