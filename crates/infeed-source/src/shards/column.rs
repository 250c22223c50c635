//! Encodings of the columns of MDS shards, and the values that they become.
//!
//! Source: streaming/base/format/mds/encodings.py in mosaicml-streaming.

use bytes::Bytes;

use super::npy::NpyArray;
use super::values::{KindHint, array, decimal, describe_kind, plain};
use crate::columns::names_encoded_masks;
use infeed_core::sample::{DType, Depth, FieldKind, Pixels, Size};

/// Encoding of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnEncoding {
    /// Bytes as they are.
    Bytes,
    /// UTF-8, including JSON.
    Text,
    /// An image file.
    Image,
    /// One binary number.
    Number(DType),
    /// One decimal number.
    Decimal(DType),
    /// An array. Type and shape are given here or before the elements of each value.
    Array {
        dtype: Option<DType>,
        shape: Option<Vec<usize>>,
    },
    /// Width, height, mode and pixels.
    Pixels,
    /// A list of image files that must contain exactly one; the number is the length of its header
    /// in bytes.
    Images(usize),
    /// An unsupported encoding, with the reason.
    Refused(String),
}

impl ColumnEncoding {
    /// Parses the name of an encoding.
    pub(crate) fn of(name: &str) -> ColumnEncoding {
        let (name, config) = match name.split_once(':') {
            Some((name, config)) => (name, Some(config)),
            None => (name, None),
        };
        if let Some(dtype) = dtype(name) {
            return ColumnEncoding::Number(dtype);
        }
        match name {
            "bytes" => ColumnEncoding::Bytes,
            "str" | "json" | "str_decimal" => ColumnEncoding::Text,
            "int" => ColumnEncoding::Number(DType::Int64),
            "str_int" => ColumnEncoding::Decimal(DType::Int64),
            "str_float" => ColumnEncoding::Decimal(DType::Float64),
            "jpeg" | "png" => ColumnEncoding::Image,
            "pil" => ColumnEncoding::Pixels,
            "jpegarray" | "jpeg_array" => ColumnEncoding::Images(0),
            "list[jpeg]" | "list[png]" => ColumnEncoding::Images(4),
            "ndarray" => ndarray(config.unwrap_or_default()).unwrap_or_else(|| {
                ColumnEncoding::Refused(format!("its encoding `ndarray:{}` is invalid", config.unwrap_or("")))
            }),
            "pkl" => ColumnEncoding::Refused(
                "it is pickled, and reading it would run code from the data; write it with another \
                 encoding"
                    .to_owned(),
            ),
            other => ColumnEncoding::Refused(format!(
                "its encoding `{other}` is not supported; write it with another encoding"
            )),
        }
    }

    /// Determines the kind of an array or pixels from the first value.
    pub(crate) fn infer_kind(&self, bytes: &Bytes, hint: &KindHint) -> Result<FieldKind, String> {
        let array = self.array(bytes)?;
        if *self == ColumnEncoding::Pixels {
            let [height, width, channels @ 1..=4] = array.shape[..] else {
                return Err("pixels of another shape than [H, W, 1 to 4]".to_owned());
            };
            let side = |n: usize| u32::try_from(n).map_err(|_| "an image too large".to_owned());
            let size = Size {
                height: side(height)?,
                width: side(width)?,
            };
            let depth = Depth::U8;
            return Ok(FieldKind::Image(Pixels::Raw {
                size,
                channels,
                depth,
            }));
        }
        let (dtype, shape) = (array.dtype, array.shape);
        Ok(match hint {
            KindHint::Ragged if shape.len() != 1 => {
                return Err(format!(
                    "arrays of shape {shape:?} are not lists; read the column as a tensor"
                ));
            }
            KindHint::Ragged => FieldKind::Ragged { dtype },
            _ => FieldKind::Tensor { dtype, shape },
        })
    }

    /// Number of images in a value of a list of images; None for other values.
    pub(crate) fn images(&self, bytes: &Bytes) -> Option<usize> {
        match self {
            ColumnEncoding::Images(before) => head_number(bytes, *before).ok(),
            _ => None,
        }
    }

    /// Parses a value as an array.
    fn array(&self, bytes: &Bytes) -> Result<NpyArray, String> {
        const CUT: &str = "the array ends within its head";
        let mut at = 0;
        let mut take = |length: usize| -> Result<&[u8], String> {
            let taken = bytes.get(at..at + length).ok_or(CUT)?;
            at += length;
            Ok(taken)
        };
        let (dtype, shape) = match self {
            ColumnEncoding::Number(dtype) => (*dtype, Vec::new()),
            ColumnEncoding::Pixels => {
                let head = take(12)?;
                let side = |n: usize| {
                    let four = head[n * 4..].first_chunk::<4>().copied();
                    four.map_or(0, |four| u32::from_le_bytes(four) as usize)
                };
                let (width, height) = (side(0), side(1));
                let channels = match take(side(2).min(16))? {
                    b"L" | b"P" => 1,
                    b"LA" => 2,
                    b"RGB" => 3,
                    b"RGBA" => 4,
                    other => {
                        let mode = String::from_utf8_lossy(other);
                        return Err(format!(
                            "an image of mode `{mode}`; L, P, LA, RGB and RGBA are supported"
                        ));
                    }
                };
                (DType::UInt8, vec![height, width, channels])
            }
            ColumnEncoding::Array {
                dtype: hint,
                shape: hint_shape,
            } => {
                let dtype = match hint {
                    Some(dtype) => *dtype,
                    None => dtype_of_number(take(1)?[0]).ok_or("an array of an unknown type")?,
                };
                let shape = match hint_shape {
                    Some(shape) => shape.clone(),
                    None => {
                        let head = take(1)?[0];
                        let axis_bytes = 1 << (head & 3);
                        let axes = take(usize::from(head >> 2) * axis_bytes)?;
                        let axis = |bytes: &[u8]| {
                            let parts = bytes.iter().rev();
                            let axis = parts.fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
                            usize::try_from(axis).map_err(|_| CUT.to_owned())
                        };
                        axes.chunks(axis_bytes)
                            .map(axis)
                            .collect::<Result<_, _>>()?
                    }
                };
                (dtype, shape)
            }
            _ => return Err("it is not an array".to_owned()),
        };
        let elements = bytes.slice(at..);
        let expected = shape
            .iter()
            .try_fold(dtype.bytes(), |product, &axis| product.checked_mul(axis));
        match expected == Some(elements.len()) {
            true => Ok(NpyArray {
                dtype,
                shape,
                elements,
            }),
            false => Err(format!(
                "{} bytes for an array of {} {shape:?}",
                elements.len(),
                dtype.name()
            )),
        }
    }
}

/// Determines the kind of a column; None if its first value decides.
///
/// # Errors
///
/// An unsupported encoding, or one that contradicts the requested kind.
pub(crate) fn kind_of(
    name: &str,
    coding: &ColumnEncoding,
    size: Option<u64>,
    hint: &KindHint,
) -> Result<Option<FieldKind>, String> {
    let number = |dtype: DType, shape: &[usize]| match hint {
        KindHint::Ragged => FieldKind::Ragged { dtype },
        _ => FieldKind::Tensor {
            dtype,
            shape: shape.to_vec(),
        },
    };
    let own = match coding {
        ColumnEncoding::Refused(reason) => return Err(format!("column `{name}`: {reason}")),
        ColumnEncoding::Bytes => Some(FieldKind::Bytes),
        ColumnEncoding::Text => Some(FieldKind::Text),
        ColumnEncoding::Image | ColumnEncoding::Images(_) if names_encoded_masks(name) => {
            Some(FieldKind::Mask(Pixels::Encoded))
        }
        ColumnEncoding::Image | ColumnEncoding::Images(_) => {
            Some(FieldKind::Image(Pixels::Encoded))
        }
        ColumnEncoding::Number(dtype) | ColumnEncoding::Decimal(dtype) => Some(number(*dtype, &[])),
        ColumnEncoding::Array {
            dtype: Some(dtype),
            shape: Some(shape),
        } => Some(number(*dtype, shape)),
        ColumnEncoding::Array { .. } | ColumnEncoding::Pixels => None,
    };
    if let (ColumnEncoding::Number(dtype), Some(size)) = (coding, size)
        && size != dtype.bytes() as u64
    {
        return Err(format!(
            "column `{name}`: {size} bytes for {}",
            dtype.name()
        ));
    }
    let kind = match (hint, coding) {
        (KindHint::Kind(kind), _) => kind,
        (KindHint::Ragged, ColumnEncoding::Number(_)) => return Err(no_list(name, &[])),
        (
            KindHint::Ragged,
            ColumnEncoding::Array {
                shape: Some(shape), ..
            },
        ) if shape.len() != 1 => return Err(no_list(name, shape)),
        _ => return Ok(own),
    };
    // Bytes may hold any kind; numbers have theirs.
    match (coding, &own) {
        (ColumnEncoding::Number(_) | ColumnEncoding::Array { .. }, Some(own)) => {
            let ragged = matches!(
                (kind, own),
                (FieldKind::Ragged { dtype: a }, FieldKind::Tensor { dtype: b, shape })
                    if a == b && shape.len() == 1
            );
            let pixels = matches!(
                kind,
                FieldKind::Image(Pixels::Raw { .. }) | FieldKind::Mask(Pixels::Raw { .. })
            ) && kind.record_bytes() == own.record_bytes();
            match kind == own || ragged || pixels {
                true => Ok(Some(kind.clone())),
                false => Err(format!(
                    "column `{name}` is {}, not {}",
                    describe_kind(own),
                    describe_kind(kind)
                )),
            }
        }
        _ => Ok(Some(kind.clone())),
    }
}

/// Describes why a column of this shape cannot be ragged.
fn no_list(name: &str, shape: &[usize]) -> String {
    let holds = match shape {
        [] => "one number".to_owned(),
        shape => format!("an array of shape {shape:?}"),
    };
    format!("column `{name}` holds {holds} per record, not a list; read it as a tensor")
}

/// Converts bytes to the value of a field of this kind.
///
/// # Errors
///
/// The problem with the bytes.
pub(crate) fn value(
    kind: &FieldKind,
    coding: &ColumnEncoding,
    bytes: &Bytes,
) -> Result<Bytes, String> {
    match coding {
        ColumnEncoding::Bytes | ColumnEncoding::Text | ColumnEncoding::Image => {
            plain(kind, bytes.clone())
        }
        ColumnEncoding::Decimal(_) => decimal(kind, bytes),
        ColumnEncoding::Number(_) | ColumnEncoding::Array { .. } | ColumnEncoding::Pixels => {
            array(kind, coding.array(bytes)?)
        }
        ColumnEncoding::Images(before) => plain(kind, single(bytes, *before)?),
        ColumnEncoding::Refused(reason) => Err(reason.clone()),
    }
}

/// Number in the head of a list of images, at this byte.
fn head_number(bytes: &Bytes, at: usize) -> Result<usize, String> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    four.map(|four| u32::from_le_bytes(*four) as usize)
        .ok_or_else(|| "the list of images ends within its head".to_owned())
}

/// Returns the single image of a list.
fn single(bytes: &Bytes, before: usize) -> Result<Bytes, String> {
    match head_number(bytes, before)? {
        1 => {
            let (start, length) = (before + 8, head_number(bytes, before + 4)?);
            match start.checked_add(length) == Some(bytes.len()) {
                true => Ok(bytes.slice(start..)),
                false => Err(format!("an image of {length} bytes in {}", bytes.len())),
            }
        }
        count => Err(format!("{count} images, but a field has one")),
    }
}

fn ndarray(config: &str) -> Option<ColumnEncoding> {
    let mut parts = config.split(':');
    let dtype = match parts.next() {
        None | Some("") => None,
        Some(name) => Some(dtype(name)?),
    };
    let shape = match parts.next() {
        None => None,
        Some(text) => {
            let axes = text.split(',').map(|axis| axis.trim().parse().ok());
            Some(axes.collect::<Option<Vec<usize>>>()?)
        }
    };
    parts
        .next()
        .is_none()
        .then_some(ColumnEncoding::Array { dtype, shape })
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "uint8" => DType::UInt8,
        "uint16" => DType::UInt16,
        "uint32" => DType::UInt32,
        "uint64" => DType::UInt64,
        "int8" => DType::Int8,
        "int16" => DType::Int16,
        "int32" => DType::Int32,
        "int64" => DType::Int64,
        "float16" => DType::Float16,
        "float32" => DType::Float32,
        "float64" => DType::Float64,
        _ => return None,
    })
}

/// Element type for a type number before an array.
fn dtype_of_number(number: u8) -> Option<DType> {
    Some(match number {
        8 => DType::UInt8,
        9 => DType::Int8,
        16 => DType::UInt16,
        17 => DType::Int16,
        18 => DType::Float16,
        32 => DType::UInt32,
        33 => DType::Int32,
        34 => DType::Float32,
        64 => DType::UInt64,
        65 => DType::Int64,
        66 => DType::Float64,
        _ => return None,
    })
}
