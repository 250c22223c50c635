//! What flows through a pipeline: records with named fields, and the pixels they become.

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
    /// Rows times columns; cannot overflow.
    pub fn pixels(self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }

    /// The region that covers an image of this size.
    pub fn whole(self) -> Region {
        Region {
            top: 0,
            left: 0,
            size: self,
        }
    }
}

impl fmt::Display for Size {
    /// Width first, as people write image sizes: `960x720`.
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
    /// Rows and columns covered.
    pub size: Size,
}

impl Region {
    /// One past the last row.
    pub fn bottom(self) -> u64 {
        u64::from(self.top) + u64::from(self.size.height)
    }

    /// One past the last column.
    pub fn right(self) -> u64 {
        u64::from(self.left) + u64::from(self.size.width)
    }

    /// Whether it lies within an image of this size.
    pub fn fits(self, size: Size) -> bool {
        self.bottom() <= u64::from(size.height) && self.right() <= u64::from(size.width)
    }
}

/// Bits of one sample of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// 8 bits.
    U8,
    /// 16 bits, in the machine's byte order.
    U16,
}

impl Depth {
    /// Bytes of one sample.
    pub fn bytes(self) -> usize {
        match self {
            Depth::U8 => 1,
            Depth::U16 => 2,
        }
    }
}

/// Decoded pixels, `[height, width, channels]`, rows without padding.
///
/// A worker owns a few of these as scratch and reuses them: `reset` keeps the capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows and columns.
    pub size: Size,
    /// 1 (gray, index), 2 (gray and alpha), 3 (RGB) or 4 (RGBA).
    pub channels: usize,
    /// Bits of a sample.
    pub depth: Depth,
    /// `height * width * channels` samples; 16-bit ones in the machine's byte order.
    pub data: Vec<u8>,
}

impl Default for Image {
    /// An empty image, to be `reset`.
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
    /// Takes a new shape, keeping the allocation. The pixels are unspecified afterwards.
    pub fn reset(&mut self, size: Size, channels: usize, depth: Depth) {
        self.size = size;
        self.channels = channels;
        self.depth = depth;
        self.data.resize(self.height() * self.row_bytes(), 0);
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.size.height as usize
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.size.width as usize
    }

    /// Bytes of one pixel.
    pub fn pixel_bytes(&self) -> usize {
        self.channels * self.depth.bytes()
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.width() * self.pixel_bytes()
    }

    /// One row of pixels.
    pub fn row(&self, y: usize) -> &[u8] {
        &self.data[y * self.row_bytes()..(y + 1) * self.row_bytes()]
    }

    /// One row of pixels.
    pub fn row_mut(&mut self, y: usize) -> &mut [u8] {
        let row = self.row_bytes();
        &mut self.data[y * row..(y + 1) * row]
    }
}

/// Type of the elements of a column of a batch.
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
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::UInt8 | DType::Int8 => 1,
            DType::UInt16 | DType::Int16 | DType::Float16 | DType::BFloat16 => 2,
            DType::UInt32 | DType::Int32 | DType::Float32 => 4,
            DType::UInt64 | DType::Int64 | DType::Float64 => 8,
        }
    }

    /// The name NumPy and TOML files use, such as `"float32"`.
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
}

/// How a source holds the pixels of an image or mask field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Bytes of an image file, to be decoded.
    Encoded,
    /// Pixels already, the same shape in every record.
    Raw {
        /// Rows and columns.
        size: Size,
        /// Channels of a pixel, 1 to 4.
        channels: usize,
        /// Bits of a sample.
        depth: Depth,
    },
}

impl Pixels {
    /// Pixels already, in arrays `[H, W]` or `[H, W, 1 to 4]` of uint8 or uint16.
    ///
    /// # Errors
    ///
    /// Why arrays of this type and shape are no pixels.
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
        let side = |n: usize| u32::try_from(n).map_err(|_| format!("{n} px is too long"));
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

/// What one field of a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A picture: moved by geometric transforms, changed by colour transforms.
    Image(Pixels),
    /// Class labels by pixel: moved by geometric transforms with nearest sampling, never blended.
    Mask(Pixels),
    /// Numbers of one fixed shape; a scalar has shape `[]`.
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
    /// A list of numbers, of another length in every record.
    Ragged {
        /// Element type.
        dtype: DType,
    },
}

impl FieldKind {
    /// Bytes of one record, for kinds of fixed size that fit memory.
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

/// One named field of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name by which batches and transforms know it.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
}

/// One record at rest: its number in the source and the bytes of each field, in field order.
///
/// Bytes are shared slices of what was read (a file, a shard, a mapping); cloning is cheap.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number in the source, from 0.
    pub index: u64,
    /// One entry a field: encoded bytes, raw pixels, or little-endian numbers.
    pub fields: Vec<Bytes>,
}

impl Record {
    /// Bytes of all fields.
    pub fn bytes(&self) -> u64 {
        self.fields.iter().map(|field| field.len() as u64).sum()
    }
}

/// Names a record for people: in errors, logs and the quarantine list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordId {
    /// Number in the source, from 0.
    pub index: u64,
    /// The file, or the shard and member, as the user would look it up.
    pub name: String,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (record {})", printable(&self.name), self.index)
    }
}
