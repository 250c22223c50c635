//! Data of a pipeline: records with named fields, and images.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::printable::printable;

/// Height and width of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Size {
    /// Returns rows times columns; cannot overflow.
    pub fn pixels(self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }

    /// Returns the region that covers an image of this size.
    pub fn whole(self) -> Region {
        Region {
            top: 0,
            left: 0,
            size: self,
        }
    }
}

impl fmt::Display for Size {
    /// Prints the width first, as is usual for image sizes: `960x720`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A rectangle of an image, in pixels from its top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// First row.
    pub top: u32,
    /// First column.
    pub left: u32,
    /// Number of rows and columns.
    pub size: Size,
}

impl Region {
    /// Returns one past the last row.
    pub fn bottom(self) -> u64 {
        u64::from(self.top) + u64::from(self.size.height)
    }

    /// Returns one past the last column.
    pub fn right(self) -> u64 {
        u64::from(self.left) + u64::from(self.size.width)
    }

    /// Whether the region is inside an image of this size.
    pub fn fits(self, size: Size) -> bool {
        self.bottom() <= u64::from(size.height) && self.right() <= u64::from(size.width)
    }
}

/// Bit depth of one channel of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// 8 bits.
    U8,
    /// 16 bits, in the machine's byte order.
    U16,
}

impl Depth {
    /// Returns the bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Depth::U8 => 1,
            Depth::U16 => 2,
        }
    }

    /// Returns the element type of values.
    pub fn dtype(self) -> DType {
        match self {
            Depth::U8 => DType::UInt8,
            Depth::U16 => DType::UInt16,
        }
    }
}

/// Decoded pixels, `[height, width, channels]`, without padding between rows.
///
/// A worker reuses a few images as scratch: `reset` keeps their capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows and columns.
    pub size: Size,
    /// 1 (gray, index), 2 (gray and alpha), 3 (RGB) or 4 (RGBA).
    pub channels: usize,
    /// Bit depth of a channel.
    pub depth: Depth,
    /// `height * width * channels` values; 16-bit values are in the machine's byte order.
    pub data: Vec<u8>,
}

impl Default for Image {
    /// Creates an empty image; `reset` gives it a shape.
    fn default() -> Image {
        Image {
            size: Size {
                height: 0,
                width: 0,
            },
            channels: 1,
            depth: Depth::U8,
            data: Vec::new(),
        }
    }
}

impl Image {
    /// Sets a new shape and keeps the allocation. The pixels are unspecified afterwards.
    pub fn reset(&mut self, size: Size, channels: usize, depth: Depth) {
        self.size = size;
        self.channels = channels;
        self.depth = depth;
        self.data.resize(self.height() * self.row_bytes(), 0);
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.size.height as usize
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.size.width as usize
    }

    /// Returns the bytes of one pixel.
    pub fn pixel_bytes(&self) -> usize {
        self.channels * self.depth.bytes()
    }

    /// Returns the bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.width() * self.pixel_bytes()
    }

    /// Returns row `y`, counted from the top.
    pub fn row(&self, y: usize) -> &[u8] {
        &self.data[y * self.row_bytes()..(y + 1) * self.row_bytes()]
    }

    /// Returns row `y` for writing.
    pub fn row_mut(&mut self, y: usize) -> &mut [u8] {
        let row = self.row_bytes();
        &mut self.data[y * row..(y + 1) * row]
    }
}

/// Element type of a batch column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float16,
    BFloat16,
    Float32,
    Float64,
}

impl DType {
    /// Returns the bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::UInt8 | DType::Int8 => 1,
            DType::UInt16 | DType::Int16 | DType::Float16 | DType::BFloat16 => 2,
            DType::UInt32 | DType::Int32 | DType::Float32 => 4,
            DType::UInt64 | DType::Int64 | DType::Float64 => 8,
        }
    }

    /// Returns the name in NumPy and TOML files, such as `"float32"`.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::UInt8 => "uint8",
            DType::UInt16 => "uint16",
            DType::UInt32 => "uint32",
            DType::UInt64 => "uint64",
            DType::Int8 => "int8",
            DType::Int16 => "int16",
            DType::Int32 => "int32",
            DType::Int64 => "int64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
        }
    }

    /// Returns whether elements are integers.
    pub fn is_integer(self) -> bool {
        match self {
            DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => true,
            DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => true,
            DType::Bool => false,
            DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 => false,
        }
    }

    /// Reads an integer from its bytes in little-endian order. None for other types, for too many
    /// bytes, and for values over `i64`.
    pub fn integer(self, bytes: &[u8]) -> Option<i64> {
        let wide = |fill: u8| {
            let mut wide = [fill; 8];
            wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(wide)
        };
        let is_negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        match self {
            DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => {
                i64::try_from(u64::from_le_bytes(wide(0)?)).ok()
            }
            DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => {
                let fill = if is_negative { 0xFF } else { 0 };
                Some(i64::from_le_bytes(wide(fill)?))
            }
            _ => None,
        }
    }
}

/// How a source stores the pixels of an image or mask field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Encoded bytes of an image file.
    Encoded,
    /// Decoded pixels, of the same shape in every record.
    Raw {
        /// Rows and columns.
        size: Size,
        /// Channels of a pixel, 1 to 4.
        channels: usize,
        /// Bit depth of a channel.
        depth: Depth,
    },
}

impl Pixels {
    /// Describes decoded pixels in arrays `[H, W]` or `[H, W, 1 to 4]` of uint8 or uint16.
    ///
    /// # Errors
    ///
    /// The reason why arrays of this type and shape cannot be pixels.
    pub fn raw(dtype: DType, shape: &[usize]) -> Result<Pixels, String> {
        let depth = match dtype {
            DType::UInt8 => Depth::U8,
            DType::UInt16 => Depth::U16,
            other => return Err(format!("pixels are uint8 or uint16, not {}", other.name())),
        };
        let (height, width, channels) = match *shape {
            [height, width] => (height, width, 1),
            [height, width, channels @ 1..=4] => (height, width, channels),
            _ => {
                let problem = "pixels have shape [H, W] or [H, W, 1 to 4]";
                return Err(format!("{problem}, not {shape:?}"));
            }
        };
        let side = |n: usize| {
            u32::try_from(n).map_err(|_| format!("a side of {n} px exceeds 2^32 - 1 px"))
        };
        let size = Size {
            height: side(height)?,
            width: side(width)?,
        };
        Ok(Pixels::Raw {
            size,
            channels,
            depth,
        })
    }
}

/// Kind of a field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A picture: geometric and colour transforms apply to it.
    Image(Pixels),
    /// Class label of each pixel: geometric transforms sample it with nearest neighbour and never
    /// blend labels.
    Mask(Pixels),
    /// Numbers of one fixed shape. A scalar has shape `[]`.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Shape of one record.
        shape: Vec<usize>,
    },
    /// Bytes of any length.
    Bytes,
    /// UTF-8 of any length.
    Text,
    /// A list of numbers whose length differs by record.
    Ragged {
        /// Element type.
        dtype: DType,
    },
}

impl FieldKind {
    /// Returns the bytes of one record. None if the size differs by record or does not fit in
    /// memory.
    pub fn record_bytes(&self) -> Option<usize> {
        match self {
            FieldKind::Image(Pixels::Raw {
                size,
                channels,
                depth,
            })
            | FieldKind::Mask(Pixels::Raw {
                size,
                channels,
                depth,
            }) => usize::try_from(size.pixels())
                .ok()?
                .checked_mul(channels * depth.bytes()),
            FieldKind::Tensor { dtype, shape } => shape
                .iter()
                .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n)),
            _ => None,
        }
    }
}

/// A named field of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in batches and transforms.
    pub name: String,
    /// Kind of the values.
    pub kind: FieldKind,
}

/// An encoded record: its number in the source and the bytes of each field, in field order.
///
/// The bytes are shared slices of the source (file, shard or mapping), so cloning is cheap.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number in the source, from 0.
    pub index: u64,
    /// One entry per field: encoded bytes, raw pixels, or little-endian numbers.
    pub fields: Vec<Bytes>,
}

impl Record {
    /// Returns the bytes of all fields together.
    pub fn bytes(&self) -> u64 {
        self.fields.iter().map(|field| field.len() as u64).sum()
    }
}

/// Identifies a record in errors, logs and the list of bad records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordId {
    /// Number in the source, from 0.
    pub index: u64,
    /// The file, or the shard and member, under which the user can find the record.
    pub name: String,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (record {})", printable(&self.name), self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_are_read_with_their_sign() {
        assert_eq!(DType::UInt8.integer(&[200]), Some(200));
        assert_eq!(DType::Int8.integer(&[200]), Some(-56));
        assert_eq!(DType::Int16.integer(&(-3_i16).to_le_bytes()), Some(-3));
        assert_eq!(DType::UInt32.integer(&7_u32.to_le_bytes()), Some(7));
        assert_eq!(DType::UInt64.integer(&u64::MAX.to_le_bytes()), None);
        assert_eq!(DType::Float32.integer(&1_f32.to_le_bytes()), None);
    }
}
